"""Packed ops with weights of bfloat16 and float16: near to float32, on oneDNN where the CPU computes in the dtype."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ipex
from anchored import ANCHORS, After, batch_norm, make, named, trace
from low_precision import assert_kernels_were_used, both_dtypes, check_16_bit
from support import assert_round_trip, assert_same, contexts, fallback_reasons, packed_post_ops

with_weights = pytest.mark.parametrize("anchor", [a for a in ANCHORS if a not in ("matmul", "lstm", "gru")])
every_product = pytest.mark.parametrize("anchor", [a for a in ANCHORS if a not in ("lstm", "gru")])

POST_OPS = {
    "none": (lambda f, x: f(x), []),
    "relu": (lambda f, x: F.relu(f(x)), ["relu"]),
    "gelu": (lambda f, x: F.gelu(f(x)), ["gelu"]),
    "silu": (lambda f, x: F.silu(f(x)), ["silu"]),
    "hardswish": (lambda f, x: F.hardswish(f(x)), ["hardswish"]),
    "tanh": (lambda f, x: torch.tanh(f(x)), ["tanh"]),
    "residual": (lambda f, x: F.relu(f(x) + x), ["add", "relu"]),
    "product": (lambda f, x: f(x) * x, ["mul"]),
    "number": (lambda f, x: f(x) * 0.3 + 1, ["mul_number(0.3)", "add_number(1)"]),
}


@every_product
@both_dtypes
@named("case", POST_OPS)
def test_post_ops(anchor, dtype, case):
    function, post_ops = case
    module, x = make(anchor)
    optimized = check_16_bit(After(module, function), x, dtype)
    assert packed_post_ops(optimized) == [post_ops]
    assert_kernels_were_used(optimized, dtype)


@both_dtypes
@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Linear(64, 96), (7, 64)),
        (nn.Linear(33, 5, bias=False), (1, 33)),
        (nn.Linear(256, 256), (2, 40, 256)),
        (nn.Conv2d(3, 32, 7, stride=2, padding=3), (2, 3, 40, 40)),
        (nn.Conv2d(32, 64, 1, bias=False), (1, 32, 14, 14)),
        (nn.Conv2d(32, 48, 3, padding=1, groups=4), (2, 32, 9, 9)),
        (nn.Conv2d(32, 32, 5, padding=2, groups=32), (2, 32, 9, 9)),
        (nn.Conv2d(17, 19, 3, dilation=2), (1, 17, 13, 11)),
        (nn.ConvTranspose2d(16, 24, 4, stride=2, padding=1), (2, 16, 7, 7)),
    ],
    ids=str,
)
def test_widths(module, shape, dtype):
    assert_kernels_were_used(check_16_bit(module, torch.randn(shape), dtype), dtype)


@both_dtypes
def test_channels_last_stays_channels_last(dtype):
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3))
    for memory_format in (torch.contiguous_format, torch.channels_last):
        check_16_bit(model, torch.randn(2, 4, 12, 12).to(memory_format=memory_format), dtype)


@both_dtypes
@pytest.mark.parametrize("anchor", ["conv1d", "conv2d", "depthwise", "conv_transpose2d", "conv3d"])
def test_a_folded_batch_norm(anchor, dtype):
    module, x = make(anchor)
    optimized = check_16_bit(nn.Sequential(module, batch_norm(anchor), nn.ReLU()), x, dtype)
    (context,) = contexts(optimized)
    _, tensors, _, post_ops = context.__getstate__()[0]
    assert tensors["weight"].dtype == dtype
    assert post_ops == ["relu"]


@both_dtypes
def test_a_batch_norm_folded_for_another_rank(dtype):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.norm = nn.Linear(6, 4), batch_norm("conv1d")

        def forward(self, x):
            return self.norm(self.linear(x))

    model = Net().eval().to(dtype)
    optimized = ipex.jit_optimize(trace(model, torch.randn(3, 6).to(dtype)))
    with torch.no_grad():
        for shape in ((3, 6), (2, 4, 6)):
            x = torch.randn(shape).to(dtype)
            exact, stock, ours = copy.deepcopy(model).float()(x.float()), model(x), optimized(x)
            assert ours.dtype == dtype
            assert_same(ours.float(), exact, tolerance=4 * torch.finfo(dtype).eps)
            assert ours.stride() == stock.stride()


@with_weights
@both_dtypes
def test_survives_save_and_load(tmp_path, anchor, dtype):
    module, x = make(anchor)
    low = After(module, lambda f, x: F.relu(f(x))).eval().to(dtype)
    optimized = ipex.jit_optimize(trace(low, x.to(dtype)))
    loaded = assert_round_trip(optimized, tmp_path, x.to(dtype))
    version, tensors, _, _ = loaded.packed_0.__getstate__()[0]
    assert version == 3
    weight = module.weight.unsqueeze(2) if "1d" in anchor else module.weight
    assert torch.equal(tensors["weight"], weight)
    assert torch.equal(tensors["bias"], module.bias)
    copied = copy.deepcopy(optimized)
    with torch.no_grad():
        assert torch.equal(copied(x.to(dtype)), optimized(x.to(dtype)))


@with_weights
@both_dtypes
def test_the_models_own_weight_may_change(anchor, dtype):
    module, x = make(anchor)
    low, x = module.eval().to(dtype), x.to(dtype)
    optimized = ipex.jit_optimize(trace(low, x))
    with torch.no_grad():
        before = optimized(x)
        low.weight.zero_()
        assert torch.equal(optimized(x), before)


@every_product
@both_dtypes
def test_nan_and_infinity(anchor, dtype):
    module, x = make(anchor)
    low, x = module.eval().to(dtype), x.to(dtype)
    x[0].view(-1)[0], x[-1].view(-1)[-1] = float("nan"), float("inf")
    optimized = ipex.jit_optimize(trace(After(low, lambda f, x: F.relu(f(x))), x))
    with torch.no_grad():
        expected, actual = F.relu(low(x)), optimized(x)
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual.isinf(), expected.isinf())


@both_dtypes
def test_an_operand_of_another_dtype_decides_the_results(dtype):
    model = nn.Linear(6, 6).eval().to(dtype)
    after = After(model, lambda f, x, other: f(x) + other)
    for other in (
        torch.randn(5, 6),
        torch.randn(6),
        torch.tensor(1.5),
        torch.randint(9, (5, 6)),
        torch.randn(6).to(dtype),
    ):
        x = torch.randn(5, 6).to(dtype)
        optimized = ipex.jit_optimize(trace(after, x, other))
        with torch.no_grad():
            expected, actual = after(x, other), optimized(x, other)
        assert_same(actual, expected, tolerance=torch.finfo(dtype).eps)
        reasons = [r for r in fallback_reasons(optimized) if r.startswith("post-op")]
        name = "bfloat16" if dtype == torch.bfloat16 else "float16"
        is_left = other.dtype != dtype
        assert reasons == ([f"post-op add: its operand is not a {name} CPU tensor"] if is_left else [])


@both_dtypes
def test_an_input_of_another_dtype_is_eagers_error(dtype):
    for given in (torch.float32, torch.bfloat16, torch.float16):
        if given == dtype:
            continue
        optimized = ipex.jit_optimize(trace(nn.Linear(6, 6).to(dtype), torch.randn(5, 6).to(dtype)))
        with pytest.raises(RuntimeError, match="same dtype"):
            optimized(torch.randn(5, 6).to(given))


@both_dtypes
def test_gradients_are_eagers(dtype):
    model, x = nn.Linear(6, 6).eval().to(dtype), torch.randn(5, 6).to(dtype)
    optimized = ipex.jit_optimize(trace(model, x))
    with torch.enable_grad():
        ours, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
        optimized(ours).sum().backward()
        model(eager).sum().backward()
    assert torch.equal(ours.grad, eager.grad)


@both_dtypes
@pytest.mark.parametrize("anchor", ["lstm", "gru"])
def test_recurrent_layers_are_left_to_aten(anchor, dtype):
    module, x = make(anchor)
    low, x = module.eval().to(dtype), x.to(dtype)
    optimized = ipex.jit_optimize(trace(low, x))
    with torch.no_grad():
        assert_same(optimized(x), low(x), tolerance=0)
    assert any("not float32" in d.reason for d in ipex.explain(optimized).declined)


def test_the_dtype_is_described():
    optimized = ipex.jit_optimize(trace(nn.Linear(6, 6).bfloat16(), torch.randn(5, 6).bfloat16()))
    assert "dtype=bfloat16" in optimized.packed_0.describe()


def test_the_math_mode_is_float32s():
    linear, x = nn.Linear(512, 512).eval().bfloat16(), torch.randn(5, 512).bfloat16()
    optimized = ipex.jit_optimize(trace(linear, x), fp32_math_mode=ipex.FP32MathMode.BF32)
    with torch.no_grad():
        assert_same(optimized(x), linear(x), tolerance=2**-7)
    is_onednns = ipex.isa.has_fast_avx512_bf16() or ipex.isa.has_amx()
    assert optimized.packed_0.primitive_math_modes() == (["FP32"] if is_onednns else [])
    assert "its weight has 16 bits" in [d.reason for d in ipex.explain(optimized).declined]
