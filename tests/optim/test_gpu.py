"""On a GPU the same call turns torch's own fused step on."""

import copy

import pytest
import torch
from torch import nn

import ipex
from support import assert_same

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that torch can use")

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, nesterov=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, 1e-2, amsgrad=True),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 1e-2),
}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 12, generator=generator).cuda()).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("begun", [0, 5])
def test_the_step_is_torchs_fused_one(name, begun):
    stock = nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 3)).cuda().train()
    stock_optimizer = OPTIMIZERS[name](stock.parameters())
    train(stock, stock_optimizer, begun)
    own, own_optimizer = copy.deepcopy((stock, stock_optimizer))
    own, own_optimizer = ipex.optimize(own, optimizer=own_optimizer, inplace=True)
    assert own_optimizer.fused
    assert all(group["fused"] for group in own_optimizer.param_groups)
    train(stock, stock_optimizer, 20)
    train(own, own_optimizer, 20)
    for actual, expected in zip(own.parameters(), stock.parameters()):
        assert_same(actual, expected, 1e-4)


def test_weights_stay_where_there_are_no_masters():
    model = nn.Linear(4, 4).cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer = ipex.optimize(model, dtype=torch.bfloat16, optimizer=optimizer)
    assert model.weight.dtype == torch.float32
    assert any("masters" in decision.reason for decision in ipex.explain(model).declined)
