"""The documentation: its examples run, and pages that come from the code are current."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ipex
from build_cpp import build

ROOT = Path(__file__).parents[2]
# Scripts of IPEX, and one that needs an import of its own: tests/python/test_migrating.py runs these.
ELSEWHERE = {"docs/migrating.md", "docs/after_torchscript.md"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


WITH_EXAMPLES = [
    str(page.relative_to(ROOT))
    for page in PAGES
    if examples(page, "python") and str(page.relative_to(ROOT)) not in ELSEWHERE
]


def test_there_are_pages_with_examples():
    assert len(WITH_EXAMPLES) >= 8
    assert "README.md" in WITH_EXAMPLES


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_a_page_run_one_after_another(name, tmp_path):
    text = "\n".join(examples(ROOT / name, "python"))
    if "from transformers" in text:
        pytest.importorskip("transformers")  # it requires Python 3.11
    script = tmp_path / "page.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_server_of_the_tutorial_runs(tmp_path):
    page = ROOT / "docs/tutorials/cpp_server.md"
    (python,), (program,), (project,) = (examples(page, language) for language in ("python", "cpp", "cmake"))
    (tmp_path / "server.cpp").write_text(program)
    (tmp_path / "CMakeLists.txt").write_text(project)
    subprocess.run([sys.executable, "-W", "ignore", "-c", python], cwd=tmp_path, check=True)
    programs = build(tmp_path, tmp_path / "build")
    done = subprocess.run([programs / "server", "model.pt"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "[ CPUFloatType{1,4} ]" in done.stdout


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["support.md", "passes.md"])
def test_a_page_from_the_tables_is_current(name):
    made = generator().PAGES[name]()
    assert (ROOT / "docs/reference" / name).read_text() == made, "run `python docs/generate.py`"


@pytest.mark.parametrize("name", ["cpp.md", "python.md", "command_line.md"])
def test_a_page_from_comments_and_docstrings_has_all_names(name):
    # `make docs` writes the rest anew. How signatures and help are printed depends on the version of Python.
    def heads(text: str) -> list[str]:
        return re.findall(r"^## .*$", text, re.MULTILINE)

    text = (ROOT / "docs/reference" / name).read_text()
    assert heads(text) == heads(generator().PAGES[name]()), "run `python docs/generate.py`"


def test_the_site_has_every_page():
    text = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r": ([\w/]+\.md)$", text, re.MULTILINE))
    there = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "archive"}
    assert listed == there


@pytest.mark.parametrize("function", [ipex.explain, ipex.jit_optimize, ipex.profile, ipex.verify])
def test_examples_in_docstrings(function):
    finder = doctest.DocTestFinder().find(function, globs={"torch": torch, "ipex": ipex})
    results = [doctest.DocTestRunner().run(test) for test in finder]
    assert sum(r.attempted for r in results) > 0
    assert sum(r.failed for r in results) == 0


def test_every_public_name_is_documented():
    for name in ipex.__all__:
        value = getattr(ipex, name)
        if not isinstance(value, str):
            assert inspect.getdoc(value), name
