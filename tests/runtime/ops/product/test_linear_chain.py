"""A chain of linears gives the bits of its layers one after the other, however it is called.

A profiler shows the layers where they run one by one, and nothing where they run at once.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex import FP32MathMode
from support import assert_same, calls_of, contexts, fallback_reasons, kinds, own_thread_count


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width_in, width_out in zip(widths, widths[1:]):
        layers += [nn.Linear(width_in, width_out), activation()]
    return nn.Sequential(*layers[:-1]).eval()


def both(model: nn.Module, x: Tensor, **options: object) -> tuple[torch.jit.ScriptModule, torch.jit.ScriptModule]:
    """The model with its chain, and without."""
    traced = torch.jit.trace(model, x, check_trace=False)
    chained = ipex.jit_optimize(traced, **options)
    apart = ipex.jit_optimize(traced, disable=["chain_linears"], **options)
    assert kinds(chained)["ipex::linear_chain_run"] == 1
    assert kinds(apart)["ipex::linear_chain_run"] == 0
    return chained, apart


def check(model: nn.Module, x: Tensor, at_once: bool, **options: object) -> torch.jit.ScriptModule:
    chained, apart = both(model, x, **options)
    before = x.clone()
    for _ in range(3):
        actual, expected = chained(x), apart(x)
        assert_same(actual, expected, tolerance=0)
        assert_same(actual, model(x), tolerance=2**-7 if "fp32_math_mode" in options else 1e-5)
    assert torch.equal(x, before)
    assert fallback_reasons(chained) == fallback_reasons(apart)
    assert set(chained.packed_0.fallback_reasons()) == set(fallback_reasons(chained))
    assert (calls_of("ipex::linear_run", chained, x) == 0) == at_once
    return chained


@pytest.mark.parametrize("rows", [1, 2, 7, 16, 17])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.Sigmoid])
def test_few_rows_are_computed_at_once(rows, activation):
    check(mlp(20, 33, 65, 24, activation=activation), torch.randn(rows, 20), at_once=rows <= 16)


def test_two_layers_and_many():
    check(mlp(20, 30, 40), torch.randn(1, 20), at_once=True)
    check(mlp(*[24] * 12), torch.randn(2, 24), at_once=True)


def test_much_between_the_layers():
    for rows, width, at_once in [(1, 2048, True), (1, 2049, False), (16, 128, True), (16, 129, False)]:
        check(mlp(8, width, 8), torch.randn(rows, 8), at_once=at_once)


def test_any_rank_and_layout():
    chained, apart = both(mlp(20, 30, 40), torch.randn(2, 20))
    wide = torch.randn(4, 40)
    inputs = (
        torch.randn(20),
        torch.randn(2, 3, 20),
        torch.randn(20, 4).t(),
        wide[:, ::2],
        wide[1:2, 3:23].expand(3, 20),
    )
    for x in (*inputs, torch.randn(0, 20), torch.randn(2, 0, 20)):
        assert_same(chained(x), apart(x), tolerance=0)
    assert fallback_reasons(chained) == fallback_reasons(apart) == ["there is nothing to compute"] * 2


def test_one_layer_that_is_not_for_the_kernel():
    activation = nn.Softplus(threshold=100)
    check(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), activation, nn.Linear(30, 20)).eval(), torch.randn(1, 20), False)
    check(nn.Sequential(nn.Linear(20, 30), activation, nn.Linear(30, 20)).eval(), torch.randn(1, 20), False)


def test_bf32_is_for_each_layer_to_decide():
    check(mlp(20, 30, 40), torch.randn(1, 20), at_once=False, fp32_math_mode=FP32MathMode.BF32)
    check(mlp(20, 30, 40), torch.randn(1, 20), at_once=True, fp32_math_mode=FP32MathMode.FP32)


def test_a_mode_of_the_process():
    x = torch.randn(1, 20)
    chained, apart = both(mlp(20, 30, 40), x)
    with ipex.fp32_math_mode(FP32MathMode.BF32):
        assert calls_of("ipex::linear_run", chained, x) == 2
        assert torch.equal(chained(x), apart(x))
    assert calls_of("ipex::linear_run", chained, x) == 0


def test_a_batch_norm_for_another_rank():
    model = nn.Sequential(nn.Linear(20, 30), nn.BatchNorm1d(30), nn.Linear(30, 20)).eval()
    check(model, torch.randn(2, 20), at_once=True)
    # Here the channels of the batch_norm are dimension 1.
    chained, apart = both(model, torch.randn(2, 20))
    for inner in (torch.randn(2, 30, 20), torch.randn(1, 7, 20)):
        messages = []
        for module in (chained, apart):
            try:
                result = module(inner)
            except RuntimeError as error:
                messages.append(str(error).rsplit("RuntimeError", 1)[-1])
            else:
                messages.append(str(result))
        assert messages[0] == messages[1]


def test_gradients_and_autocast_are_atens_matter():
    model, x = mlp(20, 30, 40), torch.randn(1, 20)
    chained, apart = both(model, x)
    with torch.enable_grad():
        gradients = []
        for module in (chained, apart, model):
            leaf = x.clone().requires_grad_()
            module(leaf).sum().backward()
            gradients.append(leaf.grad)
        assert_same(gradients[0], gradients[1], tolerance=0)
        assert_same(gradients[0], gradients[2])
    with torch.autocast("cpu"):
        assert_same(chained(x), apart(x), tolerance=0)
    assert fallback_reasons(chained) == fallback_reasons(apart)


def test_another_dtype_or_width_is_an_error_of_the_first_layer():
    chained, _ = both(mlp(20, 30, 40), torch.randn(1, 20))
    with pytest.raises(RuntimeError, match=r"ipex::linear_run: expected input with last dimension 20"):
        chained(torch.randn(1, 30))
    with pytest.raises(RuntimeError, match=r"dtype"):
        chained(torch.randn(1, 20).double())


def test_nan_and_infinity():
    x = torch.randn(4, 20)
    x[0, 3], x[1, 4], x[2, 5] = float("nan"), float("inf"), -float("inf")
    chained, apart = both(mlp(20, 30, 40), x)
    actual, expected = chained(x), apart(x)
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual.nan_to_num(), expected.nan_to_num())


def test_results_are_fresh_and_threads_agree():
    x = torch.randn(3, 20)
    chained, _ = both(mlp(20, 700, 600, 40), torch.randn(1, 20))
    first = chained(x)
    expected = first.clone()
    chained(torch.randn(3, 20))
    assert torch.equal(first, expected)
    with own_thread_count():
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert torch.equal(chained(x), expected)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(y, expected) for y in pool.map(torch.inference_mode()(chained), [x] * 16))


def test_copied():
    x = torch.randn(2, 20)
    chained, _ = both(mlp(20, 30, 40), x)
    for again in (copy.deepcopy(chained), copy.copy(chained)):
        assert torch.equal(again(x), chained(x))
        assert [c.describe() for c in contexts(again)] == [c.describe() for c in contexts(chained)]


def test_refuses_an_empty_chain():
    with pytest.raises(RuntimeError, match="expected at least one layer, got none"):
        torch.ops.ipex.linear_chain_prepack([])


def test_tells_what_it_is_made_of():
    chained, _ = both(mlp(20, 30, 40), torch.randn(1, 20))
    first, second = contexts(chained)
    assert repr(chained.packed_0) == f"ipex::linear_chain_run({first.describe()}, {second.describe()})"
    assert "weight=[30, 20]" in first.describe()
    assert "relu" in first.describe()
