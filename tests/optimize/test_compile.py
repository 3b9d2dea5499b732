"""Packed models under torch.compile and torch.export, and ipex as a backend of torch.compile."""

from __future__ import annotations

import gc
import logging

import pytest
import torch
from torch import Tensor, nn

import ipex
from optimize.models import Attention, Classifier, Decoder, Mlp, trained
from support import assert_same

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch's own machinery
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
MODELS = {
    "classifier": (Classifier, (2, 3, 16, 16)),
    "mlp": (Mlp, (3, 16)),
    "attention": (Attention, (2, 5, 16)),
    "decoder": (Decoder, (2, 8, 6, 6)),
}


@pytest.fixture(autouse=True)
def _nothing_compiled():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture(params=MODELS)
def model(request):
    make, sizes = MODELS[request.param]
    return trained(make()), torch.randn(*sizes)


def longer(x: Tensor) -> Tensor:
    return torch.cat([x, x.flip(0), x[:1]])


def runs_as_it_is(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "ipex.compile"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_our_backend(model, dynamic, caplog):
    model, x = model
    compiled = torch.compile(model, backend="ipex", fullgraph=True, dynamic=dynamic)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "ipex.compile"):
        for given in (x, longer(x), x):
            assert_same(compiled(given).contiguous(), model(given).contiguous(), 2e-5)
    assert runs_as_it_is(caplog) == []
    assert "ipex" in torch._dynamo.list_backends()


def test_our_backend_makes_one_graph_for_all_sizes():
    graphs = []

    def count(graph, inputs):
        from ipex._compile_backend import ipex as backend

        graphs.append(backend(graph, inputs))
        return graphs[-1]

    model = trained(Attention())
    compiled = torch.compile(model, backend=count, dynamic=True)
    with torch.no_grad():
        for batch, length in ((2, 5), (3, 4), (4, 9)):
            x = torch.randn(batch, length, 16)
            assert_same(compiled(x), model(x), 2e-5)
    assert len(graphs) == 1
    (trace,) = graphs[0]._traces.values()
    assert any(d.applied for d in ipex.explain(trace.traced))


def test_our_backend_sees_weights_that_change():
    model, x = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval(), torch.randn(3, 8)
    compiled = torch.compile(model, backend="ipex")
    with torch.no_grad():
        assert_same(compiled(x), model(x))
        model[0].weight.mul_(2)
        assert_same(compiled(x), model(x))
        model[0].weight = nn.Parameter(torch.ones(4, 8))
        assert_same(compiled(x), model(x))


@pytest.fixture
def traces(monkeypatch):
    """Counts the traces that the backend makes, and the calls of each."""
    from ipex import _compile_backend

    made: list[list[int]] = []

    def counted(traced):
        module, calls = ipex.jit_optimize(traced), [0]
        made.append(calls)

        def call(*inputs):
            calls[0] += 1
            return module(*inputs)

        return call

    monkeypatch.setattr(_compile_backend, "jit_optimize", counted)
    return made


def calls_of(traces, run) -> list[int]:
    before = [calls[0] for calls in traces]
    run()
    return [calls[0] - count for calls, count in zip(traces, before)]


def test_our_backend_optimises_each_module_of_a_class(traces, caplog):
    models, x = [trained(Mlp()) for _ in range(3)], torch.randn(3, 16)
    compiled = [torch.compile(model, backend="ipex") for model in models]
    with torch.no_grad(), caplog.at_level(logging.WARNING, "ipex.compile"):
        for _ in range(2):
            for one, model in zip(compiled, models):
                assert_same(one(x), model(x), 2e-5)
        assert calls_of(traces, lambda: [one(x) for one in compiled]) == [1, 1, 1]
    assert runs_as_it_is(caplog) == []


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + torch.relu(self.linear(x)))


def test_our_backend_optimises_each_of_repeated_blocks(traces, caplog):
    model, x = nn.Sequential(*(Block() for _ in range(4))).eval(), torch.randn(3, 16)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "ipex.compile"):
        expected = model(x)
        for block in model:
            block.compile(backend="ipex")
        assert_same(model(x), expected, 2e-5)
        assert calls_of(traces, lambda: model(x)) == [1, 1, 1, 1]
    assert runs_as_it_is(caplog) == []


