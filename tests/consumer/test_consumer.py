"""C++ users: a project that finds the package through CMake, and the programs in examples/cpp."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ipex
from build_cpp import build, load_tensor, save_tensor
from resnet50 import tiny_resnet

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return build(HERE.parent.parent / "examples" / "cpp", tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def models():
    model, x = tiny_resnet(), torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        traced = torch.jit.trace(model, x)
        optimized = ipex.jit_optimize(traced)
        return traced, optimized, x, optimized(x)


def serve(programs: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    files = (folder / name for name in ("model.pt", "input.pt", "output.pt"))
    return subprocess.run([programs / "serve", *files, "4"], capture_output=True, text=True, check=False)


def test_ctest(tmp_path):
    build(HERE, tmp_path)
    done = subprocess.run(["ctest", "--output-on-failure"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"100% tests passed.* out of 11\n", done.stdout)  # newer ones of ctest leave out "0 tests failed"


SMALL_CONSUMER = """
cmake_minimum_required(VERSION 3.18)
project(consumer LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(ipex REQUIRED)
file(WRITE ${CMAKE_BINARY_DIR}/main.cpp [[
  #include <ATen/core/Dict.h>
  #include <ipex/isa.h>
  int main() { return ipex::isa::name(ipex::isa::current()) == nullptr; }
]])
add_executable(consumer ${CMAKE_BINARY_DIR}/main.cpp)
target_link_libraries(consumer PRIVATE ipex::ipex_runtime)
"""


def test_a_torch_built_for_cuda_needs_no_toolkit(tmp_path):
    root = Path(torch.__file__).parent
    fake = tmp_path / "torch"
    (fake / "lib").mkdir(parents=True)
    for library in (root / "lib").iterdir():
        (fake / "lib" / library.name).symlink_to(library)
    if torch.version.cuda is None:
        (fake / "lib" / "libtorch_cuda.so").touch()
    else:  # then libtorch_cpu needs a few of CUDA's libraries, and finds them beside torch
        (tmp_path / "nvidia").symlink_to(root.parent / "nvidia")
    (fake / "include").symlink_to(root / "include")
    config = fake / "share" / "cmake" / "Torch"
    shutil.copytree(root / "share" / "cmake" / "Torch", config)
    (config / "TorchConfig.cmake").write_text('message(FATAL_ERROR "I cannot find the CUDA libraries.")')
    (tmp_path / "CMakeLists.txt").write_text(SMALL_CONSUMER)

    programs = build(tmp_path, tmp_path / "build", torch_prefix=fake / "share" / "cmake")
    subprocess.run([programs / "consumer"], check=True)


def test_without_torch_it_says_where_to_find_one(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(SMALL_CONSUMER)
    with pytest.raises(RuntimeError, match="expected PyTorch in CMAKE_PREFIX_PATH, found none"):
        build(tmp_path, tmp_path / "build", torch_prefix=tmp_path)


def test_python_and_cpp_give_the_same_bits(programs, models, tmp_path):
    _, optimized, x, expected = models
    optimized.save(tmp_path / "model.pt")
    save_tensor(x, tmp_path / "input.pt")
    done = serve(programs, tmp_path)
    assert done.returncode == 0, done.stderr
    output = load_tensor(tmp_path / "output.pt")
    assert torch.equal(output, expected)
    assert output.stride() == expected.stride()


class Attending(nn.Module):
    """Attention between two linears, of which the weights are large enough to be quantised."""

    def __init__(self) -> None:
        super().__init__()
        self.projection, self.last = nn.Linear(128, 3 * 128), nn.Linear(128, 128)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.projection(x).view(*x.shape[:2], 3, 2, 64).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(*heads.unbind(0))
        return self.last(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("kind", ["dynamic", "int8", "int4", "static"])
def test_a_quantised_model_gives_the_same_bits(programs, tmp_path, kind):
    model, x = Attending().eval(), torch.randn(2, 40, 128)
    with torch.no_grad():
        if kind == "static":
            prepared = ipex.quantization.prepare(model, x, ipex.quantization.Recipe(forced=True))
            prepared(x)
            quantized = ipex.quantization.convert(prepared)
        elif kind == "dynamic":
            quantized = ipex.quantization.dynamic(model, x)
        else:
            quantized = ipex.quantization.weight_only(model, x, dtype=kind)
        expected = quantized(x)
    assert not torch.equal(expected, model(x))
    quantized.save(tmp_path / "model.pt")
    save_tensor(x, tmp_path / "input.pt")
    done = serve(programs, tmp_path)
    assert done.returncode == 0, done.stderr
    assert torch.equal(load_tensor(tmp_path / "output.pt"), expected)


def test_a_model_optimised_in_cpp_gives_the_same_bits(programs, models, tmp_path):
    traced, _, x, expected = models
    traced.save(tmp_path / "traced.pt")
    command = [programs / "optimize", tmp_path / "traced.pt", tmp_path / "model.pt"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "applied   fuse_activation" in done.stdout
    with torch.no_grad():
        assert torch.equal(ipex.load(tmp_path / "model.pt")(x), expected)
    save_tensor(x, tmp_path / "input.pt")
    assert serve(programs, tmp_path).returncode == 0
    assert torch.equal(load_tensor(tmp_path / "output.pt"), expected)


def test_what_ipex2_saved_is_optimised_in_cpp(programs, tmp_path):
    saved = Path(__file__).parents[1] / "runtime" / "saved_by_ipex2" / "convolutions_traced"
    subprocess.run([programs / "optimize", f"{saved}.pt", tmp_path / "model.pt"], capture_output=True, check=True)
    (x,), expected = torch.load(f"{saved}.values.pt")
    save_tensor(x, tmp_path / "input.pt")
    assert serve(programs, tmp_path).returncode == 0
    torch.testing.assert_close(load_tensor(tmp_path / "output.pt"), expected)


def test_errors_are_those_of_python(programs, models, tmp_path):
    _, optimized, x, _ = models
    optimized.save(tmp_path / "model.pt")
    save_tensor(x[:, :2].contiguous(), tmp_path / "input.pt")
    done = serve(programs, tmp_path)
    assert done.returncode == 1
    assert "ipex::convolution_run: expected input of 4 dimensions" in done.stderr
    content = (tmp_path / "model.pt").read_bytes()
    (tmp_path / "model.pt").write_bytes(content[: len(content) // 2])
    done = serve(programs, tmp_path)
    assert done.returncode == 1
    assert "no complete archive" in done.stderr
