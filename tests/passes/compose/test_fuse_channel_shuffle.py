import pytest
import torch
from torch import Tensor, nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "fuse_channel_shuffle"

LINES = (
    "%contiguous : int = prim::Constant[value=0]()",
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
    "%three : int = prim::Constant[value=3]()",
    "%split : int[] = prim::ListConstruct(%n, %two, %n, %n, %n)",
    "%joined : int[] = prim::ListConstruct(%n, %n, %n, %n)",
    "%v : Tensor = aten::view(%x, %split)",
    "%t : Tensor = aten::transpose(%v, %one, %two)",
    "%c : Tensor = aten::contiguous(%t, %contiguous)",
    "%y : Tensor = aten::view(%c, %joined)",
)


def ir(*changes: tuple[str, str], returns: str = "%y") -> str:
    text = graph_ir("%x : Tensor, %n : int", *LINES, returns=returns)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("split", ["view", "reshape"])
@pytest.mark.parametrize("join", ["view", "reshape"])
def test_fires(split, join):
    result = assert_rewrites(NAME, ir(("view(%x", f"{split}(%x"), ("view(%c", f"{join}(%c")))
    assert result.count("ipex::channel_shuffle") == 1
    for gone in ("view", "reshape", "transpose", "contiguous"):
        assert result.count(f"aten::{gone}") == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("%v, %one, %two", "%v, %two, %three"), "other dimensions"),
        (("%v, %one, %two", "%v, %one, %n"), "other dimensions"),
        (("%t, %contiguous", "%t, %two"), "another memory format"),
        (("Construct(%n, %two, %n, %n, %n)", "Construct(%n, %two, %n, %n)"), "does not split"),
        (("Construct(%n, %two, %n, %n, %n)", "Construct(%n, %two, %one, %n, %n)"), "does not split"),
        (("Construct(%n, %two, %n, %n, %n)", "Construct(%n, %one, %n, %n, %n)"), "does not split"),
    ],
)
def test_declines(change, reason):
    assert_unchanged(NAME, ir(change), reason=reason)


@pytest.mark.parametrize(("sizes", "fires"), [("[2, 4, 3, 5, 5]", 1), ("[2, 4, 1, 5, 5]", 0), ("[2, 1, 4, 5, 5]", 0)])
def test_sizes_that_are_one_constant(sizes, fires):
    text = ir(("prim::ListConstruct(%n, %two, %n, %n, %n)", f"prim::Constant[value={sizes}]()"))
    if fires:
        assert assert_rewrites(NAME, text).count("ipex::channel_shuffle") == fires
    else:
        assert_unchanged(NAME, text, reason="does not split")


def test_declines_a_second_reader():
    assert_unchanged(NAME, ir(returns="%y, %t"), reason="another reader")


class Shuffles(nn.Module):
    """Convolutions around shuffles, on which the layout of the input has no influence."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.first, self.second, self.last = nn.Conv2d(4, 12, 3), nn.Conv2d(12, 12, 1), nn.Conv2d(6, 6, 1)

    def shuffle(self, x: Tensor) -> Tensor:
        n, c, h, w = x.size()
        table = x.view(n, self.groups, c // self.groups, h, w)
        return torch.transpose(table, 1, 2).contiguous().view(n, c, h, w)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        a = self.shuffle(torch.relu(self.first(x)))
        b = self.shuffle(self.second(a))
        left, right = b.chunk(2, 1)
        c = torch.cat((left, self.last(right)), 1)
        return a, c, self.shuffle(c), left


@pytest.mark.parametrize("groups", [1, 2, 3, 12])
@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, groups, script):
    x = torch.randn(2, 4, 6, 5)
    also = (x.to(memory_format=torch.channels_last), x[:1, :, :3, :3], x.transpose(2, 3))
    optimized = check_against_eager(Shuffles(groups), x, script=script, also=also)
    if 1 < groups < 12:
        assert kinds(optimized)["ipex::channel_shuffle"] == 3
        assert kinds(optimized)["aten::view"] == 0
    assert_round_trip(optimized, tmp_path, x)


def test_other_dtypes_and_gradients():
    model = Shuffles(2)
    x = torch.randn(2, 4, 6, 5)
    optimized = check_against_eager(model, x)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        for ours, eager in zip(optimized(x), model(x)):
            assert ours.dtype == eager.dtype
            assert ours.stride() == eager.stride()
            torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-2)
    y = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(model(y)[2].square().sum(), y)
    (actual,) = torch.autograd.grad(optimized(y)[2].square().sum(), y)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
