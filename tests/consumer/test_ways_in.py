"""Each way in which ipex gets into a C++ program: pkg-config, the build tree, and programs that can't be built anew."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import ipex
from build_cpp import build, load_tensor, save_tensor
from by_hand import TORCH, compile_by_hand
from resnet50 import tiny_resnet

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PREFIX = Path(ipex.cmake_prefix_path).parents[1]
RUNTIME = PREFIX / "lib" / "libipex_runtime.so"
SERIES = ".".join(torch.__version__.split(".")[:2])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a model and an input, and the result that is expected."""
    folder = tmp_path_factory.mktemp("model")
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        optimized = ipex.jit_optimize(tiny_resnet(), x)
        expected = optimized(x)
    optimized.save(folder / "model.pt")
    save_tensor(x, folder / "input.pt")
    return folder, expected


def run(program, model, output, *arguments, **environment):
    files = (model[0] / "model.pt", model[0] / "input.pt", output)
    command = [*program, *files, *arguments]
    # Where ipex is no neighbour of torch, as it is in site-packages, its libraries have to be told where torch is.
    environment = {**os.environ, "LD_LIBRARY_PATH": str(TORCH / "lib"), **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def assert_right(done, model, output):
    assert done.returncode == 0, done.stderr
    assert torch.equal(load_tensor(output), model[1])


def test_without_ipex_torch_says_what_it_misses(plain_programs, model, tmp_path):
    done = run([plain_programs / "plain"], model, tmp_path / "output.pt")
    assert done.returncode == 1
    assert "Unknown type name '__torch__.torch.classes.ipex" in done.stderr


def test_ld_preload(plain_programs, model, tmp_path):
    done = run([plain_programs / "plain"], model, tmp_path / "output.pt", LD_PRELOAD=str(RUNTIME))
    assert_right(done, model, tmp_path / "output.pt")


def test_dlopen(plain_programs, model, tmp_path):
    done = run([plain_programs / "plain"], model, tmp_path / "output.pt", RUNTIME)
    assert_right(done, model, tmp_path / "output.pt")


def test_ld_preload_into_a_host_of_backends(plain_programs, model, tmp_path):
    """Triton Inference Server: the program knows nothing of torch, a backend that it loads does."""
    host = [plain_programs / "host", plain_programs / "backend.so"]
    done = run(host, model, tmp_path / "output.pt")
    assert "Unknown type name" in done.stderr
    done = run(host, model, tmp_path / "output.pt", LD_PRELOAD=str(RUNTIME))
    assert_right(done, model, tmp_path / "output.pt")


def pkg_config(*arguments):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib" / "pkgconfig")}
    command = ["pkg-config", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture(scope="module")
def linked(plain_programs, tmp_path_factory):
    if not shutil.which("pkg-config"):
        pytest.skip("this machine has no pkg-config")
    flags = pkg_config(f"--define-variable=torch={TORCH}", "--cflags", "--libs", "ipex_runtime")
    folder = tmp_path_factory.mktemp("linked")
    sources = [HERE / "ways_in" / "linked.cpp", plain_programs / "plain.o"]
    return compile_by_hand(folder / "linked", *sources, *flags)


def test_pkg_config(linked, model, tmp_path):
    done = run([linked], model, tmp_path / "output.pt")
    assert_right(done, model, tmp_path / "output.pt")
    assert done.stdout == f"{ipex.isa.current()} 1\n"


ASKS_FOR_NOTHING_OF_TORCH = """
#include <ipex/isa.h>
#include <cstdio>
int main() { std::puts(ipex::isa::name(ipex::isa::highest_binary())); }
"""


def test_pkg_config_for_a_program_that_calls_nothing_of_torch(linked, tmp_path):
    (tmp_path / "main.cpp").write_text(ASKS_FOR_NOTHING_OF_TORCH)
    flags = pkg_config(f"--define-variable=torch={TORCH}", "--cflags", "--libs", "ipex_runtime")
    program = compile_by_hand(tmp_path / "program", "-Wl,--as-needed", tmp_path / "main.cpp", *flags)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout == f"{ipex.isa.highest_binary()}\n"


def test_pkg_config_names_the_torch_that_it_fits(linked, tmp_path):
    assert "-lipex" in pkg_config(f"--define-variable=torch={TORCH}", "--libs", "ipex")
    for name in ("ipex", "ipex_runtime"):
        text = (PREFIX / "lib" / "pkgconfig" / f"{name}.pc").read_text()
        assert f"for torch {SERIES}\n" in text
        assert str(PREFIX) not in text, "a package that can't be moved"


USES_THE_RUNTIME = """
cmake_minimum_required(VERSION 3.18)
project(uses_the_runtime LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(ipex 0.1 REQUIRED)
add_executable(uses_the_runtime main.cpp)
target_link_libraries(uses_the_runtime PRIVATE ipex::ipex_runtime)
"""


def build_tree():
    """The folder in which this ipex was built, where it is still there."""
    for library in sorted(ROOT.glob("build/**/runtime/libipex_runtime.so"), key=lambda path: -path.stat().st_mtime):
        folder = library.parents[1]
        cache = (folder / "CMakeCache.txt").read_text() if (folder / "CMakeCache.txt").exists() else ""
        if f"Torch_DIR:PATH={TORCH}/" in cache and "-fsanitize=" not in cache:
            return folder
    return None


@pytest.mark.skipif(build_tree() is None, reason="no build folder for this torch: ipex was installed from a wheel")
def test_the_build_tree(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(USES_THE_RUNTIME)
    (tmp_path / "main.cpp").write_text(ASKS_FOR_NOTHING_OF_TORCH)
    programs = build(tmp_path, tmp_path / "build", ipex_prefix=build_tree())
    libraries = subprocess.run(["ldd", programs / "uses_the_runtime"], capture_output=True, text=True, check=True)
    assert str(build_tree() / "runtime" / "libipex_runtime.so") in libraries.stdout
    done = subprocess.run([programs / "uses_the_runtime"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{ipex.isa.highest_binary()}\n"


def test_cmake_refuses_another_torch(tmp_path):
    torch_of_another_series = tmp_path / "Torch"
    torch_of_another_series.mkdir()
    (torch_of_another_series / "TorchConfig.cmake").write_text("set(Torch_FOUND TRUE)\n")
    (torch_of_another_series / "TorchConfigVersion.cmake").write_text(
        'set(PACKAGE_VERSION "2.99.0")\nset(PACKAGE_VERSION_COMPATIBLE TRUE)\n'
    )
    (tmp_path / "CMakeLists.txt").write_text(USES_THE_RUNTIME)
    (tmp_path / "main.cpp").write_text(ASKS_FOR_NOTHING_OF_TORCH)
    with pytest.raises(RuntimeError) as error:
        build(tmp_path, tmp_path / "build", torch_prefix=tmp_path)
    assert f"ipex: expected PyTorch {SERIES}, which this build of ipex fits" in " ".join(str(error.value).split())


@pytest.mark.skipif(
    [int(part) for part in SERIES.split(".")] < [2, 9], reason="torch before 2.9 does not say which one it is"
)
@pytest.mark.parametrize("way", ["linked", "preloaded"])
def test_a_program_with_another_torch_ends_with_one_sentence(way, request, tmp_path):
    other = compile_by_hand(tmp_path / "other.so", "-shared", "-fPIC", HERE / "ways_in" / "other_torch.cpp")
    if way == "linked":
        program, preloaded = request.getfixturevalue("linked"), [other]
    else:
        program, preloaded = request.getfixturevalue("plain_programs") / "plain", [other, RUNTIME]
    environment = {
        **os.environ,
        "LD_PRELOAD": ":".join(map(str, preloaded)),
        "LD_LIBRARY_PATH": str(TORCH / "lib"),
    }
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert re.fullmatch(rf"ipex: expected torch {re.escape(SERIES)}\.\*, .* got torch 2\.99\. .*\n", done.stderr)
