"""The names that users see: the mode of the process, its environment variable, and what is refused."""

import os
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

import ipex
from ipex import FP32MathMode


@pytest.fixture(autouse=True)
def _in_float32():
    ipex.set_fp32_math_mode()
    yield
    ipex.set_fp32_math_mode()


def traced():
    return torch.jit.trace(nn.Linear(4, 3).eval(), torch.randn(2, 4))


def test_the_names_and_numbers():
    assert [(mode.name, mode.value) for mode in FP32MathMode] == [("FP32", 0), ("TF32", 1), ("BF32", 2)]


def test_set_and_get():
    assert ipex.get_fp32_math_mode() is FP32MathMode.FP32
    ipex.set_fp32_math_mode(FP32MathMode.BF32)
    assert ipex.get_fp32_math_mode("cpu") is FP32MathMode.BF32
    ipex.set_fp32_math_mode(mode=FP32MathMode.FP32, device=torch.device("cpu"))
    assert ipex.get_fp32_math_mode(device=torch.device("cpu")) is FP32MathMode.FP32


def test_for_a_while():
    with ipex.fp32_math_mode(FP32MathMode.BF32):
        with ipex.fp32_math_mode(FP32MathMode.FP32):
            assert ipex.get_fp32_math_mode() is FP32MathMode.FP32
        assert ipex.get_fp32_math_mode() is FP32MathMode.BF32
        with pytest.raises(KeyError), ipex.fp32_math_mode(FP32MathMode.FP32):
            raise KeyError  # restored after errors too
        assert ipex.get_fp32_math_mode() is FP32MathMode.BF32
    assert ipex.get_fp32_math_mode() is FP32MathMode.FP32


def test_tf32_warns_and_changes_nothing():
    ipex.set_fp32_math_mode(FP32MathMode.BF32)
    message = "expected FP32 or BF32, got TF32, which CPUs do not have. The mode stays BF32"
    with pytest.warns(UserWarning, match=message) as caught:
        ipex.set_fp32_math_mode(FP32MathMode.TF32)
    assert caught[0].filename == __file__
    assert ipex.get_fp32_math_mode() is FP32MathMode.BF32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ipex.set_fp32_math_mode(FP32MathMode.FP32)


def test_tf32_is_refused_where_it_would_be_a_promise():
    message = "expected FP32 or BF32, got TF32, which CPUs do not have"
    with pytest.raises(ValueError, match=f"ipex.jit_optimize: {message}"):
        ipex.jit_optimize(traced(), fp32_math_mode=FP32MathMode.TF32)
    with pytest.raises(ValueError, match=f"ipex.fp32_math_mode: {message}"), ipex.fp32_math_mode(FP32MathMode.TF32):
        pass
    with pytest.raises(RuntimeError, match="expected FP32 or BF32 in fp32_math_mode, got TF32"):
        ipex._C.jit_optimize(traced()._c, fp32_math_mode=1)


@pytest.mark.parametrize("mode", ["BF32", 2, None, torch.bfloat16])
def test_not_a_mode(mode):
    with pytest.raises(TypeError, match="ipex.set_fp32_math_mode: expected an ipex.FP32MathMode, got"):
        ipex.set_fp32_math_mode(mode)
    with pytest.raises(TypeError, match="ipex.fp32_math_mode: expected an ipex.FP32MathMode, got"):
        ipex.fp32_math_mode(mode).__enter__()
    if mode is not None:
        with pytest.raises(TypeError, match="ipex.jit_optimize: expected an ipex.FP32MathMode, got"):
            ipex.jit_optimize(traced(), fp32_math_mode=mode)
    assert ipex.get_fp32_math_mode() is FP32MathMode.FP32


