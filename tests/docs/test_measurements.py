"""docs/measurements is what benchmarks/results/page.py makes of the runs, and commands that pages give can be run."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def page_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("page", ROOT / "benchmarks" / "results" / "page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGE = page_script()


def test_pages_are_what_the_script_makes():
    there = {path.name: path.read_text() for path in PAGE.PAGES.iterdir()}
    assert there == PAGE.pages(), "run `python benchmarks/results/page.py`"


def run(date: str, cpu: str, figure: str) -> str:
    tables = [{"caption": "", "columns": ["model", "ms"], "rows": [["ResNet-50", figure]]}]
    return json.dumps(
        {"title": "Models", "cpu": cpu, "machine": "idle", "date": date, "command": "make bench", "tables": tables}
    )


def test_a_page_has_the_latest_run_of_a_title_on_its_cpu(tmp_path):
    (tmp_path / "b.json").write_text(run("2026-11-20", "xeon_amx", "50"))
    (tmp_path / "a.json").write_text(run("2026-11-21", "xeon_amx", "40"))
    (tmp_path / "c.json").write_text(run("2026-11-22", "epyc_avx2", "90"))
    made = PAGE.pages(tmp_path)
    assert "| ResNet-50 | 40 |" in made["xeon_amx.md"]
    assert "| 50 |" not in made["xeon_amx.md"]
    assert "| 90 |" not in made["xeon_amx.md"]
    assert "2 runs, the last 2026-11-21" in made["README.md"]


def test_tables_of_printed_markdown():
    (first, second) = PAGE.tables_of("### In ms\n\n| a | b |\n|---|---:|\n| x | 1.0 |\n\nand\n| c |\n| --- |\n| 2 |")
    assert first == {"caption": "In ms", "columns": ["a", "b"], "rows": [["x", "1.0"]]}
    assert second == {"caption": "and", "columns": ["c"], "rows": [["2"]]}


def source_of(program: list[str]) -> str | None:
    """Return the text of what `python ...` runs, or None where it is not there."""
    if program[0] != "-m":
        path = ROOT / program[0]
        return path.read_text() if path.is_file() else None
    if program[1] == "ipex":
        folders = [ROOT / "python/ipex/_cli", ROOT / "python/ipex/bench"]
        command = ROOT / "python/ipex/_cli" / f"{program[2]}.py"
        return "\n".join(path.read_text() for f in folders for path in f.glob("*.py")) if command.exists() else None
    path = ROOT / program[1].replace(".", "/")
    files = [path.with_suffix(".py"), *path.glob("*.py")]
    return "\n".join(file.read_text() for file in files if file.exists()) or None


def pass_names() -> str:
    return "\n".join(path.stem + "\n" + path.read_text() for path in (ROOT / "passes").rglob("*.cpp"))


def complaints(command: str) -> list[str]:
    """Return what of a command is not in the repository."""
    words = shlex.split(command, comments=True)
    while words and (re.match(r"[A-Z_]+=", words[0]) or words[0] in ("time", "taskset", "-c", "31")):
        words.pop(0)
    name, rest = Path(words[0]).name, words[1:]
    if name == "make":
        return [] if re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.M) else [rest[0]]
    if name in ("pytest", "g++"):
        paths = [word for word in rest if re.fullmatch(r"(tests|benchmarks|runtime)[\w/.]*\.?\w*", word)]
        return [path for path in paths if not (ROOT / path).exists()]
    if name != "python":
        return [name]
    if rest[0] == "-c":
        return []
    text = source_of(rest)
    if text is None:
        return [" ".join(rest[:3])]
    wrong = [word for word in rest if word.startswith("--") and f'"{word}"' not in text]
    if "--passes" in rest:
        known = pass_names()
        wrong += [
            word for word in rest[rest.index("--passes") + 1 :] if re.match(r"[a-z_]+$", word) and word not in known
        ]
    return wrong


def test_a_command_that_can_not_be_run_is_found():
    assert complaints("python benchmarks/gone.py") == ["benchmarks/gone.py"]
    assert complaints("X=1 python benchmarks/attention.py --dtyp a") == ["--dtyp"]
    assert complaints("python -m ipex vench resnet50") == ["-m ipex vench"]
    assert complaints("python -m benchmarks.gone") == ["-m benchmarks.gone"]
    assert complaints("python -m benchmarks.without_passes timm/a --passes no_such_pass") == ["no_such_pass"]
    assert complaints("make gone") == ["gone"]
    assert complaints("pytest tests/gone.py") == ["tests/gone.py"]


@pytest.mark.parametrize("title", sorted({f"{run['cpu']}: {run['title']}" for run in PAGE.runs()}))
def test_the_command_of_a_run_is_there(title):
    for one in PAGE.runs():
        if f"{one['cpu']}: {one['title']}" == title:
            assert complaints(one["command"]) == []
            assert one["cpu"] in PAGE.CPUS
            assert all(len(row) == len(table["columns"]) for table in one["tables"] for row in table["rows"])


DECISIONS = sorted(path for path in (ROOT / "docs" / "decisions").glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.name)
def test_the_commands_of_a_decision_are_there(page):
    commands = re.findall(r"^    (\S.*)$", page.read_text().partition("## Reproduce")[2], re.M)
    assert len(commands) >= 3
    assert [wrong for command in commands for wrong in complaints(command)] == []
