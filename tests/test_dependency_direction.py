"""python -> bindings -> passes -> runtime -> oneDNN, never backwards; nor between the rooms of runtime."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What the sources of each layer may include, beside what lies in their own folder.
MAY_INCLUDE = {
    "runtime": [
        "ATen/",
        "c10/",
        "torch/",
        "ipex/",
        "dnnl.hpp",
        "dnnl_threadpool.hpp",
        "cpuid.h",
        "caffe2/serialize/",
        "fcntl.h",
        "immintrin.h",
        "linux/futex.h",
        "omp.h",
        "pthread.h",
        "sched.h",
        "sys/mman.h",
        "sys/stat.h",
        "sys/syscall.h",
        "sys/types.h",
        "unistd.h",
    ],
    "passes": ["ATen/", "c10/", "torch/csrc/jit/", "ipex/"],
    # What calls a method or an op, and nothing that looks into its graph.
    "python/bindings": [
        "ATen/autocast_mode.h",
        "ATen/core/dispatch/Dispatcher.h",
        "c10/core/impl/LocalDispatchKeySet.h",
        "c10/util/ArrayRef.h",
        "pybind11/",
        "ipex/",
        "structmember.h",
        "torch/csrc/Exceptions.h",
        "torch/csrc/autograd/python_variable.h",
        "torch/csrc/jit/api/",
        "torch/csrc/jit/frontend/tracer.h",
        "torch/csrc/jit/python/",
        "torch/csrc/python_headers.h",
        "torch/csrc/utils/pybind.h",
        "unistd.h",
    ],
}
# The rooms of runtime. What lies in one may include what lies in those before it, and in its own.
ROOMS = ("threads", "isa", "kernels", "memory", "aot", "onednn", "packed", "ops")
# oneDNN itself, which is below all rooms.
ONEDNN = "onednn/dnnl.h"
PUBLIC_HEADERS = {
    layer: {f"ipex/{h.name}" for h in (ROOT / layer / "include/ipex").glob("*.h")} for layer in MAY_INCLUDE
}


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#include\s+["<]([^">]+)[">]', path.read_text(), re.MULTILINE)


def is_above(path: Path, name: str) -> bool:
    """Whether a file in one room of runtime includes one of a room that stands on it."""
    rooms = path.relative_to(ROOT / "runtime").parts[0], name.partition("/")[0] if "/" in name else ""
    return name != ONEDNN and all(room in ROOMS for room in rooms) and ROOMS.index(rooms[0]) < ROOMS.index(rooms[1])


def violations(layer: str, path: Path, names: list[str]) -> list[str]:
    wrong = []
    for name in names:
        own = (ROOT / layer / name).exists() or (path.parent / name).exists()
        standard = "/" not in name and "." not in name
        allowed = any(name.startswith(prefix) for prefix in MAY_INCLUDE[layer])
        backwards = layer == "runtime" and name in PUBLIC_HEADERS["passes"]
        if backwards or not (own or standard or allowed) or (layer == "runtime" and is_above(path, name)):
            wrong.append(f"{path.relative_to(ROOT)} includes {name}")
        if name == "dnnl.hpp" and path.name != "dnnl.h":
            wrong.append(f"{path.relative_to(ROOT)} includes dnnl.hpp: take onednn/dnnl.h")
    return wrong


def sources(layer: str) -> list[Path]:
    return [p for p in (ROOT / layer).rglob("*") if p.suffix in {".h", ".cpp", ".inc"}]


@pytest.mark.parametrize("layer", MAY_INCLUDE)
def test_includes_point_downwards(layer):
    assert sources(layer)
    assert [v for path in sources(layer) for v in violations(layer, path, includes(path))] == []


@pytest.mark.parametrize("layer", ["runtime", "passes"])
def test_public_headers_show_nothing_private(layer):
    for header in (ROOT / layer / "include").rglob("*.h"):
        shown = [name for name in includes(header) if name.startswith(("ATen", "onednn", "dnnl")) or "pybind" in name]
        assert shown == [], header


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        ("runtime", "ipex/jit_optimize.h"),
        ("runtime", "pipeline/pass.h"),
        ("passes", "dnnl.hpp"),
        ("passes", "onednn/primitive.h"),
        ("passes", "pybind11/pybind11.h"),
        ("python/bindings", "torch/csrc/jit/ir/ir.h"),
        ("python/bindings", "anchor/anchor.h"),
    ],
)
def test_the_check_sees_a_backward_include(layer, name):
    assert violations(layer, ROOT / layer / "some.cpp", [name])


def test_every_folder_of_runtime_is_a_room():
    folders = {p.name for p in (ROOT / "runtime").iterdir() if p.is_dir()}
    assert folders == {*ROOMS, "include"}


@pytest.mark.parametrize(
    ("room", "name"),
    [
        ("packed", "ops/product/linear.h"),
        ("onednn", "packed/post_op.h"),
        ("aot", "onednn/primitive.h"),
        ("memory", "onednn/primitive.h"),
        ("kernels", "memory/scratch.h"),
        ("isa", "kernels/kernels.h"),
        ("threads", "isa/isa.h"),
    ],
)
def test_the_check_sees_an_include_of_a_room_above(room, name):
    assert (ROOT / "runtime" / name).exists()
    assert violations("runtime", ROOT / "runtime" / room / "some.cpp", [name])
    assert not violations("runtime", ROOT / "runtime" / name.split("/")[0] / "some.cpp", [name, ONEDNN])


def test_python_files_import_only_torch_and_each_other():
    package = ROOT / "python/ipex"
    for path in [*package.glob("*.py"), *(package / "_optimize").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            standard = {
                "__future__",
                "argparse",
                "collections",
                "concurrent",
                "contextlib",
                "dataclasses",
                "copy",
                "enum",
                "functools",
                "importlib",
                "inspect",
                "itertools",
                "logging",
                "math",
                "operator",
                "os",
                "pathlib",
                "subprocess",
                "sys",
                "tempfile",
                "threading",
                "time",
                "types",
                "typing",
                "warnings",
                "weakref",
                "zipfile",
            }
            assert {m.split(".")[0] for m in modules} <= standard | {"torch", "ipex"}, path


@pytest.mark.skipif(sys.version_info < (3, 10), reason="this Python has no list of its modules")
def test_the_benchmark_needs_only_torch_until_a_peer_is_asked_for():
    for path in (ROOT / "python/ipex/bench").rglob("*.py"):
        imported = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import)]
        from_ = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        modules = [alias.name for node in imported for alias in node.names]
        modules += [node.module or "" for node in from_ if node.level == 0]
        assert {m.split(".")[0] for m in modules} <= {*sys.stdlib_module_names, "torch"}, path
