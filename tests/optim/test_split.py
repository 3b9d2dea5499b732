"""16-bit weights and their float32 values: every bit of what float32 weights would hold."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from ipex.optim.masters import lower, master_of, weight_of
from ipex.optim.prepare import prepare
from optimizer_cases import (
    CASES,
    PLAIN,
    assert_same_weights,
    hard_floats,
    layers,
    prepared,
    same_bits,
    set_gradients,
    step_alike,
)

LOW = [(torch.bfloat16, True), (torch.bfloat16, False), (torch.float16, False)]
LOW_IDS = ["bf16_split", "bf16_master", "fp16_master"]


def test_a_split_float_comes_back():
    x = hard_floats()
    top, bottom = torch.ops.ipex.split_weight(x)
    joined = torch.ops.ipex.join_weight(top, bottom)
    number = ~x.isnan()
    assert same_bits(joined[number], x[number])
    assert joined[~number].isnan().all()
    assert top.isnan().equal(x.isnan())


def test_the_upper_half_is_the_nearest_bfloat16():
    x = hard_floats()
    x = x[x.isfinite()]
    top, _ = torch.ops.ipex.split_weight(x)
    tie = (x.view(torch.int32) & 0xFFFF) == 0x8000
    assert torch.equal(top[~tie], x[~tie].bfloat16())
    away = (x.view(torch.int32)[tie] + 0x8000).view(torch.float32)
    assert torch.equal(top[tie].float(), away)


@pytest.mark.parametrize(("dtype", "split"), LOW, ids=LOW_IDS)
@pytest.mark.parametrize("name", CASES)
def test_weights_are_those_of_float32(name, dtype, split):
    first = nn.Sequential(*layers(37, 50, 3), nn.Linear(3, 12001))
    second = copy.deepcopy(first)
    one, two = prepared(CASES[name], first), prepared(CASES[name], second, dtype, split=split)
    assert second[0].weight.dtype == dtype
    assert second[1].weight.dtype == torch.float32
    step_alike([first, second], [one, two], steps=30)
    assert_same_weights(first, second)
    expected = first[0].weight.to(dtype)
    ties = (first[0].weight.view(torch.int32) & 0xFFFF) == 0x8000 if split else torch.zeros_like(expected, dtype=bool)
    assert torch.equal(second[0].weight[~ties], expected[~ties])


@pytest.mark.parametrize(("dtype", "split"), LOW, ids=LOW_IDS)
@pytest.mark.parametrize("name", PLAIN)
def test_a_step_of_torch_on_the_masters_is_near_a_fused_one(name, dtype, split):
    first = layers(37, 50)
    second = copy.deepcopy(first)
    one = prepared(CASES[name], first, dtype, split=split)
    two = prepared(CASES[name], second, dtype, split=split, fuse=False)
    assert one.fused
    assert not two.fused
    for _ in range(20):
        set_gradients([first, second])
        one.step()
        two.step()
    for a, b in zip(first.state_dict().values(), second.state_dict().values()):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_halves_are_read_and_written_as_torch_does():
    # SGD with a rate of 1 subtracts the gradient from zero: every float16 there is.
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.float16)
    weight = nn.Parameter(torch.zeros(1, 2**16))
    layer = nn.Linear(2**16, 1, bias=False)
    layer.weight = weight
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    assert prepare(layer, optimizer, torch.float16, False, True) == []
    weight.grad = every[None].clone()
    optimizer.step()
    expected = -every.float()
    number = ~expected.isnan()
    assert same_bits(weight_of(weight)[0, number] + 0.0, expected[number] + 0.0)
    assert torch.equal(weight.isnan()[0], ~number)

    # And floats of all kinds, rounded on the way out.
    x = hard_floats()
    for dtype in (torch.float16, torch.bfloat16):
        layer = nn.Linear(len(x), 1, bias=False)
        layer.weight = nn.Parameter(x[None].clone())
        optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        assert prepare(layer, optimizer, dtype, False, True) == []
        layer.weight.grad = torch.zeros_like(layer.weight)
        optimizer.step()
        assert torch.equal(layer.weight[0].isnan(), x.isnan())
        assert torch.equal(layer.weight[0].nan_to_num(nan=0.0), x.to(dtype).nan_to_num(nan=0.0))


def test_nan_in_a_split_weight_shows():
    model = nn.Linear(40, 2)
    optimizer = prepared(CASES["sgd"], model, torch.bfloat16)
    set_gradients([model])
    model.weight.grad[0, 0] = torch.nan
    optimizer.step()
    assert model.weight.isnan().sum() == 1
    assert model.weight[0, 0].isnan()


def test_bytes_held():
    model = nn.Linear(64, 64, bias=False)
    optimizer = prepared(CASES["adamw"], model, torch.bfloat16)
    master = master_of(model.weight)
    assert (model.weight.element_size(), master.element_size()) == (2, 2)
    set_gradients([model])
    optimizer.step()
    moments = [t for t in optimizer.state[model.weight].values() if t.dim() > 0]
    assert sum(t.element_size() for t in moments) == 8


@pytest.mark.parametrize(("dtype", "split"), LOW, ids=LOW_IDS)
@pytest.mark.parametrize("name", PLAIN)
def test_training_goes_on_bit_for_bit_from_files(name, dtype, split):
    first = layers(17, 20)
    one = prepared(CASES[name], first, dtype, split=split)
    for _ in range(5):
        set_gradients([first])
        one.step()
    file = io.BytesIO()
    torch.save([first.state_dict(), one.state_dict()], file)
    file.seek(0)
    weights, states = torch.load(file)
    assert {t.dtype for t in weights.values()} == {torch.float32}

    second = layers(17, 20)
    two = prepared(CASES[name], second, dtype, split=split)
    second.load_state_dict(weights)
    two.load_state_dict(states)
    for _ in range(5):
        set_gradients([first, second])
        one.step()
        two.step()
    assert_same_weights(first, second)


def test_a_checkpoint_goes_to_stock_and_back():
    low, plain = layers(17, 20), layers(17, 20)
    ours, stock = prepared(CASES["adamw"], low, torch.bfloat16), CASES["adamw"](plain.parameters())
    for _ in range(3):
        set_gradients([low])
        ours.step()
    plain.load_state_dict(low.state_dict())
    stock.load_state_dict(copy.deepcopy(ours.state_dict()))
    assert_same_weights(low, plain)
    for _ in range(3):
        set_gradients([plain])
        stock.step()
    low.load_state_dict(plain.state_dict())
    ours.load_state_dict(copy.deepcopy(stock.state_dict()))
    assert_same_weights(low, plain)
    for own, other in zip(ours.state.values(), stock.state.values()):
        assert all(same_bits(own[key], other[key]) for key in ("step", "exp_avg", "exp_avg_sq"))


def test_loading_from_a_model_in_bfloat16():
    low, other = layers(17, 20), layers(17, 20).bfloat16()
    prepared(CASES["adam"], low, torch.bfloat16)
    low.load_state_dict(other.state_dict())
    for a, b in zip(low.state_dict().values(), other.state_dict().values()):
        assert torch.equal(a, b.float())


def test_a_state_dict_of_the_wrong_shape_is_torchs_error():
    low = layers(17, 20)
    prepared(CASES["adam"], low, torch.bfloat16)
    before = low.state_dict()
    with pytest.raises(RuntimeError, match="size mismatch"):
        low.load_state_dict(layers(17, 21).state_dict())
    assert torch.equal(low.state_dict()["0.weight"], before["0.weight"])


@pytest.mark.parametrize(("dtype", "split"), LOW, ids=LOW_IDS)
def test_what_somebody_else_writes_is_the_weight(dtype, split):
    model = nn.Linear(30, 20)
    optimizer = prepared(CASES["sgd"], model, dtype, split=split)
    set_gradients([model])
    optimizer.step()
    with torch.no_grad():
        model.weight.clamp_(-0.01, 0.01)
    written = model.weight.detach().clone()
    assert torch.equal(model.state_dict()["weight"], written.float())
    model.weight.grad = torch.zeros_like(model.weight)
    model.bias.grad = None
    optimizer.step()
    assert torch.equal(model.state_dict()["weight"], written.float())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize(("dtype", "split"), LOW, ids=LOW_IDS)
def test_copies_go_on_bit_for_bit(dtype, split, duplicate):
    first = layers(17, 20)
    one = prepared(CASES["adamw"], first, dtype, split=split)
    set_gradients([first])
    one.step()
    second, two = duplicate((first, one))
    assert two.fused
    for _ in range(3):
        set_gradients([first, second])
        one.step()
        two.step()
    assert_same_weights(first, second)


def test_a_copied_model_without_its_optimizer_saves_float32():
    model = layers(17, 20)
    prepared(CASES["adamw"], model, torch.bfloat16)
    saved = copy.deepcopy(model).state_dict()
    assert {t.dtype for t in saved.values()} == {torch.float32}
    assert torch.equal(saved["0.weight"], model[0].weight.float())


def test_tied_weights_are_lowered_once():
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10, bias=False))
    model[1].weight = model[0].weight
    optimizer = prepared(CASES["adam"], model, torch.bfloat16)
    assert model[1].weight is model[0].weight
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.arange(10)).sum().backward()
    optimizer.step()
    saved = model.state_dict()
    assert same_bits(saved["0.weight"], saved["1.weight"])


def test_gradients_keep_their_values():
    layer = nn.Linear(3, 4)
    layer.weight.grad = torch.randn(4, 3)
    before = layer.weight.grad.clone()
    lower(layer.weight, torch.bfloat16, split=True)
    assert torch.equal(layer.weight.grad, before.bfloat16())


def test_the_original_step_refuses_split_weights():
    model = nn.Linear(3, 4)
    optimizer = prepared(CASES["adam"], model, torch.bfloat16)
    with pytest.raises(RuntimeError, match="expected float32 weights"):
        optimizer._original_step()


class Tied(nn.Module):
    """A head that shares the embedding's weight, and a parameter that the model's code reads too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head, self.scale = nn.Embedding(16, 8), nn.Linear(8, 16), nn.Linear(8, 8)
        self.head.weight = self.embedding.weight
        self.own = self.scale.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.scale(self.embedding(tokens)) @ self.own)


@pytest.mark.parametrize(("dtype", "split"), LOW, ids=LOW_IDS)
def test_a_state_dict_has_tied_weights_once(dtype, split):
    model = Tied()
    before = copy.deepcopy(model.state_dict())
    prepare(model, torch.optim.SGD(model.parameters(), 0.1), dtype, split, True)
    for _ in range(2):
        state = model.state_dict()
        assert state["head.weight"].data_ptr() == state["embedding.weight"].data_ptr()
        assert all(torch.equal(state[name], value) for name, value in before.items())
    one, other = io.BytesIO(), io.BytesIO()
    torch.save(before, one)
    torch.save(state, other)
    assert other.tell() < one.tell() * 1.2
    tied = dict.__new__(dict)
    model.state_dict(destination=tied)  # which nothing can refer to weakly
    assert torch.equal(tied["head.weight"], before["head.weight"])


def test_a_parameter_that_other_code_reads_stays_float32():
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    reasons = prepare(model, optimizer, torch.bfloat16, True, True)
    assert model.own is model.scale.weight
    assert model.own.dtype == torch.float32
    assert model.head.weight.dtype == model.scale.bias.dtype == torch.bfloat16
    assert reasons == ["scale.weight stays as it is: the model reads it too"]