def test_our_backend_traces_anew_what_was_written_to_and_says_when_it_gives_up(traces, caplog):
    model, x = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval(), torch.randn(3, 8)
    compiled = torch.compile(model, backend="ipex")
    with torch.no_grad(), caplog.at_level(logging.WARNING, "ipex.compile"):
        for _ in range(6):
            assert_same(compiled(x), model(x))
            model[0].weight.add_(0.1)
    assert len(traces) == 4
    (message,) = runs_as_it_is(caplog)
    assert message.endswith("its parameters, or numbers that it is called with, changed 4 times")


def test_our_backend_forgets_parameters_that_are_gone():
    from ipex import _compile_backend

    graphs = []

    def backend(graph, inputs):
        graphs.append(_compile_backend.ipex(graph, inputs))
        return graphs[-1]

    model, x = nn.Linear(8, 4).eval(), torch.randn(3, 8)
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        for _ in range(3):
            model.weight = nn.Parameter(torch.randn(4, 8))
            assert_same(compiled(x), model(x))
    gc.collect()
    assert sum(len(graph._traces) for graph in graphs) == 1


def test_our_backend_leaves_gradients_to_torch(caplog):
    model, x = nn.Linear(8, 4), torch.randn(3, 8)
    compiled = torch.compile(model, backend="ipex")
    with caplog.at_level(logging.WARNING, "ipex.compile"):
        for _ in range(2):
            model.zero_grad()
            compiled(x).sum().backward()
    assert torch.equal(model.weight.grad, x.sum(0).expand(4, 8))
    (message,) = runs_as_it_is(caplog)
    assert message.endswith("gradients are wanted. Call it under torch.no_grad()")


