"""Importing changes nothing, and the libraries keep to themselves."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import ipex

PACKAGE = Path(ipex.__file__).parent
LIBRARIES = [*sorted((PACKAGE / "lib").glob("*.so")), *PACKAGE.glob("_C*.so")]

# Everything process-wide that IPEX changed on import, and what we might.
STATE = """
import json, logging, os, signal, sys, torch
def state():
    return {
        "threads": torch.get_num_threads(), "trace": id(torch.jit.trace), "logger": id(logging.getLoggerClass()),
        "handlers": len(logging.getLogger().handlers), "environment": dict(os.environ),
        "autocast": torch._C._jit_set_autocast_mode(True), "fusion": torch._C._debug_get_fusion_group_inlining(),
        "profiling": torch._C._get_graph_executor_optimize(), "signal": signal.getsignal(signal.SIGINT),
        "llga": torch._C._jit_llga_enabled(), "default": torch.get_default_dtype(), "grad": torch.is_grad_enabled(),
    }
before = state()
import ipex
assert state() == before, (before, state())
model = torch.jit.freeze(torch.jit.trace(torch.nn.Linear(4, 4).eval(), torch.randn(1, 4)))
for _ in range(3):
    model(torch.randn(1, 4))
kinds = [node.kind() for node in torch.jit.last_executed_optimized_graph().nodes()]
assert "aten::linear" in kinds and not any(kind.startswith("ipex::") for kind in kinds), kinds
"""


def test_import_changes_nothing_and_prints_nothing():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", STATE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == done.stderr == ""


@pytest.mark.parametrize("made", ["traced", "exported", "prepared"])
def test_the_end_of_torchscript_is_not_announced_to_who_did_not_call_it(made):
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4)).eval(), torch.randn(1, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        {
            "traced": lambda: ipex.jit_optimize(model, x),
            "exported": lambda: ipex.jit_optimize(torch.export.export(model, (x,))),
            "prepared": lambda: ipex.quantization.prepare(model, x),
        }[made]()


def test_one_openmp_runtime():
    script = "import torch, ipex; print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    runtimes = {line.split()[-1] for line in maps.splitlines() if re.search(r"lib(gomp|iomp5|omp)[.-]", line)}
    assert len(runtimes) == 1


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.name)
def test_nothing_of_onednn_is_exported(library):
    symbols = subprocess.run(
        ["nm", "-DC", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    assert "dnnl" not in symbols
    ours = [line for line in symbols.splitlines() if re.search(r" [TBDR] ", line)]
    linker = ("__bss_start", "_edata", "_end")
    strangers = [line for line in ours if "ipex::" not in line and not line.endswith(("PyInit__C", *linker))]
    assert strangers == []


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.name)
def test_no_executable_stack_and_no_path_of_this_machine(library):
    headers = subprocess.run(["readelf", "-lWd", library], capture_output=True, text=True, check=True).stdout
    stack = next(line for line in headers.splitlines() if "GNU_STACK" in line)
    assert "RWE" not in stack
    run_path = re.search(r"R(?:UN)?PATH\).*\[(.*)\]", headers)
    assert run_path
    assert all(part.startswith("$ORIGIN") for part in run_path.group(1).split(":"))


def test_the_wheel_is_complete():
    for part in (
        "py.typed",
        "_C.pyi",
        "include/ipex/jit_optimize.h",
        "include/ipex/load.h",
        "include/ipex/math_mode.h",
        "lib/libipex.so",
    ):
        assert (PACKAGE / part).is_file(), part


def test_the_licence_of_what_is_linked_in():
    library = PACKAGE / "lib/libipex_runtime.so"
    if "libdnnl" in subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout:
        pytest.skip("oneDNN is a library of its own here, not part of ours")
    assert (PACKAGE / "share/licenses/onednn/LICENSE").is_file()
