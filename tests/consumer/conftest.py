import os
from pathlib import Path

import pytest
from filelock import FileLock

from build_cpp import build
from by_hand import INCLUDES, LIBRARIES, compile_by_hand
from consumer.server_process import SOURCE

WAYS_IN = Path(__file__).parent / "ways_in"


@pytest.fixture(scope="session")
def plain_programs(tmp_path_factory):
    """`plain`, a libtorch program, and `backend.so`, the same as a library for `host`, which is no libtorch program."""
    folder = tmp_path_factory.mktemp("plain")
    plain = compile_by_hand(folder / "plain.o", "-c", "-fPIC", WAYS_IN / "plain.cpp", *INCLUDES)
    compile_by_hand(folder / "plain", WAYS_IN / "plain_main.cpp", plain, *LIBRARIES)
    compile_by_hand(folder / "backend.so", "-shared", plain, *LIBRARIES)
    compile_by_hand(folder / "host", WAYS_IN / "host.cpp")
    return folder


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """The server of examples/cpp/server: built once, where several processes share the tests."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with FileLock(folder / "server.lock"):
        return build(SOURCE, folder / "server") / "server"
