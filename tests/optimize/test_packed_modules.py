"""weights_prepack: packed modules are modules that people can use."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from ipex._optimize.packed.layer import unpack_module
from ipex._optimize.packed.source import PackedParameter
from optimize.models import CASES, Attention, Classifier, Mlp, Tagger, inputs_of, model_of, trained
from support import assert_same, kinds

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


def transposed_linear() -> nn.Module:
    layer = pytest.importorskip("transformers.pytorch_utils").Conv1D(7, 12)
    nn.init.normal_(layer.bias)
    return layer


LAYERS = {
    "linear": (lambda: nn.Linear(12, 7), (3, 12)),
    "linear without bias": (lambda: nn.Linear(12, 7, bias=False), (2, 4, 12)),
    "linear of transformers": (transposed_linear, (2, 4, 12)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=2, stride=2), (2, 4, 11)),
    "conv2d": (lambda: nn.Conv2d(4, 6, (3, 5), padding=(1, 2), groups=2), (2, 4, 9, 9)),
    "conv2d same": (lambda: nn.Conv2d(4, 6, (3, 5), padding="same", dilation=(1, 2)), (2, 4, 9, 9)),
    "conv2d valid": (lambda: nn.Conv2d(4, 6, 3, padding="valid"), (2, 4, 9, 9)),
    "conv2d unbatched": (lambda: nn.Conv2d(4, 6, 3), (4, 9, 9)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 3, padding=1), (1, 2, 5, 5, 5)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, output_padding=1), (2, 4, 7)),
    "transposed 2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 7, 7)),
    "transposed 3d": (lambda: nn.ConvTranspose3d(2, 4, 2), (1, 2, 3, 3, 3)),
    "lstm": (lambda: nn.LSTM(5, 6, 2, bidirectional=True, proj_size=3), (4, 2, 5)),
    "lstm batch first": (lambda: nn.LSTM(5, 6, bias=False, batch_first=True), (2, 4, 5)),
    "lstm unbatched": (lambda: nn.LSTM(5, 6), (4, 5)),
    "gru": (lambda: nn.GRU(5, 6, 2, bidirectional=True), (4, 2, 5)),
    "gru unbatched": (lambda: nn.GRU(5, 6, batch_first=True), (4, 5)),
}


def make(name: str) -> tuple[nn.Module, Tensor]:
    layer, sizes = LAYERS[name]
    return layer().eval(), torch.randn(*sizes)


def packed(model: nn.Module, **options) -> nn.Module:
    return ipex.optimize(model, level="O0", weights_prepack=True, optimize_lstm=True, **options)


def is_packed(module: nn.Module) -> bool:
    own = module.__dict__["_parameters"].values()
    return any(isinstance(p, PackedParameter) for p in own)


def flat(result) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [t for r in result for t in flat(r)]


@pytest.fixture(autouse=True)
def _without_channels_last():
    ipex.disable_auto_channels_last()
    yield
    ipex.enable_auto_channels_last()


@pytest.fixture(params=LAYERS)
def layer(request):
    return make(request.param)


def test_a_layer_alone(layer):
    model, x = layer
    optimized = packed(model)
    assert is_packed(optimized)
    assert not is_packed(model)
    assert isinstance(optimized, type(model))
    with torch.no_grad():
        expected = flat(model(x))
        for _ in range(2):
            assert_same(flat(optimized(x)), expected)
        if x.dim() != 3 or not isinstance(model, nn.Conv2d):
            other = torch.cat([x, x])
            assert_same(flat(optimized(other)), flat(model(other)))


def test_parameters_look_as_before(layer):
    model, _ = layer
    optimized = packed(model)
    assert [n for n, _ in optimized.named_parameters()] == [n for n, _ in model.named_parameters()]
    for name, parameter in model.named_parameters():
        ours = getattr(optimized, name)
        assert isinstance(ours, nn.Parameter)
        assert (ours.shape, ours.stride(), ours.dtype) == (parameter.shape, parameter.stride(), parameter.dtype)
        assert torch.equal(ours, parameter)
        assert torch.equal(ours.detach().clone(), parameter)
        assert str(parameter.detach()) in repr(ours)
    assert list(optimized.state_dict()) == list(model.state_dict())
    for key, tensor in optimized.state_dict().items():
        assert type(tensor) is Tensor
        assert torch.equal(tensor, model.state_dict()[key])
        assert tensor.stride() == model.state_dict()[key].stride()


def test_state_dicts_go_both_ways(layer):
    model, x = layer
    optimized = packed(model)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.normal_()
        optimized.load_state_dict(other.state_dict())
        assert is_packed(optimized)
        assert_same(flat(optimized(x)), flat(other(x)))
        model.load_state_dict(optimized.state_dict())
        assert_same(flat(model(x)), flat(other(x)), 0)
        optimized.load_state_dict(other.state_dict(), assign=True)
        assert_same(flat(optimized(x)), flat(other(x)))


def test_copies(layer):
    model, x = layer
    optimized = packed(model)
    file = io.BytesIO()
    torch.save(optimized, file)
    file.seek(0)
    with torch.no_grad():
        expected = flat(model(x))
        for twin in (
            copy.deepcopy(optimized),
            pickle.loads(pickle.dumps(optimized)),
            torch.load(file, weights_only=False),
            copy.deepcopy(copy.deepcopy(optimized)),
        ):
            assert is_packed(twin)
            assert_same(flat(twin(x)), expected)
            next(twin.parameters()).zero_()
            assert_same(flat(optimized(x)), expected)


WRITES = {
    "in place": lambda p: p.mul_(2),
    "through data": lambda p: p.data.mul_(2),
    "through detach": lambda p: p.detach().add_(1),
    "other data": lambda p: setattr(p, "data", torch.full(p.shape, 0.25)),
    "copy": lambda p: p.copy_(torch.ones(p.shape)),
    "a view": lambda p: p.view(-1)[:3].fill_(5),
    "a transpose": lambda p: p.t().mul_(3) if p.dim() == 2 else p.mul_(3),
    "an element": lambda p: p.__setitem__((0,), 4.0),
    "init": lambda p: nn.init.constant_(p, 0.5),
    "out": lambda p: torch.mul(torch.ones(p.shape), 2, out=p.data),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_is_written_to_a_parameter_is_computed_with(layer, write):
    model, x = layer
    optimized = packed(model)
    with torch.no_grad():
        optimized(x)
        for name, _ in list(model.named_parameters()):
            write(getattr(model, name))
            write(getattr(optimized, name))
            assert_same(flat(optimized(x)), flat(model(x)))
        assert_same(flat(optimized(x)), flat(model(x)))


def test_a_view_that_is_kept_is_written_to_later():
    model, x = make("linear")
    optimized = packed(model)
    with torch.no_grad():
        ours, eager = optimized.weight.view(-1), model.weight.view(-1)
        for value in (1.0, 2.0, 3.0):
            ours[5], eager[5] = value, value
            assert_same(optimized(x), model(x))
        del ours
        optimized(x)
        assert "_compiled_call_impl" in optimized.__dict__  # the short way again


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_channels_last_weights_are_written_to(write):
    model = nn.Conv2d(4, 6, 3).eval().to(memory_format=torch.channels_last)
    optimized, x = packed(model), torch.randn(2, 4, 8, 8)
    if write is WRITES["a view"]:
        write = WRITES["an element"]  # there is no such view
    with torch.no_grad():
        write(model.weight), write(optimized.weight)
        assert_same(optimized(x), model(x))
        assert optimized.weight.stride() == model.weight.stride()


def test_a_parameter_outlives_its_layer():
    model, _ = make("conv1d")
    weight = packed(model).weight
    gc.collect()
    assert torch.equal(weight, model.weight)
    with torch.no_grad():
        weight.mul_(2)
    assert torch.equal(weight, model.weight * 2)


def test_parameters_that_are_replaced():
    model, x = make("conv2d")
    optimized = packed(model)
    for parameter in (nn.Parameter(torch.randn(6, 2, 3, 5)), nn.Parameter(torch.ones(6, 2, 3, 5))):
        model.weight = optimized.weight = parameter
        with torch.no_grad():
            assert_same(optimized(x), model(x))
    replaced = {"weight": torch.randn(6, 2, 3, 5), "bias": torch.zeros(6)}
    with torch.no_grad():
        ours, eager = (torch.func.functional_call(m, replaced, (x,)) for m in (optimized, model))
    assert_same(ours, eager)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float32])
def test_to_another_dtype(layer, dtype):
    model, x = layer
    optimized = packed(model).to(dtype)
    model, x = model.to(dtype), x.to(dtype)
    assert {p.dtype for p in optimized.parameters()} == {dtype}
    with torch.no_grad():
        assert_same(flat(optimized(x)), flat(model(x)), 1e-5 if dtype != torch.bfloat16 else 4e-2)


def test_gradients_are_given_back_on_request(layer):
    model, x = layer
    optimized = packed(model)
    assert not flat(optimized(x))[0].requires_grad
    optimized.requires_grad_()
    for m in (model, optimized):
        m.requires_grad_()
        flat(m(x))[0].sum().backward()
    for (name, ours), (_, eager) in zip(optimized.named_parameters(), model.named_parameters()):
        torch.testing.assert_close(ours.grad, eager.grad, msg=name)


def test_gradients_of_inputs(layer):
    model, x = layer
    optimized = packed(model)
    gradients = []
    for m in (optimized, model):
        given = x.clone().requires_grad_()
        flat(m(given))[0].square().sum().backward()
        gradients.append(given.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_hooks_see_the_calls(layer):
    model, x = layer
    optimized = packed(model)
    seen = []
    before = optimized.register_forward_pre_hook(lambda m, inputs: seen.append("before"))
    after = optimized.register_forward_hook(lambda m, inputs, output: seen.append("after"))
    optimized(x)
    assert seen == ["before", "after"]
    before.remove(), after.remove()
    optimized(x)
    assert len(seen) == 2


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # torch's own, of nn.LSTM and nn.GRU
@pytest.mark.parametrize("name", CASES)
def test_traces_are_as_good_as_the_models(name):
    model, inputs = model_of(name), inputs_of(name)
    optimized = packed(model)
    with torch.no_grad():
        expected = flat(model(*inputs))
        traced = torch.jit.trace(optimized, inputs)
        assert_same(flat(traced(*inputs)), expected)
        file = io.BytesIO()
        torch.jit.save(torch.jit.freeze(traced), file)
        file.seek(0)
        assert_same(flat(torch.jit.load(file)(*inputs)), expected)
        ours, eager = (ipex.jit_optimize(torch.jit.trace(m, inputs)) for m in (optimized, model))
        assert_same(flat(ours(*inputs)), flat(eager(*inputs)), 0)
        assert kinds(ours) == kinds(eager)
        assert_same(flat(optimized(*inputs)), expected)


@pytest.mark.parametrize("name", ["classifier", "mlp", "tagger", "decoder"])
def test_scripts(name):
    model, inputs = model_of(name), inputs_of(name)
    with torch.no_grad():
        scripted = torch.jit.script(ipex.optimize(model))
        assert_same([t.contiguous() for t in flat(scripted(*inputs))], flat(model(*inputs)), 2e-5)


def test_tied_weights_stay_tied():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
            self.b.weight = self.a.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.b(torch.relu(self.a(x)))

    model, x = Tied().eval().half().float(), torch.randn(2, 6)  # whose weights float16 holds
    optimized = packed(model)
    for twin in (optimized, copy.deepcopy(optimized), copy.deepcopy(optimized).half().float()):
        assert is_packed(twin.a)
        assert is_packed(twin.b)
        assert twin.a.weight is twin.b.weight
        assert len(list(twin.parameters())) == 3
        with torch.no_grad():
            assert_same(twin(x), model(x))
    with torch.no_grad():
        optimized.a.weight.mul_(2)
        model.a.weight.mul_(2)
        assert_same(optimized(x), model(x))


class Language(nn.Module):
    """Its head shares the embedding's weight."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(90, 60, **options), nn.Linear(60, 90)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.words(x)))


