"""The op table says what torch's own schemas say, wherever these say anything."""

from __future__ import annotations

import pytest
import torch

from ipex import _C

ROWS = {row["name"] + ("." + row["overload"] if row["overload"] else ""): row for row in _C.op_table()}
SCHEMAS = {s.name + ("." + s.overload_name if s.overload_name else ""): s for s in torch._C._jit_get_all_schemas()}
# Nodes of the interpreter, some of which have schemas; torchvision registers its ops when it is imported.
WITHOUT_SCHEMA = {name for name in ROWS if name.startswith(("prim::", "torchvision::"))}


def written(schema: object) -> list[str]:
    """The arguments that the op overwrites."""
    return [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def aliases(schema: object) -> bool:
    """Whether the first result may be an argument, or lie in its memory."""
    return bool(schema.returns) and schema.returns[0].alias_info is not None


def test_no_row_stands_there_twice():
    assert len(ROWS) == len(_C.op_table())


@pytest.mark.parametrize("name", sorted(ROWS.keys() - WITHOUT_SCHEMA))
def test_the_op_exists(name):
    assert name in SCHEMAS


@pytest.mark.parametrize("name", sorted(ROWS.keys() & SCHEMAS.keys()))
def test_a_row_writes_what_the_schema_writes(name):
    row, arguments = ROWS[name], written(SCHEMAS[name])
    assert arguments == ([] if row["writes"] == "nothing" else [SCHEMAS[name].arguments[0].name])


@pytest.mark.parametrize("name", sorted(ROWS.keys() & SCHEMAS.keys()))
def test_a_row_shares_memory_where_the_schema_does(name):
    row, schema = ROWS[name], SCHEMAS[name]
    if row["memory"] in ("fresh", "no_tensor"):
        assert not aliases(schema)
    if row["memory"] == "itself":
        assert aliases(schema)
    if row["memory"] == "view":
        assert aliases(schema)


@pytest.mark.parametrize("name", sorted({n for n, r in ROWS.items() if r["memory"] == "fresh"} & SCHEMAS.keys()))
def test_what_is_fresh_is_a_tensor(name):
    assert "Tensor" in str(SCHEMAS[name].returns[0].type)


def test_ops_of_ours_have_rows():
    # Those that Python registers, when somebody first compiles a packed module, are torch.compile's: no pass sees them.
    kinds = ("linear", "linear.codes", "embedding", "convolution", "lstm", "gru")
    of_compilers = {f"ipex::packed_{kind}" for kind in kinds}
    assert {name for name in SCHEMAS if name.startswith("ipex::")} - of_compilers <= ROWS.keys()


def test_no_form_with_out_has_a_row():
    assert [n for n in ROWS.keys() & SCHEMAS.keys() if any(a.is_out for a in SCHEMAS[n].arguments)] == []
