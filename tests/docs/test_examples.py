"""Every example on every page runs, or where that is not possible names what exists: Python, C++, and commands."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ipex
from build_cpp import build
from code_blocks import blocks
from ipex._cli import COMMANDS, parser_of

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if not {"decisions", "measurements"} & set(page.parts)),
]
LANGUAGES = {"cmake", "cpp", "pycon", "python", "sh", "text"}
# Scripts of IPEX: tests/python/test_migrating.py runs these.
ELSEWHERE = {"docs/migrating.md"}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def of_language(page: Path, language: str) -> list[str]:
    return [text for each, text in blocks(page.read_text()) if each == language]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_names_its_language(page):
    assert {language for language, _ in blocks(page.read_text())} <= LANGUAGES


def with_blocks(language: str) -> list[str]:
    return [name_of(page) for page in PAGES if of_language(page, language)]


def test_blocks_are_found():
    text = "a\n\n    b = 1\n\n```sh\nc\n```\n\n- d\n\n  ```python\n  e\n  ```\n"
    assert list(blocks(text)) == [("sh", "c\n"), ("python", "e\n"), ("indented", "b = 1\n")]
    assert len(with_blocks("python")) >= 20
    assert "README.md" in with_blocks("python")


@pytest.mark.parametrize("name", [name for name in with_blocks("python") if name not in ELSEWHERE])
def test_the_examples_of_a_page_run_one_after_another(name, tmp_path):
    examples = of_language(ROOT / name, "python")
    if importlib.util.find_spec("ray") is None:  # it is large; what needs it is compiled, and not run
        for needs in [each for each in examples if "from ray import" in each]:
            compile(needs, name, "exec")
            examples.remove(needs)
    text = "\n".join(examples)
    if "transformers" in text:
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


def test_the_server_of_the_tutorial_runs_and_other_cpp_compiles(tmp_path):
    page = ROOT / "docs/tutorials/cpp_server.md"
    (python,), (program,), (project,) = (of_language(page, language) for language in ("python", "cpp", "cmake"))
    others = [
        text
        for other in map(ROOT.joinpath, with_blocks("cpp"))
        if other not in (page, ROOT / "docs/reference/cpp.md")  # that page is headers
        for text in of_language(other, "cpp")
    ]
    assert others
    (tmp_path / "server.cpp").write_text(program)
    (tmp_path / "others.cpp").write_text("\n".join(others))
    project += "add_library(others OBJECT others.cpp)\ntarget_compile_features(others PRIVATE cxx_std_20)\n"
    (tmp_path / "CMakeLists.txt").write_text(project + "target_link_libraries(others PRIVATE ipex::ipex_runtime)\n")
    subprocess.run([sys.executable, "-W", "ignore", "-c", python], cwd=tmp_path, check=True)
    programs = build(tmp_path, tmp_path / "build")
    done = subprocess.run([programs / "server", "model.pt"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "[ CPUFloatType{1,4} ]" in done.stdout


def commands(page: Path) -> list[list[str]]:
    """The words of each command on a page, without settings before it."""
    found = []
    for line in "".join(of_language(page, "sh")).replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            while re.match(r"\w+=", words[0]):
                del words[0]
            found.append(words)
    return found


def in_prose(page: Path) -> list[list[str]]:
    """The words of each command that a page names between backticks."""
    prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose) if not span.endswith(": OK")]
    found = [shlex.split(span) for span in spans if re.match(r"(\w+=\S* )*(make|ipex|python) ", span)]
    for words in found:
        while "=" in words[0]:
            del words[0]
    return found


def of_ipex(words: list[str]) -> list[str]:
    """What follows `ipex`, if that is the command."""
    return words[1:] if words[0] == "ipex" else words[3:] if words[1:3] == ["-m", "ipex"] else []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    for words in [*commands(page), *in_prose(page)]:
        program = Path(words[0]).name
        if program == "make":
            for word in words[1:]:
                variable, is_setting, _ = word.partition("=")
                known = rf"^{variable} \?=|\$\({variable}\)" if is_setting else rf"^{word}:"
                assert re.search(known, makefile, re.MULTILINE), words
        elif program == "python" and words[1] == "-m" and words[2] != "ipex":
            module = ROOT / words[2].replace(".", "/")
            assert module.is_dir() or module.with_suffix(".py").is_file() or importlib.util.find_spec(words[2]), words
        elif program == "python" and words[1].endswith(".py") and "/" in words[1]:
            assert (ROOT / words[1]).is_file(), words
        elif of_ipex(words):
            the_command(of_ipex(words))


def the_command(words: list[str]) -> str:
    """The name of a command of ipex, whose options are checked."""
    if words[0].startswith("-") or words[0] in ("COMMAND", "run"):
        return words[0]
    name = next(name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS)
    options = [word.partition("=")[0] for word in words if word.startswith("-") and word not in ("..", "-")]
    known = set(parser_of(name)._option_string_actions)
    assert set(options) <= known, (name, options)
    return name


@pytest.mark.parametrize("name", [name for name in with_blocks("sh") if any(map(of_ipex, commands(ROOT / name)))])
def test_commands_of_ipex_run(name, tmp_path):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, 2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)).eval()
    torch.jit.trace(model, torch.zeros(1, 3, 224, 224)).save(tmp_path / "model.pt")
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3, 224, 224),)), tmp_path / "program.pt2")
    (tmp_path / "script.py").write_text("print(1)\n")
    highest = str(min(ipex.isa.current(), ipex.isa.highest_binary()))
    for words in filter(None, map(of_ipex, commands(ROOT / name))):
        if the_command(words) in ("llm", "llm serve", "bench"):
            continue  # these take a model that is not here, or minutes; their options were checked
        words = [highest if word == "avx512" else word for word in words]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "ipex", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
