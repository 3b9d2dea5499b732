"""The command line: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import ipex
from ipex._cli import COMMANDS, main


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """A model, the same optimised, and another model."""
    folder = tmp_path_factory.mktemp("models")
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    other = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    x = torch.randn(2, 8)
    torch.jit.trace(model, x).save(folder / "model.pt")
    torch.jit.trace(other, x).save(folder / "other.pt")
    ipex.jit_optimize(model, x).save(folder / "optimized.pt")
    torch.save((x,), folder / "inputs.pt")
    return folder


def ask(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ipex", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_optimize_writes_a_model_that_was_compared(files, tmp_path, capsys):
    out = tmp_path / "out.pt"
    assert main(["optimize", str(files / "model.pt"), "-o", str(out), "--input", "2x8"]) == 0
    said = capsys.readouterr()
    assert "2 of 2 linears packed" in said.out
    assert "The models agree" in said.out
    assert said.err == ""  # no progress where there is no terminal
    x = torch.load(files / "inputs.pt")[0]
    torch.testing.assert_close(ipex.load(out)(x), torch.jit.load(files / "model.pt")(x))


def test_options_reach_the_optimiser(files, tmp_path, capsys):
    arguments = ["optimize", str(files / "model.pt"), "-o", str(tmp_path / "out.pt")]
    assert main([*arguments, "--fp32-math-mode", "bf32", "--disable", "fuse_activation,chain_linears", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verification"] is None
    report = ipex.explain(ipex.load(tmp_path / "out.pt"))
    layers = [layer for node in report.final for layer in node.layers]
    assert [(layer.math_mode, layer.post_ops) for layer in layers] == [("BF32", ""), ("BF32", "")]


def test_a_command_can_stop_after_a_phase(files, tmp_path, capsys):
    out = str(tmp_path / "out.pt")
    assert (
        main(
            [
                "optimize",
                str(files / "model.pt"),
                "-o",
                out,
                "--inputs",
                str(files / "inputs.pt"),
                "--stop-after=anchor",
            ]
        )
        == 0
    )
    assert "2 of 2 linears packed" in capsys.readouterr().out
    layers = [layer for node in ipex.explain(ipex.load(out)).final for layer in node.layers]
    assert [layer.post_ops for layer in layers] == ["", ""]
    with pytest.raises(SystemExit):
        main(["explain", str(files / "model.pt"), "--stop-after=nonsense"])
    assert "invalid choice: 'nonsense'" in capsys.readouterr().err


def test_explain(files, capsys, tmp_path):
    for name in ("model.pt", "optimized.pt"):
        assert main(["explain", str(files / name)]) == 0
        assert "2 of 2 linears packed" in capsys.readouterr().out
    assert main(["explain", str(files / "optimized.pt"), "--json", "--html", str(tmp_path / "page.html")]) == 0
    assert len(json.loads(capsys.readouterr().out)["original"]) == 3
    assert "<canvas" in (tmp_path / "page.html").read_text()
    assert main(["explain", str(files / "optimized.pt"), "--all"]) == 0
    assert capsys.readouterr().out.count("aten::linear") == 2


def test_profile(files, capsys, tmp_path):
    arguments = ["profile", str(files / "optimized.pt"), "--inputs", str(files / "inputs.pt"), "--calls", "2"]
    assert main([*arguments, "--roofline", str(tmp_path / "roof.svg"), "--html", str(tmp_path / "page.html")]) == 0
    assert "of the time in ops of ipex" in capsys.readouterr().out
    assert "<svg" in (tmp_path / "roof.svg").read_text()
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ops"]


def test_verify_tells_by_its_exit_code(files, capsys):
    inputs = ["--inputs", str(files / "inputs.pt")]
    assert main(["verify", str(files / "model.pt"), str(files / "optimized.pt"), *inputs]) == 0
    assert main(["verify", str(files / "other.pt"), str(files / "optimized.pt"), *inputs]) == 1
    assert "The models differ" in capsys.readouterr().out
    assert main(["verify", str(files / "other.pt"), str(files / "optimized.pt"), *inputs, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    assert main(["verify", str(files / "model.pt"), *inputs]) == 0


def test_env_names_what_a_bug_report_needs(capsys):
    assert main(["env", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ipex"] == ipex.__version__
    assert facts["torch"] == torch.__version__
    assert {"cpu", "cores", "used by ipex", "used by oneDNN", "OpenMP", "threads of torch"} <= facts.keys()
    assert main(["env"]) == 0
    assert f"torch {' ' * 3}" in capsys.readouterr().out


def test_env_reports_a_cap_that_can_not_be():
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "nonsense"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "ipex", "env"],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "nonsense" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explain", "nothing.pt"), "got 'nothing.pt', which is not there"),
        (("run", "nothing.py"), "ipex run: expected a script, got 'nothing.py', which is not there"),
        (("profile", "{}/model.pt"), "Pass --input 1x3x224x224 or --inputs FILE"),
        (("profile", "{}/model.pt", "--input", "nonsense"), "expected 1x3x224x224"),
        (
            ("profile", "{}/model.pt", "--input", "2x9"),
            "ipex profile: RuntimeError: ipex::linear_run: expected input with last dimension 8",
        ),
        (("explain", "{}/model.pt", "--disable", "nonsense"), "expected names of passes in --disable, got 'nonsense'"),
        (("explain", "{}/optimized.pt", "--dtype", "bfloat16"), "expected a plain model with these options"),
        (("optimize", "{}/optimized.pt", "-o", "out.pt"), "optimized.pt, which is. Give it the original"),
        (("explain", __file__), "ipex::load: expected a saved TorchScript model"),
    ],
)
def test_wrong_arguments_are_told_on_stderr(files, capsys, arguments, message):
    assert main([a.format(files) for a in arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert "Traceback" not in said.err


def test_every_command_has_help():
    for name in COMMANDS:
        assert ask(name, "--help").stdout.startswith("usage: "), name


def test_the_process_ends_with_the_code(files):
    assert ask("verify", files / "other.pt", files / "optimized.pt", "--inputs", files / "inputs.pt").returncode == 1
    assert ask("explain", "nothing.pt").returncode == 2
