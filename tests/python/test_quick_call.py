"""Optimised modules are called by a short way; whatever a user may do about calls, they do as torch's modules do."""

from __future__ import annotations

import copy
import gc
import sys
import threading
import warnings
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

import ipex
from ipex import _C
from support import SeenOps, assert_same


class Sum(nn.Module):
    """Two tensors, and an option."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(self.linear(x)) + y


class WithOption(nn.Module):
    def forward(self, x: Tensor, scale: float = 2.0) -> tuple[Tensor, float]:
        if scale < 0:
            raise ValueError("a negative scale")
        if scale == 0:
            warnings.warn("nothing is left")  # noqa: B028, TorchScript knows no stacklevel
        return x * scale, scale


def twins(model: nn.Module) -> tuple[torch.jit.ScriptModule, torch.jit.ScriptModule]:
    """The optimised module, and another one that runs the same code, wrapped by torch."""
    quick = ipex.jit_optimize(torch.jit.script(model.eval()))
    return quick, torch.jit._recursive.wrap_cpp_module(quick._c)


@pytest.fixture
def models():
    return twins(Sum())


@pytest.fixture
def inputs():
    return torch.randn(2, 4), torch.randn(2, 3)


def python_functions_called(function) -> list[str]:
    names = []

    def note(frame, event, _):
        if event == "call":
            names.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return names


def test_a_plain_call_is_quick(models, inputs):
    quick, usual = models
    assert python_functions_called(lambda: quick(*inputs)) == ["<lambda>", "_wrapped_call_impl"]
    assert "_call_impl" in python_functions_called(lambda: usual(*inputs))


def test_loaded_models_are_quick(models, inputs, tmp_path):
    models[0].save(str(tmp_path / "model.pt"))
    loaded = ipex.load(tmp_path / "model.pt")
    assert python_functions_called(lambda: loaded(*inputs)) == ["<lambda>", "_wrapped_call_impl"]
    assert_same(torch.jit.load(tmp_path / "model.pt")(*inputs), loaded(*inputs))


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_copies_compute_the_same(models, inputs, make):
    copied = make(models[0])
    del models
    assert_same(copied(*inputs), make(copied)(*inputs))


def outcome(call):
    """What came of a call: its result, or the kind of error and what it says, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
        except Exception as error:
            result = (type(error), str(error))
    return result, [(w.category, str(w.message)) for w in caught]


def same(a, b) -> bool:
    if isinstance(a, Tensor):
        return type(a) is type(b) and a.requires_grad == b.requires_grad and torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


