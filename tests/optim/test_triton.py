"""The kernels for GPUs, run by triton's interpreter on tensors of the CPU: the bits of the CPU's own kernels."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from ipex import isa
from ipex.optim import by_triton
from optimizer_cases import (
    CASES,
    PLAIN,
    TOLERANCE,
    assert_same_weights,
    hard_floats,
    largest_difference,
    layers,
    prepared,
    same_bits,
    set_gradients,
    step_alike,
)

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU, for which test_gpu.py is"),
]

FORMATS = {
    "float32": (torch.float32, False),
    "bf16_split": (torch.bfloat16, True),
    "bf16_master": (torch.bfloat16, False),
    "fp16_master": (torch.float16, False),
}
# Their trust is the quotient of norms, which the CPU sums in another order.
OF_NORMS = ("lamb", "lamb_maximize", "lars", "lars_all")


@pytest.fixture(scope="module", autouse=True)
def _interpreter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        import triton.runtime.interpreter as interpreter

        from ipex.optim import triton_kernels

        assert type(triton_kernels.step).__name__ == "InterpretedFunction"

        # The interpreter rounds the product of fma, which no GPU does, nor a CPU beyond SSE.
        def fma(_: object, x, y, z):
            product = x.data.astype(np.longdouble) * y.data.astype(np.longdouble)
            return interpreter.TensorHandle((product + z.data).astype(x.data.dtype), z.dtype.scalar)

        if isa.current() != isa.Level.DEFAULT:
            patch.setattr(interpreter.InterpreterBuilder, "create_fma", fma)
        with np.errstate(all="ignore"):
            yield


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_triton, "BLOCK", 512)


def steps(models, optimizers, monkeypatch: pytest.MonkeyPatch, count: int = 2) -> None:
    """Step on the same gradients, the first by the CPU's kernels and the second by triton's."""
    for _ in range(count):
        set_gradients(models)
        step_both(optimizers, monkeypatch)


def step_both(optimizers, monkeypatch: pytest.MonkeyPatch) -> None:
    own, by_interpreter = optimizers
    own.step()
    with monkeypatch.context() as patch:
        patch.setattr(by_triton, "has_kernels", lambda device: True)
        by_interpreter.step()
    assert type(by_interpreter._plan.steps[torch.device("cpu")]) is by_triton.DeviceStep
    assert type(own._plan.steps[torch.device("cpu")]) is not by_triton.DeviceStep


def pair(name: str, form: str, model: nn.Module):
    """A model twice, with optimizers."""
    dtype, split = FORMATS[form]
    models = (model, copy.deepcopy(model))
    return models, [prepared(CASES[name], m, dtype, split=split) for m in models]


def assert_same_states(one, other):
    for expected, found in zip(one.state.values(), other.state.values()):
        assert expected.keys() == found.keys()
        assert all(same_bits(found[key], value) for key, value in expected.items())


@pytest.mark.parametrize(("name", "form"), [(n, f) for n in CASES for f in FORMATS if n in PLAIN or f == "bf16_split"])
def test_weights_and_states_are_those_of_the_cpu(name, form, monkeypatch):
    # Blocks that are whole, the end of one, and less than one; a norm, which stays float32.
    models, optimizers = pair(name, form, layers(23, 50))
    steps(models, optimizers, monkeypatch)
    if name in OF_NORMS:
        assert largest_difference([models[1], models[0]]) < TOLERANCE
    else:
        assert_same_weights(*models)
        assert_same_states(*optimizers)


@pytest.mark.parametrize("name", ["lamb", "lars"])
@pytest.mark.parametrize("form", ["bf16_master", "fp16_master", "bf16_split"])
def test_norms_do_not_depend_on_the_format(name, form, monkeypatch):
    plain, low = layers(23, 50), None
    low = copy.deepcopy(plain)
    optimizers = [prepared(CASES[name], plain), prepared(CASES[name], low, FORMATS[form][0], split=FORMATS[form][1])]
    monkeypatch.setattr(by_triton, "has_kernels", lambda device: True)
    step_alike([plain, low], optimizers, steps=2)
    assert_same_weights(plain, low)


@pytest.mark.parametrize("form", ["float32", "bf16_split"])
def test_what_does_not_lie_in_order_or_at_round_addresses(form, monkeypatch):
    model = nn.Sequential(nn.Linear(31, 40), nn.Linear(40, 30, bias=False), nn.Linear(30, 40, bias=False))
    model[1].weight = nn.Parameter(torch.randn(40, 30).t())
    model[2].weight = nn.Parameter(torch.randn(30 * 40 + 1)[1:].view(40, 30))
    models, optimizers = pair("adamw", form, model)
    steps(models, optimizers, monkeypatch)
    assert_same_weights(*models)
    for one, other in zip(*(m.parameters() for m in models)):
        assert one.stride() == other.stride()


def test_parameters_without_gradients_and_sparse_ones(monkeypatch):
    model = nn.Sequential(nn.Embedding(20, 8, sparse=True), nn.Linear(8, 30), nn.Linear(30, 3))
    models, optimizers = pair("sgd", "bf16_split", model)
    for step in range(3):
        for own in models:
            own.zero_grad()
            hidden = own[1](own[0](torch.tensor([1, 4, step])).to(own[1].weight.dtype))
            (own[2](hidden) if step else hidden).sum().backward()
        step_both(optimizers, monkeypatch)
        assert (models[1][2].weight.grad is None) == (step == 0)
    assert models[1][0].weight.grad.is_sparse
    assert_same_weights(*models)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["sgd_momentum", "adam_all"])
def test_all_kinds_of_floats(name, form, monkeypatch):
    x = hard_floats()[:700]
    model = nn.Linear(700, 1, bias=False)
    model.weight = nn.Parameter(x[None].clone())
    models, optimizers = pair(name, form, model)
    for _ in range(2):
        gradient = hard_floats()[torch.randperm(700)]
        for own in models:
            own.weight.grad = gradient[None].to(own.weight.dtype)
        step_both(optimizers, monkeypatch)
    first, second = (own.state_dict()["weight"] for own in models)
    assert torch.equal(first.isnan(), second.isnan())
    assert same_bits(first.nan_to_num(nan=0.0), second.nan_to_num(nan=0.0))


def test_tables_are_made_once(monkeypatch):
    models, optimizers = pair("adamw", "bf16_split", layers(23, 50))
    steps(models, optimizers, monkeypatch, 1)
    step = optimizers[1]._plan.steps[torch.device("cpu")]
    blocks = step._blocks
    steps(models, optimizers, monkeypatch, 1)
    assert step._blocks is blocks
    models[1][0].bias.grad = None
    models[0][0].bias.grad = None
    step_both(optimizers, monkeypatch)
    assert step._blocks is not blocks
    assert_same_weights(*models)
