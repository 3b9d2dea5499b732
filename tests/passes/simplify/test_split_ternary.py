import pytest
import torch
from torch import nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "split_ternary"
INPUTS = "%x : Tensor, %a : Tensor, %b : Tensor, %w : float"
CONSTANTS = (
    "%one : int = prim::Constant[value=1]()",
    "%half : float = prim::Constant[value=0.5]()",
    "%third : float = prim::Constant[value=0.3]()",
    "%all : NoneType = prim::Constant()",
    "%f : Float(1, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
    "%s : Tensor = aten::sum(%y, %all)",  # does not show the strides of %y
)
ADDCMUL = "%y : Tensor = aten::addcmul(%x, %a, %b, %half)"


def ir(line: str, returns: str = "%s") -> str:
    return graph_ir(INPUTS, *CONSTANTS[:-1], line, CONSTANTS[-1], returns=returns)


@pytest.mark.parametrize(
    ("line", "ops"),
    [
        (ADDCMUL, ("aten::mul", "aten::add")),
        ("%y : Tensor = aten::addcdiv(%x, %a, %f, %one)", ("aten::div", "aten::add")),
    ],
)
def test_fires_for(line, ops):
    result = assert_rewrites(NAME, ir(line))
    assert all(result.count(op) == 1 for op in ops)
    assert result.count(line.split(" = ")[1].partition("(")[0]) == 0


@pytest.mark.parametrize("factors", ["%f, %b", "%a, %f"])
def test_a_float32_factor_needs_no_cast(factors):
    result = assert_rewrites(NAME, ir(ADDCMUL.replace("%a, %b", factors)))
    assert result.count("ipex::in_common_dtype") == 0
    assert assert_rewrites(NAME, ir(ADDCMUL)).count("ipex::in_common_dtype") == 2


@pytest.mark.parametrize(
    ("line", "returns", "reason"),
    [
        (ADDCMUL, "%y", "somebody sees its strides"),
        (ADDCMUL.replace("(%x, ", "(%f, "), "%y", "somebody sees its strides"),
        ("%y : Tensor = aten::addcdiv(%x, %a, %f, %half)", "%s", "it is not one that two ops compute"),
        ("%y : Tensor = aten::addcdiv(%x, %a, %b, %one)", "%s", "it is not one that two ops compute"),
    ],
)
def test_declines(line, returns, reason):
    assert_unchanged(NAME, ir(line, returns), reason=reason)


def test_leaves_lerp_which_refuses_two_dtypes():
    assert_unchanged(NAME, ir("%y : Tensor = aten::lerp(%x, %a, %third)"), reason=None)


class Mixture(nn.Module):
    """Two vectors and an image, the strides of whose sum the caller sees; and sums of images that nobody sees."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1)
        self.a, self.b = nn.Parameter(torch.randn(1, 8, 1, 1)), nn.Parameter(torch.randn(1, 8, 1, 1))

    def forward(self, x):
        y = self.conv(x)
        mixed = torch.lerp(torch.addcdiv(y, self.a, y * y + 1), y.sigmoid(), 0.25)
        far = torch.lerp(mixed, y.tanh(), 0.75)
        return torch.addcmul(self.b, self.a, y, value=0.5), self.last(far).mean((2, 3))


def test_matches_eager(tmp_path):
    x = torch.randn(2, 3, 12, 13)
    for script in (False, True):
        also = (x[:1], x.to(memory_format=torch.channels_last), x * torch.inf)
        optimized = check_against_eager(Mixture(), x, script=script, also=also)
        assert not {"aten::addcmul", "aten::addcdiv"} & set(kinds(optimized))
        assert_round_trip(optimized, tmp_path, x)


class OfTwoDtypes(nn.Module):
    """The strides of the sum are not seen."""

    def __init__(self) -> None:
        super().__init__()
        self.divisor = nn.Parameter(torch.tensor([2.0]))

    def forward(self, x, a, b):
        return torch.addcmul(x, a, b).sum(), torch.addcdiv(x, a.float(), self.divisor).sum()


@pytest.mark.parametrize(
    ("x", "a", "b"),
    [
        (torch.zeros(3), torch.tensor([2**30, 5, 7], dtype=torch.int32), torch.tensor([4, 3, 2], dtype=torch.int32)),
        (torch.zeros(3), torch.tensor([300.0, 5, 7]).half(), torch.tensor([400.0, 3, 2]).half()),
        (torch.ones(3).half(), torch.tensor(30.0), torch.tensor(2.0)),
        (torch.tensor(1.0), torch.tensor([1, 2, 3]), torch.tensor(2)),
        (torch.ones(3).double(), torch.tensor([1, 2, 3]), torch.tensor(2.5)),
    ],
    ids=["integers", "halves", "numbers", "a sum without dimensions", "float64"],
)
def test_factors_are_multiplied_in_the_dtype_of_all_three(x, a, b):
    optimized = check_against_eager(OfTwoDtypes(), x, a, b)
    assert not {"aten::addcmul", "aten::addcdiv"} & set(kinds(optimized))


class OfIntegers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.tensor([True, False, True]))

    def forward(self, x):
        return torch.addcdiv(x, self.a, self.a.int() + 1).sum()


def test_two_integers_are_refused_as_in_eager():
    model, x = OfIntegers().eval(), torch.randn(3)
    optimized = ipex.jit_optimize(torch.jit.script(model))
    for refuses in (model, optimized):
        with pytest.raises(RuntimeError, match="Integer division with addcdiv"):
            refuses(x)
