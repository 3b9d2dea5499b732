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

LEVELS = [level for level in (ipex.isa.Level.AVX2, ipex.isa.Level.AVX512) if level < ipex.isa.current()]
SAMPLE = ["linear", "lstm", "convolution by winograd", "int4 weights", "depthwise in a chain", "static int8", "gru"]

LOAD = """
import sys, warnings, torch, ipex
torch.set_grad_enabled(False)
aot, portable, inputs, expected_warnings = *sys.argv[1:4], int(sys.argv[4])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    loaded = ipex.aot_load(aot)
told = [str(w.message) for w in caught if "ipex.aot_load" in str(w.message)]
assert len(told) == expected_warnings, told
x = torch.load(inputs)
assert torch.equal(loaded(x), ipex.load(portable)(x))
print(*told, loaded.packed_0.describe(), sep="\\n")
"""


def in_a_process(level: ipex.isa.Level | None, *arguments: object) -> str:
    environment = {**os.environ, **({"ATEN_CPU_CAPABILITY": str(level)} if level else {})}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *map(str, arguments)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("level", LEVELS, ids=str)
@torch.no_grad()
def test_saved_for_other_instructions(level, tmp_path):
    """Packed in a process with these instructions, used as it is in another one, and packed again here."""
    for name in SAMPLE if level == ipex.isa.Level.AVX2 else SAMPLE[:1]:
        model, x = model_and_input(name)
        files = [tmp_path / f"{name}{ending}" for ending in (".ipex", ".pt", ".input")]
        ipex.aot_save(model, files[0], isa=level, example_inputs=x)
        model.save(files[1])
        torch.save(x, files[2])
        assert AotFile(files[0]).target()[3] == str(level)
        assert "packed=in the file" in in_a_process(level, *files, 0)

        with pytest.warns(UserWarning, match=f"the file is for {level} .*packed again at the first call"):
            loaded = ipex.aot_load(files[0])
        assert torch.equal(loaded(x), model(x))
        text = loaded.packed_0.layers()[0].describe() if hasattr(loaded.packed_0, "layers") else loaded.packed_0.describe()
        assert "packed=in the file" in text or f"packed=again: the file is for {level}" in text


@pytest.mark.skipif(ipex.isa.current() < ipex.isa.Level.AVX512, reason="needs a level below that of this CPU")
@torch.no_grad()
def test_saved_here_and_loaded_with_fewer_instructions(tmp_path):
    model, x = model_and_input("linear")
    ipex.aot_save(model, tmp_path / "a.ipex")
    model.save(tmp_path / "a.pt")
    torch.save(x, tmp_path / "a.input")
    told = in_a_process(ipex.isa.Level.AVX2, *(tmp_path / f"a{e}" for e in (".ipex", ".pt", ".input")), 1)
    assert f"the file is for {ipex.isa.current()}" in told
    assert "and this process uses avx2" in told
    assert "packed=again" in told


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


def test_another_torch_does_not_matter(tmp_path, recwarn):
    model, x = model_and_input("linear")
    ipex.aot_save(model, tmp_path / "model.ipex")
    file = AotFile(tmp_path / "model.ipex")
    text = file.target()[2].encode()
    at = file.content.index(text, file.sections["target"].offset)
    file.content[at : at + 1] = b"9"
    (tmp_path / "other.ipex").write_bytes(file.signed())
    loaded = ipex.aot_load(tmp_path / "other.ipex")
    assert not [w for w in recwarn if "ipex" in str(w.message)]
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


def test_what_is_refused():
    with pytest.raises(TypeError, match="expected a ScriptModule, got the nn.Module Linear"):
        ipex.aot_save(nn.Linear(2, 2), "no.ipex")
    with pytest.raises(ValueError, match=r"expected an optimised model, got one that is not\. Call ipex\.jit_optimize"):
        ipex.aot_save(torch.jit.script(nn.Linear(2, 2)), "no.ipex")
    model, x = model_and_input("linear")
    with pytest.raises(ValueError, match="expected isa to be one of default, avx2, .*got 'sse'"):
        ipex.aot_save(model, "no.ipex", isa="sse")
    with pytest.raises(TypeError, match="expected example_inputs to be a tensor.*got dict"):
        ipex.aot_save(model, "no.ipex", example_inputs={"x": x})
    if ipex.isa.highest_cpu() < ipex.isa.Level.AMX_FP16:
        with pytest.raises(RuntimeError, match="expected a file for isa='amx_fp16', got an error: .*expected"):
            ipex.aot_save(model, "no.ipex", isa=ipex.isa.Level.AMX_FP16)
