"""A dtype for a float32 model: `jit_optimize(.., dtype=)`."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from anchored import After, trace
from low_precision import assert_kernels_were_used, both_dtypes, check_lowered
from support import assert_round_trip, contexts, kinds, packed_post_ops


class Net(nn.Module):
    """Convolutions, a residual, pools and a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = F.relu(self.second(F.relu(self.first(x))) + x)
        y = self.up(torch.cat([x, y], 1))
        return self.last(y.mean((2, 3)))


@both_dtypes
def test_fires(tmp_path, dtype):
    x = torch.randn(2, 3, 16, 16)
    optimized = check_lowered(Net(), x, dtype)
    assert [c.__getstate__()[0][1]["weight"].dtype for c in contexts(optimized)] == [dtype] * 5
    assert packed_post_ops(optimized) == [["relu"], ["relu"], ["add", "relu"], [], []]
    assert_kernels_were_used(optimized, dtype)
    # One cast of the image and one of the mean on the way in, one at the end on the way out: between the convolutions
    # there are none, the pool and the concatenation included, and the mean reads 16 bits.
    assert kinds(optimized)["ipex::lower_precision"] == 2
    assert kinds(optimized)["ipex::restore_precision"] == kinds(optimized)["ipex::elementwise.sum"] == 1
    assert_round_trip(optimized, tmp_path, x)


@both_dtypes
def test_the_report_says_so(dtype):
    name = str(dtype).removeprefix("torch.")
    optimized = ipex.jit_optimize(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.randn(2, 4), dtype=dtype)
    said = [str(d) for d in ipex.explain(optimized) if d.pass_name == "lower_precision"]
    assert len(said) == 1
    assert said[0].startswith("applied   lower_precision: ipex::linear_run in ")
    assert said[0].endswith(f": runs in {name}")


def declined(optimized: torch.jit.ScriptModule) -> list[str]:
    return [d.reason for d in ipex.explain(optimized).declined if d.pass_name == "lower_precision"]


def test_declines_what_overflows():
    linear, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
    with torch.no_grad():
        linear.weight[0, 0] = 1e5
        optimized = ipex.jit_optimize(linear, x, dtype=torch.float16)
        assert declined(optimized) == ["its weight overflows in float16"]
        torch.testing.assert_close(optimized(x), linear(x))
    assert declined(ipex.jit_optimize(linear, x, dtype=torch.bfloat16)) == []


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_declines_transposed_convolutions_of_a_group_per_channel(groups):
    model, x = nn.ConvTranspose2d(6, 6, 2, 2, 1, groups=groups, bias=False).eval(), torch.randn(1, 6, 7, 7)
    x[0, 1, 3, 0] = torch.nan
    optimized = ipex.jit_optimize(model, x, dtype=torch.bfloat16)
    assert declined(optimized) == (["oneDNN lets a NaN of one channel into another"] if groups == 6 else [])
    with torch.no_grad():
        assert torch.equal(optimized(x).isnan(), model(x).isnan())


@pytest.mark.parametrize("other", [torch.float16, torch.bfloat16])
def test_a_residual_of_16_bits_beside_a_layer_of_others(other):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x, residual):
            return self.linear(x) + residual

    model, inputs = Residual().eval(), (torch.randn(2, 4), torch.randn(2, 4).to(other))
    for dtype in (torch.bfloat16, torch.float16):
        with torch.no_grad():
            torch.testing.assert_close(
                ipex.jit_optimize(model, inputs, dtype=dtype)(*inputs), model(*inputs), atol=0.05, rtol=0
            )


def test_declines_what_computes_in_float32():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.lstm(x)[0]
            return torch.matmul(y, y.transpose(1, 2))

    model, x = Recurrent().eval(), torch.randn(2, 3, 4)
    optimized = ipex.jit_optimize(trace(model, x), dtype=torch.bfloat16)
    assert declined(optimized) == ["it computes in float32"] * 2
    with torch.no_grad():
        torch.testing.assert_close(optimized(x), model(x))


@both_dtypes
def test_leaves_16_bit_weights_alone(dtype):
    other = torch.float16 if dtype == torch.bfloat16 else torch.bfloat16
    model, x = nn.Linear(4, 4).eval().to(other), torch.randn(2, 4).to(other)
    optimized = ipex.jit_optimize(trace(model, x), dtype=dtype)
    assert declined(optimized) == ["its weight has 16 bits already"]
    with torch.no_grad():
        torch.testing.assert_close(optimized(x), model(x))