CALLS = {
    "tensors": lambda m, x, y: m(x, y),
    "a keyword": lambda m, x, y: m(x, y=y),
    "parameters": lambda m, x, y: m(nn.Parameter(x), nn.Parameter(y)),
    "inputs with a gradient": lambda m, x, y: m(x.clone().requires_grad_(), y),
    "without gradients": lambda m, x, y: torch.no_grad()(m)(x, y),
    "in inference mode": lambda m, x, y: torch.inference_mode()(m)(x, y).clone(),
    "by forward": lambda m, x, y: m.forward(x, y),
    "by forward and a keyword": lambda m, x, y: m.forward(x, y=y),
    "one too few": lambda m, x, y: m(x),
    "one too many": lambda m, x, y: m(x, y, y),
    "an unknown keyword": lambda m, x, y: m(x, y, z=y),
    "a number": lambda m, x, y: m(x, 1.0),
    "None": lambda m, x, y: m(None, y),
    "the wrong shape": lambda m, x, y: m(x[:, :3], y),
    "the wrong dtype": lambda m, x, y: m(x.double(), y),
    "under vmap": lambda m, x, y: torch.vmap(m)(x, y),
    "a numpy array": lambda m, x, y: m(x, y.numpy()),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_give_what_torch_gives(models, inputs, call):
    quick, usual = models
    expected = outcome(lambda: call(usual, *inputs))
    for _ in range(3):
        assert same(outcome(lambda: call(quick, *inputs)), expected)


@pytest.mark.parametrize("arguments", [(), (3.0,), (torch.tensor(3.0),), (-1.0,), (0.0,)])
def test_models_with_options_give_what_torch_gives(arguments):
    quick, usual = twins(WithOption())
    x = torch.randn(3)
    assert same(outcome(lambda: quick(x, *arguments)), outcome(lambda: usual(x, *arguments)))


class Refuses(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.numel() > 2:
            raise ValueError("too many")
        if x.numel() == 1:
            warnings.warn("hardly any")  # noqa: B028, TorchScript knows no stacklevel
        return x + 1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_errors_and_warnings_in_a_quick_call(count):
    quick, usual = twins(Refuses())
    x = torch.randn(count)
    assert same(outcome(lambda: quick(x)), outcome(lambda: usual(x)))


def test_a_warning_may_be_an_error():
    quick, _ = twins(Refuses())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="hardly any"):
            quick(torch.randn(1))


# Backward hooks are not for ScriptModules, says torch; hooks of their own only by this way.
KINDS = ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("of_all", [False, True], ids=["its own", "of all modules"])
def test_hooks_are_asked(models, inputs, kind, of_all):
    seen = []
    outcomes = []
    for model in models:
        model(*inputs)
        if of_all:
            handle = getattr(nn.modules.module, f"register_module_{kind}")(lambda *_: seen.append(kind))
        else:
            handle = getattr(nn.Module, f"register_{kind}")(model, lambda *_: seen.append(kind))
        outcomes.append(outcome(lambda model=model: model(*inputs)))
        handle.remove()
    assert same(*outcomes)
    assert len(seen) == (2 if kind.startswith("forward") else 0)


def test_a_forward_of_the_users_is_called(models, inputs):
    models[0].forward = lambda x, y: "another"
    assert models[0](*inputs) == "another"


def test_a_patched_call_is_seen(models, inputs, monkeypatch):
    monkeypatch.setattr(nn.Module, "__call__", lambda self, *arguments: "patched")
    assert models[0](*inputs) == "patched"


class Loud(Tensor):
    """Says what is done with it."""

    seen: list[str]

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        Loud.seen.append(str(function))
        return super().__torch_function__(function, types, args, kwargs or {})


def test_subclasses_of_tensor_are_asked(models, inputs):
    seen = []
    for model in models:
        Loud.seen = []
        outcome(lambda model=model: model(inputs[0].as_subclass(Loud), inputs[1]))
        seen.append(len(Loud.seen))
    assert seen[0] == seen[1] > 0


class FunctionMode(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode_class", [FunctionMode, SeenOps])
def test_modes_are_asked(models, inputs, mode_class):
    seen = []
    for model in models:
        with mode_class() as mode:
            model(*inputs)
        seen.append(mode.seen)
    assert seen[0] == seen[1]


def test_fake_tensors(models, inputs):
    results = []
    for model in models:
        with FakeTensorMode(allow_non_fake_inputs=True):
            results.append(outcome(lambda model=model: model(*map(torch.empty_like, inputs)).shape))
    assert results[0] == results[1]


class Around(nn.Module):
    """A model of the user's, around an optimised one."""

    def __init__(self, model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.model(x, y) * 2


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model, inputs: torch.jit.trace(model, inputs, check_trace=False),
        lambda model, _: torch.jit.script(model),
        lambda model, _: torch.compile(model, backend="eager"),
        lambda model, inputs: ipex.jit_optimize(model, inputs),
    ],
    ids=["traced", "scripted", "compiled", "optimised"],
)
def test_a_model_around_it(models, inputs, wrap):
    wrapped = wrap(Around(models[0]).eval(), inputs)
    x, y = torch.randn(5, 4), torch.randn(5, 3)
    assert_same(wrapped(x, y), models[1](x, y) * 2)


def test_a_trace_holds_the_model_as_torch_has_it(models, inputs):
    graphs = [str(torch.jit.trace(Around(model), inputs, check_trace=False).graph) for model in models]
    assert graphs[0].count("prim::CallMethod") == graphs[1].count("prim::CallMethod") > 0


def test_quick_call_takes_a_script_module_only():
    with pytest.raises(AttributeError, match="forward"):
        _C.QuickCall(3)
    with pytest.raises(TypeError, match="expected a torch.jit.ScriptModule"):
        _C.QuickCall(nn.Linear(2, 2))


def test_a_module_without_forward_is_loaded(tmp_path):
    class Other(nn.Module):
        @torch.jit.export
        def twice(self, x: Tensor) -> Tensor:
            return x * 2

    torch.jit.script(Other().eval()).save(str(tmp_path / "other.pt"))
    assert_same(ipex.load(tmp_path / "other.pt").twice(torch.ones(2)), torch.full((2,), 2.0))


def test_nothing_is_kept(models, inputs):
    quick, _ = models
    before = [sys.getrefcount(tensor) for tensor in inputs]
    for _ in range(10):
        quick(*inputs)
        outcome(lambda: quick(inputs[0][:, :3], inputs[1]))
    gc.collect()
    assert [sys.getrefcount(tensor) for tensor in inputs] == before
    gone = weakref.ref(twins(Sum())[0])
    assert gone() is None


class Slow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(200):
            x = x @ x
        return x


def test_other_threads_run_meanwhile():
    quick, _ = twins(Slow())
    x = torch.zeros(300, 300)
    turns, calling = 0, True

    def count():
        nonlocal turns
        while calling:
            turns += 1
            threading.Event().wait(0.001)

    other = threading.Thread(target=count)
    other.start()
    before = turns
    quick(x)
    during = turns - before
    calling = False
    other.join()
    assert during > 1
