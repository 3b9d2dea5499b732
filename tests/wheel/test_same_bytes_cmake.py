"""cmake/SameBytes.cmake: libraries hold no path of the machine that built them; other folders give the same bytes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import ipex

MODULES = Path(__file__).parents[2] / "cmake"
# From the root: what begins with the name of a folder is mapped.
SOURCE_FROM_ROOT = re.compile(rb"(?<![\w.+-])/[\w./+-]+\.(?:cpp|hpp|h)\b")
# As ipex is: sources compiled together, a header of torch's, and a library that finds another in the build tree.
PROJECT = {
    "CMakeLists.txt": f"""
cmake_minimum_required(VERSION 3.20)
project(tiny LANGUAGES CXX)
set(Torch_DIR ${{CMAKE_SOURCE_DIR}}/venv/torch/share/cmake/Torch)
set(IPEX_UNITY_BUILD ON)
include({MODULES}/SameBytes.cmake)
include({MODULES}/UnityBuild.cmake)
file(WRITE ${{CMAKE_BINARY_DIR}}/made.h "inline const char* made() {{ return __FILE__; }}")
add_library(base SHARED base.cpp)
add_library(tiny SHARED one.cpp two.cpp)
target_include_directories(tiny PRIVATE venv/torch/include ${{CMAKE_BINARY_DIR}})
target_link_libraries(tiny PRIVATE base)
set_target_properties(tiny PROPERTIES INSTALL_RPATH "$ORIGIN")
ipex_unity_build(tiny RENAME helper)
install(TARGETS tiny DESTINATION lib)
""",
    "base.cpp": "const char* base() { return __FILE__; }",
    "one.cpp": """
#include <made.h>
#include <torch.h>
const char* base();
static const char* helper() { return __FILE__; }
const char* one(int i) { return i == 0 ? helper() : i == 1 ? made() : i == 2 ? torch_header() : base(); }
""",
    "two.cpp": "static const char* helper() { return __FILE__; }\nconst char* two() { return helper(); }",
    "venv/torch/include/torch.h": "inline const char* torch_header() { return __FILE__; }",
}


# As `make release` builds.
WITH_RPATH = "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON"


def test_make_release_builds_so():
    assert f"release-wheel: export CMAKE_ARGS := {WITH_RPATH}\n" in (MODULES.parent / "Makefile").read_text()


def built(folder: Path) -> bytes:
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for step in (
        ("-G", "Ninja", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Release", WITH_RPATH),
        ("--build", "build"),
        ("--install", "build", "--prefix", "installed", "--strip"),
    ):
        subprocess.run(["cmake", *step], cwd=folder, check=True, capture_output=True)
    return (folder / "installed" / "lib" / "libtiny.so").read_bytes()


def test_folders_of_other_names_give_the_same_bytes(tmp_path):
    library = built(tmp_path / "a")
    for path in (b"one.cpp", b"two.cpp", b"build/made.h", b"torch/include/torch.h"):
        assert b"\0" + path + b"\0" in library
    assert built(tmp_path / "another" / "folder with a longer name") == library


def test_sources_of_ipex_are_named_without_the_folder_of_the_build():
    libraries = sorted(Path(ipex.__file__).parent.rglob("*.so"))
    assert {path.name.split(".")[0] for path in libraries} == {"_C", "libipex", "libipex_runtime"}
    contents = {path.name: path.read_bytes() for path in libraries}
    found = {name: SOURCE_FROM_ROOT.findall(data)[:3] for name, data in contents.items()}
    assert {name: paths for name, paths in found.items() if paths} == {}
    assert b"passes/anchor/anchor.cpp" in contents["libipex.so"]
