import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ipex
from ir import CONSTANTS, PACKED
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    kinds,
    packed_post_ops,
    skip_if_aten_has_no_limit,
)


@pytest.mark.parametrize("spelling", ["aten::relu", "aten::relu_"])
def test_fires_after_conv2d(spelling):
    ir = graph_ir("%x : Tensor", *PACKED, f"%z : Tensor = {spelling}(%y)", returns="%z")
    result = assert_rewrites("fuse_activation", ir)
    assert result.count(spelling) == 0
    assert 'value=["relu"]' in result.graph
    assert result.count("ipex::convolution_run") == 1


def test_declines_second_reader():
    ir = graph_ir("%x : Tensor", *PACKED, "%z : Tensor = aten::relu(%y)", returns="%y, %z")
    assert_unchanged("fuse_activation", ir, reason="another reader")


class WritesInput(nn.Module):
    """The anchor's input is overwritten before the activation."""

    def __init__(self) -> None:
        super().__init__()
        self.anchor = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.anchor(x)
        x.mul_(2)
        return torch.relu(y), x


def test_the_anchor_stays_where_it_is():
    optimized = check_against_eager(WritesInput(), torch.randn(2, 4))
    assert packed_post_ops(optimized) == [["relu"]]


def test_says_nothing_where_there_is_no_packed_op():
    ir = graph_ir("%x : Tensor", *CONSTANTS, "%z : Tensor = aten::relu(%x)", returns="%z")
    assert_unchanged("fuse_activation", ir, reason=None)


def test_does_not_cross_a_block():
    ir = graph_ir(
        "%x : Tensor, %c : bool",
        *PACKED,
        "%r : Tensor = prim::If(%c)",
        "  block0():",
        "    %z : Tensor = aten::relu(%y)",
        "    -> (%z)",
        "  block1():",
        "    -> (%x)",
        returns="%r",
    )
    assert_unchanged("fuse_activation", ir, reason=None)


def test_fires_inside_a_block():
    inner = [f"    {line}" for line in (*PACKED[len(CONSTANTS) :], "%z : Tensor = aten::relu(%y)", "-> (%z)")]
    ir = graph_ir(
        "%x : Tensor, %c : bool",
        *CONSTANTS,
        "%r : Tensor = prim::If(%c)",
        "  block0():",
        *inner,
        "  block1():",
        "    -> (%x)",
        returns="%r",
    )
    assert assert_rewrites("fuse_activation", ir).count("aten::relu") == 0


ACTIVATIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu(0.02)": lambda y: F.leaky_relu(y, 0.02),
    "elu(0.7,1,1)": lambda y: F.elu(y, 0.7),
    "selu": F.selu,
    "celu(1.5)": lambda y: F.celu(y, 1.5),
    "prelu": lambda y: torch.prelu(y, torch.full([20], 0.1, dtype=y.dtype)),
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "erf_gelu": lambda y: y * 0.5 * (1 + torch.erf(y / math.sqrt(2))),
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh(-0.5,0.25)": lambda y: F.hardtanh(y, -0.5, 0.25),
    "clamp(2,1)": lambda y: y.clamp(2, 1),
    "clamp(-1,0.5)": lambda y: y.clamp(-1, 0.5),
    "clamp_min(0.1)": lambda y: y.clamp(min=0.1),
    "clamp_max(0.1)": lambda y: y.clamp(max=0.1),
    "tanh": torch.tanh,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "abs": torch.abs,
    "round": torch.round,
    "neg": torch.neg,
    "softplus(2,20)": lambda y: F.softplus(y, 2),
    "softplus(1,3)": lambda y: F.softplus(y, 1, 3),
    "pow(2)": lambda y: y**2,
    "pow(0.5)": lambda y: y**0.5,
}
ANCHORS = {
    "linear": (lambda: nn.Linear(8, 20), (5, 8)),
    "conv1d": (lambda: nn.Conv1d(3, 20, 3), (2, 3, 9)),
    "conv2d": (lambda: nn.Conv2d(3, 20, 3), (2, 3, 8, 8)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(3, 20, 2, stride=2), (2, 3, 4, 4)),
}


class Activated(nn.Module):
    """An anchor and a function of its result."""

    def __init__(self, anchor: nn.Module, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.anchor = anchor
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.anchor(x))


