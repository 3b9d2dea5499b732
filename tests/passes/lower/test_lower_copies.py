"""lower_ops on what copies: cat, roll, embedding, and tensors of one number."""

import pytest
import torch
from torch import nn

import ipex
from support import assert_round_trip, assert_same, check_against_eager, kinds


class Growing(nn.Module):
    """As in a step of a language model, where the keys of a new word join those of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Linear(16, 16)

    def forward(self, x):
        return torch.cat([x, self.keys(x[:, -1:])], dim=1)


@pytest.mark.parametrize("script", [False, True])
def test_cat(tmp_path, script):
    x = torch.randn(2, 5, 16)
    optimized = check_against_eager(Growing(), x, script=script, also=(x[:1], torch.randn(3, 700, 16), x * torch.nan))
    assert kinds(optimized)["ipex::cat"] == 1
    assert kinds(optimized)["aten::cat"] == 0
    assert_round_trip(optimized, tmp_path, x)


def test_cat_can_be_switched_off():
    module = torch.jit.trace(Growing().eval(), torch.randn(2, 5, 16))
    assert kinds(ipex.jit_optimize(module, disable=["ipex::cat"]))["aten::cat"] == 1


class Shifted(nn.Module):
    """As the windows of a Swin transformer are, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        shifted = torch.roll(x, (-3, -3), (1, 2))
        return x + torch.roll(self.linear(shifted), (3, 3), (1, 2))


def test_roll(tmp_path):
    x = torch.randn(2, 14, 14, 16)
    turned = torch.randn(2, 16, 14, 14).permute(0, 2, 3, 1)
    optimized = check_against_eager(Shifted(), x, also=(x[:1], turned, torch.randn(1, 28, 7, 16)))
    assert kinds(optimized)["ipex::roll"] == 2
    assert kinds(optimized)["aten::roll"] == 0
    assert_round_trip(optimized, tmp_path, x)


def test_roll_can_be_switched_off():
    module = torch.jit.trace(Shifted().eval(), torch.randn(2, 14, 14, 16))
    assert kinds(ipex.jit_optimize(module, disable=["ipex::roll"]))["aten::roll"] == 2


class Words(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 12, dtype=dtype)

    def forward(self, i):
        return self.table(i)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("script", [False, True])
def test_embedding(tmp_path, script, dtype):
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


def test_embedding_can_be_switched_off():
    module = torch.jit.trace(Words().eval(), torch.tensor([1]))
    assert kinds(ipex.jit_optimize(module, disable=["ipex::look_up"]))["aten::embedding"] == 1


class Pieces(nn.Module):
    """Fills, and writes a piece of each, as Longformer does with its scores."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        y = self.linear(x).transpose(0, 1)
        whole = y.new_zeros((y.shape[0], 4, 8))
        whole[:, :2, 1:7] = y[:, :2]
        like = torch.full_like(y, -torch.inf)
        like[:, 1:] = y[:, 1:]
        return whole, like, y.new_ones(3), torch.ones_like(y), y.new_full((2, 0), 7.5), torch.zeros_like(y)


@pytest.mark.parametrize("x", [torch.randn(3, 5, 6), torch.randn(3, 5, 6).double()], ids=["float32", "float64"])
def test_fills(tmp_path, x):
    optimized = check_against_eager(Pieces().to(x.dtype), x)
    assert kinds(optimized)["ipex::new_full"] == 3
    assert kinds(optimized)["ipex::full_like"] == 3
    assert_round_trip(optimized, tmp_path, x)


def test_fills_can_be_switched_off():
    module = torch.jit.trace(Pieces().eval(), torch.randn(3, 5, 6))
    assert kinds(ipex.jit_optimize(module, disable=["ipex::full_like"]))["aten::full_like"] == 1
