"""On a GPU the same call turns torch's own fused step on, and weights of 16 bits have masters as they do on a CPU."""

import copy

import pytest
import torch
from torch import nn

import ipex
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


LOW = [(torch.bfloat16, True), (torch.bfloat16, False), (torch.float16, False)]
LOW_IDS = ["bf16_split", "bf16_master", "fp16_master"]


@pytest.mark.parametrize(("dtype", "split"), LOW, ids=LOW_IDS)
@pytest.mark.parametrize("name", CASES)
def test_16_bit_weights_are_those_of_float32(name, dtype, split):
    first = nn.Sequential(*layers(37, 50, 3), nn.Linear(3, 1201)).cuda()
    second = copy.deepcopy(first)
    # In two dtypes masters are the same floats, and a gradient that both hold exactly gives them the same step.
    other = torch.float16 if dtype == torch.bfloat16 else torch.bfloat16
    one, two = prepared(CASES[name], first, other, split=False), prepared(CASES[name], second, dtype, split=split)
    assert second[0].weight.dtype == dtype
    assert second[1].weight.dtype == torch.float32
    step_alike([first, second], [one, two], steps=10)
    assert_same_weights(first, second)


@pytest.mark.parametrize("name", PLAIN)
def test_the_step_is_that_of_the_cpu(name):
    on_cpu = layers(37, 50, 3)
    on_gpu = copy.deepcopy(on_cpu).cuda()
    optimizers = [prepared(CASES[name], model, torch.bfloat16) for model in (on_cpu, on_gpu)]
    for _ in range(20):
        set_gradients([on_cpu, on_gpu])
        for optimizer in optimizers:
            optimizer.step()
    assert all(p.is_cuda for p in on_gpu.parameters())
    assert largest_difference([on_gpu.cpu(), on_cpu]) < TOLERANCE


def test_halves_are_those_of_the_cpu():
    x = hard_floats()
    top, bottom = torch.ops.ipex.split_weight(x)
    gpu_top, gpu_bottom = torch.ops.ipex.split_weight(x.cuda())
    assert torch.equal(gpu_top.cpu().view(torch.int16), top.view(torch.int16))
    assert torch.equal(gpu_bottom.cpu(), bottom)
    joined = torch.ops.ipex.join_weight(gpu_top, gpu_bottom).cpu()
    assert same_bits(joined, torch.ops.ipex.join_weight(top, bottom))


def test_state_dict_is_float32_and_comes_back():
    model = nn.Linear(64, 64).cuda().train()
    original = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    model, optimizer = ipex.optimize(model, dtype=torch.bfloat16, optimizer=optimizer)
    assert model.weight.dtype == torch.bfloat16
    for key, value in model.state_dict().items():
        assert value.is_cuda
        assert same_bits(value, original[key])
    changed = {key: value + 1 for key, value in original.items()}
    model.load_state_dict(changed)
    for key, value in model.state_dict().items():
        assert same_bits(value, changed[key])


def test_masters_follow_a_model_that_moves():
    model = nn.Linear(64, 64).train()
    original = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    model, optimizer = ipex.optimize(model, dtype=torch.bfloat16, optimizer=optimizer)
    for device in ("cuda", "cpu"):
        model.to(device)
        for key, value in model.state_dict().items():
            assert value.device.type == device
            assert same_bits(value.cpu(), original[key])
