import pytest
import torch
from torch import nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_same, check_against_eager, graph_ir, kinds

NAME = "rewrite_embedding"


def test_fires():
    lines = (
        "%n : int = prim::Constant[value=-1]()",
        "%no : bool = prim::Constant[value=0]()",
        "%y : Tensor = aten::embedding(%w, %i, %n, %no, %no)",
    )
    result = assert_rewrites(NAME, graph_ir("%w : Tensor, %i : Tensor", *lines, returns="%y"))
    assert result.count("ipex::look_up") == 1
    assert result.count("aten::embedding") == 0


class Words(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 12, dtype=dtype)

    def forward(self, i):
        return self.table(i)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script, dtype):
    i = torch.randint(50, (2, 7))
    also = (i[0], i[0, 0], i[:0], i.int(), i[:, ::2], i.T, torch.randint(50, (4000,)))
    optimized = check_against_eager(Words(dtype), i, script=script, also=also)
    assert kinds(optimized)["ipex::look_up"] == 1
    assert kinds(optimized)["aten::embedding"] == 0
    assert_round_trip(optimized, tmp_path, i)


@pytest.mark.parametrize("i", [torch.tensor([1, 50]), torch.tensor([-1]), torch.tensor([1.5])])
def test_raises_the_errors_of_torchscript(i):
    model = Words().eval()
    traced = torch.jit.trace(model, torch.tensor([1]))
    optimized = ipex.jit_optimize(traced)
    with pytest.raises(RuntimeError) as expected:
        traced(i)
    with pytest.raises(RuntimeError) as actual:
        optimized(i)
    assert str(actual.value).splitlines()[-1] == str(expected.value).splitlines()[-1]


def test_tables_that_have_gaps_or_want_a_gradient():
    rows, i = torch.randn(6, 20), torch.tensor([[5, 0], [2, 2]])
    for table in (rows[:, ::2], rows[::2, 4:9], rows.T, rows[:, :0], rows.clone().requires_grad_()):
        for index in (i.clamp(max=2), i):
            if index.max() < table.size(0):
                ours = torch.ops.ipex.look_up(table, index, -1, False, False)
                assert_same(ours, torch.embedding(table, index))
                assert ours.requires_grad == table.requires_grad


def test_can_be_switched_off():
    module = torch.jit.trace(Words().eval(), torch.tensor([1]))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::embedding"] == 1
