import pytest
import torch
from torch import nn

import ipex
from support import assert_rewrites, assert_round_trip, check_against_eager, graph_ir, kinds

NAME = "rewrite_cat"


def test_fires():
    result = assert_rewrites(NAME, graph_ir("%x : Tensor[], %d : int", "%y : Tensor = aten::cat(%x, %d)", returns="%y"))
    assert result.count("ipex::cat") == 1
    assert result.count("aten::cat") == 0


class Growing(nn.Module):
    """As in a step of a language model, where the keys of a new word join those of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Linear(16, 16)

    def forward(self, x):
        return torch.cat([x, self.keys(x[:, -1:])], dim=1)


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script):
    x = torch.randn(2, 5, 16)
    optimized = check_against_eager(Growing(), x, script=script, also=(x[:1], torch.randn(3, 700, 16), x * torch.nan))
    assert kinds(optimized)["ipex::cat"] == 1
    assert kinds(optimized)["aten::cat"] == 0
    assert_round_trip(optimized, tmp_path, x)


def test_can_be_switched_off():
    module = torch.jit.trace(Growing().eval(), torch.randn(2, 5, 16))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::cat"] == 1
