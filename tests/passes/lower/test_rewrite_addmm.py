import pytest
import torch
from torch import nn

import ipex
from support import assert_rewrites, assert_round_trip, check_against_eager, graph_ir, kinds

NAME = "rewrite_addmm"


def test_fires():
    before = graph_ir(
        "%t : Tensor, %x : Tensor, %w : Tensor, %b : Scalar, %a : Scalar",
        "%y : Tensor = aten::addmm(%t, %x, %w, %b, %a)",
        returns="%y",
    )
    result = assert_rewrites(NAME, before)
    assert result.count("ipex::addmm") == 1
    assert result.count("aten::addmm") == 0


class Stirred(nn.Module):
    """A matrix is added, which no bias of a linear is."""

    def __init__(self) -> None:
        super().__init__()
        self.stir = nn.Conv1d(4, 6, 3, padding=1)
        self.term = nn.Parameter(torch.randn(6, 5))
        self.weight = nn.Parameter(torch.randn(8, 5))

    def forward(self, x):
        return torch.addmm(self.term, self.stir(x), self.weight)


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script):
    x = torch.randn(4, 8)
    optimized = check_against_eager(Stirred(), x, script=script, also=(x * torch.nan,))
    assert kinds(optimized)["ipex::addmm"] == 1
    assert_round_trip(optimized, tmp_path, x)


def test_has_the_dtype_of_autocast():
    """TorchScript's executor splits aten's op, and sums a bfloat16 product and a float32 term in float32."""
    model, x = Stirred().eval(), torch.randn(4, 8)
    optimized = ipex.jit_optimize(torch.jit.script(model))
    for _ in range(3):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            assert optimized(x).dtype == model(x).dtype == torch.bfloat16


def test_can_be_switched_off():
    module = torch.jit.trace(Stirred().eval(), torch.randn(4, 8))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::addmm"] == 1
