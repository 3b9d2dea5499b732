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
    with pytest.raises(RuntimeError, match=r"got an error: a tensor of \[65535\] that its storage does not hold"):
        ipex.load(long)


class Quantized(nn.Module):
    """A weight that is quantised by channels: torch copies its scales and zero points while it loads."""

    def __init__(self, dtype, zeros):
        super().__init__()
        self.weight = torch.quantize_per_channel(torch.randn(5, 7), torch.rand(5) + 0.1, zeros, 0, dtype)

    def forward(self, x):
        return x + self.weight.dequantize()


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
@pytest.mark.parametrize(
    ("dtype", "zeros"), [(torch.qint8, torch.zeros(5, dtype=torch.long)), (torch.quint4x2, torch.zeros(5))]
)
def test_a_quantized_tensor(dtype, zeros, tmp_path):
    """Two elements of quint4x2 lie in a byte of its storage."""
    path, x = tmp_path / "quantized.pt", torch.randn(5, 7)
    model = Quantized(dtype, zeros)
    torch.jit.script(model).save(path)
    try:
        loaded = ipex.load(path)
    except RuntimeError as error:  # torch 2.13's own: it takes elements of quint4x2 for bytes
        if dtype != torch.quint4x2 or "require a storage of at least 35 bytes" not in str(error):
            raise
        return
    assert torch.equal(loaded(x), model(x))


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
@pytest.mark.parametrize("tensor", ["weight", "scales", "zero points"])
def test_a_quantized_tensor_that_is_larger_than_its_storage(tensor, tmp_path):
    path = tmp_path / "quantized.pt"
    torch.jit.script(Quantized(torch.qint8, torch.zeros(5, dtype=torch.long))).save(path)

    def change(content):
        sizes = b"K\x00(K\x05K\x07t" if tensor == "weight" else b"K\x00(K\x05t"
        at = content.rindex(sizes) if tensor == "zero points" else content.index(sizes)
        return content[:at] + sizes.replace(b"K\x05", b"K\x06") + content[at + len(sizes) :]

    with pytest.raises(RuntimeError, match="a tensor of .* that its storage does not hold"):
        ipex.load(changed(path, "data.pkl", change))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"FloatStorage", b"HalfStorages", "it names a storage as torch doesn't"),  # no such class
        (b"ctorch\nFloatStorage", b"cother\nFloatStorage", "it names a storage as torch doesn't"),
        (b"M\x2c\x01tQ", b"J\xff\xff\xff\xfftQ", "it names a storage as torch doesn't"),  # fewer than none
        (b"M\x2c\x01tQ", b"\x8a\x08" + b"\xff" * 7 + b"\x7ftQ", "it names a storage as torch doesn't"),  # more than fit
        (b"M\x2c\x01tQ", b"M\x2c\x01\x85Q", "it names a storage as torch doesn't"),  # not in one tuple
        (b"Q", b"NQ", "it names a storage as torch doesn't"),
        (b"K\x00(M\x2c\x01t", b"N(M\x2c\x01t", "it names a storage as torch doesn't"),  # no offset
        (b"K\x00(M\x2c\x01t", b"(t(M\x2c\x01t", "it names a storage as torch doesn't"),
        (b"K\x00(M\x2c\x01t", b"K\x00(Nt", "it names a storage as torch doesn't"),
        (b"K\x00(M\x2c\x01t(K\x01t", b"K\x00(M\x2c\x01tt0", "it names a storage as torch doesn't"),
        (b"K\x00(M\x2c\x01t(K\x01t", b"K\x00(M\x2c\x01t(t", "its storage does not hold"),
        (b"K\x00(M\x2c\x01t", b"K\x01(M\x2c\x01t", "its storage does not hold"),  # one on
        (b"(M\x2c\x01t(K\x01t", b"(M\x2c\x01t(K\x02t", "its storage does not hold"),
        (b"(M\x2c\x01t(K\x01t", b"(J\xff\xff\xff\xfft(K\x01t", "its storage does not hold"),
        (b"\x80\x02", b"\x80\x02t", "it takes more from its stack than that has"),
        (b"\x80\x02", b"\x80\x02\x85", "it takes more from its stack than that has"),
        (b"\x80\x02", b"\x80\x02q\x00", "it takes more from its stack than that has"),
        (b"\x80\x02", b"\x80\x02N(0t", "a pickle that torch doesn't write"),
        (b"\x80\x02", b"\x80\x02N(at", "it takes more from its stack than that has"),  # into what lies behind the mark
        (b"\x80\x02", b"\x80\x02X\xff\xff\xff\xff", "it ends within a pickle"),
        (b"\n", b" ", "it ends within a pickle"),
    ],
)
def test_a_pickle_that_torch_does_not_write(plain, old, new, message):
    def change(content):
        assert old in content
        return content.replace(old, new)

    with pytest.raises(RuntimeError, match=f"ipex::load: .*{message}"):
        ipex.load(changed(plain, "data.pkl", change))
