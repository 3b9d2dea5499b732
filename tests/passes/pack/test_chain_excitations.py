import pytest
import torch
from torch import Tensor, nn

import ipex
from ir import convolution, convolution_graph
from support import assert_rewrites, assert_round_trip, assert_same, assert_unchanged, check_against_eager, kinds

NAME = "chain_excitations"
MEAN = "%m : Tensor = ipex::mean(%x, %over, %yes)"
POOL = "%m : Tensor = ipex::adaptive_avg_pool2d(%x, %one)"


def graph(*lines: str, over: str = "[2, 3]", returns: str = "%z") -> str:
    dims = f"%over : int[] = prim::Constant[value={over}]()"
    return convolution_graph(dims, *lines, returns=returns)


def layer(input_name: str, output_name: str, layout: str = "%no", **options: str) -> tuple[str, ...]:
    return convolution(input_name, output_name, (8, 8, 1, 1), layout=layout, **options)


def count(text: str) -> tuple[int, int]:
    return text.count("ipex::excitation_run"), text.count("ipex::convolution_run")


@pytest.mark.parametrize("average", [MEAN, POOL])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_fires(average, layers):
    names = [*["m", "a", "b"][:layers], "z"]
    lines = [line for i in range(layers) for line in layer(names[i], names[i + 1])]
    result = assert_rewrites(NAME, graph(average, *lines))
    assert count(result) == (1, 0)
    assert [d.reason for d in result.report] == [f"an average and {layers} convolutions of its pixel in one call"]


def test_fires_on_dimensions_from_the_end():
    assert count(assert_rewrites(NAME, graph(MEAN, *layer("m", "z"), over="[-2, -1]"))) == (1, 0)


@pytest.mark.parametrize(
    ("lines", "returns"),
    [
        (layer("a", "z", operand="%other"), "%z"),
        (layer("a", "z", layout="%yes"), "%z"),
        (layer("a", "z"), "%a, %z"),
        ([line.replace("%groupsz, %no,", "%groupsz, %yes,") for line in layer("a", "z")], "%z"),
    ],
    ids=["operand", "strides are seen", "second reader", "transposed"],
)
def test_leaves_a_layer_out(lines, returns):
    result = assert_rewrites(NAME, graph(MEAN, *layer("m", "a"), *lines, returns=returns))
    assert count(result) == (1, 1)


@pytest.mark.parametrize(
    ("lines", "over"),
    [
        ((MEAN, *layer("m", "z")), "[2]"),
        (("%m : Tensor = ipex::mean(%x, %over, %no)", *layer("m", "z")), "[2, 3]"),
        (("%m : Tensor = ipex::adaptive_avg_pool2d(%x, %over)", *layer("m", "z")), "[2, 3]"),
        ((MEAN, *layer("m", "z", operand="%m")), "[2, 3]"),
        ((MEAN, "%n : Tensor = aten::relu_(%x)", *layer("m", "z")), "[2, 3]"),
        ((MEAN, "%z : Tensor = aten::relu(%m)"), "[2, 3]"),
    ],
    ids=["one dimension", "dimensions are dropped", "more pixels", "second reader", "overwritten", "no convolution"],
)
def test_declines(lines, over):
    assert_unchanged(NAME, graph(*lines, over=over), reason=None)


class SqueezeExcite(nn.Module):
    """Before a mean, so that nobody sees the strides."""

    def __init__(self, average: str) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
        self.squeeze, self.excite = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.average = average

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        pixel = x.mean((2, 3), keepdim=True) if self.average == "mean" else nn.functional.adaptive_avg_pool2d(x, 1)
        return self.head(x * self.excite(self.squeeze(pixel).relu()).sigmoid()).mean((-2, -1))


@pytest.mark.parametrize("average", ["mean", "pool"])
@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, average, script):
    x = torch.randn(2, 3, 20, 21)
    also = (x.to(memory_format=torch.channels_last), torch.randn(1, 3, 8, 9), torch.randn(20, 3, 8, 8), x * torch.inf)
    also += () if average == "mean" else (x[0],)  # eager has no such dimensions
    optimized = check_against_eager(SqueezeExcite(average), x, script=script, also=also)
    assert kinds(optimized)["ipex::excitation_run"] == 1
    assert_round_trip(optimized, tmp_path, x)


def test_can_be_switched_off():
    module = torch.jit.trace(SqueezeExcite("mean").eval(), torch.randn(1, 3, 20, 21))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["ipex::convolution_run"] == 4


def test_in_the_executor():
    model, x = SqueezeExcite("mean").eval(), torch.randn(1, 3, 20, 21)
    with torch.no_grad(), ipex.jit_passes():
        module = torch.jit.freeze(torch.jit.trace(model, x))
        for _ in range(3):
            assert_same(module(x), model(x))
        executed = [node.kind() for node in torch.jit.last_executed_optimized_graph().nodes()]
    assert executed.count("ipex::excitation_run") == 1
