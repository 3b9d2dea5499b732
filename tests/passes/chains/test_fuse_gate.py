import re

import pytest
import torch
from torch import Tensor, nn

import ipex
from ir import CONTEXT, convolution, convolution_graph
from support import assert_rewrites, assert_round_trip, assert_same, assert_unchanged, check_against_eager, kinds, ports

NAME = "fuse_gate"
GATE = (
    "%over : int[] = prim::Constant[value=[2, 3]]()",
    "%m : Tensor = aten::mean(%x, %over, %yes, %none)",
    "%g : Tensor = aten::sigmoid(%m)",
)
PRODUCT = "%p : Tensor = aten::mul(%x, %g)"


def graph(*lines: str, returns: str = "%z") -> str:
    return convolution_graph(*GATE, *lines, returns=returns)


def project(shape: tuple[int, ...] = (4, 8, 1, 1), layout: str = "%no", **options: str) -> tuple[str, ...]:
    return convolution("p", "z", shape, layout=layout, **options)


@pytest.mark.parametrize("product", [PRODUCT, "%p : Tensor = aten::mul(%g, %x)"])
@pytest.mark.parametrize("operand", ["", "%other"])
def test_fires(product, operand):
    result = assert_rewrites(NAME, graph(product, *project(operand=operand)))
    assert (result.count("ipex::convolution_run"), result.count("aten::mul")) == (1, 0)
    (gate,) = re.findall(r"(%\w+) : Tensor = aten::sigmoid", result.graph)
    assert re.search(rf"ipex::convolution_run\(%x, .*, {gate}\)", result.graph)
    assert [d.reason for d in result.report] == ["multiplies by the gate as it reads the image"]


@pytest.mark.parametrize(
    ("lines", "returns"),
    [
        ((PRODUCT, *project()), "%p, %z"),
        ((PRODUCT, *project(layout="%yes")), "%z"),
        ((PRODUCT, *project((4, 8, 3, 3))), "%z"),
        (("%p : Tensor = aten::mul(%x, %other)", *project()), "%z"),
        (("%p : Tensor = aten::mul(%m, %g)", *project()), "%z"),
        ((PRODUCT, "%n : Tensor = aten::relu_(%x)", *project()), "%z"),
        ((PRODUCT, *convolution("other", "z", (4, 8, 1, 1), layout="%no", operand="%p")), "%z"),
    ],
    ids=["second reader", "strides are seen", "windows", "no pixel", "pixels only", "overwritten", "operand"],
)
def test_declines(lines, returns):
    assert_unchanged(NAME, graph(*lines, returns=returns), reason=None)


def test_leaves_a_layer_that_is_packed_already():
    given = ("%p : Tensor = aten::mul(%x, %g)", *project()[-2:])
    text = graph(*given).replace("%other : Tensor", f"%pz : {CONTEXT}")
    assert_unchanged(NAME, text, reason=None)


class Block(nn.Module):
    """A gate by squeeze and excitation, or by a convolution over the channels, and a convolution of the gated image."""

    def __init__(self, over_channels: bool, channels: int = 32, stride: int = 1) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, channels, 3), nn.Conv2d(channels, 4, 3)
        self.squeeze, self.excite = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1)
        self.mix = nn.Conv1d(1, 1, 3, padding=1)
        self.project = nn.Conv2d(channels, channels, 1, stride)
        self.over_channels = over_channels
        self.adds = stride == 1

    def gate(self, x: Tensor) -> Tensor:
        if self.over_channels:
            return self.mix(x.mean((2, 3)).view(x.shape[0], 1, -1)).sigmoid().view(x.shape[0], -1, 1, 1)
        return self.excite(self.squeeze(x.mean((2, 3), keepdim=True)).relu()).sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        y = self.project(x * self.gate(x))
        return self.head(y + x if self.adds else y).mean((2, 3))


@pytest.mark.parametrize("over_channels", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, over_channels, stride, script):
    x = torch.randn(2, 3, 20, 21)
    also = (x.to(memory_format=torch.channels_last), torch.randn(1, 3, 7, 8), torch.randn(1, 3, 90, 9), x * torch.inf)
    optimized = check_against_eager(Block(over_channels, stride=stride), x, script=script, also=also)
    assert ports(optimized)["convolution_run gate"] == 1
    assert_round_trip(optimized, tmp_path, x)


def test_can_be_switched_off():
    module = torch.jit.trace(Block(False).eval(), torch.randn(1, 3, 20, 21))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["ipex::elementwise"] == 1


def test_in_the_executor():
    model, x = Block(False).eval(), torch.randn(1, 3, 20, 21)
    with torch.no_grad(), ipex.jit_passes():
        module = torch.jit.freeze(torch.jit.trace(model, x))
        for _ in range(3):
            assert_same(module(x), model(x))
        executed = str(torch.jit.last_executed_optimized_graph())
    (gate,) = re.findall(r"(%\w+) : Tensor = ipex::excitation_run", executed)
    assert re.search(rf"ipex::convolution_run\(.*, {gate}\)", executed)
