"""Elementwise ops whose result is summed and read by nobody else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, told

NAME = "fuse_elementwise_sum"
CONSTANTS = (
    "%none : NoneType = prim::Constant()",
    "%false : bool = prim::Constant[value=0]()",
    "%float : int = prim::Constant[value=6]()",
    "%dims : int[] = prim::Constant[value=[1]]()",
    "%all : int[] = prim::Constant[value=annotate(List[int], [])]()",
    '%steps : str[] = prim::Constant[value=["mul 0 1"]]()',
)
TERMS = ("%inputs : Tensor[] = prim::ListConstruct(%x, %w)", "%m : Tensor = ipex::elementwise(%inputs, %steps)")
SUM = "%y : Tensor = aten::sum(%m, %dims, %false, %none)"


def ir(*lines: str, returns: str = "%y", constants: tuple[str, ...] = CONSTANTS) -> str:
    return graph_ir("%x : Tensor, %w : Tensor, %n : int[]", *constants, *lines, returns=returns)


@pytest.mark.parametrize("kind", ["sum", "mean"])
def test_fires(kind):
    result = assert_rewrites(NAME, ir(*TERMS, SUM.replace("sum", kind)))
    assert [op["is_mean"] for op in told(result, "ipex::elementwise")] == [kind == "mean"]
    assert result.count(f"aten::{kind}") == 0


def test_what_was_overwritten_before_the_sum_is_read_as_it_was():
    result = assert_rewrites(NAME, ir(*TERMS, "%o : Tensor = aten::relu_(%x)", SUM, returns="%y, %o"))
    assert result.graph.index("ipex::elementwise") < result.graph.index("aten::relu_")


@pytest.mark.parametrize(
    ("lines", "returns", "reason"),
    [
        ((*TERMS, SUM), "%y, %m", "others read what it sums"),
        ((*TERMS, SUM.replace("%none", "%float")), "%y", "it gives a dtype of its own"),
        ((*TERMS, SUM.replace("%dims", "%n")), "%y", "it does not say which dimensions"),
        ((*TERMS, SUM.replace("%false, %none", "%flag, %none")), "%y", "whether it keeps its dimensions is not known"),
        (("%m : Tensor = aten::mm(%x, %w)", SUM), "%y", None),
    ],
)
def test_declines(lines, returns, reason):
    flag = ("%flag : bool = aten::is_floating_point(%x)",)
    assert_unchanged(NAME, ir(*flag, *lines, returns=returns), reason=reason)


def test_sums_8_bit_numbers():
    scale = ("%scale : float = prim::Constant[value=0.5]()", "%zero : int = prim::Constant[value=3]()")
    bytes_ = "%f : Tensor = ipex::dequantize(%x, %scale, %zero)"
    lines = (*scale, bytes_, TERMS[0].replace("%x", "%f"), TERMS[1], SUM)
    summed = assert_rewrites(NAME, ir(*lines))
    assert told(assert_rewrites("read_bytes", summed.graph), "ipex::elementwise")[0]["affines"] == [0.5, 3, 0, 0]


class Pairs(nn.Module):
    """As a delta rule: products of all pairs of rows, with a decay."""

    def forward(self, q: Tensor, k: Tensor, decay: Tensor) -> Tensor:
        q, k = q * 0.3, k * 0.7  # floats, whatever they were
        return (q.unsqueeze(-2) * k.unsqueeze(-3) * decay.exp()).sum(-1).tril(-1)


class Branches(nn.Module):
    """As split attention: a weight for each channel of each branch."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(8, 32, 3, padding=1)

    def forward(self, x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        branches = torch.relu(self.convolution(x)).reshape(x.size(0), 2, 16, x.size(2), x.size(3))
        return (branches * torch.softmax(weights, 1)).sum(1) + bias


class Squares(nn.Module):
    """As an RMS norm over the channels of an image, which are read again."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(8, 24, 3, padding=1)

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x = self.convolution(x)
        return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6) * weight + bias


MODELS = {
    "pairs": (Pairs(), [(2, 6, 20), (2, 6, 20), (2, 6, 6, 20)], "sum"),
    "branches": (Branches(), [(2, 8, 9, 7), (2, 2, 16, 1, 1), (16, 1, 1)], "sum"),
    "squares": (Squares(), [(2, 8, 9, 7), (24, 1, 1), (24, 1, 1)], "mean"),
}


@pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(case, script, tmp_path):
    model, shapes, kind = case
    x = tuple(torch.randn(shape) for shape in shapes)
    images = tuple(i.to(memory_format=torch.channels_last) if i.dim() == 4 else i for i in x)
    other_batch = tuple(i.repeat(3, *(1,) * (i.dim() - 1)) if i.size(0) == 2 else i for i in x)
    also = (images, other_batch, tuple(i * torch.nan for i in x), tuple(i[:0] if i.size(0) == 2 else i for i in x))
    optimized = check_against_eager(model, *x, script=script, also=also)
    assert [op["is_mean"] for op in told(optimized, "ipex::elementwise") if "is_mean" in op] == [kind == "mean"]
    assert_round_trip(optimized, tmp_path, *x)


def test_gradients():
    model, shapes, _ = MODELS["pairs"]
    given = [torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape) for shape in shapes]
    optimized = ipex.jit_optimize(torch.jit.trace(model, tuple(given)))
    found = []
    for forward in (model, optimized):
        inputs = [i.clone().requires_grad_() for i in given]
        forward(*inputs).sum().backward()
        found.append([i.grad for i in inputs])
    torch.testing.assert_close(*found)