TOKENS = torch.randint(90, (2, 7))
SHARED = [None, torch.bfloat16]


def language(dtype: torch.dtype | None) -> tuple[nn.Module, nn.Module]:
    model = Language().eval()
    return model, packed(model, dtype=dtype)


def assert_shared(model: nn.Module, expected: nn.Module, dtype: torch.dtype | None) -> None:
    assert is_packed(model.head)
    assert model.words.weight is model.head.weight
    assert model.words._ipex_context is model.head._ipex_context  # no second weight
    with torch.no_grad():
        assert_same(model.words(TOKENS), expected.words(TOKENS), 2**-8 if dtype else 0)
        assert_same(model(TOKENS), expected(TOKENS), 2**-6 if dtype else 1e-5)


@pytest.mark.parametrize("dtype", SHARED)
def test_an_embedding_reads_rows_of_what_a_linear_packs(dtype):
    model, optimized = language(dtype)
    assert isinstance(optimized.words, nn.Embedding)
    assert_shared(optimized, model, dtype)
    reasons = {d.node: d.reason for d in ipex.explain(optimized).applied if d.pass_name == "weights_prepack"}
    rows = "reads rows of what head has packed" if dtype is None else "beside what head has packed, which are 0.0108 MB"
    assert reasons["head"] == "packed"
    assert rows in reasons["words"]
    with pytest.raises(IndexError, match="index out of range in self"):
        optimized.words(torch.tensor([90]))


