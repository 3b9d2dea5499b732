import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ipex
from support import assert_rewrites, assert_round_trip, check_against_eager, graph_ir, kinds

NAME = "rewrite_grid_sampler"
INPUTS = "%x : Tensor, %g : Tensor, %mode : int, %padding : int, %align : bool"


def test_fires():
    line = "%y : Tensor = aten::grid_sampler(%x, %g, %mode, %padding, %align)"
    result = assert_rewrites(NAME, graph_ir(INPUTS, line, returns="%y"))
    assert result.count("ipex::grid_sampler") == 1
    assert result.count("aten::grid_sampler") == 0


class Deformable(nn.Module):
    """As in deformable attention: what a linear gives of the queries says where values are read."""

    def __init__(self) -> None:
        super().__init__()
        self.values, self.places = nn.Conv2d(3, 8, 1), nn.Linear(5, 8)

    def forward(self, x, queries):
        grid = self.places(queries).view(queries.size(0), -1, 4, 2)
        return F.grid_sample(self.values(x), grid, align_corners=False).flatten(2)


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script):
    inputs = (torch.randn(2, 3, 6, 7), torch.randn(2, 9, 5))
    optimized = check_against_eager(Deformable(), *inputs, script=script)
    assert kinds(optimized)["ipex::grid_sampler"] == 1
    assert kinds(optimized)["aten::grid_sampler"] == 0
    assert_round_trip(optimized, tmp_path, *inputs)


def test_can_be_switched_off():
    module = torch.jit.trace(Deformable().eval(), (torch.randn(2, 3, 6, 7), torch.randn(2, 9, 5)))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::grid_sampler"] == 1
