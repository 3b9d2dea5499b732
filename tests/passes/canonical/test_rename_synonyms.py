import pytest
import torch
from torch import nn

import ipex
from support import assert_rewrites, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "rename_synonyms"


@pytest.mark.parametrize("name", ["concat", "concatenate"])
def test_fires(name):
    line = f"%y : Tensor = aten::{name}(%x, %d)"
    result = assert_rewrites(NAME, graph_ir("%x : Tensor[], %d : int", line, returns="%y"))
    assert result.count("aten::cat") == 1
    assert result.count(f"aten::{name}") == 0


@pytest.mark.parametrize("name", ["swapaxes", "swapdims"])
def test_fires_for_transposes(name):
    line = f"%y : Tensor = aten::{name}(%x, %d, %e)"
    result = assert_rewrites(NAME, graph_ir("%x : Tensor, %d : int, %e : int", line, returns="%y"))
    assert result.count("aten::transpose") == 1
    assert result.count(f"aten::{name}") == 0


def test_fires_where_its_input_is_overwritten_after_it():
    lines = ("%y : Tensor = aten::swapaxes(%x, %d, %e)", "%w : Tensor = aten::zero_(%x)")
    result = assert_rewrites(NAME, graph_ir("%x : Tensor, %d : int, %e : int", *lines, returns="%y"))
    assert result.count("aten::transpose") == 1


def test_leaves_what_changes_a_tensor_in_place():
    line = "%y : Tensor = aten::swapaxes_(%x, %d, %e)"
    ir = graph_ir("%x : Tensor, %d : int, %e : int", line, returns="%y")
    assert_unchanged(NAME, ir, reason="what it overwrites may be read elsewhere")


class Pyramid(nn.Module):
    """Two branches of an image that are joined and go on as one, as in a detector's neck."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), nn.Conv2d(8, 4, 3)

    def forward(self, x):
        return self.third(torch.concat([self.first(x), self.second(x)], dim=1))


def test_convolutions_around_it_stay_channels_last():
    optimized = check_against_eager(Pyramid(), torch.randn(2, 3, 12, 13))
    assert kinds(optimized)["ipex::to_channels_last"] == 1
    assert kinds(optimized)["ipex::restore_layout"] == 1


class Grid(nn.Module):
    """Pixels of a grid, which lie apart, side by side."""

    def forward(self, x):
        return torch.swapaxes(x * 2, -2, -3), torch.swapdims(x, 0, 2)


def test_matches_eager():
    optimized = check_against_eager(Grid(), torch.randn(2, 3, 4, 5), also=(torch.randn(1, 1, 3),))
    assert kinds(optimized)["aten::transpose"] == 2


ONES = ("[1]", "[1, 1]", "[1, 1, 1]")
CONVOLUTION = "%y : Tensor = aten::_convolution(%x, %w, %none, %n, %n, %n, %is_transposed, %n, %i, %b, %b, %b, %b)"


def convolution(ones: str, is_transposed: int) -> str:
    constants = (
        "%none : NoneType = prim::Constant()",
        f"%n : int[] = prim::Constant[value={ones}]()",
        f"%is_transposed : bool = prim::Constant[value={is_transposed}]()",
    )
    return graph_ir("%x : Tensor, %w : Tensor, %i : int, %b : bool", *constants, CONVOLUTION, returns="%y")


@pytest.mark.parametrize(("is_transposed", "name"), [(0, "conv"), (1, "conv_transpose")])
@pytest.mark.parametrize("ones", ONES)
def test_a_traced_convolution_has_the_name_of_its_rank(ones, is_transposed, name):
    result = assert_rewrites(NAME, convolution(ones, is_transposed))
    assert result.count("aten::_convolution") == 0
    assert result.count(f"aten::{name}{ONES.index(ones) + 1}d") == 1


def test_one_number_may_stand_for_all_dimensions():
    """As in torch.conv2d(x, weight, None, [2])."""
    constants = ("%s : int[] = prim::Constant[value=[2]]()", "%m : int[] = prim::Constant[value=[1, 1]]()")
    line = "%y : Tensor = aten::_convolution(%x, %w, %none, %s, %m, %m, %false, %m, %i, %b, %b, %b, %b)"
    false = "%false : bool = prim::Constant[value=0]()"
    lines = (*constants, false, "%none : NoneType = prim::Constant()", line)
    ir = graph_ir("%x : Tensor, %w : Tensor, %i : int, %b : bool", *lines, returns="%y")
    assert assert_rewrites(NAME, ir).count("aten::conv2d") == 1


@pytest.mark.parametrize("numbers", ["[1, 1, 1, 1]", "annotate(List[int], [])"])
def test_leaves_a_convolution_of_any_rank(numbers):
    assert_unchanged(NAME, convolution(numbers, 0), reason=None)


def test_leaves_a_convolution_of_which_a_call_says_whether_it_is_transposed():
    text = convolution("[1, 1]", 0)
    line = next(line for line in text.splitlines() if "%is_transposed :" in line)
    text = text.replace(line + "\n", "").replace("%b : bool", "%b : bool, %is_transposed : bool", 1)
    assert_unchanged(NAME, text, reason=None)


class Computed(nn.Module):
    """A convolution with a computed weight, and an activation that overwrites its result."""

    def __init__(self, rank: int, is_transposed: bool) -> None:
        super().__init__()
        self.weight = nn.Linear(4, 6 * 3**rank)
        self.op = getattr(torch, f"conv{'_transpose' * is_transposed}{rank}d")
        self.sizes = ((2, 3) if is_transposed else (3, 2)) + (3,) * rank

    def forward(self, x, y):
        return nn.functional.silu(self.op(x, self.weight(y).view(self.sizes), padding=1), inplace=True)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_autocast_casts_it(rank, is_transposed):
    """No CPU autocast knows aten::_convolution, of which each input had another dtype."""
    model, arguments = Computed(rank, is_transposed).eval(), (torch.randn(2, 2, *[7] * rank), torch.randn(4))
    optimized = check_against_eager(model, *arguments)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected, actual = model(*arguments), optimized(*arguments)
    assert actual.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    "disable", [(), ("prepack_convolution",), ("lower_ops",), ("rename_synonyms", "prepack_convolution")], ids=str
)
def test_autocast_casts_what_no_pass_takes(disable):
    model, x = nn.Sequential(nn.Linear(6, 6), nn.Conv2d(3, 4, 3)).eval(), torch.randn(2, 3, 6, 6)
    optimized = ipex.jit_optimize(model, x, disable=disable)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert optimized(x).dtype == torch.bfloat16