@pytest.mark.parametrize("name", ANCHORS)
@pytest.mark.parametrize("post_op", ACTIVATIONS)
def test_matches_eager(tmp_path, name, post_op):
    build, shape = ANCHORS[name]
    x = torch.randn(shape)
    anchor = build()
    if post_op in ("log", "sqrt", "pow(0.5)"):  # away from 0, where they make rounding errors large
        nn.init.constant_(anchor.bias, 3)
    optimized = check_against_eager(Activated(anchor, ACTIVATIONS[post_op]), x)
    assert packed_post_ops(optimized) == [[post_op]]
    assert not [kind for kind in kinds(optimized) if kind.startswith("aten::")]
    assert_round_trip(optimized, tmp_path, x)


# Where the result is a limit, a jump, or all that is left of a long sum.
SPECIAL = torch.tensor(
    [math.nan, math.inf, -math.inf, 0, -0.0, 1e38, -1e38, 88.5, 88.9, 89.5, -87.5, -104, 20, -20, 6, 3, -3, 0.5, 1.5]
)
SMALL = torch.tensor([1e-6, -1e-6, 1e-30, -1e-30, 1e-40])


@pytest.mark.parametrize("post_op", ACTIVATIONS)
def test_special_values(post_op):
    """The anchor hands its input through, so that each special value meets the activation by itself."""
    skip_if_aten_has_no_limit(post_op)
    values = torch.cat([SPECIAL, SMALL, torch.linspace(-30, 30, 2001)]).unsqueeze(1)
    identity = nn.Linear(1, 20)
    nn.init.ones_(identity.weight)
    nn.init.zeros_(identity.bias)
    function = ACTIVATIONS[post_op]
    model = Activated(identity, function).eval()
    with torch.no_grad():
        ours = ipex.jit_optimize(torch.jit.trace(model, values))(values)[:, 0]
        eager = model(values)[:, 0]
        exact = function(values.double().expand(-1, 20))[:, 0]
    assert torch.equal(ours.isnan(), eager.isnan())
    if post_op == "hardswish":  # 1e38 * 6 is too much for aten on the way to 1e38
        eager[eager == math.inf], ours[values[:, 0] >= 1e38] = math.inf, math.inf
    finite = eager.isfinite()
    assert torch.equal(ours[~finite].nan_to_num(), eager[~finite].nan_to_num())
    # As close as eager, or within 2 ulp of the activation's own terms: the value, and 1. (1 + erf(..) leaves the last
    # digits of the 1, which are then multiplied by the value.)
    # With AVX2, gelu has oneDNN's erf, as erf_gelu has it everywhere.
    is_of_erf = post_op == "erf_gelu" or (post_op == "gelu" and not ipex.isa.has_avx512())
    terms = values[:, 0].double().abs().clamp(max=math.inf if is_of_erf else 1)
    allowed = 2 * (eager - exact).abs() + 2**-22 * (exact.abs() + terms)
    worst = ((ours - exact).abs() - allowed)[finite].argmax()
    assert ((ours - exact).abs() <= allowed)[finite].all(), (values[finite][worst], ours[finite][worst])


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.SiLU, nn.Hardswish, nn.ELU, nn.Hardtanh])
def test_in_place(activation, inplace):
    optimized = check_against_eager(
        nn.Sequential(nn.Conv2d(3, 20, 3), activation(inplace=inplace)), torch.randn(2, 3, 8, 8)
    )
    assert not [kind for kind in kinds(optimized) if kind.startswith("aten::")]


def test_declines_a_number_that_is_computed():
    ir = graph_ir("%x : Tensor, %slope : float", *PACKED, "%z : Tensor = aten::leaky_relu(%y, %slope)", returns="%z")
    assert_unchanged("fuse_activation", ir, reason="its numbers are not constants")


def test_declines_other_powers():
    three = "%three : int = prim::Constant[value=3]()"
    ir = graph_ir("%x : Tensor", *PACKED, three, "%z : Tensor = aten::pow(%y, %three)", returns="%z")
    assert_unchanged("fuse_activation", ir, reason="only squares and square roots")


class BeforeAndAfter(nn.Module):
    """The value before relu is returned too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        return y, torch.relu(y)


def test_a_second_reader_keeps_its_value():
    check_against_eager(BeforeAndAfter(), torch.randn(1, 3, 8, 8))
