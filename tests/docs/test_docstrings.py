"""Every example in a docstring of something public runs, and is marked as one."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from typing import Any

import torch

import ipex
from code_blocks import blocks

PUBLIC = (
    "ipex",
    "ipex.isa",
    "ipex.optim",
    "ipex.quantization",
    "ipex.quantization.fp8",
    "ipex.llm",
    "ipex.llm.modules",
    "ipex.llm.functional",
    "ipex.compat",
)


def is_ours(value: Any) -> bool:
    """Whether it was written here, not in torch."""
    return str(getattr(getattr(value, "__func__", value), "__module__", "")).startswith("ipex")


def documented(name: str) -> list[tuple[str, Any]]:
    """The module, its public names, and their public methods."""
    module = importlib.import_module(name)
    values = [(name, module)]
    for public in getattr(module, "__all__", ()):
        value = getattr(module, public)
        if inspect.ismodule(value) or isinstance(value, str):
            continue
        values.append((f"{name}.{public}", value))
        if inspect.isclass(value):
            methods = [(n, getattr(m, "fget", m)) for n, m in vars(value).items() if not n.startswith("_")]
            values += [(f"{name}.{public}.{n}", m) for n, m in methods if is_ours(m)]
    return [(where, value) for where, value in values if inspect.getdoc(value)]


def public_modules() -> list[str]:
    has_transformers = importlib.util.find_spec("transformers") is not None  # it requires Python 3.11
    return [name for name in PUBLIC if has_transformers or not name.startswith("ipex.llm")]


def run_docstrings(names: list[str]) -> tuple[int, int]:
    """Run the examples in the docstrings of modules. Returns how many there were, and how many failed."""
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for name in names:
        for where, value in documented(name):
            text = inspect.getdoc(value) or ""
            torch.manual_seed(0)
            runner.run(parser.get_doctest(text, {"torch": torch, "ipex": ipex}, where, None, 0))
    return runner.tries, runner.failures


def test_examples_in_docstrings(tmp_path):
    # In a process of their own: ipex.compat, which comes last, changes what importing means.
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tried, failed = ast.literal_eval(done.stdout.splitlines()[-1])
    assert failed == 0, done.stdout
    assert tried > 40


def test_no_example_in_a_docstring_is_only_indented():
    for name in public_modules():
        for where, value in documented(name):
            for language, text in blocks(inspect.getdoc(value) or ""):
                assert language == "indented", where
                assert not re.search(r"\b(ipex|torch|import)\b", text), f"{where}: write >>> before {text}"


if __name__ == "__main__":
    print(run_docstrings(public_modules()))
