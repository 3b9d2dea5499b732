"""A file is read with suspicion: nothing of it is used before it is known to be whole."""

from __future__ import annotations

import contextlib
import copy
import resource
import struct

import pytest
import torch

import ipex
from aot_file import HEADER_BYTES, PAGE, SECTIONS, AotFile, checksum
from kinds_of_model import model_and_input

DAMAGED = "The file is damaged"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model, x = model_and_input("linear")
    path = tmp_path_factory.mktemp("aot") / "model.ipex"
    ipex.aot_save(model, path, example_inputs=x)
    return path


@pytest.fixture
def file(saved):
    return AotFile(saved)


def refuse(content: bytes, tmp_path, match: str = DAMAGED) -> None:
    path = tmp_path / "bad.ipex"
    path.write_bytes(content)
    with pytest.raises(RuntimeError, match=match):
        ipex.aot_load(path)


def test_the_file_is_as_documented(file):
    assert file.version == 1
    assert file.file_bytes == len(file.content) == file.sections["forms"].end
    assert checksum(bytes(file.content[: HEADER_BYTES - 8])) == file.header_checksum
    for name in ("target", "tensors", "forms"):
        assert checksum(file.bytes_of(file.sections[name])) == file.sections[name].checksum
    for piece in [*file.tensors().values(), *(form.piece for form in file.forms())]:
        assert checksum(file.bytes_of(piece)) == piece.checksum
    assert file.target()[0] == ipex.__version__
    assert file.target()[3] == str(ipex.isa.current())
    assert [form.sizes for form in file.forms()] == [(form.piece.size,) for form in file.forms()]
    assert file.signed() == bytes(file.content)
    for name, pieces in file.pieces().items():
        assert file.checksum_around(name, pieces) == file.sections[name].checksum


