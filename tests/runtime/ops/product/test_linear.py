import copy

import pytest
import torch
from torch import nn

import ipex
from support import assert_round_trip, check_against_eager, fallback_reasons, kernel_of, kinds


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("width_in", "width_out"), [(16, 32), (7, 5), (1, 1), (300, 1000), (64, 3)])
def test_matches_eager(tmp_path, width_in, width_out, bias):
    x = torch.randn(6, width_in)
    also = (
        x[0],
        x[:1],
        torch.randn(2, 3, width_in),
        torch.randn(2, 2, 3, width_in),
        torch.randn(width_in, 6).t(),
        torch.randn(5, 2, width_in).transpose(0, 1),
        torch.randn(4, 2 * width_in)[:, ::2],
        torch.randn(1, width_in).expand(3, width_in),
    )
    optimized = check_against_eager(nn.Linear(width_in, width_out, bias=bias), x, also=also)
    assert kinds(optimized)["ipex::linear_run"] == 1
    assert fallback_reasons(optimized) == []
    assert_round_trip(optimized, tmp_path, x)


@pytest.mark.parametrize("width_in", [1000, 1030, 2500])
@pytest.mark.parametrize("width_out", [4, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64])
def test_long_sums(width_in, width_out):
    """Kernels cut long sums into pieces, and the packed weight must be read from where each begins."""
    x = torch.randn(6, width_in)
    check_against_eager(nn.Linear(width_in, width_out), x, also=(x[:1], x[:2], torch.randn(40, width_in)))


def optimized_linear() -> torch.jit.ScriptModule:
    return ipex.jit_optimize(torch.jit.trace(nn.Linear(8, 4).eval(), torch.randn(1, 8)))


@pytest.mark.parametrize("shape", [(2, 7), (8, 2), ()])
def test_wrong_width(shape):
    message = r"ipex::linear_run: expected input with last dimension 8 \(weight is 4 8\), got"
    with pytest.raises(RuntimeError, match=message.replace("4 8", r"\[4, 8\]|4 8")):
        optimized_linear()(torch.randn(shape))


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8)])
def test_empty_batch(shape):
    check_against_eager(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), torch.randn(2, 8), also=(torch.randn(shape),))


def test_gradients_reach_the_input():
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval()
    x = torch.randn(3, 8)
    optimized = ipex.jit_optimize(torch.jit.trace(model, x))
    ours, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
    optimized(ours).sum().backward()
    model(eager).sum().backward()
    torch.testing.assert_close(ours.grad, eager.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width_in", [1, 3, 13, 33, 257])
@pytest.mark.parametrize("rows", [2, 5, 17, 40])
def test_nan_stays_in_its_row(dtype, width_in, rows):
    """With AMX, kernels read 16-bit numbers in pairs: an odd one is not paired with the next row."""
    for width_out in (1, 8, 17, 64):
        x = torch.randn(rows, width_in, dtype=dtype)
        x[rows // 2] = torch.nan
        layer = nn.Sequential(nn.Linear(width_in, width_out), nn.ReLU()).to(dtype).eval()
        with torch.no_grad():
            optimized = ipex.jit_optimize(torch.jit.trace(layer, x, check_trace=False))
            exact = copy.deepcopy(layer).float()(x.float())  # aten's kernels spread it, too
            torch.testing.assert_close(optimized(x).float(), exact, equal_nan=True, rtol=2e-2, atol=2e-2)


def test_a_profile_names_the_kernel_and_why_those_before_do_not_compute():
    layer, x = nn.Linear(64, 64).eval(), torch.randn(5, 64)
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(layer, x))
        may_round = ipex.jit_optimize(torch.jit.trace(layer, x), fp32_math_mode=ipex.FP32MathMode.BF32)
        wide = x.repeat(200, 1)
        of_floats = {"pairs of bfloat16": "its weight is float32"}
        exact = {**of_floats, "factors rounded to bfloat16": "its math mode is FP32"}
        assert kernel_of(lambda: optimized(x)) == ("panels", exact)
        assert kernel_of(lambda: optimized(wide)) == ("panels", exact)
        few = {**of_floats, "factors rounded to bfloat16": "it has few products"}
        assert kernel_of(lambda: may_round(x)) == ("panels", few)
