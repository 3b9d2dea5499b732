"""What passes need, establish and break: the order is checked against it, and the sources are held to it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from ipex import _C

ROOT = Path(__file__).parents[3]
TABLE = _C.pass_table()
PHASES = list(dict.fromkeys(row["phase"] for row in TABLE))
INVARIANTS = {name: is_given for name, _, is_given in _C.invariant_table()}
# Their rows are in one table.
ELSEWHERE = {"lower_norms": "lower"}


def source_of(name: str) -> Path:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    return generate.source_of(name)


def swapped(first: str, second: str) -> list[str]:
    names = _C.pass_names()
    i, j = names.index(first), names.index(second)
    names[i], names[j] = names[j], names[i]
    return names


def test_the_order_that_runs_is_allowed():
    assert _C.reason_against_order(_C.pass_names()) == ""


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("simplify_sizes", "read_known_sizes", "read_known_sizes needs integer_sizes, which no pass before it gives"),
        ("prepack_convolution", "fold_padding", "fold_padding needs anchors_prepacked, which no pass before it gives"),
        (
            "fuse_grid_mask",
            "fuse_elementwise",
            "fuse_grid_mask needs plain_arithmetic, which fuse_elementwise breaks before it",
        ),
        ("fuse_cat_batch_norm", "lower_ops", "needs aten_names, which lower_ops breaks before it"),
    ],
)
def test_a_wrong_order_is_refused(first, second, reason):
    assert reason in _C.reason_against_order(swapped(first, second))


def test_an_order_of_unknown_passes_is_refused():
    with pytest.raises(RuntimeError, match="expected names of passes, got 'no_such_pass'"):
        _C.reason_against_order(["simplify_sizes", "no_such_pass"])


def test_one_of_two_that_establish_an_invariant_is_not_enough():
    names = [name for name in _C.pass_names() if name != "prepack_convolution"]
    late = [*names, "prepack_convolution"]
    assert "needs anchors_prepacked, which prepack_convolution establishes after it" in _C.reason_against_order(late)


def test_a_pass_that_is_missing_is_missed():
    names = [name for name in _C.pass_names() if name != "remove_dropout"]
    assert "needs no_dropout, which no pass before it gives" in _C.reason_against_order(names)


def test_every_invariant_that_is_needed_is_given_or_established():
    needed = {one for row in TABLE for one in row["needs"]}
    established = {one for row in TABLE for one in row["establishes"]}
    broken = {one for row in TABLE for one in row["breaks"]}
    assert needed <= {name for name, is_given in INVARIANTS.items() if is_given} | established
    assert established | broken <= needed, "an invariant that nobody needs says nothing"


@pytest.mark.parametrize("name", dict.fromkeys(row["name"] for row in TABLE))
def test_a_pass_lies_in_the_folder_of_its_phase(name):
    folder = source_of(name).parent.name
    assert folder in [row["phase"] for row in TABLE if row["name"] == name] + [ELSEWHERE.get(name)]


def test_every_pass_stands_in_a_phase():
    """Nothing else misses one that phases.inc doesn't list."""
    defined = {
        name
        for path in (ROOT / "passes").rglob("*.cpp")
        for name in re.findall(r"^Pass (\w+)\(\) \{", path.read_text(), re.MULTILINE)
    }
    assert defined <= {row["name"] for row in TABLE}


def test_no_pass_names_another():
    """A contract says what has to come before what. Names without an underscore are words of English, too."""
    names = [name for name in _C.pass_names() if "_" in name]
    found = []
    for path in sorted((ROOT / "passes").rglob("*.*")):
        if path.suffix not in {".h", ".cpp"} or path.parent.name in {"pipeline", "ipex"}:
            continue
        text = path.read_text()
        for name in names:
            is_own = path.stem == name or re.search(rf'\{{\s*"{name}",|^Pass {name}\(\) \{{', text, re.MULTILINE)
            # "ipex::lower_precision" is an op.
            if not is_own and re.search(rf"(?<![\w:]){name}(?!\w)", text):
                found.append(f"{path.relative_to(ROOT)} names {name}")
    assert found == []
