import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from ipex.bench.command import main, parser, plan

PLANTED = ("Wrong", "WrongLater", "Crashing", "Missing")


class Done(NamedTuple):
    """What a run said, and where it wrote."""

    stdout: str
    stderr: str
    folder: Path

    def cell(self) -> dict[str, Any]:
        """Return the one cell."""
        (cell,) = json.loads((self.folder / "json").read_text())["cells"]
        return cell


def bench(folder: Path, *arguments: str) -> Done:
    """Run with all files that can be written going to `folder`."""
    files = [f"--{kind}={folder / 'new' / kind}" for kind in ("json", "markdown", "chart", "log")]
    stdout, stderr = io.StringIO(), io.StringIO()
    path = [str(Path(__file__).parent), *sys.path]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
        patch.setattr(sys, "path", path)
        main([*arguments, "--threads=1", *files])
    return Done(stdout.getvalue(), stderr.getvalue(), folder / "new")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One run with two backends that work and some that don't."""
    backends = ",".join(["ipex", "eager", *(f"planted:{name}" for name in PLANTED)])
    arguments = ("tiny_mlp", "--batch=2", "--seconds=0.3", "--rounds=3")
    return bench(tmp_path_factory.mktemp("bench"), *arguments, f"--backends={backends}")


@pytest.fixture(scope="module")
def measured(done):
    return {m["backend"].replace("planted:", ""): m for m in done.cell()["measurements"]}


@pytest.mark.parametrize("backend", ["ipex", "eager"])
def test_times_what_is_right(measured, backend):
    m = measured[backend]
    assert m["status"] == "ok"
    assert m["difference"] <= m["tolerance"]
    assert len(m["round_seconds"]) == 3
    assert m["calls"] >= 3
    times = [*m["round_seconds"], m["prepare_seconds"], m["first_call_seconds"], m["warm_up_seconds"]]
    assert all(t > 0 for t in times)
    assert m["fastest_seconds"] <= min(m["round_seconds"])


def test_loads_what_can_be_saved(measured):
    assert measured["ipex"]["loaded"].keys() == {"load_seconds", "first_call_seconds", "peak_memory_bytes"}
    assert measured["eager"]["loaded"] is None


@pytest.mark.parametrize("backend", ["Wrong", "WrongLater"])
def test_does_not_time_what_is_wrong(measured, backend):
    m = measured[backend]
    assert m["status"] == "wrong"
    assert m["difference"] == pytest.approx(0.01, rel=0.01)
    assert m["round_seconds"] == []


@pytest.mark.parametrize(
    ("backend", "status", "note"),
    [
        ("Crashing", "failed", "in round 1: the process ended: SIGABRT"),
        ("Missing", "not installed", "no_package_has_this_name"),
    ],
)
def test_says_why_not(measured, backend, status, note):
    assert measured[backend]["status"] == status
    assert note in measured[backend]["note"]
    assert measured[backend]["round_seconds"] == []


def test_tables_and_chart(done):
    text = (done.folder / "markdown").read_text()
    assert done.stdout.strip() == text.strip()
    assert "| MLP, 64 to 256 wide | eager | 2 | 1 |" in text  # the best peer
    assert "missing: not installed: no_package_has_this_name (MLP, 64 to 256 wide 2/1)" in text
    assert "wrong: wrong: off by 0.01" in text
    assert ET.parse(done.folder / "chart").getroot().tag.endswith("svg")
    assert "[1/1, 0 min] MLP, 64 to 256 wide, batch 2, 1 threads: wrong: WRONG" in done.stderr


def test_a_file(tmp_path):
    torch.jit.trace(torch.nn.Linear(6, 3).eval(), torch.randn(2, 6)).save(tmp_path / "model.pt")
    cell = bench(tmp_path, str(tmp_path / "model.pt"), "--input=2x6", "--backends=channels_last,planted:Failing").cell()
    assert (cell["title"], cell["batch"], cell["operations"]) == ("model.pt", 2, 2 * 2 * 6 * 3)
    found = [(m["status"], m["note"]) for m in cell["measurements"]]
    assert found == [("not applicable", "needs a Python model"), ("failed", "RuntimeError: no such op")]


def test_a_file_that_does_not_run(tmp_path):
    torch.jit.trace(torch.nn.Linear(6, 3).eval(), torch.randn(2, 6)).save(tmp_path / "model.pt")
    done = bench(tmp_path, str(tmp_path / "model.pt"), "--input=2x7", "--backends=ipex")
    assert "- model.pt, batch 2: does not run in eager: RuntimeError" in done.stdout
    assert "There is nothing to compare." in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a model"),
        (["no_such_model"], "expected a file or a model out of resnet50"),
        (["tiny_mlp", "--input=1x64"], "expected no --input with the model tiny_mlp"),
        (["tiny_mlp", "--backends=nonsense"], "expected a backend out of ipex"),
        (["tiny_mlp", "--threads=0"], "expected numbers from 1 on"),
        ([__file__], "expected --input"),
        ([__file__, "--input=1,3"], "expected 1x3x224x224"),
    ],
)
def test_bad_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


def test_larger_batches_are_timed_with_the_most_threads():
    def planned(*arguments):
        return [(subject.batch, threads) for subject, threads in plan("tiny_mlp", parser().parse_args(arguments))]

    assert planned("--threads=2,1") == [(1, (2, 1)), (64, (2,))]
    assert planned("--threads=2,1", "--batch=3,4") == [(3, (2, 1)), (4, (2, 1))]


def test_importing_ipex_leaves_it_out():
    code = "import ipex, sys; print([m for m in sys.modules if m.startswith('ipex.bench')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
