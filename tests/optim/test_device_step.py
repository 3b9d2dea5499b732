"""The tables that kernels on another device read: made of parameters on the CPU, which need no such device."""

from __future__ import annotations

import pytest
import torch

import ipex  # noqa: F401  registers the class

SGD = [0.1, 0.9, 0.0, 0.0, 0.0, 1.0]  # the options of a group


def ones(first: int) -> torch.Tensor:
    """Ones that begin at the element `first` of their memory, which begins at a multiple of 64 bytes."""
    return torch.ones(first + 15)[first:].view(3, 5)


@pytest.mark.parametrize("odd", ["none", "weight", "gradient", "state"])
def test_a_row_says_whether_all_addresses_are_divisible_by_16(odd):
    first = {name: 3 if name == odd else 4 for name in ("weight", "gradient", "state")}
    parameter = torch.nn.Parameter(ones(first["weight"]))
    parameter.grad, state = ones(first["gradient"]), ones(first["state"])
    trained = torch.classes.ipex.TrainedParameters([parameter], [0], [None])
    assert trained.collect(torch.device("cpu")) == ([0], [])
    trained.set_state(0, [state], None, True)
    rows, numbers = trained.begin_on_device("sgd", SGD)
    trained.finish_on_device()
    addresses = [parameter.data_ptr(), 0, parameter.grad.data_ptr(), state.data_ptr(), 0, 0]
    assert rows.tolist() == [[*addresses, 15, 0, 0, odd == "none"]]
    assert numbers.shape == (1, 8)
