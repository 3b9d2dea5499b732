"""Pages that come from the code are current, and the site has every page."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import ipex

ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("name", ["cpp.md", "python.md", "command_line.md", *generator().MODULE_PAGES])
def test_a_page_from_comments_and_docstrings_has_all_names(name):
    if name.startswith("llm"):
        pytest.importorskip("transformers")  # it requires Python 3.11

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


def test_every_public_name_is_documented():
    for name in ipex.__all__:
        value = getattr(ipex, name)
        if not isinstance(value, str):
            assert inspect.getdoc(value), name