@pytest.mark.parametrize("dtype", SHARED)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_shared_weight_stays_shared(is_first, dtype):
    """Copied, loaded, written to, in another dtype, whichever module comes first."""
    model, optimized = language(dtype)
    if not is_first:
        optimized._modules = dict(reversed(optimized._modules.items()))
    for twin in (copy.deepcopy(optimized), pickle.loads(pickle.dumps(optimized))):
        assert_shared(twin, model, dtype)
    other = Language().eval()
    optimized.load_state_dict(other.state_dict())
    assert_shared(optimized, other, dtype)
    optimized.load_state_dict({"words.weight": model.state_dict()["words.weight"]}, strict=False)
    other.load_state_dict({"words.weight": model.state_dict()["words.weight"]}, strict=False)
    assert_shared(optimized, other, dtype)
    with torch.no_grad():
        for each in (optimized, other):
            each.words.weight[3] = 0.5
            each.head.weight.mul_(2)
    assert_shared(optimized, other, dtype)
    state = optimized.state_dict()
    assert state["words.weight"].data_ptr() == state["head.weight"].data_ptr()
    assert state["words.weight"].dtype == torch.float32
    optimized.to(torch.bfloat16)
    assert optimized.words.weight.dtype == torch.bfloat16
    assert optimized.words.weight is optimized.head.weight
    assert optimized.words._ipex_context is optimized.head._ipex_context