class NoTensor(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        return x * 2, x.size(0)


def test_our_backend_runs_what_it_cannot_trace(caplog):
    compiled = torch.compile(NoTensor(), backend="ipex", dynamic=True)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "ipex.compile"):
        for rows in (3, 4):
            y, size = compiled(torch.ones(rows, 2))
            assert size == rows
            assert torch.equal(y, torch.full((rows, 2), 2.0))
    assert all("runs as it is" in message for message in runs_as_it_is(caplog))


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dynamic", [False, True])
def test_packed_models_compile_without_a_break(model, dynamic, channels_last):
    model, x = model
    (ipex.enable_auto_channels_last if channels_last else ipex.disable_auto_channels_last)()
    try:
        optimized = ipex.optimize(model)
    finally:
        ipex.enable_auto_channels_last()
    compiled = torch.compile(optimized, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    with torch.no_grad():
        for given in (x, longer(x)):
            assert_same(compiled(given), optimized(given), 1e-6)  # strides too: the fake op foretells them


def test_packed_models_compile_without_messages(caplog):
    model, x = ipex.optimize(trained(Mlp())), torch.randn(3, 16)
    torch.compile(model, backend="aot_eager", fullgraph=True)(x)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_packed_models_compile_to_code():
    model, x = trained(Mlp()), torch.randn(3, 16)
    compiled = torch.compile(ipex.optimize(model), backend="inductor", fullgraph=True)
    with torch.no_grad():
        assert_same(compiled(x), model(x), 2e-5)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo reads it
def test_packed_models_compile_where_gradients_are_wanted():
    model, x = trained(Mlp()), torch.randn(3, 16)
    gradients = []
    for called in (model, torch.compile(ipex.optimize(model), backend="aot_eager")):
        given = x.clone().requires_grad_()
        called(given).square().sum().backward()
        gradients.append(given.grad)
    assert_same(*gradients, 2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_models_compile_under_autocast(dtype):
    model, x = trained(Attention()), torch.randn(2, 5, 16)
    optimized = ipex.optimize(model, dtype=dtype)
    compiled = torch.compile(optimized, backend="aot_eager", fullgraph=True)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same(compiled(x), optimized(x), 2**-6)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_compile_where_torch_allows_it(kind):
    model, x = kind(4, 5, 2, bidirectional=True).eval(), torch.randn(3, 2, 4)
    compiled = torch.compile(ipex.optimize(model), backend="aot_eager", fullgraph=True)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        assert_same(compiled(x)[0], model(x)[0])


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch 2.11 says so of its own
def test_packed_models_export(tmp_path):
    model, x = trained(Classifier()), torch.randn(2, 3, 16, 16)
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        exported = torch.export.export(ipex.optimize(model), (x,), dynamic_shapes=({0: batch},), strict=False)
        called = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
        assert called.count("ipex.packed_convolution.default") == 3
        assert called.count("ipex.packed_linear.default") == 1
        torch.export.save(exported, tmp_path / "model.pt2")
        loaded = torch.export.load(tmp_path / "model.pt2").module()
        for given in (x, longer(x)):
            assert_same(loaded(given), model(given), 2e-5)


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_packed_models_become_a_package_of_aotinductor(tmp_path):
    model, x = trained(Mlp()), torch.randn(3, 16)
    with torch.no_grad():
        exported = torch.export.export(ipex.optimize(model), (x,), strict=False)
        file = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2"))
        loaded = torch._inductor.aoti_load_package(file)
        for given in (x, torch.randn(3, 16)):
            assert_same(loaded(given), model(given), 2e-5)


def shape(layer: nn.Module, x: Tensor) -> tuple[torch.Size, tuple[int, ...]]:
    result = layer(x)
    result = result[0] if isinstance(result, tuple) else result
    return result.shape, result.stride()


@pytest.mark.parametrize(
    ("layer", "sizes"),
    [
        (nn.Linear(6, 4), (2, 3, 6)),
        (nn.Conv1d(4, 6, 3, padding=2, stride=2, dilation=2), (2, 4, 20)),
        (nn.Conv2d(4, 6, (2, 5), padding="same"), (2, 4, 9, 9)),
        (nn.Conv2d(4, 6, 3, groups=2), (4, 9, 9)),
        (nn.Conv3d(2, 4, 3, stride=(1, 2, 1)), (1, 2, 5, 6, 7)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2, dilation=2), (2, 4, 7, 7)),
        (nn.ConvTranspose1d(4, 6, 3, padding=1), (2, 4, 7)),
    ],
)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_the_fake_ops_tell_shapes_and_strides(layer, sizes):
    from torch._subclasses.fake_tensor import FakeTensorMode

    packed = ipex.optimize(layer.eval())
    x = torch.randn(*sizes)
    layouts = [x, x.to(memory_format=torch.channels_last)] if x.dim() == 4 else [x]
    for given in layouts:
        with torch.no_grad():
            expected = shape(packed, given)
        with FakeTensorMode() as mode, pytest.MonkeyPatch.context() as patch, torch.no_grad():
            patch.setattr(torch.compiler, "is_compiling", lambda: True)
            assert shape(packed, mode.from_tensor(given)) == expected


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_compile_under_autocast(kind):
    model, x = kind(4, 5, 2).eval(), torch.randn(3, 2, 4)
    optimized = ipex.optimize(model)
    compiled = torch.compile(optimized, backend="aot_eager", fullgraph=True)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True), torch.autocast("cpu", torch.bfloat16):
        assert_same(compiled(x)[0], optimized(x)[0])


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_layers_are_leaves_to_fx(dtype):
    class All(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.up = nn.Conv2d(3, 4, 3), nn.ConvTranspose1d(4, 4, 3)
            self.lstm, self.gru = nn.LSTM(38, 8), nn.GRU(8, 8)
            self.linear, self.own = nn.Linear(8, 8), Own(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            y = self.up(self.conv(x).flatten(2)[:, :, :36]).transpose(0, 1)
            return self.own(self.linear(self.gru(self.lstm(y)[0])[0]))

    class Own(nn.Linear):
        pass

    model, x = All().eval(), torch.randn(2, 3, 8, 8)
    for prepack in (True, False):
        optimized = ipex.optimize(model, dtype=dtype, weights_prepack=prepack, optimize_lstm=prepack)
        traced = torch.fx.symbolic_trace(optimized)
        called = {node.target for node in traced.graph.nodes if node.op == "call_module"}
        assert called >= {name for name, _ in model.named_children()} - (
            {"own"} if not prepack and not dtype else set()
        )
        with torch.no_grad():
            assert torch.equal(traced(x), optimized(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_of_few_bits_stay_packed(dtype):
    codes = torch.randint(-8, 8, (48, 64)).to(torch.int8)
    plain = ipex.quantization.WeightOnlyLinear(codes, torch.rand(48, 2) / 64, bits=4, group_size=32)
    packed, graphs = ipex.optimize(nn.Sequential(plain).eval()), []

    def keeps(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    compiled = torch.compile(packed, fullgraph=True, dynamic=True, backend=keeps)
    through_aot = torch.compile(packed, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for rows in (2, 5):
            x = torch.randn(rows, 64, dtype=dtype)
            assert torch.equal(compiled(x), packed(x))
            assert torch.equal(through_aot(x), packed(x))
    assert [str(n.target) for graph in graphs for n in graph.graph.nodes if n.op == "call_function"] == [
        "ipex.packed_linear.codes"
    ]
