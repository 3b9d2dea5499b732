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
    message = "ipex.load: expected a saved TorchScript model at .*, got what torch.save wrote"
    with pytest.raises(RuntimeError, match=message):
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
    message = "expected a saved format of version 1 to 8, got 9. The model was written by a newer ipex"
    for load in (ipex.load, torch.jit.load):
        with pytest.raises(RuntimeError, match=message):
            load(newer)


def changed(saved, name, change):
    """The same model with one record changed."""
    path = saved.with_name("changed.pt")
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for record in old.namelist():
            content = old.read(record)
            new.writestr(record, change(content) if record.endswith(name) else content)
    return path


class State(nn.Module):
    """A plain model whose weights lie in each place of a file: a parameter, a list, a constant of the code."""

    listed: list[torch.Tensor]

    def __init__(self, constant):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(300))
        self.listed = [torch.randn(300)]
        self.constant = constant

    def forward(self, x):
        return self.constant(x) + self.weight + self.listed[0]


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "plain.pt"
    number = torch.randn(300)
    torch.jit.script(State(torch.jit.trace(lambda x: x * number, torch.randn(300)))).save(path)
    return path


@pytest.mark.parametrize("record", ["data/0", "data/1", "constants/0"])
def test_a_record_that_is_shorter_than_its_storage(plain, record):
    message = rf"got an error: a storage of 1200 bytes whose record '{record}' has 1196"
    with pytest.raises(RuntimeError, match=message):
        ipex.load(changed(plain, record, lambda content: content[:-4]))


def test_a_record_of_a_packed_model_that_is_shorter_than_its_storage(saved):
    with zipfile.ZipFile(saved) as archive:
        records = [name.partition("/")[2] for name in archive.namelist() if "/data/" in name]
    for record in records:
        with pytest.raises(RuntimeError, match=f"whose record '{record}' has"):
            ipex.load(changed(saved, record, lambda content: content[:-1]))


@pytest.mark.parametrize("pickle", ["data.pkl", "constants.pkl"])
def test_a_tensor_that_is_larger_than_its_storage(plain, pickle):
    """The size of a tensor stands behind its storage: (storage, 0, (300,), (1,), ..)."""
    long = changed(plain, pickle, lambda content: content.replace(b"K\x00(M\x2c\x01t", b"K\x00(M\xff\xfft"))
    with pytest.raises(RuntimeError, match=r"got an error: .*65535.* storage"):  # newer torch says it first
        ipex.load(long)


def test_a_storage_that_is_named_in_another_way_than_torch_does(plain):
    for change in (
        lambda content: content.replace(b"FloatStorage", b"HalfStorages"),  # no such class
        lambda content: content.replace(b"M\x2c\x01tQ", b"J\xff\xff\xff\xfftQ"),  # fewer than none
        lambda content: content.replace(b"M\x2c\x01tQ", b"M\x2c\x01\x85Q"),  # not in one tuple
        lambda content: content.replace(b"Q", b"NQ"),
        lambda content: content[:-5],
    ):
        with pytest.raises(RuntimeError, match="ipex::load: expected a saved TorchScript model"):
            ipex.load(changed(plain, "data.pkl", change))