@pytest.mark.parametrize("dtype", SHARED)
def test_a_weight_is_tied_again(dtype):
    model, optimized = language(dtype)
    optimized.head.weight = optimized.words.weight
    assert_shared(optimized, model, dtype)
    optimized.words.weight = optimized.head.weight
    assert_shared(optimized, model, dtype)


def test_data_of_another_shape():
    """As transformers' resize_token_embeddings sets it."""
    model, optimized = language(None)
    for each in (model, optimized):
        each.words.weight.data = torch.ones(95, 60)
        each.head.bias.data = torch.zeros(95)
        assert each.head.weight is each.words.weight
    with torch.no_grad():
        assert_same(optimized(TOKENS), model(TOKENS))


def test_data_that_is_set_is_written_to_later():
    model, x = make("linear")
    optimized, values = packed(model), torch.ones(7, 12)
    with torch.no_grad():
        for each in (model, optimized):
            each.weight.data = values
        for factor in (2, 3):
            values.mul_(factor)
            assert_same(optimized(x), model(x))


def test_a_shared_weight_of_an_embedding_is_traced_compiled_and_trained():
    model, optimized = language(None)
    assert is_packed(optimized.head)
    with torch.no_grad():
        expected = model(TOKENS)
        assert_same(torch.jit.trace(optimized, TOKENS)(TOKENS), expected)
        assert_same(torch.jit.script(optimized)(TOKENS), expected)
        assert_same(torch.compile(optimized, fullgraph=True, backend="aot_eager")(TOKENS), expected)
    for each in (model, optimized):
        each.requires_grad_()
        each(TOKENS).sum().backward()
    torch.testing.assert_close(optimized.words.weight.grad, model.words.weight.grad)


