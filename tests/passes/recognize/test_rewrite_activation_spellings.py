import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import ipex
from ir import PACKED
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_same,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    kinds,
)

NAME = "rewrite_activation_spellings"
ROOT = math.sqrt(2 / math.pi)

# What users write, and the op that it is.
SPELLINGS = {
    "x * sigmoid(x)": ("silu", lambda x: x * torch.sigmoid(x)),
    "sigmoid(x) * x": ("silu", lambda x: torch.sigmoid(x) * x),
    "sigmoid(x).mul_(x)": ("silu", lambda x: torch.sigmoid(x).mul_(x)),
    "x.mul_(sigmoid(x))": ("silu", lambda x: x.mul_(torch.sigmoid(x))),
    "erf, divided": ("erf_gelu", lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))),
    "erf, multiplied": ("erf_gelu", lambda x: 0.5 * x * (torch.erf(x * math.sqrt(0.5)) + 1)),
    "erf, gate halved": ("erf_gelu", lambda x: x * (0.5 * (1 + torch.erf(x / math.sqrt(2.0))))),
    "tanh, pow": ("gelu", lambda x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3.0))))),
    "tanh, x * x * x": ("gelu", lambda x: 0.5 * x * (1 + torch.tanh(ROOT * (x + 0.044715 * x * x * x)))),
    "tanh, x * x": ("gelu", lambda x: x * 0.5 * (1 + torch.tanh(x * 0.7978845608 * (1 + 0.044715 * (x * x))))),
    "tanh, fast": ("gelu", lambda x: 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))),
    "x * tanh(softplus(x))": ("mish", lambda x: x * torch.tanh(functional.softplus(x))),
    "x * relu6(x + 3) / 6": ("hardswish", lambda x: x * functional.relu6(x + 3) / 6),
    "x * hardtanh(x + 3) / 6": ("hardswish", lambda x: x * functional.hardtanh(x + 3, 0.0, 6.0) / 6),
    "relu6(x + 3) / 6": ("hardsigmoid", lambda x: functional.relu6(x + 3) / 6),
    "clamp(x + 3) / 6": ("hardsigmoid", lambda x: torch.clamp(x + 3, 0, 6) / 6),
    "relu6(x + 3) * (1 / 6)": ("hardsigmoid", lambda x: functional.relu6(x + 3) * (1 / 6)),
}
# Almost the same, with the reason why it stays.
OTHERS = {
    "another factor": ("a constant is not 0.5", lambda x: x * 0.6 * (1.0 + torch.erf(x / math.sqrt(2.0)))),
    "another root": ("a constant is not 1.41421", lambda x: x * 0.5 * (1.0 + torch.erf(x / 1.4142))),
    "another power": (
        "a constant is not 3",
        lambda x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 2.0)))),
    ),
    "alpha": ("a constant is not 1", lambda x: x * functional.relu6(torch.add(x, 3, alpha=2)) / 6),
    "beta": ("a constant is not 1", lambda x: x * torch.tanh(functional.softplus(x, beta=2))),
    "another divisor": ("a constant is not 6", lambda x: functional.relu6(x + 3) / 5),
    "quick gelu": ("no op computes", lambda x: x * torch.sigmoid(1.702 * x)),
    "halved last": ("overflows", lambda x: x * (1.0 + torch.erf(x / math.sqrt(2.0))) * 0.5),
    "x * hardsigmoid(x)": ("overflows", lambda x: x * functional.hardsigmoid(x)),
}


def qualified(op: str) -> str:
    return f"ipex::{op}" if op == "erf_gelu" else f"aten::{op}"


OPS = {qualified(op) for op, _ in SPELLINGS.values()}


class AfterLinear(nn.Module):
    """An activation on a value that must be floating point, with every special value among it."""

    def __init__(self, activation) -> None:
        super().__init__()
        self.linear, self.activation = nn.Linear(1, 1, bias=False), activation
        nn.init.ones_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.linear(x))


def every_kind_of_number() -> Tensor:
    special = [math.nan, math.inf, 0.0, 1e-45, 1e-39, 1e-10, 2.99999, 3.0, 6.0, 10.0, 20.1, 89.0, 1e13, 1e20, 1e38]
    return torch.tensor([sign * value for value in special for sign in (1, -1)]).unsqueeze(1)


def without_the_largest(x: Tensor) -> Tensor:
    """Finite values up to 10: what a tolerance relative to the largest one can judge."""
    return x[(x.abs() <= 10).all(1)]


def without_fusions(activation) -> torch.jit.ScriptModule:
    """The model with this activation optimised, and compared with eager on numbers of every kind.

    Without the fusions: what this pass leaves is not looked at by another one.
    """
    model, x = AfterLinear(activation).eval(), every_kind_of_number()
    with torch.no_grad():
        traced = torch.jit.trace(model, x, check_trace=False)
        fusions = ["fuse_activation", "fuse_add", "fuse_arithmetic", "fuse_number", "fuse_elementwise"]
        optimized = ipex.jit_optimize(traced, disable=fusions)
        for each in (x, without_the_largest(x), torch.randn(70, 1)):
            assert_same(optimized(each), model(each))
    return optimized


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_fires_and_matches_eager(spelling):
    op, activation = SPELLINGS[spelling]
    found = kinds(without_fusions(activation))
    assert found[qualified(op)] == 1
    assert not {"aten::mul", "aten::mul_", "aten::sigmoid", "aten::erf", "aten::tanh", "aten::div"} & found.keys()


@pytest.mark.parametrize("spelling", OTHERS)
def test_declines_what_is_only_similar(spelling):
    reason, activation = OTHERS[spelling]
    optimized = without_fusions(activation)
    # x * hardsigmoid(x) was one all along.
    assert not OPS - {"aten::hardsigmoid"} & kinds(optimized).keys()
    assert any(d.pass_name == NAME and reason in d.reason for d in ipex.explain(optimized).declined)


