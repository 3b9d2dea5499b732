"""FP8 linears: scales by hand, the arithmetic against plain tensors, and what surrounds them."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from fp8_model import FORMATS, assert_like_by_hand, round_by_table
from ipex.quantization import fp8
from ipex.quantization.fp8 import DelayedScaling, Format, FP8Linear, fp8_autocast, prepare_fp8
from support import assert_same

# Of one region, by hand.
X = torch.tensor([[3.0, -7.0], [1.0, 2.0]])
W = torch.tensor([[1.0, -2.0], [0.5, 4.0], [0.25, 0.0]])
G = torch.tensor([[0.5, -2.0, 1.0], [0.0, 0.25, 0.0]])


def linear_of(weight: Tensor) -> FP8Linear:
    linear = prepare_fp8(nn.Linear(weight.shape[1], weight.shape[0], bias=False))
    with torch.no_grad():
        linear.weight.copy_(weight)
    return linear


def see(linear: FP8Linear, x: Tensor, recipe: DelayedScaling, **region: bool) -> Tensor:
    """Call it in a region of its own."""
    with fp8_autocast(enabled=region.pop("enabled", True), fp8_recipe=recipe, **region):
        return linear(x)


def scales(linear: FP8Linear) -> list[float]:
    return linear.fp8_scales.scale.tolist()


def test_the_scales_of_a_region_are_those_of_the_next():
    linear, recipe = linear_of(W), DelayedScaling(amax_history_len=3)
    see(linear, X, recipe).backward(G)
    assert scales(linear) == [448 / 7, 448 / 4, 1]  # the region ended before the gradient was there
    assert linear.fp8_scales.updates.tolist() == [1, 1, 0]
    see(linear, X, recipe)
    assert scales(linear) == [448 / 7, 448 / 4, 57344 / 2]
    assert linear.fp8_scales.updates.tolist() == [2, 2, 1]
    assert linear.fp8_scales.amax_history.tolist() == [[7, 4, 2], [7, 4, 0], [0, 0, 0]]


def test_a_gradient_that_is_computed_in_the_region_counts_at_its_end():
    linear, recipe = linear_of(W), DelayedScaling(amax_history_len=2)
    with fp8_autocast(enabled=True, fp8_recipe=recipe):
        linear(X).backward(G)
        linear(2 * X).backward(G / 4)
        assert scales(linear) == [1, 1, 1]
    assert linear.fp8_scales.amax_history.tolist() == [[14, 4, 2], [0, 0, 0]]


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("max", [2, 8, 8, 8, 4]),
        ("most_recent", [2, 8, 4, 1, 1]),
        (lambda history: history.sum(0), [2, 10, 14, 13, 6]),
        (lambda history: history[-1].clamp_min(1), [1, 1, 2, 8, 4]),
    ],
)
def test_the_amax_is_that_of_the_history(algorithm, expected):
    linear, recipe = linear_of(W), DelayedScaling(amax_history_len=3, amax_compute_algo=algorithm)
    for amax, wanted in zip([2.0, -8.0, 4.0, 1.0, 1.0], expected):
        see(linear, torch.tensor([[amax, 0.5]]), recipe)
        assert linear.fp8_scales.scale[0] == 448 / wanted


def test_the_first_of_each_interval_computes_scales():
    linear, recipe = linear_of(W), DelayedScaling(amax_history_len=1, interval=3)
    found = []
    for amax in (1.0, 2.0, 4.0, 7.0, 14.0, 28.0, 56.0):
        see(linear, torch.tensor([[amax, 0.5]]), recipe)
        found.append(448 / scales(linear)[0])
    assert found == [1, 1, 1, 7, 7, 7, 56]


def test_margins_formats_and_a_formula_of_the_users():
    for recipe, expected in (
        (DelayedScaling(margin=2), [448 / 7 / 4, 448 / 4 / 4, 57344 / 2 / 4]),
        (DelayedScaling(margin=-1), [448 / 7 * 2, 448 / 4 * 2, 57344 / 2 * 2]),
        (DelayedScaling(fp8_format=Format.E4M3), [448 / 7, 448 / 4, 448 / 2]),
        (DelayedScaling(fp8_format=Format.E5M2), [57344 / 7, 57344 / 4, 57344 / 2]),
        (
            DelayedScaling(
                margin=3,
                scaling_factor_compute_algo=lambda amax, scale, fp8_max, own: amax + scale + fp8_max + own.margin,
            ),
            [7 + 1 + 448 + 3, 4 + 1 + 448 + 3, 2 + 1 + 57344 + 3],
        ),
    ):
        linear = linear_of(W)
        with fp8_autocast(enabled=True, fp8_recipe=recipe):
            linear(X).backward(G)
        assert scales(linear) == expected


def test_scales_follow_the_formats_of_another_recipe():
    linear = linear_of(W)
    see(linear, X, DelayedScaling(fp8_format=Format.E5M2))
    linear.eval()
    y = see(linear, X, DelayedScaling(fp8_format=Format.E4M3))
    assert scales(linear) == [448 / 7, 448 / 4, 1]
    assert_same(y, X @ W.t(), 0.07)


def test_what_is_zero_or_not_finite_keeps_its_scale():
    linear, recipe = linear_of(W), DelayedScaling(amax_history_len=2, amax_compute_algo="most_recent")
    see(linear, torch.zeros(1, 2), recipe)
    assert scales(linear)[0] == 1
    see(linear, X, recipe)
    for bad in (float("nan"), float("inf")):
        y = see(linear, torch.tensor([[bad, 100.0], [3.0, 2.0]]), recipe)
        assert y[0].isnan().any()
        assert y[1].isfinite().all()
        assert scales(linear)[0] == 448 / 7
    assert linear.fp8_scales.amax_history[:, 0].tolist() == [7, 0]
    assert linear.fp8_scales.updates[0] == 2
    see(linear, torch.full((1, 2), 1e-45), recipe)
    assert scales(linear)[0] == 2.0**126
    assert see(linear, torch.full((1, 2), 1e-45), recipe).isfinite().all()


@pytest.mark.parametrize("kind", FORMATS, ids=str)
def test_rounding_is_to_the_nearest_number_of_8_bits(kind):
    largest = torch.finfo(kind).max
    tensor = torch.cat([torch.randn(3000) * 10.0**e for e in range(-6, 6)] + [torch.linspace(-3, 3, 97)])
    tensor = torch.cat([tensor, torch.tensor([0.0, largest, 2 * largest, -1e30])])
    rounded = fp8._product.rounded(tensor, torch.tensor(1.5), kind)
    assert rounded.dtype == kind
    assert torch.equal(rounded.float(), round_by_table((tensor * 1.5).clamp(-largest, largest), kind))
    bad = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    assert fp8._product.rounded(bad, torch.tensor(1.0), kind).float().isnan().tolist() == [True, True, True, False]


@pytest.mark.parametrize("fp8_format", Format)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(24,), (5, 24), (2, 3, 24), (0, 24)])
def test_forward_and_backward_are_those_of_the_rounded_numbers(fp8_format, bias, shape):
    torch.manual_seed(1)
    linear, recipe = prepare_fp8(nn.Linear(24, 17, bias)), DelayedScaling(fp8_format=fp8_format)
    for step in range(3):
        x = (torch.randn(shape) * 30).requires_grad_()
        gradient = torch.randn(*shape[:-1], 17) * 1e-3
        scale = linear.fp8_scales.scale
        y = see(linear, x, recipe)
        # Those of the input and the weight are of earlier steps, and so is that of the gradient when it is there.
        own = torch.stack([scale[0], scale[1], linear.fp8_scales.scale[2]])
        assert_like_by_hand(y, x, linear, gradient, own, fp8_format.dtypes())
        assert step == 0 or 0 in shape or (own > 1).all()


def test_dtypes_follow_the_input_and_autocast():
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        linear = prepare_fp8(nn.Linear(24, 17)).to(dtype)
        x = torch.randn(5, 24, dtype=dtype, requires_grad=True)
        for _ in range(2):
            y = see(linear, x, DelayedScaling())
        y.sum().backward()
        assert {y.dtype, x.grad.dtype, linear.weight.grad.dtype, linear.bias.grad.dtype} == {dtype}
        assert_same(y.float(), F.linear(x.float(), linear.weight.float(), linear.bias.float()), 0.1)
        assert linear.fp8_scales.scale.dtype == torch.float32
    linear, x = prepare_fp8(nn.Linear(24, 17)), torch.randn(5, 24, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = see(linear, x, DelayedScaling())
    y.sum().backward()
    assert (y.dtype, x.grad.dtype, linear.weight.grad.dtype) == (torch.bfloat16, torch.float32, torch.float32)


def test_calibrating_changes_no_result_and_gives_scales():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    x, recipe = torch.randn(16, 8), DelayedScaling(fp8_format=Format.E4M3)
    prepared = prepare_fp8(model)
    assert torch.equal(see(prepared, x, recipe, enabled=False, calibrating=True), model(x))
    hidden = model[1](model[0](x))
    for linear, data in ((prepared[0], x), (prepared[2], hidden)):
        assert_same(linear.fp8_scales.scale[:2], 448 / torch.stack([data.abs().max(), linear.weight.abs().max()]), 1e-6)
    # A model in eval mode keeps them.
    before = [scales(prepared[0]), scales(prepared[2])]
    y = see(prepared, 100 * x, recipe)
    assert [scales(prepared[0]), scales(prepared[2])] == before
    y = see(prepared, x, recipe)
    assert not torch.equal(y, model(x))
    assert (y - model(x)).norm() < 0.1 * model(x).norm()
    # But where it calibrates and computes on 8 bits.
    see(prepared, 100 * x, recipe, calibrating=True)
    assert scales(prepared[0])[0] == pytest.approx(before[0][0] / 100, rel=1e-5)


def test_calibrating_in_training_sees_gradients():
    linear, recipe = linear_of(W), DelayedScaling()
    see(linear, X, recipe, enabled=False, calibrating=True).backward(G)
    see(linear, X, recipe, enabled=False, calibrating=True)
    assert scales(linear) == [448 / 7, 448 / 4, 57344 / 2]


def test_a_model_that_saw_nothing_warns():
    linear = linear_of(W).eval()
    with pytest.warns(
        UserWarning, match=r"expected a model that has seen data, got one whose scales are all 1. Call it"
    ):
        see(linear, X, DelayedScaling())


def test_state_travels_with_the_module(tmp_path):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    prepared, recipe, x = prepare_fp8(model), DelayedScaling(amax_history_len=4), torch.randn(16, 8)
    for _ in range(2):
        see(prepared, x, recipe).sum().backward()
    torch.save(prepared.state_dict(), tmp_path / "fp8.pt")
    other = prepare_fp8(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)))
    other.load_state_dict(torch.load(tmp_path / "fp8.pt"))
    for own, loaded in ((prepared[0], other[0]), (prepared[2], other[2])):
        for name, tensor in own.fp8_scales.state().items():
            assert torch.equal(loaded.fp8_scales.state()[name], tensor), name
    assert torch.equal(see(other.eval(), x, recipe), see(copy.deepcopy(prepared).eval(), x, recipe))
    # In both directions, with a float model. What is there stays.
    other.load_state_dict(model.state_dict())
    assert scales(other[0]) == scales(prepared[0])
    assert set(prepared.state_dict()) - set(model.state_dict()) == {"0._extra_state", "2._extra_state"}
    see(other.train(), 50 * x, recipe)
    assert scales(other[0]) != scales(prepared[0])  # they share nothing


def test_a_longer_and_a_shorter_history():
    linear = linear_of(W)
    for amax in (1.0, 2.0, 4.0):
        see(linear, torch.tensor([[amax, 0.0]]), DelayedScaling(amax_history_len=3))
    see(linear, torch.tensor([[8.0, 0.0]]), DelayedScaling(amax_history_len=2))
    assert linear.fp8_scales.amax_history[:, 0].tolist() == [8, 4]
    see(linear, torch.tensor([[0.5, 0.0]]), DelayedScaling(amax_history_len=4))
    assert linear.fp8_scales.amax_history[:, 0].tolist() == [0.5, 8, 4, 0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale", torch.ones(2)),
        ("scale", torch.ones(3, dtype=torch.float64)),
        ("amax_history", torch.ones(3)),
        ("amax_history", torch.ones(0, 3)),
        ("updates", None),
    ],
)
def test_damaged_states(name, value):
    state = linear_of(W).state_dict()
    state["_extra_state"] = {**state["_extra_state"], name: value}
    with pytest.raises(ValueError, match=rf"expected {name} of an input, a weight and a gradient .* damaged"):
        linear_of(W).load_state_dict(state)


def test_the_prepared_model_shares_parameters_and_nothing_else():
    class Odd(nn.Linear):
        pass

    model = nn.ModuleDict({"plain": nn.Linear(4, 4), "odd": Odd(4, 4), "norm": nn.BatchNorm1d(4)})
    model["again"] = model["plain"]
    called = []
    model["plain"].register_forward_hook(lambda *_: called.append(1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    prepared, same = prepare_fp8(model, optimizer)
    assert same is optimizer
    assert {name: type(module) for name, module in prepared.items()} == {
        "plain": FP8Linear,
        "odd": Odd,
        "norm": nn.BatchNorm1d,
        "again": FP8Linear,
    }
    assert prepared["again"] is prepared["plain"]
    assert type(model["plain"]) is nn.Linear
    assert [id(p) for p in prepared.parameters()] == [id(p) for p in model.parameters()]
    prepared["plain"](torch.randn(2, 4))
    assert called == [1]
    assert torch.equal(prepared["plain"](X.repeat(1, 2)), model["plain"](X.repeat(1, 2)))  # outside of regions


def test_encoder_layers_call_their_linears():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0, batch_first=True).eval()
    model = prepare_fp8(nn.TransformerEncoder(layer, 2))
    x, padding = torch.randn(2, 5, 16), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad(), fp8_autocast(calibrating=True):
        model(x, src_key_padding_mask=padding)
    assert [layer.linear1.fp8_scales.updates.tolist() for layer in model.layers] == [[1, 1, 0]] * 2


def test_regions_nest_and_are_those_of_a_thread():
    linear = linear_of(W)
    exact, rounded = linear(X / 3), []
    with fp8_autocast(enabled=True):
        assert not torch.equal(linear(X / 3), exact)
        with fp8_autocast(enabled=False):
            assert torch.equal(linear(X / 3), exact)
        with fp8_autocast(enabled=True, device="cuda"):
            assert torch.equal(linear(X / 3), exact)
        with fp8_autocast(enabled=True, device="cpu"):
            assert not torch.equal(linear(X / 3), exact)
        thread = threading.Thread(target=lambda: rounded.append(linear(X / 3)))
        thread.start()
        thread.join()
        assert torch.equal(rounded[0], exact)
        assert torch.equal(F.linear(X / 3, W), X / 3 @ W.t())  # nothing but FP8 linears
    assert torch.equal(linear(X / 3), exact)


def test_an_error_leaves_the_region_and_no_scales():
    linear = linear_of(W)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), fp8_autocast(enabled=True):
        linear(linear(X))
    assert scales(linear) == [1, 1, 1]
    assert torch.equal(linear(X / 3), F.linear(X / 3, W))


def test_what_is_refused():
    for arguments, message in (
        ({"margin": 0.5}, "expected an integer in margin, got 0.5"),
        ({"interval": 0}, "expected a positive integer in interval, got 0"),
        ({"amax_history_len": True}, "expected a positive integer in amax_history_len, got True"),
        ({"fp8_format": "E4M3"}, "expected a Format in fp8_format, got 'E4M3'. Take Format.E4M3"),
        ({"amax_compute_algo": "mean"}, "expected 'max', 'most_recent' or a function in amax_compute_algo, got 'mean'"),
    ):
        with pytest.raises(ValueError, match=message):
            DelayedScaling(**arguments)
    with (
        pytest.raises(TypeError, match="expected a DelayedScaling in fp8_recipe, got 'hybrid'"),
        fp8_autocast(enabled=True, fp8_recipe="hybrid"),
    ):
        pass
    with pytest.raises(TypeError, match="expected an nn.Module, got RecursiveScriptModule. Prepare the model before"):
        prepare_fp8(torch.jit.script(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match=r"expected a model with an nn.Linear, got none"):
        prepare_fp8(nn.Sequential(nn.ReLU()))


SCRIPT = Path(__file__).parents[1] / "fp8_distributed.py"


@pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")
@pytest.mark.parametrize("group", ["world", "given", "apart"])
def test_two_processes_have_the_scales_of_both(group, tmp_path):
    running = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), group, str(rank), str(tmp_path / "meet")], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    printed = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    # Inputs of rank + 1, a weight of 4, gradients of 8 (rank + 1): the scales after two steps.
    alone = [[448 / (rank + 1), 448 / 4, 57344 / (8 * (rank + 1))] for rank in range(2)]
    expected = alone if group == "apart" else [alone[1]] * 2
    assert [eval(text) for text in printed] == expected


def trained_digits(is_fp8: bool, seed: int) -> float:
    """The share of the digits that training did not see that a small network tells right."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn, which has the digits, is not installed")
    digits = datasets.load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=generator)
    train, test = order[: len(x) // 2], order[len(x) // 2 :]
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 10))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    model, optimizer = prepare_fp8(model, optimizer)
    recipe = DelayedScaling(amax_history_len=16)
    for _ in range(20):
        for batch in train[torch.randperm(len(train), generator=generator)].split(64):
            optimizer.zero_grad()
            with fp8_autocast(enabled=is_fp8, fp8_recipe=recipe):
                loss = F.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
    with torch.no_grad(), fp8_autocast(enabled=is_fp8, fp8_recipe=recipe):
        return (model.eval()(x[test]).argmax(1) == y[test]).double().mean().item()


def test_a_network_trained_on_digits_is_as_good_as_in_float32():
    """Within a percent of the digits, in the mean of three seeds."""
    exact, own = ([trained_digits(is_fp8, seed) for seed in range(3)] for is_fp8 in (False, True))
    print(exact, own)
    assert sum(exact) / 3 > 0.95
    assert abs(sum(own) - sum(exact)) / 3 < 0.01
