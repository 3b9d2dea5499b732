import pytest
import torch
from torch import nn

from support import assert_rewrites, assert_round_trip, check_against_eager, graph_ir, kinds

NAME = "rewrite_softmax"


def ir(dim: str) -> str:
    lines = ("%none : NoneType = prim::Constant()", f"%c : int = prim::Constant[value={dim}]()")
    return graph_ir("%x : Tensor, %d : int", *lines, "%y : Tensor = aten::softmax(%x, %c, %none)", returns="%y")


@pytest.mark.parametrize("dim", ["-1", "0", "3", "-2"])
def test_fires(dim):
    result = assert_rewrites(NAME, ir(dim))
    assert result.count("ipex::softmax") == 1
    assert result.count("aten::softmax") == 0


def test_fires_on_its_logarithm():
    result = assert_rewrites(NAME, ir("1").replace("aten::softmax", "aten::log_softmax"))
    assert result.count("ipex::log_softmax") == 1
    assert result.count("aten::log_softmax") == 0


def test_fires_on_a_computed_dimension():
    assert assert_rewrites(NAME, ir("-1").replace("(%x, %c", "(%x, %d")).count("ipex::softmax") == 1


@pytest.mark.parametrize("dim", [-1, 1, 0])
@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, dim, script):
    x = torch.randn(5, 6)
    model = nn.Sequential(nn.Linear(6, 10), nn.Softmax(dim), nn.Hardtanh(), nn.LogSoftmax(dim))
    optimized = check_against_eager(model, x, script=script, also=(x[:1], x[:, None] * 100, x * torch.nan))
    assert kinds(optimized)["ipex::softmax"] == kinds(optimized)["ipex::log_softmax"] == 1
    assert_round_trip(optimized, tmp_path, x)
