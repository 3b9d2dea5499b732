"""`ipex aot`: writes and describes files with packed weights."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

import ipex
from ipex._cli import main


@pytest.fixture
def traced(tmp_path):
    model, x = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 3)).eval(), torch.randn(4, 40)
    with torch.no_grad():
        torch.jit.trace(model, x).save(tmp_path / "in.pt")
    return tmp_path / "in.pt", model, x


def test_writes_a_file_and_describes_it(traced, tmp_path, capsys):
    path, model, x = traced
    out = tmp_path / "out.ipex"
    assert main(["aot", str(path), "-o", str(out), "--input", "4x40"]) == 0
    told = capsys.readouterr().out
    assert f"{out}: for {ipex.isa.current()}" in told
    assert "2 packed weights" in told
    with torch.no_grad():
        assert torch.allclose(ipex.aot_load(out)(x), model(x), atol=1e-5)
    assert main(["aot", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["file"] == str(out)
    assert facts["packed_weights"] == 2
    assert facts["plain_bytes"] == 4 * (40 * 64 + 64 + 64 * 3 + 3)


def test_takes_a_model_that_is_optimised(traced, tmp_path, capsys):
    _, model, x = traced
    ipex.jit_optimize(model, x).save(tmp_path / "optimized.pt")
    assert main(["aot", str(tmp_path / "optimized.pt"), "-o", str(tmp_path / "out.ipex")]) == 0
    assert "2 packed weights" in capsys.readouterr().out


@pytest.mark.skipif(ipex.isa.current() <= ipex.isa.Level.AVX2, reason="needs a level below that of this process")
def test_packs_for_other_instructions(traced, tmp_path):
    out = tmp_path / "out.ipex"
    command = [sys.executable, "-m", "ipex", "aot", traced[0], "-o", out, "--isa", "avx2", "--input", "4x40"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{out}: for avx2 (oneDNN: avx2)" in done.stdout
    assert ipex.aot_describe(out)["isa"] == "avx2"
    assert ipex.aot_describe(out)["packed_again"].startswith("the file is for avx2")


def test_refusals(traced, tmp_path, capsys):
    assert main(["aot", str(tmp_path / "none.pt"), "-o", str(tmp_path / "out.ipex")]) == 2
    assert "expected a file" in capsys.readouterr().err
    assert main(["aot", str(traced[0])]) == 2
    assert "expected a file that ipex::aot_save wrote" in capsys.readouterr().err
    assert main(["aot", str(traced[0]), "-o", str(tmp_path / "no" / "out.ipex")]) == 2
    assert "expected to write" in capsys.readouterr().err