@pytest.mark.parametrize(
    ("device", "error", "message"),
    [
        ("xpu", RuntimeError, "expected a device 'xpu' on this machine, got none"),
        (torch.device("cuda"), RuntimeError, "expected a device 'cuda' on this machine, got none"),
        ("meta", ValueError, "expected the device 'cpu', 'cuda' or 'xpu', got 'meta'"),
        (None, TypeError, "expected a device such as 'cpu', got None"),
    ],
)
def test_a_device_that_is_not_there(monkeypatch, device, error, message):
    for kind in (torch.cuda, torch.xpu):
        monkeypatch.setattr(kind, "is_available", lambda: False)
    for call in (
        lambda: ipex.set_fp32_math_mode(FP32MathMode.TF32, device=device),
        lambda: ipex.get_fp32_math_mode(device=device),
        lambda: ipex.fp32_math_mode(FP32MathMode.TF32, device=device).__enter__(),
    ):
        with pytest.raises(error, match=message):
            call()
    assert ipex.get_fp32_math_mode() is FP32MathMode.FP32


def switches_of_cuda():
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if not hasattr(cudnn, "conv"):
        return matmul.allow_tf32, cudnn.allow_tf32
    return tuple(switch.fp32_precision == "tf32" for switch in (matmul, cudnn.conv))


def test_a_gpu_follows_torchs_own_switches(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    before = switches_of_cuda()
    with ipex.fp32_math_mode(FP32MathMode.TF32, "cuda"):
        assert switches_of_cuda() == (True, True)
        assert ipex.get_fp32_math_mode("cuda") is FP32MathMode.TF32
        with ipex.fp32_math_mode(FP32MathMode.FP32, "cuda:0"):
            assert switches_of_cuda() == (False, False)
            assert ipex.get_fp32_math_mode("cuda") is FP32MathMode.FP32
        assert switches_of_cuda() == (True, True)
        with pytest.warns(UserWarning, match="expected FP32 or TF32, got BF32, which cuda does not have"):
            ipex.set_fp32_math_mode(FP32MathMode.BF32, "cuda")
        assert ipex.get_fp32_math_mode("cuda") is FP32MathMode.TF32
    assert switches_of_cuda() == before
    assert ipex.get_fp32_math_mode() is FP32MathMode.FP32


def test_optimize_passes_it_on():
    model, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    for given in ((model, x), (traced(),)):
        optimized = ipex.jit_optimize(*given, fp32_math_mode=FP32MathMode.BF32)
        assert "math_mode=BF32" in optimized.packed_0.describe()


ENVIRONMENT = """
import os, torch, ipex

# oneDNN computes it: its primitives tell their mode.
model, x = torch.nn.ConvTranspose2d(4, 3, 2).eval(), torch.randn(1, 4, 5, 6)
traced = torch.jit.trace(model, x)
follows = ipex.jit_optimize(traced)  # does not ask
own = ipex.jit_optimize(traced, fp32_math_mode=ipex.FP32MathMode.FP32)

def call():
    with torch.no_grad():
        follows(x)

for value in ("TF32", "bf16", "", "BF32 "):
    os.environ["IPEX_FP32_MATH_MODE"] = value
    for use in (call, ipex.get_fp32_math_mode, ipex.set_fp32_math_mode):
        try:
            use()
        except RuntimeError as error:
            assert f"IPEX_FP32_MATH_MODE: expected FP32 or BF32, got '{value}'" in str(error), error
        else:
            raise AssertionError(f"{value!r} was accepted")
    with torch.no_grad():
        own(x)  # does not ask either

os.environ["IPEX_FP32_MATH_MODE"] = "BF32"
call()
assert follows.packed_0.primitive_math_modes() == ["BF32"]
os.environ["IPEX_FP32_MATH_MODE"] = "FP32"
assert ipex.get_fp32_math_mode() is ipex.FP32MathMode.BF32
"""


def test_the_environment_is_read_once_at_the_first_use_that_succeeds():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ENVIRONMENT],
        env={**os.environ, "IPEX_FP32_MATH_MODE": "wrong, but nobody asks"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
