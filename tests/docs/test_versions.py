"""What README, pyproject.toml, CMake and docs/reference/versions.md say of versions is one thing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README, PROJECT, PAGE = (
    (ROOT / name).read_text() for name in ("README.md", "pyproject.toml", "docs/reference/versions.md")
)


def found(pattern: str, file: str) -> list[str]:
    return re.findall(pattern, (ROOT / file).read_text())


def row(name: str) -> list[str]:
    """The cells of a row of the page's first table."""
    (line,) = re.findall(rf"^\| {re.escape(name)} \|.*$", PAGE.split("\n- **")[0], re.MULTILINE)
    return [cell.strip() for cell in line.strip("|").split("|")]


def tried(column: int) -> set[str]:
    """The minor versions in a column of the page's last table: torch is the first, Python the third."""
    rows = re.findall(r"^\| \d.*$", PAGE.split("## What was tried")[1], re.MULTILINE)
    cells = [row.strip("|").split("|")[column].strip() for row in rows]
    return {re.match(r"\d+\.(\d+)", cell)[1] for cell in cells}


def test_python():
    first, last = re.fullmatch(r"3\.(\d+) to 3\.(\d+)", row("Python")[1]).groups()
    assert f"Python 3.{first} to 3.{last}" in README
    assert f'requires-python = ">=3.{first}"' in PROJECT
    assert f'target-version = "py3{first}"' in PROJECT
    listed = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', PROJECT)
    assert listed == [str(minor) for minor in range(int(first), int(last) + 1)]
    assert found(r"find_package\(Python 3\.(\d+)", "cmake/FindTorchOfPython.cmake") == [first]
    assert found(r"sys\.version_info < \(3, (\d+)\)", "cmake/check_prerequisites.sh") == [first]
    assert tried(2) == set(re.findall(r"3\.(\d+)", row("Python")[2])) <= set(listed)
    # What is supported untried is said.
    assert [minor for minor in set(listed) - tried(2) if f"**Python 3.{minor}** has not been tried" not in PAGE] == []


def test_torch():
    (first,) = re.fullmatch(r"2\.(\d+) and later", row("torch")[1]).groups()
    assert f"torch 2.{first} or later" in README
    assert set(found(r"expected PyTorch 2\.(\d+) or later", "cmake/FindTorchOfPython.cmake")) == {first}
    assert found(r"Torch_VERSION VERSION_LESS 2\.(\d+)", "cmake/FindTorchOfPython.cmake") == [first]
    pinned = set(re.findall(r"torch==2\.(\d+)", PROJECT))
    assert set(found(r"(?m)^TORCH \?= torch==2\.(\d+)", "Makefile")) == pinned
    assert set(found(r"torch==2\.(\d+)", "examples/container/Dockerfile")) == pinned
    assert pinned <= tried(0)
    assert tried(0) == set(re.findall(r"2\.(\d+)", row("torch")[2]))
    assert found(r"(?m)^TORCHES \?= \$\(TORCH\) torch==2\.(\d+)", "Makefile") == [max(tried(0), key=int)]


def test_cpu_and_compiler():
    assert row("CPU")[1].startswith("AVX2 or later")
    assert "a CPU with AVX2" in README
    (gcc,) = re.findall(r"gcc (\d+) or later", row("compiler, to build")[1])
    assert f"gcc {gcc} or later" in README


def test_transformers():
    (tried,) = set(re.findall(r"transformers==([\d.]+)", PROJECT + (ROOT / "Makefile").read_text()))
    (versions,) = found(r"TRANSFORMERS_VERSIONS \?= (.*)", "Makefile")
    minors = [".".join(version.split(".")[:2]) for version in versions.split()]
    assert row("transformers, for `ipex.llm`")[2] == f"{', '.join(minors)}: `make test-transformers`"
    assert versions.split()[-1] == tried


@pytest.mark.parametrize(
    ("file", "source", "text"),
    [
        ("a saved optimised model", "runtime/packed/packed_op.h", "packed ops have version {}"),
        ("a file with packed weights", "runtime/aot/file_layout.cpp", "version {}"),
    ],
)
def test_formats_of_files(file, source, text):
    (version,) = found(r"format_version = (\d+);", source)
    (line,) = re.findall(rf"^\| {file}.*$", PAGE, re.MULTILINE)
    assert text.format(version) in line


def test_the_version_is_the_same_for_pip_and_cmake():
    assert re.findall(r'^version = "(.*)"', PROJECT, re.MULTILINE) == found(
        r"project\(ipex VERSION (\S+)", "CMakeLists.txt"
    )


def test_the_licence():
    assert 'license = "Apache-2.0"' in PROJECT
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()
    listed = re.search(r"^license-files = (\[.*\])", PROJECT, re.MULTILINE)[1]
    assert re.findall(r'"(.*?)"', listed) == ["LICENSE", "NOTICE"]
    notice = (ROOT / "NOTICE").read_text()
    assert all(linked in notice for linked in ("oneDNN", "Xbyak", "Boost", "pybind11"))
