import pytest
import torch
from torch import Tensor, nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "simplify_sizes"
CONSTANTS = (
    "%zero : int = prim::Constant[value=0]()",
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
    "%seven : Long(requires_grad=0, device=cpu) = prim::Constant[value={7}]()",
    "%half : Double(requires_grad=0, device=cpu) = prim::Constant[value={0.5}]()",
    "%n : int = aten::size(%x, %zero)",
    "%t : Tensor = prim::NumToTensor(%n)",
)


def ir(*lines: str, returns: str = "%i") -> str:
    return graph_ir("%x : Tensor", *CONSTANTS, *lines, "%i : int = aten::Int(%q)", returns=returns)


@pytest.mark.parametrize(
    ("line", "integer"),
    [
        ("%q : Tensor = aten::add(%t, %seven, %one)", "aten::add"),
        ("%q : Tensor = aten::add(%t, %two, %one)", "aten::add"),
        ("%q : Tensor = aten::sub(%t, %seven, %one)", "aten::sub"),
        ("%q : Tensor = aten::rsub(%t, %seven, %one)", "aten::sub"),
        ("%q : Tensor = aten::mul(%t, %t)", "aten::mul"),
        ("%q : Tensor = aten::floor_divide(%t, %seven)", "aten::floordiv"),
        ("%q : Tensor = aten::remainder(%t, %seven)", "aten::remainder"),
    ],
)
def test_fires_for(line, integer):
    result = assert_rewrites(NAME, ir(line))
    assert result.count(integer) == 1
    assert result.count("prim::NumToTensor") == result.count("aten::Int") == 0


def test_fires_for_a_ceiling():
    lines = ("%a : Tensor = aten::div(%t, %seven)", "%b : Tensor = aten::ceil(%a)")
    result = assert_rewrites(NAME, ir(*lines, "%q : Tensor = aten::mul(%b, %two)"))
    assert result.count("aten::floordiv") == 1
    assert result.count("aten::ceil") == result.count("aten::Int") == 0


@pytest.mark.parametrize("of", ["%t, %t", "%t, %other", "%t, %half", "%other, %seven"])
def test_leaves_a_ceiling_of_what_is_not_known(of):
    lines = (f"%a : Tensor = aten::div({of})", "%q : Tensor = aten::ceil(%a)")
    assert_unchanged(NAME, ir(*lines).replace("%x : Tensor", "%x : Tensor, %other : Tensor", 1), reason=None)


def test_fires_for_a_lower_bound():
    lines = ("%none : NoneType = prim::Constant()", "%q : Tensor = aten::clamp(%t, %two, %none)")
    assert assert_rewrites(NAME, ir(*lines)).count("prim::max") == 1
    assert_unchanged(NAME, ir("%q : Tensor = aten::clamp(%t, %two, %two)"), reason=None)


def test_follows_a_chain_and_leaves_what_others_read():
    lines = (
        "%a : Tensor = aten::remainder(%t, %seven)",
        "%b : Tensor = aten::rsub(%a, %seven, %one)",
        "%q : Tensor = aten::remainder(%b, %seven)",
    )
    result = assert_rewrites(NAME, ir(*lines, returns="%i, %b"))
    assert result.count("aten::remainder") == 3  # one still of tensors
    assert result.count("aten::rsub") == 1


@pytest.mark.parametrize(
    "line",
    [
        "%q : Tensor = aten::add(%t, %seven, %two)",  # 7 twice
        "%q : Tensor = aten::div(%t, %seven)",
        "%q : Tensor = aten::mul(%t, %half)",
        "%q : Tensor = aten::mul(%x, %seven)",
        "%q : Tensor = aten::exp(%t)",
    ],
)
def test_declines_what_is_not_arithmetic_of_integers(line):
    assert_unchanged(NAME, ir(line), reason=None)


def test_declines_a_tensor_that_is_overwritten():
    lines = ("%q : Tensor = aten::mul(%t, %seven)", "%w : Tensor = aten::add_(%t, %one, %one)")
    assert_unchanged(NAME, ir(*lines, returns="%i, %w"), reason=None)


class Windows(nn.Module):
    """Pads an image to whole windows, and cuts it into them, as Swin does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[1:3]
        x = nn.functional.pad(x, (0, 0, 0, (3 - width % 3) % 3, 0, (3 - height % 3) % 3))
        rows, columns = x.shape[1] // 3, x.shape[2] // 3
        x = x.view(x.shape[0], rows, 3, columns, 3, 4).permute(0, 1, 3, 2, 4, 5)
        return self.linear(x.reshape(x.shape[0] * (rows * columns), 9, 4))


def test_sizes_of_windows_follow_the_input(tmp_path):
    x = torch.randn(2, 7, 8, 4)
    optimized = check_against_eager(Windows(), x, also=(torch.randn(1, 6, 3, 4), torch.randn(3, 1, 5, 4)))
    assert kinds(optimized)["prim::NumToTensor"] == 0
    assert_round_trip(optimized, tmp_path, x)