def test_a_layer_that_is_unpacked_stays_tied():
    model, optimized = language(None)
    unpack_module(optimized.head)
    assert type(optimized.head) is nn.Linear
    assert type(optimized.words) is nn.Embedding
    assert optimized.words.weight is optimized.head.weight
    assert torch.equal(optimized.words.weight, model.words.weight)


class Scaled(nn.Embedding):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * 2


def test_a_weight_that_another_embedding_reads_too_is_left():
    scaled = Language()
    scaled.words = Scaled(90, 60, _weight=scaled.words.weight.detach())
    scaled.head.weight = scaled.words.weight
    tied = nn.Sequential(nn.Linear(6, 6), Doubled(6, 6))
    tied[1].weight = tied[0].weight
    for model, reader, layer in (
        (Language(max_norm=1.0), "words", "head"),
        (scaled, "words", "head"),
        (tied, "1", "0"),
    ):
        optimized = packed(model.eval())
        assert not any(map(is_packed, optimized.modules()))
        reasons = {d.node: d.reason for d in ipex.explain(optimized).declined}
        assert reasons[layer] == f"{reader} shares a parameter with it"


class Doubled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * 2


class Named(nn.Linear):
    """A linear by another name."""

    def extra(self) -> int:
        return self.in_features


@pytest.mark.parametrize(
    ("make_layer", "reason"),
    [
        (lambda: Doubled(6, 6), "Doubled.forward may do something else"),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)), None),
        (lambda: nn.Linear(6, 6).double(), "its parameters are float64"),
    ],
)
def test_layers_that_stay(make_layer, reason):
    model = nn.Sequential(make_layer(), nn.ReLU()).eval()
    optimized = packed(model)
    assert not is_packed(optimized[0])
    if reason is not None:
        assert any(reason in d.reason for d in ipex.explain(optimized).declined)


def test_on_another_device_it_is_left_out():
    with pytest.warns(UserWarning, match="weights_prepack is left out. It is for CPUs"):
        optimized = ipex.optimize(nn.Linear(3, 3, device="meta").eval(), weights_prepack=True)
    assert not is_packed(optimized)


def test_subclasses_that_only_add():
    model, x = nn.Sequential(Named(6, 4)).eval(), torch.randn(2, 6)
    optimized = pickle.loads(pickle.dumps(packed(model)))
    assert is_packed(optimized[0])
    assert isinstance(optimized[0], Named)
    assert optimized[0].extra() == 6
    with torch.no_grad():
        assert_same(optimized(x), model(x))


def test_attention_of_torchs_is_left_to_itself():
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    optimized, x = ipex.optimize(model), torch.randn(2, 5, 16)
    assert is_packed(optimized.linear1)
    assert not is_packed(optimized.self_attn.out_proj)
    with torch.no_grad():
        assert_same(optimized(x), model(x))


def test_weights_that_other_code_reads_are_left():
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            return F.linear(x, self.linear.weight) + self.linear(x)

    model, x = Reads().eval(), torch.randn(2, 6)
    optimized = packed(model)
    assert "other code reads its parameters" in [d.reason for d in ipex.explain(optimized).declined]
    with torch.no_grad():
        assert_same(optimized(x), model(x))