def places(file: AotFile) -> dict[str, int]:
    """Return a byte in every part of the file, and in every field of the header."""
    archive = file.sections["archive"]
    tensors, forms = list(file.tensors().values()), file.forms()
    found = {f"header {offset}": offset for offset in range(0, HEADER_BYTES, 8)}
    found |= {f"section {name}, first": file.sections[name].offset for name in SECTIONS}
    found |= {f"section {name}, last": file.sections[name].end - 1 for name in SECTIONS}
    found |= {f"section {n}, middle": (file.sections[n].offset + file.sections[n].end) // 2 for n in SECTIONS}
    found |= {"page of the header": HEADER_BYTES + 3, "end of the header's page": PAGE - 1}
    found |= {"behind the archive": archive.end, "before the tables": file.sections["target"].offset - 1}
    found |= {f"packed weight {i}": form.piece.offset + form.piece.size // 3 for i, form in enumerate(forms)}
    replaced = {form.plain for form in forms if form.replaces_plain}
    found |= {f"tensor {i}": p.offset for i, p in enumerate(tensors) if p.offset not in replaced and p.size > 0}
    return found


def test_a_flipped_bit_anywhere_is_seen(file, tmp_path):
    flipped = places(file)
    assert len(flipped) > 35
    replaced = {
        form.plain: piece for form in file.forms() for piece in file.tensors().values() if piece.offset == form.plain
    }
    for where, offset in flipped.items():
        if any(piece.offset <= offset < piece.end for piece in replaced.values()):
            continue  # not used: see below
        for bit in (1, 128):
            content = bytearray(file.content)
            content[offset] ^= bit
            try:
                refuse(bytes(content), tmp_path, match=r"damaged|another one|of version")
            except BaseException as error:
                raise AssertionError(f"{where}, at {offset}") from error


def test_random_bytes_anywhere_are_seen(file, tmp_path):
    unused = [(p.offset, p.end) for p in file.tensors().values() if any(f.plain == p.offset for f in file.forms())]
    for _ in range(60):
        offset = int(torch.randint(0, len(file.content), ()))
        if any(begin <= offset < end for begin, end in unused):
            continue
        content = bytearray(file.content)
        content[offset] ^= int(torch.randint(1, 256, ()))
        refuse(bytes(content), tmp_path, match=r"damaged|another one|of version")


def test_truncated_anywhere(file, tmp_path):
    ends = [0, 1, 7, 8, 100, HEADER_BYTES, PAGE - 1, PAGE, PAGE + 1, len(file.content) - 1]
    ends += [piece.offset for piece in file.sections.values()]
    for end in ends:
        refuse(bytes(file.content[:end]), tmp_path, match=r"damaged|another one")
    refuse(bytes(file.content) + b"\0", tmp_path)


HOSTILE = [0, 1, 7, 4095, 4097, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 4096, (1 << 64) - 1]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_numbers_in_the_header(file, value, tmp_path):
    for number in range(1, 17):  # all but the version and the checksum
        changed = copy.deepcopy(file)
        offset = 8 + 8 * number
        if struct.unpack_from("<Q", changed.content, offset)[0] == value:
            continue
        struct.pack_into("<Q", changed.content, offset, value)
        struct.pack_into("<Q", changed.content, HEADER_BYTES - 8, checksum(bytes(changed.content[: HEADER_BYTES - 8])))
        refuse(bytes(changed.content), tmp_path)


@pytest.mark.filterwarnings("ignore:ipex.aot_load")  # of other versions, when a text was changed
@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("table", ["target", "tensors", "forms"])
def test_hostile_numbers_in_the_tables(file, table, value, tmp_path):
    """A text may be others; a number may not, and the process goes on."""
    section, path = file.sections[table], tmp_path / "bad.ipex"
    getattr(file, table)()
    assert file.firm_numbers
    for offset in range(section.offset, section.end - 7, 8):
        changed = copy.deepcopy(file)
        if struct.unpack_from("<Q", changed.content, offset)[0] == value:
            continue
        struct.pack_into("<Q", changed.content, offset, value)
        path.write_bytes(changed.signed())
        is_firm = offset in file.firm_numbers
        with pytest.raises(RuntimeError, match="damaged") if is_firm else contextlib.suppress(RuntimeError):
            ipex.aot_load(path)
            assert not is_firm, f"{offset} in {table}"


def test_a_later_version_is_refused(file, tmp_path):
    struct.pack_into("<Q", file.content, 8, 2)
    refuse(file.signed(), tmp_path, match="expected a file of version 1.*got 2")


def test_a_plain_weight_that_is_not_read_is_not_checked_until_it_is(file, tmp_path):
    model, x = model_and_input("linear")
    (plain,) = {form.plain for form in file.forms()}
    file.content[plain] ^= 1
    path = tmp_path / "bad.ipex"
    path.write_bytes(file.content)
    with torch.no_grad():
        assert torch.equal(ipex.aot_load(path)(x), model(x))
    # Of another version of ipex packed weights are not used, and then it is.
    text = ipex.__version__.encode()
    at = file.content.index(text, file.sections["target"].offset)
    file.content[at : at + len(text)] = b"9" * len(text)
    refuse(file.signed(), tmp_path)


def test_checked_at_the_first_use(file, tmp_path):
    _, x = model_and_input("linear")
    file.content[file.forms()[0].piece.offset] ^= 1
    path = tmp_path / "bad.ipex"
    path.write_bytes(file.content)
    loaded = ipex.aot_load(path, check_at_load=False)
    with pytest.raises(RuntimeError, match=DAMAGED):
        loaded(x)


def test_other_files(tmp_path):
    with pytest.raises(RuntimeError, match="expected a file at '.*none'.*Check the path"):
        ipex.aot_load(tmp_path / "none")
    refuse(b"", tmp_path, "got another one")
    refuse(b"PK\3\4" * 4096, tmp_path, r"got another one\. Load a portable file with ipex::load")


def test_load_says_what_an_aot_file_is(saved):
    with pytest.raises(RuntimeError, match=r"a file that ipex::aot_save wrote\. Load it with ipex::aot_load"):
        ipex.load(saved)


@pytest.mark.parametrize("bytes_on_the_disk", [5000, 60000])
def test_a_full_disk(bytes_on_the_disk, tmp_path):
    model, _ = model_and_input("linear")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_on_the_disk, hard))
    try:
        with pytest.raises(RuntimeError, match="room on the disk"):
            ipex.aot_save(model, tmp_path / "model.ipex")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_where_saving_fails(tmp_path):
    model, x = model_and_input("linear")
    with pytest.raises(RuntimeError, match="expected to write"):
        ipex.aot_save(model, tmp_path / "no" / "folder.ipex")
    with pytest.raises(RuntimeError, match="expected input with last dimension"):
        ipex.aot_save(model, tmp_path / "model.ipex", example_inputs=x[:, :3])
    assert list(tmp_path.iterdir()) == []
