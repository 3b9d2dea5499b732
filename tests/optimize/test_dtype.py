"""dtype: which weights are cast, and which are not."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex._torch_internals import has_lstm_of
from optimize.models import CASES, Classifier, Tagger, inputs_of, model_of, trained
from support import assert_same


class Own(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) + self.weight.sum()


def cast(model: nn.Module, **options) -> nn.Module:
    return ipex.optimize(model.eval(), dtype=torch.bfloat16, level="O0", **options)


@pytest.mark.parametrize(
    ("module", "is_cast"),
    [
        (nn.Linear(3, 3), True),
        (nn.Conv1d(3, 3, 1), True),
        (nn.Conv3d(3, 3, 1), True),
        (nn.ConvTranspose2d(3, 3, 1), True),
        (nn.Embedding(3, 3), True),
        (nn.LSTM(3, 3), has_lstm_of(torch.bfloat16)),
        (nn.GRU(3, 3), False),
        (nn.LayerNorm(3), False),
        (nn.BatchNorm2d(3), False),
        (Own(3, 3), False),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_cast(module, is_cast):
    model = nn.Sequential(module)
    expected = torch.bfloat16 if is_cast else torch.float32
    assert {p.dtype for p in cast(model).parameters()} == {expected}
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_float32_casts_nothing():
    optimized = ipex.optimize(trained(Tagger()), dtype=torch.float32)
    assert {p.dtype for p in optimized.parameters()} == {torch.float32}


def test_a_weight_that_overflows_stays():
    model = nn.Linear(3, 3).eval()
    with torch.no_grad():
        model.weight[0, 0] = 1e5
    optimized = ipex.optimize(model, dtype=torch.float16)
    assert optimized.weight.dtype == torch.float32
    assert "its weight overflows in float16" in [d.reason for d in ipex.explain(optimized).declined]


def test_a_sample_is_run_in_the_dtype():
    model = trained(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)))
    optimized = ipex.optimize(model, dtype=torch.bfloat16, sample_input=torch.randn(2, 4))
    assert [d for d in ipex.explain(optimized).declined if d.pass_name == "sample_input"] == []


DTYPES = [torch.bfloat16, torch.float16]
TOLERANCE = {torch.bfloat16: 2**-5, torch.float16: 2**-8}


@pytest.mark.parametrize("prepack", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_calls_without_autocast_give_what_the_model_gave(name, prepack):
    torch.manual_seed(0)
    model, inputs = model_of(name), inputs_of(name)
    optimized = ipex.optimize(model, dtype=torch.bfloat16, weights_prepack=prepack)
    with torch.no_grad():
        expected, actual = model(*inputs), optimized(*inputs)
    for e, a in zip(*(value if isinstance(value, tuple) else (value,) for value in (expected, actual))):
        assert_same(a.contiguous(), e.contiguous(), 2**-5)


class LanguageModel(nn.Module):
    """Its head shares the embedding's weight, and its bias with the model, as Albert's."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embedding, self.norm, self.body = nn.Embedding(32, width), nn.LayerNorm(width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn(32))
        self.head = nn.Linear(width, 32)
        self.head.weight, self.head.bias = self.embedding.weight, self.bias

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(self.norm(self.embedding(tokens)))))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_head_that_shares_its_weight_with_an_embedding(dtype):
    torch.manual_seed(0)
    model, tokens = LanguageModel().eval(), torch.randint(32, (2, 5))
    optimized = ipex.optimize(model, dtype=dtype)
    assert optimized.head.weight is optimized.embedding.weight
    assert optimized.head.weight.dtype == dtype
    assert optimized.head.bias is optimized.bias
    with torch.no_grad():
        expected = model(tokens)
        assert_same(optimized(tokens), expected, TOLERANCE[dtype])
        with torch.autocast("cpu", dtype):
            assert_same(optimized(tokens).float(), expected, 2 * TOLERANCE[dtype])
            assert optimized(tokens).dtype == optimized.embedding(tokens).dtype == dtype


