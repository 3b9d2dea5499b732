from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ipex
from ir import PACKED
from support import (
    assert_rewrites,
    assert_same,
    assert_unchanged,
    check_against_eager,
    fallback_reasons,
    graph_ir,
    packed_post_ops,
)

SPELLINGS = {
    "aten::sub(%y, %o, %one)": "sub",
    "aten::sub_(%y, %o, %one)": "sub_",
    "aten::sub(%o, %y, %one)": "rsub",
    "aten::mul(%y, %o)": "mul",
    "aten::mul_(%y, %o)": "mul_",
    "aten::mul(%o, %y)": "rmul",
    "aten::div(%y, %o)": "div",
    "aten::div_(%y, %o)": "div_",
    "aten::div(%y, %o, %none)": "div",
    "aten::maximum(%y, %o)": "maximum",
    "aten::maximum(%o, %y)": "rmaximum",
    "aten::max(%y, %o)": "maximum",
    "aten::minimum(%y, %o)": "minimum",
    "aten::min(%o, %y)": "rminimum",
}


@pytest.mark.parametrize("call", SPELLINGS)
def test_fires(call):
    ir = graph_ir("%x : Tensor, %o : Tensor", *PACKED, f"%z : Tensor = {call}", returns="%z")
    assert f'value=["{SPELLINGS[call]}"]' in assert_rewrites("fuse_arithmetic", ir).graph


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("aten::sub(%y, %o, %two)", "alpha is not 1"),
        ("aten::div(%y, %o, %floor)", "it rounds"),
        ("aten::div(%o, %y)", None),
        ("aten::mul_(%o, %y)", None),
        ("aten::mul(%y, %one)", None),
        ("aten::sub(%y, %number, %one)", None),  # as a trace has it
        ("aten::sub_(%y, %number, %one)", None),
    ],
)
def test_declines(call, reason):
    constants = (
        '%floor : str = prim::Constant[value="floor"]()',
        "%two : int = prim::Constant[value=2]()",
        "%number : Long(requires_grad=0, device=cpu) = prim::Constant[value={7}]()",
    )
    ir = graph_ir("%x : Tensor, %o : Tensor", *PACKED, *constants, f"%z : Tensor = {call}", returns="%z")
    assert_unchanged("fuse_arithmetic", ir, reason=reason)


class WithOperand(nn.Module):
    """A function of an anchor's result and of a second input."""

    def __init__(self, anchor: nn.Module, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.anchor = anchor
        self.function = function

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        return self.function(self.anchor(x), other)


FUNCTIONS = {
    "add": lambda y, o: y + o,
    "radd": lambda y, o: o + y,
    "sub": lambda y, o: y - o,
    "rsub": lambda y, o: o - y,
    "mul": lambda y, o: y * o,
    "rmul": lambda y, o: o * y,
    "div": lambda y, o: y / o,
    "maximum": torch.maximum,
    "rminimum": lambda y, o: torch.min(o, y),
    "add_scaled(2)": lambda y, o: torch.add(y, o, alpha=2),
    "add_": lambda y, o: y.add_(o),
    "mul_": lambda y, o: y.mul_(o),
}
ANCHORS = {
    "linear": (lambda: nn.Linear(8, 12), (3, 5, 8), (3, 5, 12), (12,)),
    "conv2d": (lambda: nn.Conv2d(4, 12, 3, padding=1), (2, 4, 6, 7), (2, 12, 6, 7), (12, 1, 1)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 12, 3, padding=1), (2, 4, 6, 7), (2, 12, 6, 7), (1, 12, 1, 1)),
}


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_kind_of_operand(name, anchor):
    """The same optimised model, fused for one shape, then called with others."""
    build, input_shape, full, channel = ANCHORS[anchor]
    model = WithOperand(build(), FUNCTIONS[name]).eval()
    x = torch.randn(input_shape)
    operands = [torch.randn(full) + 3, torch.randn(channel) + 3, torch.full([1], 2.0), torch.tensor(2.0)]
    operands += [torch.randn(full[-1]) + 3, torch.randn(full[:-1]).unsqueeze(-1) + 3]  # spread in ways of aten's own
    operands += [
        torch.randn(full, dtype=torch.float64) + 3,
        torch.randint(1, 5, full),
        torch.randn(full).bfloat16() + 3,
    ]
    if not name.endswith("_"):
        operands += [torch.randn(2, *full) + 3]  # the result is larger than what the anchor computes
    operands += [operands[0].transpose(-1, -2).contiguous().transpose(-1, -2)]
    operands[0].view(-1)[3] = float("nan")
    operands[1].view(-1)[1] = float("inf")
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, (x, operands[0])))
        assert packed_post_ops(optimized) == [[name]]
        for operand in operands:
            before = operand.clone()
            for _ in range(2):
                assert_same(optimized(x, operand), model(x, operand))
            assert torch.equal(operand.nan_to_num(), before.nan_to_num())


@pytest.mark.parametrize("name", ["add", "sub", "rsub", "mul", "div"])
def test_one_per_channel_runs_in_onednn(name):
    model = WithOperand(nn.Conv2d(4, 12, 3), FUNCTIONS[name]).eval()
    optimized = check_against_eager(model, torch.randn(2, 4, 6, 6), torch.rand(12, 1, 1) + 1)
    assert fallback_reasons(optimized) == []
