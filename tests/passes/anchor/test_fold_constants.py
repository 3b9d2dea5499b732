from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ir import PACKED, WEIGHT
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_same,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    packed_post_ops,
)

LOW_WEIGHT = WEIGHT.replace("Float", "BFloat16")
VECTOR = "%v : Float(8, 1, 1, strides=[1, 1, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
FLAT = "%v : Float(8, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
DOUBLE = "%v : Double(8, 1, 1, strides=[1, 1, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
HALF = "%half : float = prim::Constant[value=0.5]()"
TWO = "%two : int = prim::Constant[value=2]()"


def after_conv(call: str, *constants: str, returns: str = "%z") -> str:
    return graph_ir("%x : Tensor, %t : Tensor", *PACKED, *constants, f"%z : Tensor = {call}", returns=returns)


@pytest.mark.parametrize(
    "call",
    [
        "aten::add(%y, %v, %one)",
        "aten::add_(%y, %v, %one)",
        "aten::add(%v, %y, %one)",
        "aten::sub(%y, %v, %one)",
        "aten::sub(%v, %y, %one)",
        "aten::mul(%y, %v)",
        "aten::mul(%v, %y)",
        "aten::div(%y, %v)",
        "aten::mul(%y, %half)",
        "aten::div_(%y, %half)",
        "aten::add(%y, %half, %one)",
    ],
)
def test_fires(call):
    graph = assert_rewrites("fold_constants", after_conv(call, VECTOR, HALF)).graph
    assert call.split("(")[0] + "(" not in graph


NORMALIZED = (FLAT, *(line.replace("%post_ops, %none, %none", "%post_ops, %v, %v") for line in PACKED))


@pytest.mark.parametrize(
    ("ir", "reason"),
    [
        (after_conv("aten::mul(%y, %v)", VECTOR, returns="%y, %z"), "another reader"),
        (
            graph_ir("%x : Tensor", *NORMALIZED, HALF, "%z : Tensor = aten::mul(%y, %half)", returns="%z"),
            "folded already",
        ),
        (after_conv("aten::mul(%y, %v)", FLAT), "not a number or a float32 vector of the channels"),
        (after_conv("aten::mul(%y, %v)", DOUBLE), "not a number or a float32 vector of the channels"),
        (after_conv("aten::add(%y, %v, %two)", VECTOR, TWO), "alpha is not 1"),
        (after_conv("aten::div(%v, %y)", VECTOR), "divides by the packed op's result"),
        (after_conv("aten::div(%y, %zero)"), "not finite"),
        (after_conv("aten::mul(%y, %t)"), None),
        (after_conv("aten::mul(%y, %half)", HALF).replace(WEIGHT, LOW_WEIGHT), "would be rounded once more"),
    ],
)
def test_declines(ir, reason):
    assert_unchanged("fold_constants", ir, reason=reason)


class Arithmetic(nn.Module):
    """An anchor, and arithmetic on its result."""

    def __init__(self, anchor: nn.Module, shape: list[int], function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.anchor = anchor
        self.constant = nn.Parameter(torch.rand(shape) + 0.5)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.anchor(x), self.constant)


ANCHORS = {
    "linear": (lambda: nn.Linear(8, 12, bias=False), [12], (5, 8)),
    "conv1d": (lambda: nn.Conv1d(4, 12, 3), [12, 1], (2, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 12, 3, groups=2), [12, 1, 1], (2, 4, 8, 8)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 12, 2, stride=2, groups=2), [12, 1, 1], (2, 4, 5, 5)),
}
FUNCTIONS = {
    "scale and shift": lambda y, c: y * c + c,
    "normalise": lambda y, c: (y - c) / c,
    "reversed": lambda y, c: c - y,
    "numbers": lambda y, c: 2 * y - 1,
    "in place": lambda y, c: y.mul_(c).add_(0.25),
}


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_matches_eager(tmp_path, anchor, function):
    build, shape, input_shape = ANCHORS[anchor]
    x = torch.randn(input_shape)
    optimized = check_against_eager(Arithmetic(build(), shape, FUNCTIONS[function]), x, also=(x[0],))
    assert packed_post_ops(optimized) == [[]]
    assert_round_trip(optimized, tmp_path, x)


@pytest.mark.parametrize("shape", [[1, 12, 1, 1], [12], [8, 1], [2, 12, 6, 6], [12, 6, 6], []])
def test_other_shapes_match_eager(shape):
    """What can't be folded for every input is a post-op that looks at the shapes."""
    model = Arithmetic(nn.Conv2d(4, 12, 3, padding=1), shape, lambda y, c: y * c)
    x = torch.randn(2, 4, 8, 12) if shape == [12] or shape == [8, 1] else torch.randn(2, 4, 6, 6)
    check_against_eager(model, x, also=(x[0],))


@pytest.mark.parametrize("function", [lambda zero, y: torch.add(zero, y, alpha=2), lambda zero, y: zero - y])
@pytest.mark.parametrize("zero", [torch.tensor(0), torch.tensor(0.0)])
def test_a_zero_that_comes_first_leaves_what_is_multiplied(zero, function):
    model = Arithmetic(nn.Conv2d(4, 12, 3), [], lambda y, c: function(zero, y))
    check_against_eager(model, torch.randn(2, 4, 8, 8))


@pytest.mark.parametrize("function", [lambda y, c: y * c, lambda y, c: y.mul_(c)])
def test_autocast_widens_but_what_is_in_place(function):
    model, x = Arithmetic(nn.Conv2d(4, 12, 3), [12, 1, 1], function), torch.randn(2, 4, 8, 8)
    optimized = check_against_eager(model, x)
    assert packed_post_ops(optimized) == [[]]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert_same(optimized(x), model(x), 0.02)


def test_a_batch_norm_that_follows_is_folded_too():
    norm = nn.BatchNorm2d(12).eval()
    model = Arithmetic(nn.Conv2d(4, 12, 3), [12, 1, 1], lambda y, c: norm(y * c))
    model.norm = norm
    optimized = check_against_eager(model, torch.randn(2, 4, 8, 8))
    assert packed_post_ops(optimized) == [[]]