@both_dtypes
def test_what_is_not_float32_meets_what_it_meets_in_eager(dtype):
    add = After(nn.Linear(4, 4), lambda f, x, other: f(x) + other).eval()
    x = torch.randn(2, 4)
    optimized = ipex.jit_optimize(trace(add, x, torch.randn(2, 4)), dtype=dtype)
    with torch.no_grad():
        for other in (torch.randn(2, 4).double(), torch.arange(8).view(2, 4) * 1000 + 1, torch.ones(2, 4).bool()):
            expected, actual = add(x, other), optimized(x, other)
            assert actual.dtype == expected.dtype
            tolerance = 4 * torch.finfo(dtype).eps
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
        for wrong in (x.double(), x.long()):
            with pytest.raises(RuntimeError, match="same dtype"):
                optimized(wrong, x)


@both_dtypes
def test_inside_branches(dtype):
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            if bool(x.sum() > 0):
                y = self.second(y) + self.first(x)
            return y

    model = Branches().eval()
    optimized = ipex.jit_optimize(torch.jit.script(model), dtype=dtype)
    with torch.no_grad():
        for x in (torch.ones(2, 4), -torch.ones(2, 4)):
            torch.testing.assert_close(optimized(x), model(x), atol=8 * torch.finfo(dtype).eps, rtol=0)


@both_dtypes
def test_gradients_reach_the_input(dtype):
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).eval(), torch.randn(2, 4)
    optimized = ipex.jit_optimize(trace(model, x), dtype=dtype)
    with torch.enable_grad():
        ours, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
        optimized(ours).sum().backward()
        model(eager).sum().backward()
    torch.testing.assert_close(ours.grad, eager.grad, atol=8 * torch.finfo(dtype).eps, rtol=0)


def test_the_original_is_left_alone():
    model, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
    traced = trace(model, x)
    before = str(traced.inlined_graph), model.weight.clone()
    ipex.jit_optimize(traced, dtype=torch.bfloat16)
    assert str(traced.inlined_graph) == before[0]
    assert torch.equal(model.weight, before[1])
    assert model.weight.dtype == torch.float32


def test_refuses_a_model_whose_ops_are_packed():
    optimized = ipex.jit_optimize(nn.Linear(4, 4).eval(), torch.randn(2, 4))
    with pytest.raises(RuntimeError, match="expected a model that was not optimised before, to give it a dtype"):
        ipex.jit_optimize(optimized, dtype=torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, torch.float64])
def test_another_dtype(dtype):
    with pytest.raises(ValueError, match=f"expected torch.bfloat16 or torch.float16 in dtype, got {dtype}"):
        ipex.jit_optimize(nn.Linear(4, 4).eval(), torch.randn(2, 4), dtype=dtype)


def test_not_a_dtype():
    with pytest.raises(TypeError, match="expected a torch.dtype in dtype, got 'bfloat16'"):
        ipex.jit_optimize(nn.Linear(4, 4).eval(), torch.randn(2, 4), dtype="bfloat16")


WITHOUT_INSTRUCTIONS = """
import warnings, torch, ipex

warnings.simplefilter("error", UserWarning)
for dtype in (torch.bfloat16, torch.float16):
    linear, convolution = torch.nn.Linear(64, 48), torch.nn.Conv2d(8, 8, 3)
    for model, x in ((linear, torch.randn(9, 64)), (convolution, torch.randn(1, 8, 9, 9))):
        optimized = ipex.jit_optimize(model.eval(), x, dtype=dtype)
        exact = model.to(dtype).float()(x.to(dtype).float())
        error = (optimized(x) - exact).abs().max() / exact.abs().max()
        assert error <= torch.finfo(dtype).eps, error
        assert optimized.packed_0.fallback_reasons() == []
"""


@pytest.mark.parametrize("settings", [{"ATEN_CPU_CAPABILITY": "avx2"}, {"IPEX_FAST_AVX512_BF16": "0"}])
def test_a_cpu_without_fast_instructions_for_the_dtype_computes_in_float32(settings):
    environment = {**os.environ, **settings}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_INSTRUCTIONS], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
