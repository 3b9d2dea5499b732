"""tests/wheel/same_bytes.py: what `make reproducible` compares, and what it says."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("same_bytes.py")
WHEEL = {"ipex/lib/libipex.so": "one", "ipex/__init__.py": "same", "ipex.dist-info/RECORD": "same"}


def release(folder: Path, members: dict[str, str], **files: str) -> Path:
    (folder / "torch").mkdir(parents=True)
    with zipfile.ZipFile(folder / "torch" / "ipex.whl", "w") as wheel:
        for name, text in members.items():
            wheel.writestr(zipfile.ZipInfo(name), text)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def compare(one: Path, other: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(one), str(other)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_same_bytes(tmp_path):
    done = compare(release(tmp_path / "a", WHEEL, SUMS="1"), release(tmp_path / "b", WHEEL, SUMS="1"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "same_bytes: OK\n", "")


@pytest.mark.parametrize(
    ("members", "files", "said"),
    [
        (WHEEL | {"ipex/lib/libipex.so": "two"}, {"SUMS": "1"}, "torch/ipex.whl: ipex/lib/libipex.so"),
        (WHEEL | {"ipex/more.py": ""}, {"SUMS": "1"}, "torch/ipex.whl: ipex/more.py"),
        (dict(reversed(WHEEL.items())), {"SUMS": "1"}, "torch/ipex.whl"),
        (WHEEL, {"SUMS": "2"}, "SUMS"),
        (WHEEL, {}, "SUMS: in one folder alone"),
    ],
    ids=["a member", "one more member", "their order", "a file", "no file"],
)
def test_what_differs_is_named(tmp_path, members, files, said):
    done = compare(release(tmp_path / "a", WHEEL, SUMS="1"), release(tmp_path / "b", members, **files))
    assert done.returncode == 1
    assert done.stderr == f"same_bytes: these differ:\n  {said}\n"


def test_nothing_to_compare_is_no_success(tmp_path):
    done = compare(tmp_path, tmp_path)
    assert done.returncode == 1
    assert "expected wheels in" in done.stderr
