"""On a GPU the same call turns torch's own fused step on where there is one, and else kernels of our own, in triton.

Weights of 16 bits have masters as they do on a CPU.
"""

import copy

import pytest
import torch
from torch import nn

import ipex
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
GPU = torch.device("cuda", 0)
# Their trust is the quotient of norms, which the CPU sums in another order.
OF_NORMS = ("lamb", "lamb_maximize", "lars", "lars_all")


@pytest.fixture(params=["triton", "lists"])
def way(request, monkeypatch):
    """Kernels of our own, and torch's ops over lists where these can't be used."""
    if request.param == "lists":
        monkeypatch.setattr(by_triton, "has_kernels", lambda device: False)
    elif not by_triton.has_kernels(GPU):
        pytest.skip("triton is not installed, or not for this GPU")
    return request.param


def assert_way(optimizer: torch.optim.Optimizer, way: str) -> None:
    assert list(optimizer._plan.steps) == [GPU if way == "triton" else torch.device("cpu")]


@pytest.mark.parametrize(("dtype", "split"), LOW, ids=LOW_IDS)
@pytest.mark.parametrize("name", CASES)
def test_16_bit_weights_are_those_of_float32(name, dtype, split, way):
    first = nn.Sequential(*layers(37, 50, 3), nn.Linear(3, 1201)).cuda()
    second = copy.deepcopy(first)
    # In two dtypes masters are the same floats, and a gradient that both hold exactly gives them the same step.
    other = torch.float16 if dtype == torch.bfloat16 else torch.bfloat16
    one, two = prepared(CASES[name], first, other, split=False), prepared(CASES[name], second, dtype, split=split)
    assert second[0].weight.dtype == dtype
    assert second[1].weight.dtype == torch.float32
    step_alike([first, second], [one, two], steps=10)
    assert_way(two, way)
    assert_same_weights(first, second)


@pytest.mark.parametrize("name", CASES)
def test_the_step_is_that_of_the_cpu(name, way):
    on_cpu = nn.Sequential(*layers(37, 50, 3), nn.Linear(3, 1201))
    on_gpu = copy.deepcopy(on_cpu).cuda()
    optimizers = [prepared(CASES[name], model, torch.bfloat16) for model in (on_cpu, on_gpu)]
    for _ in range(20):
        set_gradients([on_cpu, on_gpu])
        for optimizer in optimizers:
            optimizer.step()
    assert all(p.is_cuda for p in on_gpu.parameters())
    assert_way(optimizers[1], way)
    if way == "triton" and name not in OF_NORMS:
        assert_same_weights(on_gpu.cpu(), on_cpu)
    else:
        assert largest_difference([on_gpu.cpu(), on_cpu]) < TOLERANCE


@pytest.mark.parametrize("name", ["adagrad", "adagrad_all", *OF_NORMS])
def test_float32_weights_that_torch_has_no_fused_step_for(name):
    if not by_triton.has_kernels(GPU):
        pytest.skip("triton is not installed, or not for this GPU")
    first = nn.Sequential(*layers(37, 50, 3), nn.Linear(3, 1201)).cuda()
    second = copy.deepcopy(first)
    stock, own = CASES[name](first.parameters()), prepared(CASES[name], second)
    for _ in range(100):
        set_gradients([first, second])
        stock.step()
        own.step()
    assert own.fused
    assert_way(own, "triton")
    assert largest_difference([second, first]) < TOLERANCE


@pytest.mark.parametrize("name", PLAIN)
def test_thousands_of_small_tensors_and_a_large_one(name, way):
    on_cpu = nn.Sequential(*(nn.Linear(1 + n % 17, 1 + n % 5) for n in range(1000)), nn.Linear(1000, 2111))
    on_gpu = copy.deepcopy(on_cpu).cuda()
    optimizers = [prepared(CASES[name], model, torch.bfloat16) for model in (on_cpu, on_gpu)]
    for step in range(3):
        set_gradients([on_cpu, on_gpu])
        for model in (on_cpu, on_gpu):
            model[step].bias.grad = None
        for optimizer in optimizers:
            optimizer.step()
    assert largest_difference([on_gpu.cpu(), on_cpu]) < TOLERANCE


def test_a_state_of_torchs_fused_step_is_gone_on_with(way):
    first = layers(37, 50).cuda()
    second = copy.deepcopy(first)
    fused = torch.optim.AdamW(first.parameters(), 1e-2, fused=True)
    set_gradients([first])
    fused.step()
    second.load_state_dict(first.state_dict())
    own = prepared(CASES["adamw"], second, torch.bfloat16)
    own.load_state_dict(copy.deepcopy(fused.state_dict()))
    own.param_groups[0].update(fused=None, weight_decay=0.1)
    fused.param_groups[0].update(weight_decay=0.1)
    for _ in range(5):
        set_gradients([first, second])
        fused.step()
        own.step()
    assert largest_difference([second, first]) < TOLERANCE


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_a_grad_scaler(name, way):
    model = layers(13, 20).cuda()
    expected = copy.deepcopy(model)
    optimizer, plain = prepared(CASES[name], model, torch.float16), prepared(CASES[name], expected, torch.float16)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    scaler.scale(torch.ones((), device="cuda"))  # makes the scale
    for step in range(4):
        set_gradients([model, expected], scale=0.01)
        for p in model.parameters():
            p.grad *= 1024
        if step == 2:
            model[0].weight.grad[0, 0] = torch.inf
        else:
            plain.step()
        scaler.step(optimizer)
        scaler.update(1024.0)
    assert largest_difference([model, expected]) < TOLERANCE


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
