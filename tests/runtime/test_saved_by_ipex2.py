"""saved_by_ipex2.cpp: files of Intel Extension for PyTorch 2.8 (saved_by_ipex2/make.py) are plain models again."""

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import ipex
from support import kinds

FOLDER = Path(__file__).parent / "saved_by_ipex2"
FILES = sorted(path.stem for path in FOLDER.glob("*.pt") if ".values" not in path.name)
TOLERANCES = {"bfloat16": 1e-2, "dimensions": 1e-2, "int8": 2e-2}


def tolerance(name):
    found = [value for key, value in TOLERANCES.items() if key in name and not name.startswith("weight_only")]
    return found[0] if found else 2e-6


def flat(results):
    return results if isinstance(results, tuple) else (results,)


def check(module, name):
    inputs, expected = torch.load(FOLDER / f"{name}.values.pt")
    for found, right in zip(flat(module(*inputs)), flat(expected), strict=True):
        bound = tolerance(name) * right.abs().max().item()
        torch.testing.assert_close(found.float(), right, atol=bound, rtol=0)


@pytest.mark.parametrize("name", FILES)
def test_the_values_are_those_before_ipex(name):
    module = ipex.load(FOLDER / f"{name}.pt")
    check(module, name)
    optimized = ipex.jit_optimize(module)
    check(optimized, name)
    content = io.BytesIO()
    torch.jit.save(module, content)
    content.seek(0)
    check(torch.jit.load(content), name)  # nothing of IPEX's is left in it


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("convolutions_frozen", {"ipex::convolution_run": 3}),
        ("convolutions_int8", {"ipex::quantized_convolution_run": 3}),
        ("linears_traced", {"ipex::linear_chain_run": 1}),
        ("recurrent_frozen", {"ipex::lstm_run": 1}),
        ("weight_only_int4", {"ipex::weight_only_linear_run": 2}),
    ],
)
def test_they_are_optimized_as_any(name, packed):
    found = kinds(ipex.jit_optimize(ipex.load(FOLDER / f"{name}.pt")))
    assert {kind: found[kind] for kind in packed} == packed


def test_the_command_line_takes_them(tmp_path):
    target = tmp_path / "model.pt"
    command = [sys.executable, "-m", "ipex", "optimize", str(FOLDER / "convolutions_traced.pt"), "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True)
    check(ipex.load(target), "convolutions_traced")


def changed(name, tmp_path, change):
    """Return a copy of a file whose records are what `change(record, content)` makes of them."""
    path = tmp_path / "changed.pt"
    with zipfile.ZipFile(FOLDER / f"{name}.pt") as old, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for record in old.namelist():
            new.writestr(record, change(record, old.read(record)))
    return path


def test_an_op_of_ipex_that_is_unknown(tmp_path):
    path = changed("linears_frozen", tmp_path, lambda _, content: content.replace(b"ipex_MKLSGEMM", b"tpp_linear"))
    message = r"expected an op of IPEX 2\.x that is known here, got torch_ipex::tpp_linear\. Save the model as it is"
    with pytest.raises(RuntimeError, match=message):
        ipex.load(path)


def test_a_state_of_another_kind(tmp_path):
    """The sizes of a weight-only linear are four numbers."""

    def change(record, content):
        return content.replace(b"K\x18K\x10e", b"K\x18K\x10K\x01K\x01e") if record.endswith("data.pkl") else content

    with pytest.raises(RuntimeError, match=r"a weight-only linear of sizes 24 16 1 1"):
        ipex.load(changed("weight_only_int8", tmp_path, change))


@pytest.mark.parametrize("list_of_two", range(10))
def test_numbers_that_no_convolution_has(tmp_path, list_of_two):
    """Strides, paddings, dilations and output paddings of three convolutions, all that the file has."""

    def change(record, content):
        if not record.endswith("data.pkl"):
            return content
        places = [match.start() for match in re.finditer(rb"\(K.K.e", content)]
        assert len(places) == 10
        at = places[list_of_two]
        return content[:at] + b"(K\x01J\xff\xff\xff\x7fe" + content[at + 6 :]

    with pytest.raises(RuntimeError, match=r"up to 1024 in a convolution that IPEX saved, got 1 2147483647\."):
        ipex.load(changed("convolutions_traced", tmp_path, change))


def test_a_context_of_another_layer(tmp_path):
    def change(_, content):
        call = b"ipex_MKLSGEMM(x, CONSTANTS.c1, CONSTANTS.c1, (CONSTANTS.c0).get_data_handle(), 24)"
        other = b"convolution_forward(x, CONSTANTS.c1, None, (CONSTANTS.c0).get_data_handle()" + 5 * b", None" + b")"
        return content.replace(call, other)

    with pytest.raises(RuntimeError, match="a convolution whose context is another's"):
        ipex.load(changed("linears_frozen", tmp_path, change))


def test_a_handle_that_is_read_by_something_else(tmp_path):
    def change(_, content):
        return content.replace(b"torch.gelu(first)", b"torch.gelu((CONSTANTS.c0).get_data_handle())")

    path = changed("linears_frozen", tmp_path, change)
    with pytest.raises(RuntimeError, match="a context of IPEX's that is read in an unknown way"):
        ipex.load(path)