@pytest.mark.parametrize("spelling", ["x * sigmoid(x)", "tanh, pow", "x * relu6(x + 3) / 6"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_other_dtypes_stay_as_they_were(spelling, dtype):
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return SPELLINGS[spelling][1](x)

    check_against_eager(Plain(), torch.arange(-4, 5).to(dtype))


def test_survives_save_and_load(tmp_path):
    x = torch.randn(4, 1)
    assert_round_trip(check_against_eager(AfterLinear(SPELLINGS["tanh, fast"][1]), x), tmp_path, x)


SILU = ("%s : Tensor = aten::sigmoid(%y)", "%z : Tensor = aten::mul(%y, %s)")


def test_fires_inside_a_block():
    ir = graph_ir(
        "%x : Tensor, %c : bool",
        *PACKED,
        "%r : Tensor = prim::If(%c)",
        "  block0():",
        *[f"    {line}" for line in SILU],
        "    -> (%z)",
        "  block1():",
        "    -> (%x)",
        returns="%r",
    )
    assert assert_rewrites(NAME, ir).count("aten::silu") == 1


def test_declines_across_a_block():
    ir = graph_ir(
        "%x : Tensor, %c : bool",
        *PACKED,
        SILU[0],
        "%r : Tensor = prim::If(%c)",
        "  block0():",
        f"    {SILU[1]}",
        "    -> (%z)",
        "  block1():",
        "    -> (%x)",
        returns="%r",
    )
    assert_unchanged(NAME, ir, reason="an if or a loop")


def test_declines_an_input_that_may_be_an_integer():
    ir = graph_ir("%y : Tensor", *SILU, returns="%z")
    assert_unchanged(NAME, ir, reason="may be an integer")


def test_declines_a_second_reader():
    ir = graph_ir("%x : Tensor", *PACKED, *SILU, returns="%z, %s")
    assert_unchanged(NAME, ir, reason="another reader")


def test_declines_a_write_in_between():
    ir = graph_ir("%x : Tensor", *PACKED, SILU[0], "%w : Tensor = aten::relu_(%x)", SILU[1], returns="%z")
    assert_unchanged(NAME, ir, reason="something is overwritten")


@pytest.mark.parametrize("returns", ["%z, %y", "%y"])
def test_declines_an_overwritten_value_that_is_read_later(returns):
    ir = graph_ir("%x : Tensor", *PACKED, SILU[0], "%z : Tensor = aten::mul_(%y, %s)", returns=returns)
    assert_unchanged(NAME, ir, reason="read elsewhere")


@pytest.mark.parametrize("overwritten", ["y", "z"])
def test_declines_what_is_overwritten_afterwards(overwritten):
    """silu's gradient needs %y as it was; x * sigmoid(x)'s may not."""
    ir = graph_ir("%x : Tensor", *PACKED, *SILU, f"%w : Tensor = aten::tanh_(%{overwritten})", returns="%z")
    assert_unchanged(NAME, ir, reason="is overwritten")


def test_declines_what_is_overwritten_through_a_view():
    view = ("%v : Tensor = aten::select(%z, %zero, %zero)", "%w : Tensor = aten::tanh_(%v)")
    assert_unchanged(NAME, graph_ir("%x : Tensor", *PACKED, *SILU, *view, returns="%z"), reason="is overwritten")


def test_takes_what_was_overwritten_before():
    """As what is put together piece by piece."""
    before = ("%v : Tensor = aten::select(%y, %zero, %zero)", "%w : Tensor = aten::tanh_(%v)")
    result = assert_rewrites(NAME, graph_ir("%x : Tensor", *PACKED, *before, *SILU, returns="%z"))
    assert result.count("aten::silu") == 1


def test_declines_what_a_loop_overwrites_again():
    ir = graph_ir(
        "%x : Tensor, %n : int",
        *PACKED,
        "%true : bool = prim::Constant[value=1]()",
        "%r : Tensor = prim::Loop(%n, %true, %x)",
        "  block0(%i : int, %b : Tensor):",
        "    %v : Tensor = aten::select(%y, %zero, %zero)",
        "    %w : Tensor = aten::tanh_(%v)",
        *(f"    {line}" for line in SILU),
        "    -> (%true, %z)",
        returns="%r",
    )
    assert_unchanged(NAME, ir, reason="is overwritten")


def test_numbers_that_an_overwritten_piece_reads_are_not_overwritten():
    """The constants of a spelling may be where slices begin, too."""
    relu6 = (
        "%one : int = prim::Constant[value=1]()",
        "%three : int = prim::Constant[value=3]()",
        "%six : int = prim::Constant[value=6]()",
        "%t : Tensor = aten::add(%y, %three, %one)",
        "%r : Tensor = aten::clamp(%t, %zero, %six)",
        "%z : Tensor = aten::div(%r, %six)",
        "%e : Tensor = aten::neg(%x)",
        "%v : Tensor = aten::slice(%e, %zero, %three, %six, %one)",
        "%w : Tensor = aten::tanh_(%v)",
    )
    result = assert_rewrites(NAME, graph_ir("%x : Tensor", *PACKED, *relu6, returns="%z, %e"))
    assert result.count("aten::hardsigmoid") == 1


def test_says_nothing_of_another_structure():
    gate = ("%s : Tensor = aten::sigmoid(%x)", "%z : Tensor = aten::mul(%y, %s)")
    assert_unchanged(NAME, graph_ir("%x : Tensor", *PACKED, *gate, returns="%z"), reason=None)
