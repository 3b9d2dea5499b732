"""States that do not belong to a parameter, or to the optimizer, are refused before a step begins."""

from __future__ import annotations

import pytest
import torch

import ipex  # noqa: F401  registers the class

# The options of a group, and how many states and whether a step an optimizer needs.
OPTIMIZERS = {
    "sgd": ([0.1, 0.9, 0.0, 0.0, 0.0, 1.0], 1, False),
    "adagrad": ([0.1, 0.0, 0.0, 1e-8, 1.0], 1, True),
    "adam": ([0.1, 0.9, 0.99, 1e-8, 0.0, 0.0, 0.0, 1.0], 2, True),
    "adam of amsgrad": ([0.1, 0.9, 0.99, 1e-8, 0.0, 0.0, 1.0, 1.0], 3, True),
    "lamb": ([0.1, 0.9, 0.99, 1e-8, 0.0, 1.0], 2, True),
    "lars": ([0.1, 0.9, 0.0, 0.0, 0.0, 0.001, 1e-8, 1.0], 1, False),
}


def freed() -> torch.Tensor:
    tensor = torch.zeros(3, 5)
    tensor.untyped_storage().resize_(4)
    return tensor


WRONG = {
    "of another size": lambda: torch.zeros(2, 5),
    "of another dtype": lambda: torch.zeros(3, 5, dtype=torch.float64),
    "on meta": lambda: torch.zeros(3, 5, device="meta"),
    "without memory": freed,
    "negated": lambda: torch._neg_view(torch.zeros(3, 5)),
    "sparse": lambda: torch.zeros(3, 5).to_sparse(),
}


def collected(name: str) -> tuple[torch.nn.Parameter, object]:
    """Return a parameter with a gradient, and an object that has asked for its states."""
    parameter = torch.nn.Parameter(torch.ones(3, 5))
    parameter.grad = torch.ones(3, 5)
    trained = torch.classes.ipex.TrainedParameters([parameter], [0], [None])
    assert trained.collect(torch.device("cpu")) == ([0], [])
    return parameter, trained


def step(trained, name: str) -> None:
    getattr(trained, name.split()[0])(OPTIMIZERS[name][0])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_that_fits_is_taken(name):
    parameter, trained = collected(name)
    _, count, has_step = OPTIMIZERS[name]
    trained.set_state(0, [torch.zeros(3, 5) for _ in range(count)], torch.zeros(()) if has_step else None, True)
    step(trained, name)
    assert not torch.equal(parameter, torch.ones(3, 5))


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_another_state_is_refused(name, what):
    parameter, trained = collected(name)
    _, count, has_step = OPTIMIZERS[name]
    for wrong in range(count):
        states = [WRONG[what]() if i == wrong else torch.zeros(3, 5) for i in range(count)]
        trained.set_state(0, states, torch.zeros(()) if has_step else None, True)
        with pytest.raises(ValueError, match="expected states of the size, the device and the kind of parameter 0"):
            step(trained, name)
    assert torch.equal(parameter, torch.ones(3, 5))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_missing_state_is_refused(name):
    parameter, trained = collected(name)
    _, count, has_step = OPTIMIZERS[name]
    trained.set_state(0, [torch.zeros(3, 5) for _ in range(count - 1)], torch.zeros(()) if has_step else None, True)
    with pytest.raises(ValueError, match=f"expected {count} states"):
        step(trained, name)
    if has_step:
        trained.set_state(0, [torch.zeros(3, 5) for _ in range(count)], None, True)
        with pytest.raises(ValueError, match="and a step"):
            step(trained, name)
    assert torch.equal(parameter, torch.ones(3, 5))
