"""Writes docs/measurements, a page for each CPU, out of the runs in this folder: the latest run of each title.

    python benchmarks/results/page.py

A run is one file: what was run, where, when, and the tables that it printed. Benchmarks print Markdown; this keeps it:

    python benchmarks/attention.py | python benchmarks/results/page.py add --cpu xeon_amx --title "Attention, float32" \
        --command "OMP_NUM_THREADS=1 python benchmarks/attention.py" --machine "one thread, nothing else running"

tests/docs/test_measurements.py holds the pages against the runs, and the commands against the repository.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RUNS = Path(__file__).parent
PAGES = RUNS.parents[1] / "docs" / "measurements"
WRITTEN = "<!-- benchmarks/results/page.py wrote this page: change a run, not the page. -->"
INTRODUCTION = """\
A page for each kind of CPU, with the latest run of each benchmark. Each run names its command; the files are in
`benchmarks/results/`. Machines were shared with other work unless a run says otherwise, so ratios of calls in turn say
more than times. Figures of programs that are gone, and all others until November 2026, are in the history of the
repository (`git log -- benchmarks/RESULTS.md`). Real models, drawn from timm, torchvision and transformers, are in
[a zoo of models](../zoo.md).
"""
CPUS = {
    "epyc_avx512": "AMD EPYC with AVX-512 (Zen 4 or 5: VNNI, AVX512_BF16)",
    "epyc_avx2": "AMD EPYC with AVX2",
    "xeon_amx": "Intel Xeon with AMX, 2 cores",
    "xeon_amx_many_cores": "Intel Xeon with AMX, 16 and 32 CPUs",
    "xeon_avx512": "Intel Xeon with AVX-512, no AMX",
    "h200": "NVIDIA H200",
}


def runs(folder: Path = RUNS) -> list[dict[str, Any]]:
    """Return all runs, the oldest first."""
    read = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return sorted(read, key=lambda run: (run["date"], run["title"]))


def pages(folder: Path = RUNS) -> dict[str, str]:
    """Return the text of each page by its name."""
    made = {"README.md": _index(folder)}
    for cpu in CPUS:
        latest = {run["title"]: run for run in runs(folder) if run["cpu"] == cpu}
        sections = [_section(latest[title]) for title in sorted(latest)]
        head = f"# {CPUS[cpu]}\n\n{WRITTEN}\n\nThe latest run of each benchmark on CPUs of this kind.\n"
        made[f"{cpu}.md"] = "\n".join([head, *sections])
    return made


def tables_of(markdown: str) -> list[dict[str, Any]]:
    """Return the tables of a text, each with the last line of prose before it."""
    found: list[dict[str, Any]] = []
    caption, rows = "", []
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                rows.append(cells)
            continue
        if rows:
            found.append({"caption": caption, "columns": rows[0], "rows": rows[1:]})
            caption, rows = "", []
        caption = line.lstrip("# ").strip() or caption
    return found


def _index(folder: Path) -> str:
    lines = []
    for cpu, name in CPUS.items():
        dates = [run["date"] for run in runs(folder) if run["cpu"] == cpu]
        lines.append(
            f"- [{name}]({cpu}.md): {len(dates)} run{'s'[: len(dates) - 1]}, the last {max(dates)}" if dates else ""
        )
    return f"# Measurements\n\n{WRITTEN}\n\n{INTRODUCTION}\n" + "\n".join(line for line in lines if line) + "\n"


def _section(run: dict[str, Any]) -> str:
    parts = [f"## {run['title']}", f"    {run['command']}", f"{run['date']}. {run['machine']}"]
    for table in run["tables"]:
        if table["caption"]:
            parts.append(table["caption"])
        parts.append(_markdown(table["columns"], table["rows"]))
    return "\n\n".join(parts) + "\n"


def _markdown(columns: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *rows])


def _add(options: argparse.Namespace, printed: str) -> Path:
    run = {
        "title": options.title,
        "cpu": options.cpu,
        "machine": options.machine,
        "date": options.date,
        "command": options.command,
        "tables": tables_of(printed),
    }
    if not run["tables"]:
        raise SystemExit(
            "page.py add: expected Markdown with a table on standard input, got none. Pipe a benchmark's output."
        )
    name = re.sub(r"\W+", "_", options.title.lower()).strip("_")
    path = RUNS / f"{options.date}_{options.cpu}_{name}.json"
    path.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    return path


def main() -> None:
    """Add a run if that is asked for, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_subparsers(dest="what").add_parser("add", help="a run, from the Markdown on standard input")
    add.add_argument("--cpu", required=True, choices=CPUS)
    add.add_argument("--title", required=True, help="a later run of the same title takes its place")
    add.add_argument("--command", required=True)
    add.add_argument(
        "--machine", required=True, help="CPU, cores, torch, what else ran, what is told: medians, fastest"
    )
    add.add_argument("--date", default=datetime.date.today().isoformat())
    options = parser.parse_args()
    if options.what == "add":
        print(_add(options, sys.stdin.read()))
    PAGES.mkdir(exist_ok=True)
    for name, text in pages().items():
        (PAGES / name).write_text(text)


if __name__ == "__main__":
    main()