def test_an_embedding_gives_the_dtype_that_the_rest_gives():
    model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4)).eval()
    tokens = torch.arange(8)
    optimized = ipex.optimize(model, dtype=torch.bfloat16)
    with torch.no_grad():
        assert optimized[0](tokens).dtype == optimized(tokens).dtype == torch.float32
        assert torch.equal(optimized[0](tokens), model[0](tokens).bfloat16().float())
        with torch.autocast("cpu", torch.bfloat16):
            assert optimized[0](tokens).dtype == optimized(tokens).dtype == torch.bfloat16


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save"])
def test_layers_that_cast_are_copied(way):
    model, tokens = LanguageModel().eval(), torch.randint(32, (2, 5))
    optimized = ipex.optimize(model, dtype=torch.bfloat16)
    if way == "deepcopy":
        other = copy.deepcopy(optimized)
    elif way == "pickle":
        other = pickle.loads(pickle.dumps(optimized))
    else:
        file = io.BytesIO()
        torch.save(optimized, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    assert other.head.weight is other.embedding.weight
    assert type(other.head) is type(optimized.head) is not nn.Linear
    with torch.no_grad():
        assert torch.equal(other(tokens), optimized(tokens))


def test_layers_that_cast_are_traced_and_optimised_again():
    torch.manual_seed(0)
    model, tokens = LanguageModel().eval(), torch.randint(32, (2, 5))
    optimized = ipex.optimize(model, dtype=torch.bfloat16)
    with torch.no_grad():
        assert_same(ipex.jit_optimize(optimized, tokens)(tokens), model(tokens), 2**-5)
        assert_same(ipex.optimize(optimized)(tokens), model(tokens), 2**-5)
        assert_same(copy.deepcopy(optimized).float()(tokens), model(tokens), 2**-5)


@pytest.mark.parametrize("make", [LanguageModel, Classifier, Tagger])
@pytest.mark.parametrize("prepack", [True, False])
def test_a_state_dict_has_the_dtypes_of_the_model_as_it_was(make, prepack):
    model = trained(make())
    optimized = ipex.optimize(model, dtype=torch.bfloat16, weights_prepack=prepack)
    state, before = optimized.state_dict(), model.state_dict()
    assert list(state) == list(before)
    assert all(state[name].dtype == value.dtype for name, value in before.items())
    if make is not Classifier:  # whose batch_norms are folded
        assert all(torch.allclose(state[name], value, rtol=2**-7) for name, value in before.items())
    optimized.load_state_dict(state)
    again = optimized.state_dict()
    assert all(torch.equal(again[name], value) for name, value in state.items())
    other = make().eval()
    other.load_state_dict(copy.deepcopy(optimized).state_dict())
    assert torch.bfloat16 in {p.dtype for p in optimized.state_dict(keep_vars=True).values()}


def test_a_state_dict_has_tied_weights_once():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = (nn.Linear(8, 8, bias=False) for _ in range(3))
            self.two.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.three(self.two(self.one(x)))

    for make in (Tied, LanguageModel):
        for dtype in (None, torch.bfloat16):
            state = ipex.optimize(make().eval(), dtype=dtype).state_dict()
            names = ("one.weight", "two.weight") if make is Tied else ("embedding.weight", "head.weight")
            assert state[names[0]].data_ptr() == state[names[1]].data_ptr()
            if make is Tied:
                assert state["three.weight"].data_ptr() != state["one.weight"].data_ptr()


class ReadsItself(nn.Module):
    """Its code reads a parameter that a linear shares."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.linear = nn.Linear(8, 8)
        self.linear.weight = self.weight
        self.other, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.last.weight = self.linear.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.linear(x) @ self.weight)


class ReadsALayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.other(self.linear(x) @ self.linear.weight)


@pytest.mark.parametrize("make", [ReadsItself, ReadsALayers])
def test_a_parameter_that_other_code_reads_is_not_cast(make):
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(3, 8)
    optimized = ipex.optimize(model, dtype=torch.bfloat16)
    assert torch.equal(optimized.linear.weight, model.linear.weight)
    assert optimized.other.weight.dtype == torch.bfloat16
    reasons = {d.node: d.reason for d in ipex.explain(optimized).declined if d.pass_name == "dtype"}
    assert reasons["linear"] in ("the model reads its weight too", "other code reads its parameters")
    with torch.no_grad():
        assert_same(optimized(x), model(x), 2**-5)


def test_an_lstm_says_why_it_is_not_packed():
    model, tokens = trained(Tagger()), torch.randint(20, (2, 7))
    optimized = ipex.optimize(model, dtype=torch.bfloat16)
    reasons = {d.pass_name: d.reason for d in ipex.explain(optimized).declined if d.node == "lstm"}
    if has_lstm_of(torch.bfloat16):
        assert reasons == {"optimize_lstm": "its weights are bfloat16, and packed ones compute in float32"}
    else:
        assert reasons == {"dtype": "torch has no LSTM of bfloat16 on this CPU"}
    assert optimized(tokens).dtype == torch.float32


@pytest.mark.parametrize("kind", ["Adadelta", "Adamax", "ASGD", "RMSprop", "Rprop"])
def test_an_optimizer_that_has_no_step_for_16_bits_is_warned_of(kind):
    model = nn.Linear(4, 4)
    optimizer = getattr(torch.optim, kind)(model.parameters())
    with pytest.warns(UserWarning, match=f"dtype is left out. {kind} keeps its own step: .* weights stay float32"):
        trained_model, _ = ipex.optimize(model, optimizer=optimizer, dtype=torch.bfloat16)
    assert trained_model.weight.dtype == torch.float32


def test_a_model_in_float64_is_warned_of():
    with pytest.warns(UserWarning, match="dtype is left out. Its weights are float64, .* Call model.float"):
        optimized = ipex.optimize(nn.Linear(4, 4).double().eval(), dtype=torch.bfloat16)
    assert optimized.weight.dtype == torch.float64
