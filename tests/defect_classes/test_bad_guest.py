"""What is not ours stays as it was: the process, the model, what users keep in it.

tests/python/test_polite_guest.py has more about importing.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from anchored import check
from support import assert_same, kinds

# Kernels of aten, loggers, and functions that others replaced.
UNCHANGED = """
import logging, sys, torch
OPS = ["index_select", "cat", "avg_pool2d", "avg_pool3d", "sum.dim_IntList", "group_norm", "native_group_norm",
       "linear", "layer_norm", "native_layer_norm", "mean.dim", "convolution", "addmm", "bmm", "lstm.input",
       "max_pool2d"]
def state():
    kernels = {op: torch._C._dispatch_dump("aten::" + op) for op in OPS}
    root = logging.getLogger()
    loggers = [logging.getLoggerClass(), root.level, list(root.handlers), hasattr(logging.Logger, "warning_once")]
    functions = [torch.jit.trace, torch.jit.freeze, torch.backends.mkldnn.verbose, torch.nn.Module.__call__]
    return kernels, loggers, functions, sys.excepthook
before = state()
import ipex
assert state() == before, [(b, a) for b, a in zip(before, state()) if a != b]
optimized = ipex.jit_optimize(torch.jit.trace(torch.nn.Linear(4, 4).eval(), torch.randn(1, 4)))
optimized(torch.randn(1, 4))
assert state() == before, [(b, a) for b, a in zip(before, state()) if a != b]
"""

# sys.modules says that the extension can't be loaded.
UNFIT = """
import sys
sys.modules["ipex._C"] = None
try:
    import ipex
except ImportError as error:
    assert "expected a build for the installed torch" in str(error), error
    print("still alive")
"""

# A wheel that was built for another torch: its libraries would end the process, so they are not loaded.
OF_ANOTHER_TORCH = """
import importlib.metadata
importlib.metadata.requires = lambda name: ["numpy", "torch==2.99.*"]
try:
    import ipex
except ImportError as error:
    assert "got one for 2.99.*." in str(error), error
    print("still alive")
"""
SCRIPTS = [(UNCHANGED, ""), (UNFIT, "still alive\n"), (OF_ANOTHER_TORCH, "still alive\n")]


@pytest.mark.parametrize(("script", "output"), SCRIPTS, ids=["import", "unfit", "another torch"])
def test_a_process(script, output):
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


class WithMethods(nn.Module):
    """What users keep in their modules beside forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.version, self.labels = 7, ["cat", "dog"]

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.linear(x))

    @torch.jit.export
    def twice(self, x: Tensor) -> Tensor:
        return 2 * self.linear(x)


@pytest.mark.parametrize("script", [False, True])
@pytest.mark.parametrize("shape", [(2, 4), (1, 3, 8, 8)])
def test_the_original_stays_as_it_was(script, shape):
    conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    original, x = (WithMethods() if len(shape) == 2 else conv).eval(), torch.randn(shape)
    before = {name: (value.clone(), value.stride()) for name, value in original.state_dict().items()}
    module = torch.jit.script(original) if script else torch.jit.trace(original, x)
    graph, expected = str(module.inlined_graph), original(x)
    ipex.jit_optimize(module)(x)
    assert str(module.inlined_graph) == graph
    assert torch.equal(original(x), expected)
    assert torch.equal(module(x), expected)
    for name, value in original.state_dict().items():
        assert torch.equal(value, before[name][0])
        assert value.stride() == before[name][1]


def test_attributes_and_methods_are_kept():
    model, x = WithMethods().eval(), torch.randn(2, 4)
    optimized = ipex.jit_optimize(torch.jit.script(model))
    assert optimized.version == 7
    assert optimized.labels == ["cat", "dog"]
    with torch.no_grad():
        assert_same(optimized.twice(x), model.twice(x))


def double_the_input(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    return (2 * inputs[0],)


def negate_the_output(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    return -output


def test_hooks_take_part():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[0].register_forward_pre_hook(double_the_input)
    model[0].register_forward_hook(negate_the_output)
    check(model, (torch.randn(2, 4),))


def test_a_script_module_is_optimised_not_returned():
    module = torch.jit.script(WithMethods().eval())
    optimized = ipex.jit_optimize(module)
    assert optimized is not module
    assert any(kind.startswith("ipex::") for kind in kinds(optimized))
