import pytest
import torch
from torch import Tensor, nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "flatten_before_linear"


def ir(first: int = 0, last: int = 1, other: str = "%y", returns: str = "%z") -> str:
    return graph_ir(
        "%x : Tensor, %w : Tensor, %gamma : Tensor",
        "%none : NoneType = prim::Constant()",
        "%no : bool = prim::Constant[value=0]()",
        f"%first : int = prim::Constant[value={first}]()",
        f"%last : int = prim::Constant[value={last}]()",
        "%small : float = prim::Constant[value=1e-05]()",
        "%y : Tensor = aten::linear(%x, %w, %none)",
        "%f : Tensor = aten::flatten(%y, %first, %last)",
        "%n : Tensor = aten::batch_norm(%f, %gamma, %gamma, %gamma, %gamma, %no, %small, %small, %no)",
        f"%z : Tensor = aten::reshape_as(%n, {other})",
        returns=returns,
    )


def test_fires():
    result = assert_rewrites(NAME, ir())
    assert result.count("aten::unflatten") == result.count("aten::flatten") == result.count("aten::linear") == 1
    assert result.graph.index("aten::flatten") < result.graph.index("aten::linear")
    assert result.count("aten::reshape_as") == 0


@pytest.mark.parametrize(("first", "last"), [(1, 2), (0, 2), (1, 1)])
def test_declines_other_dimensions(first, last):
    assert_unchanged(NAME, ir(first, last), reason="it does not flatten the first two dimensions")


def test_declines_other_sizes():
    assert_unchanged(NAME, ir(other="%x"), reason=None)


def test_declines_another_reader():
    assert_unchanged(NAME, ir(returns="%z, %y"), reason="another reader")


class Layers(nn.Module):
    """As in LeViT."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 10, bias=False), nn.Linear(10, 6)
        self.first, self.second = nn.BatchNorm1d(10), nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x)
        y = nn.functional.hardswish(self.first(y.flatten(0, 1)).reshape_as(y))
        z = self.down(y)
        return x + self.second(z.flatten(0, 1)).reshape_as(z)


@pytest.mark.parametrize("script", [False, True])  # a script asks for the dimensions in between
def test_matches_eager(tmp_path, script):
    model = Layers()
    for norm in (model.first, model.second):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 5, 6)
    also = (torch.randn(5, 2, 6).transpose(0, 1), torch.randn(3, 1, 6))
    optimized = check_against_eager(model, x, script=script, also=also)
    left = kinds(optimized)
    assert script or left["aten::batch_norm"] == left["ipex::batch_norm"] == left["aten::hardswish"] == 0
    assert_round_trip(optimized, tmp_path, x)
    with torch.no_grad():
        for refuses in (model, optimized):
            with pytest.raises((RuntimeError, ValueError, torch.jit.Error)):
                refuses(torch.randn(1, 6))


def test_images_of_rows():
    """There the channels are not the features, which the packed op has to undo."""
    model = Layers()
    model.first, model.second = nn.BatchNorm1d(10), nn.BatchNorm1d(10)
    model.second = nn.BatchNorm1d(10)
    model.first.running_mean.normal_()
    check_against_eager(model, torch.randn(2, 5, 10, 6), also=(torch.randn(2, 3, 10, 6),))
