"""Other instructions, other versions: the weights are packed again, and the reason is told."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import ipex
from aot_file import AotFile
from kinds_of_model import model_and_input

HAS_LOWER_LEVEL = ipex.isa.current() > ipex.isa.Level.AVX2
LOWER = ipex.isa.Level.AVX2
NAMES = ["linear", "lstm"]

LOAD = """
import sys, warnings, torch, ipex
torch.set_grad_enabled(False)
folder, names, expected_warnings = sys.argv[1], sys.argv[3:], int(sys.argv[2])
for name in names:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = ipex.aot_load(f"{folder}/{name}.ipex")
    told = [str(w.message) for w in caught if "ipex.aot_load" in str(w.message)]
    assert len(told) == expected_warnings, told
    x = torch.load(f"{folder}/{name}.input")
    assert torch.equal(loaded(x), ipex.load(f"{folder}/{name}.pt")(x))
    print(*told, loaded.packed_0.describe(), sep="\\n")
"""


def with_lower_level(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *map(str, arguments)],
        env={**os.environ, "ATEN_CPU_CAPABILITY": str(LOWER)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not HAS_LOWER_LEVEL, reason="needs a level below that of this process")
@torch.no_grad()
def test_saved_for_other_instructions(tmp_path):
    """Packed in a process with these instructions, used as it is in another one, and packed again here."""
    for name in NAMES:
        model, x = model_and_input(name)
        file = tmp_path / f"{name}.ipex"
        ipex.aot_save(model, file, isa=LOWER, example_inputs=x)
        assert AotFile(file).target()[3] == str(LOWER)
        model.save(tmp_path / f"{name}.pt")
        torch.save(x, tmp_path / f"{name}.input")
        with pytest.warns(UserWarning, match=f"the file is for {LOWER} .*packed again at the first call"):
            loaded = ipex.aot_load(file)
        assert torch.equal(loaded(x), model(x))
        assert f"packed=again: the file is for {LOWER}" in loaded.packed_0.describe()
    assert with_lower_level(tmp_path, 0, *NAMES).count("packed=in the file") == len(NAMES)


@pytest.mark.skipif(not HAS_LOWER_LEVEL, reason="needs a level below that of this process")
@torch.no_grad()
def test_saved_here_and_loaded_with_fewer_instructions(tmp_path):
    for name in NAMES:
        model, x = model_and_input(name)
        ipex.aot_save(model, tmp_path / f"{name}.ipex", example_inputs=x)
        model.save(tmp_path / f"{name}.pt")
        torch.save(x, tmp_path / f"{name}.input")
    told = with_lower_level(tmp_path, 1, *NAMES)
    assert f"the file is for {ipex.isa.current()}" in told
    assert f"and this process uses {LOWER}" in told
    assert told.count("packed=again") == len(NAMES)


@pytest.mark.parametrize("field", [0, 1], ids=["ipex", "oneDNN"])
@torch.no_grad()
def test_another_version_packs_again(field, tmp_path):
    model, x = model_and_input("lstm")
    ipex.aot_save(model, tmp_path / "model.ipex")
    file = AotFile(tmp_path / "model.ipex")
    text = file.target()[field].encode()
    at = file.content.index(text, file.sections["target"].offset)
    file.content[at : at + len(text)] = text[:-1] + bytes([text[-1] ^ 1])
    (tmp_path / "other.ipex").write_bytes(file.signed())
    with pytest.warns(UserWarning, match="the file was packed by ipex") as caught:
        loaded = ipex.aot_load(tmp_path / "other.ipex")
    assert len(caught) == 1
    assert torch.equal(loaded(x), model(x))
    assert "packed=again: the file was packed by ipex" in loaded.packed_0.describe()
    assert ipex.aot_describe(tmp_path / "other.ipex")["packed_again"].startswith("the file was packed by ipex")


def test_other_instructions_of_onednn_alone_are_told(tmp_path):
    model, x = model_and_input("linear")
    ipex.aot_save(model, tmp_path / "model.ipex")
    file = AotFile(tmp_path / "model.ipex")
    text = file.target()[4].encode()
    section = file.sections["target"]
    at = file.content.rindex(text, section.offset, section.end)
    file.content[at : at + len(text)] = text[:-1] + bytes([text[-1] ^ 1])
    (tmp_path / "other.ipex").write_bytes(file.signed())
    with pytest.warns(UserWarning, match=f"the file is for {ipex.isa.current()} with oneDNN"):
        loaded = ipex.aot_load(tmp_path / "other.ipex")
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))


def test_another_torch_does_not_matter(tmp_path, recwarn):
    model, x = model_and_input("linear")
    ipex.aot_save(model, tmp_path / "model.ipex")
    file = AotFile(tmp_path / "model.ipex")
    text = file.target()[2].encode()
    at = file.content.index(text, file.sections["target"].offset)
    file.content[at : at + 1] = b"9"
    (tmp_path / "other.ipex").write_bytes(file.signed())
    loaded = ipex.aot_load(tmp_path / "other.ipex")
    assert not [w for w in recwarn if "ipex.aot_load" in str(w.message)]
    with torch.no_grad():
        loaded(x)
    assert "packed=in the file" in loaded.packed_0.describe()


@torch.no_grad()
def test_explain_reads_the_rest_of_the_description(tmp_path):
    model, x = model_and_input("linear")
    ipex.aot_save(model, tmp_path / "model.ipex")
    loaded = ipex.aot_load(tmp_path / "model.ipex")
    loaded(x)
    assert ipex.explain(loaded).verdict == ipex.explain(model).verdict


def test_what_is_refused(tmp_path):
    with pytest.raises(TypeError, match="expected a ScriptModule, got the nn.Module Linear"):
        ipex.aot_save(nn.Linear(2, 2), "no.ipex")
    with pytest.raises(ValueError, match=r"expected an optimised model, got one that is not\. Call ipex\.jit_optimize"):
        ipex.aot_save(torch.jit.script(nn.Linear(2, 2)), "no.ipex")
    model, x = model_and_input("linear")
    (tmp_path / "folder.ipex").mkdir()
    with pytest.raises(RuntimeError, match=r"expected to write '.*folder\.ipex', got an error: "):
        ipex.aot_save(model, tmp_path / "folder.ipex")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.ipex"]
    with pytest.raises(ValueError, match="expected isa to be one of default, avx2, .*got 'sse'"):
        ipex.aot_save(model, "no.ipex", isa="sse")
    with pytest.raises(TypeError, match=r"ipex.aot_save: expected inputs, got set\. Pass a tensor, a tuple"):
        ipex.aot_save(model, "no.ipex", example_inputs={x})
    if ipex.isa.highest_cpu() < ipex.isa.Level.AMX_FP16:
        with pytest.raises(ValueError, match="expected instructions of this CPU, .* at most, got isa='amx_fp16'"):
            ipex.aot_save(model, "no.ipex", isa=ipex.isa.Level.AMX_FP16)
