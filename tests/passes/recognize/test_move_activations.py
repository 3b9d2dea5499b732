import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import (
    Rewritten,
    assert_rewrites,
    assert_round_trip,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    kinds,
    packed_post_ops,
)

NAME = "move_activations"


def ir(view: str, activation: str, *more: str, returns: str = "%z") -> str:
    return graph_ir(
        "%x : Tensor, %w : Tensor, %number : float",
        "%none : NoneType = prim::Constant()",
        "%zero : int = prim::Constant[value=0]()",
        "%one : int = prim::Constant[value=1]()",
        "%y : Tensor = aten::linear(%x, %w, %none)",
        "%n : int = aten::size(%y, %one)",
        "%sizes : int[] = prim::ListConstruct(%one, %n)",
        *more,
        f"%v : Tensor = aten::{view}",
        '%tanh : str = prim::Constant[value="tanh"]()',
        "%half : float = prim::Constant[value=0.5]()",
        f"%z : Tensor = aten::{activation}",
        returns=returns,
    )


def kinds_in_order(result: Rewritten) -> list[str]:
    return re.findall(r"aten::(\w+)\(", result.graph)


@pytest.mark.parametrize("view", ["view(%y, %sizes)", "reshape(%y, %sizes)", "unsqueeze(%y, %zero)"])
@pytest.mark.parametrize("activation", ["gelu(%v, %tanh)", "relu(%v)", "leaky_relu(%v, %half)"])
def test_fires(view, activation):
    result = assert_rewrites(NAME, ir(view, activation))
    order = [kind for kind in kinds_in_order(result) if kind != "size"]
    assert order == ["linear", activation.split("(")[0], view.split("(")[0]]


def test_fires_for_one_after_the_other():
    second = graph_ir(
        "%x : Tensor, %w : Tensor",
        "%none : NoneType = prim::Constant()",
        "%zero : int = prim::Constant[value=0]()",
        "%y : Tensor = aten::linear(%x, %w, %none)",
        "%v : Tensor = aten::unsqueeze(%y, %zero)",
        "%a : Tensor = aten::relu(%v)",
        "%z : Tensor = aten::tanh(%a)",
        returns="%z",
    )
    result = assert_rewrites(NAME, second)
    assert kinds_in_order(result) == ["linear", "relu", "tanh", "unsqueeze"]


TOKENS = (
    "%ones : int[] = prim::Constant[value=[1, 1]]()",
    "%image : Tensor = aten::conv2d(%x, %w, %none, %ones, %ones, %ones, %one)",
    "%f : Tensor = aten::flatten(%image, %two, %two)",
    "%t : Tensor = aten::transpose(%f, %one, %two)",
    "%a : Tensor = aten::gelu(%t, %tanh)",
    "%l : Tensor = aten::linear(%a, %w, %none)",
)


def tokens(returns: str) -> str:
    constants = (
        "%none : NoneType = prim::Constant()",
        "%one : int = prim::Constant[value=1]()",
        "%two : int = prim::Constant[value=2]()",
        '%tanh : str = prim::Constant[value="tanh"]()',
    )
    return graph_ir("%x : Tensor, %w : Tensor", *constants, *TOKENS, returns=returns)


def test_fires_for_a_convolution_whose_image_becomes_tokens():
    result = assert_rewrites(NAME, tokens("%l"))
    assert kinds_in_order(result) == ["conv2d", "gelu", "flatten", "transpose", "linear"]


def test_declines_at_a_transpose_whose_strides_somebody_sees():
    assert_unchanged(NAME, tokens("%a"), reason="the strides of a result depend on it")


@pytest.mark.parametrize(
    ("view", "activation", "more", "returns", "reason"),
    [
        ("view(%y, %sizes)", "relu(%v)", [], "%z, %v", "its input has another reader"),
        (
            "view(%y, %sizes)",
            "relu(%v)",
            ["%other : Tensor = aten::neg(%y)"],
            "%z, %other",
            "has another reader",
        ),
        ("view(%y, %sizes)", "relu(%v)", [], "%z, %y", "has another reader"),
        ("view(%y, %sizes)", "leaky_relu(%v, %number)", [], "%z", "no constant number"),
        ("view(%x, %sizes)", "relu(%v)", [], "%z", None),
        ("view(%y, %sizes)", "relu_(%v)", [], "%z", None),
    ],
)
def test_declines(view, activation, more, returns, reason):
    assert_unchanged(NAME, ir(view, activation, *more, returns=returns), reason=reason)


class Affine(nn.Module):
    """As GPT-2 has them: the weight is [in, out], and what comes in is flattened."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width_in, width)), nn.Parameter(torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return y.view(x.size(0), x.size(1), y.size(-1))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = Affine(8, 32), Affine(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(F.gelu(self.wide(x), approximate="tanh"))


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script):
    x = torch.randn(2, 5, 8)
    optimized = check_against_eager(Layer(), x, script=script, also=(torch.randn(3, 7, 8), x * torch.nan))
    assert ["gelu_tanh"] in packed_post_ops(optimized)
    assert kinds(optimized)["aten::gelu"] == 0
    assert_round_trip(optimized, tmp_path, x)


class Tokens(nn.Module):
    """As in PVT and SegFormer: a depthwise convolution of tokens as an image, and an activation of the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.linear = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        image = x.transpose(1, 2).view(x.size(0), 16, 4, 6)
        return self.linear(F.gelu(self.convolution(image).flatten(2).transpose(1, 2)))


def test_the_activation_of_tokens_is_the_convolutions():
    optimized = check_against_eager(Tokens(), torch.randn(1, 24, 16), also=(torch.randn(3, 24, 16),))
    assert ["gelu"] in packed_post_ops(optimized)
    assert kinds(optimized)["aten::gelu"] == 0


class Bounded(nn.Module):
    """The bounds have dimensions of the view."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 32)
        self.register_buffer("least", torch.randn(4, 1))
        self.register_buffer("most", torch.randn(4, 8) + 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(self.linear(x).view(2, 4, 8), self.least, self.most)


def test_bounds_that_are_tensors_stay_with_the_view():
    optimized = check_against_eager(Bounded(), torch.randn(2, 8))
    assert not any(row.applied for row in ipex.explain(optimized) if row.pass_name == NAME)


def test_can_be_switched_off():
    module = torch.jit.trace(Layer().eval(), torch.randn(2, 5, 8))
    assert kinds(ipex.jit_optimize(module, disable=[NAME, "fuse_elementwise"]))["aten::gelu"] == 1
