"""cmake/show_progress.py: what a user sees of a build."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "cmake" / "show_progress.py"


def show(tmp_path: Path, build: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "ipex", str(tmp_path / "folder" / "log"), sys.executable, "-c", build]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_counts_and_messages_are_shown_and_the_rest_is_kept(tmp_path):
    done = show(tmp_path, 'print("-- ipex: oneDNN 3.7.2"); print("-- Detecting"); print("[3/9] Building a.cpp.o")')
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("ipex: begins; what it prints goes to ")
    assert lines[1] == "ipex: oneDNN 3.7.2"
    assert lines[2].startswith("ipex: 3 of 9 files, ")
    assert lines[3].startswith("ipex: done in ")
    assert "-- Detecting" in (tmp_path / "folder" / "log").read_text()


def test_a_failure_shows_the_end_of_the_log(tmp_path):
    done = show(tmp_path, 'print("a.cpp:3: error: no"); raise SystemExit(7)')
    assert done.returncode == 7
    assert "FAILED" in done.stdout
    assert "a.cpp:3: error: no" in done.stderr
