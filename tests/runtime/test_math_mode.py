"""The math mode reaches every primitive: read back from the primitives, and from what oneDNN prints when they run."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex import FP32MathMode
from support import BF32_TOLERANCE, FP32_TOLERANCE, assert_round_trip, assert_same, contexts, fallback_reasons

MODES = [FP32MathMode.FP32, FP32MathMode.BF32]
TOLERANCE = {FP32MathMode.FP32: FP32_TOLERANCE, FP32MathMode.BF32: BF32_TOLERANCE}


class Product(nn.Module):
    def forward(self, a: Tensor) -> Tensor:
        return torch.relu(torch.matmul(a, a.transpose(1, 2)))


# oneDNN's name for the op, the model, its input. Linears and 1x1 convolutions of this size run on kernels of our own.
OPS = {
    "conv1d": ("convolution", nn.Sequential(nn.Conv1d(16, 32, 3), nn.ReLU()), (2, 16, 20)),
    "conv2d": ("convolution", nn.Sequential(nn.Conv2d(16, 32, 3), nn.ReLU()), (2, 16, 10, 10)),
    "conv2d_depthwise": ("convolution", nn.Sequential(nn.Conv2d(16, 16, 3, groups=16), nn.ReLU()), (2, 16, 10, 10)),
    "conv3d": ("convolution", nn.Sequential(nn.Conv3d(16, 32, 3), nn.ReLU()), (2, 16, 6, 6, 6)),
    "conv_transpose2d": ("deconvolution", nn.Sequential(nn.ConvTranspose2d(16, 32, 3), nn.ReLU()), (2, 16, 10, 10)),
    "matmul": ("matmul", Product(), (2, 16, 32)),
}
ALL = {**OPS, "linear": ("", nn.Sequential(nn.Linear(64, 32), nn.ReLU()), (32, 64))}
ops = pytest.mark.parametrize("op", OPS)


@pytest.fixture(autouse=True)
def _in_float32():
    with ipex.fp32_math_mode(FP32MathMode.FP32):
        yield


def optimized_op(op: str, pinned: FP32MathMode | None = None) -> tuple[torch.jit.ScriptModule, Tensor, Tensor]:
    """The op, packed; an input; and eager's result."""
    _, model, sizes = ALL[op]
    model, x = model.eval(), torch.randn(sizes)
    with torch.no_grad():
        return ipex.jit_optimize(torch.jit.trace(model, x), fp32_math_mode=pinned), x, model(x)


def primitive_modes(optimized: torch.jit.ScriptModule) -> list[str]:
    """What the primitives say, the last used first."""
    (context,) = contexts(optimized)
    return context.primitive_math_modes()


@ops
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_of_its_own(op, mode):
    optimized, x, expected = optimized_op(op, mode)
    for process in MODES:
        with torch.no_grad(), ipex.fp32_math_mode(process):
            assert_same(optimized(x), expected, TOLERANCE[mode])
    assert primitive_modes(optimized) == [mode.name]
    assert fallback_reasons(optimized) == []
    assert f"math_mode={mode.name}" in repr(optimized.packed_0)


@ops
def test_following_the_process(op):
    optimized, x, expected = optimized_op(op)
    seen = []
    with torch.no_grad():
        for mode in (*MODES, *MODES):
            ipex.set_fp32_math_mode(mode)
            assert_same(optimized(x), expected, TOLERANCE[mode])
            seen.append(primitive_modes(optimized)[0])
    assert seen == ["FP32", "BF32"] * 2
    assert sorted(primitive_modes(optimized)) == ["BF32", "FP32"]  # one primitive for each, not one for each switch
    assert "math_mode=as the process" in optimized.packed_0.describe()


@ops
@pytest.mark.parametrize("pinned", [None, *MODES])
def test_saved_and_copied(op, pinned, tmp_path):
    optimized, x, _ = optimized_op(op, pinned)
    for again in (assert_round_trip(optimized, tmp_path, x), copy.deepcopy(optimized)):
        with torch.no_grad(), ipex.fp32_math_mode(FP32MathMode.BF32):
            again(x)
        assert primitive_modes(again)[0] == (pinned or FP32MathMode.BF32).name


VERBOSE = """
import torch, ipex
from runtime.test_math_mode import OPS, MODES, optimized_op
for op in OPS:
    for pinned in (None, *MODES):
        optimized, x, _ = optimized_op(op, pinned)
        for mode in MODES:
            print("CALL", op, (pinned or mode).name, flush=True)
            with torch.no_grad(), ipex.fp32_math_mode(mode):
                optimized(x)
            print("DONE", flush=True)
"""


def test_what_onednn_prints():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", VERBOSE],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "ONEDNN_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    calls = re.findall(r"^CALL (\w+) (\w+)\n(.*?)^DONE", done.stdout, re.DOTALL | re.MULTILINE)
    assert len(calls) == len(OPS) * 3 * 2
    for op, mode, lines in calls:
        (executed,) = [line for line in lines.splitlines() if f",exec,cpu,{OPS[op][0]}," in line]
        assert ("attr-fpmath:bf16" in executed) == (mode == "BF32"), executed


def test_changed_by_one_thread_while_others_run():
    optimized, x, expected = optimized_op("conv2d")

    def call(i: int) -> None:
        if i % 4 == 0:
            ipex.set_fp32_math_mode(MODES[i // 4 % 2])
        with torch.no_grad():
            assert_same(optimized(x), expected, BF32_TOLERANCE)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(64)))
    for mode in MODES:
        ipex.set_fp32_math_mode(mode)
        with torch.no_grad():
            optimized(x)
        assert primitive_modes(optimized)[0] == mode.name


CLASS = "__torch__.torch.classes.ipex.LinearContext"


def restored(state):
    context = torch.ScriptObject.__new__(torch.ScriptObject)
    context.__setstate__((state, CLASS))
    return context


def test_the_state_has_it_where_there_is_one():
    """A model that follows the process can be read by the first version, which knew no modes."""
    (version, _, integers, _), _ = optimized_op("linear")[0].packed_0.__getstate__()
    assert (version, integers) == (1, {})
    state, _ = optimized_op("linear", FP32MathMode.BF32)[0].packed_0.__getstate__()
    assert (state[0], state[2]) == (2, {"math_mode": [2]})
    again, _ = restored(state).__getstate__()
    assert again[0] == 2
    assert again[2:] == state[2:]


@pytest.mark.parametrize("op", ["conv2d", "conv_transpose2d", "linear"])
def test_a_model_with_a_mode_saves_its_weights_exactly(op):
    optimized, _, _ = optimized_op(op, FP32MathMode.BF32)
    assert torch.equal(optimized.packed_0.__getstate__()[0][1]["weight"], ALL[op][1][0].weight)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ([1], r"expected math mode 0 \(FP32\) or 2 \(BF32\), got 1"),
        ([7], r"expected math mode 0 \(FP32\) or 2 \(BF32\), got 7"),
        ([], "expected 1 integers of at least 0 in 'math_mode'"),
    ],
)
def test_a_saved_mode_that_cant_be_right(field, message):
    state, _ = optimized_op("linear", FP32MathMode.BF32)[0].packed_0.__getstate__()
    with pytest.raises(RuntimeError, match=message):
        restored((*state[:2], {"math_mode": field}, state[3]))
