import os
import subprocess
import sys

import torch
from torch import nn

import ipex
from support import assert_same


def frozen(model: nn.Module, x: torch.Tensor) -> torch.jit.ScriptModule:
    return torch.jit.freeze(torch.jit.trace(model.eval(), x))


def kinds_executed(module: torch.jit.ScriptModule, x: torch.Tensor) -> list[str]:
    with torch.no_grad():
        for _ in range(3):
            module(x)
    return [node.kind() for node in torch.jit.last_executed_optimized_graph().nodes()]


def model() -> nn.Module:
    convolution = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
    return nn.Sequential(*convolution, nn.Flatten(), nn.Linear(288, 5), nn.Softmax(-1))


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


X = torch.randn(2, 3, 8, 8)


def test_off_by_default():
    assert not any(kind.startswith("ipex::") for kind in kinds_executed(frozen(model(), X), X))


def test_frozen_modules_go_through_the_pipeline_and_back():
    plain = model().eval()
    with torch.no_grad():
        expected = plain(X)
        with ipex.jit_passes():
            module = frozen(plain, X)
            kinds = kinds_executed(module, X)
            assert {"ipex::convolution_run", "ipex::linear_run"} <= set(kinds)
            assert not {"aten::conv2d", "aten::linear", "aten::batch_norm", "aten::relu"} & set(kinds)
            assert_same(module(X), expected)
        after = kinds_executed(frozen(plain, X), X)
    assert not any(kind.startswith("ipex::") for kind in after)


def test_modules_that_are_not_frozen_are_left_alone():
    with ipex.jit_passes():
        kinds = kinds_executed(torch.jit.trace(model().eval(), X), X)
        kinds += kinds_executed(torch.jit.trace(nn.Softmax(-1), X), X)
        kinds += kinds_executed(torch.jit.script(softmax), X)
    assert not any(kind.startswith("ipex::") for kind in kinds)


def test_registering_twice_is_registering_once():
    ipex.register_jit_passes()
    ipex.register_jit_passes()
    ipex.unregister_jit_passes()
    ipex.unregister_jit_passes()
    assert not any(kind.startswith("ipex::") for kind in kinds_executed(frozen(model(), X), X))


UNPACKABLE = """
import os, sys, warnings
import torch, ipex
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
x = torch.randn(2, 4)
frozen = torch.jit.freeze(torch.jit.trace(model, x))
with torch.no_grad(), ipex.jit_passes(), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        assert torch.allclose(frozen(x), model(x))
print([str(w.message) for w in caught if "ipex.register_jit_passes" in str(w.message)])
"""


def test_what_fails_while_a_model_is_optimised_does_not_fail_the_model():
    """A level of instructions that does not exist is an error where the first weight is packed."""
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "no such level"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", UNPACKABLE], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "the module runs as it is" in done.stdout + done.stderr
