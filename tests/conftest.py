"""Tests are the same in every run: on every machine, started from anywhere, and with the same random numbers.

These differ from test to test, and a failure can be repeated. What random numbers find beyond that is the fuzzer's to
find. IPEX_TEST_SEED=n gives the tests other numbers.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

import pytest

from neutral_environment import make_neutral

make_neutral()
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait leave the CPU to the other process

import torch  # noqa: E402
import torch.jit._builtins as builtins_of_torchscript  # noqa: E402

# After every pass the graph is checked: passes/pipeline/verifier.h.
os.environ.setdefault("IPEX_VERIFY", "1")

_kept_ops: list[object] = []


def _register_and_keep(op: object, name: str, register=builtins_of_torchscript._register_builtin) -> None:
    """Keeps an op that torch drops while torch.ao.quantization is imported. torch.jit.script looks ops up by id():
    a tuple of a module that Python lays where the op was is then compiled as that op, once in some hundred runs.
    """
    _kept_ops.append(op)
    register(op, name)


builtins_of_torchscript._register_builtin = _register_and_keep


@pytest.fixture(autouse=True)
def _same_numbers_in_every_run(request: pytest.FixtureRequest) -> None:
    name = request.node.nodeid + os.environ.get("IPEX_TEST_SEED", "")
    torch.manual_seed(zlib.crc32(name.encode()))


@pytest.fixture(scope="session", autouse=True)
def _in_an_empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes where it happens to be started."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("empty"))
    yield
    os.chdir(before)


@pytest.fixture(autouse=True)
def _leaves_nothing_there(_in_an_empty_folder: None) -> Iterator[None]:
    folder = os.getcwd()
    before = os.listdir(folder)
    yield
    assert os.listdir(folder) == before, "expected a test to write into its tmp_path"
