"""Models are called and answer as they did before: with names, containers, and what is no tensor."""

import copy
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_same


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@dataclass
class Answer:
    logits: Tensor
    hidden: tuple[Tensor, ...] | None = None
    count: int = 0


class Model(nn.Module):
    """Takes many things, and gives what `answer` makes of one tensor."""

    def __init__(self, answer=lambda y: y) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.answer = answer

    def forward(self, x, y=None, scale=1.0, *more, flag=False, **named):
        if isinstance(x, Pair):
            x, y = x.first, x.second
        elif isinstance(x, Answer):
            x = x.logits + x.hidden[0]
        elif isinstance(x, (list, tuple)):
            x = x[0] + x[1]
        elif isinstance(x, dict):
            x = x["a"] - x["b"]
        x = self.linear(x) * scale
        for other in (y, *more, *named.values()):
            x = x if other is None else x + other
        return self.answer(-x if flag else x)


def rows(*sizes: int) -> tuple[Tensor, ...]:
    return tuple(torch.randn(size, 4) for size in sizes)


A, B = rows(2, 2)
INPUTS = {
    "keywords": {"x": A, "y": B},
    "a keyword that is left out": {"x": A, "flag": True},
    "keywords of **named": {"x": A, "bias": B},
    "a list": [A, B],
    "a float": (A, B, 0.5),
    "None": (A, None),
    "None and a float by name": {"y": None, "x": A, "scale": 2.0},
    "more than four": (A, B, 1.0, A, B, A, B, A),
    "a NamedTuple": (Pair(A, B),),
    "a dataclass": (Answer(A, (B,), 3),),
    "a list of tensors": ([A, B],),
    "a tuple of tensors and None": ((A, B, None),),
    "a dict of tensors": ({"a": A, "b": B},),
    "an OrderedDict": (OrderedDict(a=A, b=B),),
}


def call(model, inputs):
    with torch.no_grad():
        return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
def test_inputs_of_any_kind(inputs):
    model = Model().eval()
    optimized = ipex.jit_optimize(model, inputs)
    assert "ipex::linear_run" in str(optimized.graph)
    assert_same(call(optimized, inputs), call(model, inputs))
    assert ipex.verify(model, optimized, inputs)
    assert ipex.profile(optimized, inputs, calls=1).ops


ANSWERS = {
    "NamedTuple": lambda y: Pair(y, y * 2),
    "dataclass": lambda y: Answer(y, (y + 1, y - 1)),
    "a size": lambda y: Answer(y, None, y.shape[0]),
    "dict": lambda y: {"logits": y, "double": y * 2},
    "a dict of anything": lambda y: {"logits": y, "others": [y, None, "name"]},
    "OrderedDict": lambda y: OrderedDict(a=y),
    "list": lambda y: [y, y * 2],
    "nested": lambda y: (y, [Pair(y, y), {"a": {"b": y}}], None),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_results_of_any_kind(answer):
    model = Model(answer).eval()
    optimized = ipex.jit_optimize(model, A)
    for other in (optimized, copy.deepcopy(optimized)):
        for x in rows(2, 3):  # a size is none of the example's
            assert type(other(x)) is type(model(x))
            assert ipex.verify(model, other, x)


def test_what_is_saved_gives_the_tensors(tmp_path):
    model = Model(ANSWERS["dataclass"]).eval()
    ipex.jit_optimize(model, A).save(tmp_path / "model.pt")
    with torch.no_grad():
        expected = model(A)
        assert_same(ipex.load(tmp_path / "model.pt")(A), (expected.logits, *expected.hidden))


def test_what_is_no_tensor_is_a_constant():
    optimized = ipex.jit_optimize(Model().eval(), (A, B, 0.5))
    with pytest.raises(ValueError, match=r"expected 0.5 in scale, as in the example inputs, got 0.25. .* optimise it"):
        optimized(A, B, 0.25)
    with pytest.raises(ValueError, match=r"expected 0.5 in scale, as in the example inputs, got 1.0"):
        optimized(A, B)
    with pytest.raises(TypeError, match="expected y, which the model was traced with, got none. Pass it"):
        optimized(A, scale=0.5)
    with pytest.raises(TypeError, match=r"was traced with, x, y, scale, got bias too. Optimise the model with it"):
        optimized(A, B, 0.5, bias=A)
    with pytest.raises(TypeError, match=r"was traced with, x, got scale too. Optimise the model with it"):
        ipex.jit_optimize(Model(ANSWERS["dataclass"]).eval(), A)(A, scale=torch.ones(2, 4))
    with pytest.raises(TypeError, match="ipex: expected the arguments of forward, got others: missing a required"):
        optimized(y=A)
    assert_same(optimized(A, B, 0.5, flag=False), optimized(A, B, 0.5))  # the model's default


def test_what_a_trace_cannot_take_or_give():
    with pytest.raises(TypeError, match=r"expected example inputs for Model.forward, .* got: object at x. Take"):
        ipex.jit_optimize(Model().eval(), (object(),))
    with pytest.raises(TypeError, match="expected a tensor in the example inputs, got none. Pass one"):
        ipex.jit_optimize(Model().eval(), (1.0,))
    with pytest.raises(TypeError, match=r"expected results of Model made of tensors .*, got a object at \['a'\]"):
        ipex.jit_optimize(Model(lambda y: {"a": object(), "b": y}).eval(), A)
    with pytest.raises(
        ValueError, match=r"expected Model to give the same when it is traced, got something else at result\. Leave"
    ):
        ipex.jit_optimize(Model(lambda y: (y, None, *[y] * torch.jit.is_tracing())).eval(), A)


def test_a_trace_that_computes_something_else_is_warned_of():
    with pytest.warns(
        UserWarning,
        match="trace of Model to compute what the model does, but its trace gives other numbers. .*: script the model",
    ) as warned:
        ipex.jit_optimize(Model(lambda y: y * (2 if torch.jit.is_tracing() else 1)).eval(), A)
    assert [w.filename for w in warned if str(w.message).startswith("ipex")] == [__file__]


def test_the_model_is_not_changed():
    model = Model(ANSWERS["dataclass"]).eval()
    before = {name: copy.copy(value) for name, value in vars(model).items()}
    ipex.jit_optimize(model, A)
    assert {name: str(value) for name, value in vars(model).items()} == {n: str(v) for n, v in before.items()}
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_quantised_models_too():
    model = Model(ANSWERS["dataclass"]).eval()
    assert isinstance(ipex.quantization.dynamic(model, {"x": A})(A), Answer)
    prepared = ipex.quantization.prepare(model, {"x": A, "scale": 2.0}, ipex.quantization.Recipe(forced=True))
    assert isinstance(prepared(A, scale=2.0), Answer)
    assert isinstance(ipex.quantization.convert(prepared)(A, scale=2.0), Answer)
