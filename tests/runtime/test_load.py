import zipfile

import pytest
import torch
from torch import nn

import ipex


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.pt"
    ipex.jit_optimize(torch.jit.trace(nn.Linear(64, 64).eval(), torch.randn(1, 64))).save(path)
    return path


def test_loads_what_torch_loads(saved):
    x = torch.randn(2, 64)
    assert torch.equal(ipex.load(saved)(x), torch.jit.load(saved)(x))


def test_no_such_file(tmp_path):
    with pytest.raises(RuntimeError, match=r"ipex::load: expected a saved TorchScript model at .*, got no such file"):
        ipex.load(tmp_path / "nowhere.pt")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(
        RuntimeError, match=r"ipex::load: expected .* got a file of \d+ bytes that is no complete archive"
    ):
        ipex.load(saved)


def test_a_file_of_something_else(tmp_path):
    torch.save({"a": torch.zeros(1)}, tmp_path / "weights.pt")
    with pytest.raises(RuntimeError, match=r"ipex::load: expected a saved TorchScript model"):
        ipex.load(tmp_path / "weights.pt")


def test_a_file_of_a_newer_format(saved, tmp_path):
    """The version is the first field of a context's state, right after its class in the pickle."""
    newer = tmp_path / "newer.pt"
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(newer, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("data.pkl"):
                at = content.index(b"K\x01", content.index(b"LinearContext"))
                content = content[:at] + b"K\x09" + content[at + 2 :]
            new.writestr(name, content)
    message = "expected a saved format of version 1 to 7, got 9. The model was written by a newer ipex"
    for load in (ipex.load, torch.jit.load):
        with pytest.raises(RuntimeError, match=message):
            load(newer)
