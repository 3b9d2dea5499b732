import pytest
import torch
from torch import Tensor, nn

from ir import PACKED
from support import assert_rewrites, assert_unchanged, check_against_eager, graph_ir, packed_post_ops

HALF = "%half : float = prim::Constant[value=0.5]()"
SCALAR = "%scalar : Double(requires_grad=0, device=cpu) = prim::Constant[value={1}]()"


@pytest.mark.parametrize(
    ("call", "post_op"),
    [
        ("aten::add(%y, %half, %one)", "add_number(0.5)"),
        ("aten::add_(%y, %half, %one)", "add_number(0.5)"),
        ("aten::add(%scalar, %y, %one)", "add_number(1.0)"),
        ("aten::sub(%y, %half, %one)", "add_number(-0.5)"),
        ("aten::sub(%scalar, %y, %one)", "rsub_number(1.0)"),
        ("aten::rsub(%y, %half, %one)", "rsub_number(0.5)"),
        ("aten::mul(%y, %half)", "mul_number(0.5)"),
        ("aten::mul(%scalar, %y)", "mul_number(1.0)"),
        ("aten::div(%y, %half)", "div_number(0.5)"),
    ],
)
def test_fires(call, post_op):
    ir = graph_ir("%x : Tensor", *PACKED, HALF, SCALAR, f"%z : Tensor = {call}", returns="%z")
    assert f'value=["{post_op}"]' in assert_rewrites("fuse_number", ir).graph


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("aten::add(%y, %half, %two)", "alpha is not 1"),
        ("aten::add(%scalar, %y, %two)", "alpha is not 1"),
        ("aten::rsub(%y, %half, %two)", "alpha is not 1"),
        ("aten::mul(%y, %n)", None),
        ("aten::div(%scalar, %y)", None),
        ("aten::add(%t, %y, %one)", None),
        ("aten::sub(%t, %y, %one)", None),
        ("aten::mul(%t, %y)", None),
        ("aten::mul(%y, %t)", None),
    ],
)
def test_declines(call, reason):
    two = "%two : int = prim::Constant[value=2]()"
    ir = graph_ir(
        "%x : Tensor, %t : Tensor, %n : float", *PACKED, HALF, SCALAR, two, f"%z : Tensor = {call}", returns="%z"
    )
    assert_unchanged("fuse_number", ir, reason=reason)


class AfterRelu(nn.Module):
    """Arithmetic that can't be folded into the weight: relu comes first."""

    def __init__(self, anchor: nn.Module) -> None:
        super().__init__()
        self.anchor = anchor
        self.register_buffer("offset", torch.tensor(0.5))  # one of doubles stays a tensor, which may decide a dtype

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.anchor(x))
        return (2 - (y * 3 + 1) / 7 - self.offset).clamp(max=1.5)


@pytest.mark.parametrize(("anchor", "shape"), [(nn.Linear(8, 12), (5, 8)), (nn.Conv2d(3, 12, 3), (2, 3, 8, 8))])
def test_matches_eager(anchor, shape):
    optimized = check_against_eager(AfterRelu(anchor), torch.randn(shape))
    numbers = ["mul_number(3)", "add_number(1)", "div_number(7)", "rsub_number(2)", "add_number(-0.5)"]
    assert packed_post_ops(optimized) == [["relu", *numbers, "clamp_max(1.5)"]]
