"""Fused steps in float32 against torch's own, over hundreds of steps."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from optimizer_cases import CASES, TOLERANCE, largest_difference, layers, prepared, set_gradients
from support import own_thread_count

STEPS = 300


def trained(name: str, first: nn.Module, second: nn.Module, steps: int = STEPS) -> None:
    """Train the first with torch's optimizer and the second with ours, on the same gradients."""
    stock, ours = CASES[name](first.parameters()), prepared(CASES[name], second)
    for _ in range(steps):
        set_gradients([first, second])
        stock.step()
        ours.step()


@pytest.mark.parametrize("name", CASES)
def test_weights_are_those_of_torch(name):
    first = layers(37, 50, 3)
    second = copy.deepcopy(first)
    trained(name, first, second)
    assert largest_difference([second, first]) < TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_tensors_that_are_cut_for_threads(name):
    first = nn.Linear(300, 501)  # pieces of 32768 elements, the last one not a multiple of a register
    second = copy.deepcopy(first)
    trained(name, first, second, steps=8)
    assert largest_difference([second, first]) < TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_states_are_those_of_torch(name):
    first = layers(37, 20)
    second = copy.deepcopy(first)
    stock, ours = CASES[name](first.parameters()), prepared(CASES[name], second)
    for _ in range(20):
        set_gradients([first, second])
        stock.step()
        ours.step()
    assert stock.state_dict()["state"].keys() == ours.state_dict()["state"].keys()
    for index, state in stock.state_dict()["state"].items():
        own = ours.state_dict()["state"][index]
        assert own.keys() == state.keys()
        for key, value in state.items():
            torch.testing.assert_close(own[key], value, rtol=TOLERANCE, atol=TOLERANCE * float(value.abs().max()))
            assert own[key].dtype == value.dtype
            assert own[key].stride() == value.stride()


@pytest.mark.parametrize("name", CASES)
def test_any_number_of_threads_gives_the_same_bits(name):
    torch.manual_seed(1)
    first = nn.Sequential(nn.Linear(300, 501), *(nn.Linear(7, n) for n in range(1, 40)))
    second = copy.deepcopy(first)
    one, two = prepared(CASES[name], first), prepared(CASES[name], second)
    with own_thread_count():
        for _ in range(3):
            set_gradients([first, second])
            torch.set_num_threads(1)
            one.step()
            torch.set_num_threads(2)
            two.step()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters()))


@pytest.mark.parametrize("name", CASES)
def test_lists_of_small_tensors(name):
    first = nn.Sequential(*(nn.Linear(1 + n % 17, 1 + n % 5) for n in range(500)))
    second = copy.deepcopy(first)
    trained(name, first, second, steps=5)
    assert largest_difference([second, first]) < TOLERANCE


def test_not_finite_gradients_give_what_torch_gives():
    for name, make in CASES.items():
        first = nn.Linear(32, 2)
        second = copy.deepcopy(first)
        stock, ours = make(first.parameters()), prepared(make, second)
        for _ in range(3):
            set_gradients([first, second])
            for model in (first, second):
                model.weight.grad[0, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
            stock.step()
            ours.step()
        assert torch.equal(first.weight.isnan(), second.weight.isnan()), name
        assert torch.equal(first.weight.isinf(), second.weight.isinf()), name