@pytest.mark.parametrize("states", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_states_and_packed_sequences(kind, states):
    model = kind(5, 6, num_layers=2, batch_first=True).eval()
    optimized, x = packed(model), torch.randn(3, 4, 5)
    h = torch.randn(2, 3, 6)
    given = ((h, torch.randn(2, 3, 6)) if kind is nn.LSTM else h) if states else None
    sequences = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 3, 1]), batch_first=True)
    with torch.no_grad():
        assert_same(flat(optimized(x, given)), flat(model(x, given)))
        ours, eager = optimized(sequences, given), model(sequences, given)
        assert_same(ours[0].data, eager[0].data)
        assert_same(flat(ours[1]), flat(eager[1]))
        with pytest.raises(RuntimeError, match="expected input"):
            optimized(torch.randn(3, 4, 7))


@pytest.mark.parametrize("name", ["transposed 2d"])
def test_an_output_size(name):
    model, x = make(name)
    with torch.no_grad():
        assert_same(packed(model)(x, output_size=[14, 14]), model(x, output_size=[14, 14]))


def test_inplace_holds_no_weight_twice():
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).eval()
    storages = [m.weight.untyped_storage()._weak_ref() for m in model]
    kept = ipex.optimize(model, inplace=True)
    gc.collect()
    assert kept is model
    # The memory of each plain weight is gone; what is left is the packed one.
    assert all(torch.UntypedStorage._expired(storage) for storage in storages)


def test_not_inplace_leaves_the_original():
    model = trained(Classifier())
    before = {name: (p, p.data_ptr(), p.clone(), p.stride()) for name, p in model.named_parameters()}
    classes = [type(m) for m in model.modules()]
    ipex.optimize(model)
    assert [type(m) for m in model.modules()] == classes
    for name, p in model.named_parameters():
        same, address, values, stride = before[name]
        assert p is same
        assert (p.data_ptr(), p.stride(), p.requires_grad) == (address, stride, True)
        assert torch.equal(p, values)


def test_many_threads():
    model, x = trained(Mlp()), torch.randn(3, 16)
    optimized = ipex.optimize(model)
    results: list[Tensor] = []

    def call():
        with torch.no_grad():
            results.extend(optimized(x) for _ in range(50))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 200
    with torch.no_grad():
        for result in results:
            assert_same(result, model(x), 2e-5)


def test_a_layer_is_called_by_the_short_way():
    import sys

    optimized, x = packed(nn.Linear(8, 4).eval()), torch.randn(2, 8)
    names = []

    def note(frame, event, _):
        if event == "call":
            names.append(frame.f_code.co_name)

    with torch.no_grad():
        optimized(x)
        sys.setprofile(note)
        try:
            optimized(x)
        finally:
            sys.setprofile(None)
    assert names == ["_wrapped_call_impl"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_float32_layers_under_autocast(dtype):
    model, x = trained(Attention()), torch.randn(2, 5, 16)
    optimized = ipex.optimize(model)
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        ours, eager = optimized(x), model(x)
    assert ours.dtype == eager.dtype
    assert (ours.float() - eager.float()).abs().max() <= 4 * torch.finfo(dtype).eps * eager.abs().max()


def test_an_lstm_is_optimised_as_child_and_alone():
    assert is_packed(ipex.optimize(trained(Tagger())).lstm)
    assert is_packed(ipex.optimize(nn.LSTM(3, 4).eval()))
    assert not is_packed(ipex.optimize(nn.LSTM(3, 4).eval(), optimize_lstm=False))


def test_what_is_optimised_already_stays():
    model, x = trained(Classifier()), torch.randn(2, 3, 16, 16)
    once = ipex.optimize(model)
    twice = ipex.optimize(once)
    with torch.no_grad():
        assert_same(twice(x), once(x), 0)
    assert [type(m) for m in twice.modules()] == [type(m) for m in once.modules()]


def test_a_context_manager_around_calls_does_not_matter():
    model, x = make("linear")
    optimized = packed(model)
    for around in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with around():
            assert_same(optimized(x).detach().clone(), model(x).detach().clone())
    assert_same(torch.vmap(optimized)(x), torch.vmap(model)(x).detach())
