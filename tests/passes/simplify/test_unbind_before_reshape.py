import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir

NAME = "unbind_before_reshape"
CONSTANTS = (
    *(f"%n{n} : int = prim::Constant[value={n}]()" for n in (0, 1, 2, 3, 4)),
    "%any : int = prim::Constant[value=-1]()",
    "%none : NoneType = prim::Constant()",
)
SPLIT = "%split : int[] = prim::ListConstruct(%b, %n, %n3, %n4, %any)"
JOINED = "%joined : int[] = prim::ListConstruct(%n3, %bh, %n, %any)"
BEFORE = "%before : int[] = prim::ListConstruct(%b, %n4, %n, %any)"
ORDER = "%order : int[] = prim::Constant[value=[2, 0, 3, 1, 4]]()"
HEADS = (
    "%a : Tensor = aten::reshape(%x, %split)",
    "%p : Tensor = aten::permute(%a, %order)",
    "%r : Tensor = aten::reshape(%p, %joined)",
    "%l : Tensor[] = aten::unbind(%r, %n0)",
    "%q : Tensor, %k : Tensor, %v : Tensor = prim::ListUnpack(%l)",
)
UNDONE = "%y : Tensor = aten::view(%q, %before)"
UNSEEN = tuple(f"%{to} : Tensor = aten::linear(%{of}, %w, %none)" for of, to in (("y", "s"), ("k", "t"), ("v", "u")))


def ir(*lines: str, returns: str = "(%s, %t, %u)", split: str = SPLIT, joined: str = JOINED, order: str = ORDER) -> str:
    made = "%out : (Tensor, Tensor, Tensor) = prim::TupleConstruct(%s, %t, %u)"
    end = (made,) if returns.startswith("(") else ()
    head = (*CONSTANTS, split, joined, BEFORE, order)
    return graph_ir(
        "%x : Tensor, %w : Tensor, %b : int, %n : int, %bh : int",
        *head,
        *lines,
        *end,
        returns="%out" if end else returns,
    )


def test_a_view_that_undoes_the_reshape_is_none():
    result = assert_rewrites(NAME, ir(*HEADS, UNDONE, *UNSEEN))
    assert result.count("aten::view") == 0
    assert result.count("aten::reshape") == 3  # before the permutation, and of the two others
    assert re.search(r"%(\d+) : Tensor = aten::permute.*\n(.*\n)*.* = aten::unbind\(%\1,", result.graph)


def test_readers_of_one_piece_are_told_apart():
    other = "%z : Tensor = aten::linear(%q, %w, %none)"
    both = ("%s : Tensor = aten::add(%y0, %z, %n1)", "%y0 : Tensor = aten::linear(%y, %w, %none)")
    result = assert_rewrites(NAME, ir(*HEADS, UNDONE, other, both[1], both[0], *UNSEEN[1:]))
    assert result.count("aten::reshape") == 4


@pytest.mark.parametrize(
    "change",
    [
        {"split": SPLIT.replace("%n3", "%n")},  # not known to be as many as the pieces
        {"joined": JOINED.replace("%n3", "%any")},
        {"joined": JOINED.replace("%n3", "%n4")},
        {"order": ORDER.replace("2, 0, 3", "0, 2, 3")},
    ],
)
def test_leaves_others(change):
    assert_unchanged(NAME, ir(*HEADS, UNDONE, *UNSEEN, **change), reason=None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("aten::unbind(%r, %n0)", "aten::unbind(%r, %n1)"),
        ("aten::reshape(%x, %split)", "aten::relu(%x)"),
        ("%p : Tensor = aten::permute(%a, %order)", "%p : Tensor = aten::relu(%a)"),
        ("%r : Tensor = aten::reshape(%p, %joined)", "%r : Tensor = aten::expand_as(%p, %x)"),
    ],
)
def test_leaves_other_ops(old, new):
    assert_unchanged(NAME, ir(*(line.replace(old, new) for line in HEADS), UNDONE, *UNSEEN), reason=None)


def test_leaves_pieces_that_are_read_twice():
    again = "%z : Tensor = aten::__getitem__(%l, %n0)"
    assert_unchanged(NAME, ir(*HEADS, again, UNDONE, *UNSEEN), reason=None)


def test_declines_where_strides_are_seen():
    assert_unchanged(NAME, ir(*HEADS, returns="%k"), reason="the strides of a result depend on it")


def test_declines_where_memory_is_overwritten():
    write = "%z : Tensor = aten::relu_(%r)"
    assert_unchanged(NAME, ir(*HEADS[:3], write, *HEADS[3:], UNDONE, *UNSEEN), reason="something is overwritten")
    shared = "%z : Tensor = aten::relu_(%x)"
    assert_unchanged(NAME, ir(*HEADS, shared, UNDONE, *UNSEEN), reason="something is overwritten")


class Windows(nn.Module):
    """Attention with relative positions, as SAM has it: the query is read twice."""

    def __init__(self, undoes: bool = True) -> None:
        super().__init__()
        self.qkv, self.out, self.undoes = nn.Linear(16, 48), nn.Linear(16, 16), undoes
        self.tables = nn.ParameterList([torch.randn(3, 3, 4), torch.randn(2, 2, 4)])

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, 4, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.reshape(3, batch * 4, tokens, -1).unbind(0)
        image = q.reshape(q.size(0), 3, 2, q.size(2))
        rows = torch.einsum("bhwc,hkc->bhwk", image, self.tables[0])
        columns = torch.einsum("bhwc,wkc->bhwk", image, self.tables[1])
        bias = (rows[..., None] + columns[..., None, :]).reshape(batch, 4, tokens, tokens)
        if not self.undoes:
            weights = ((q * 0.5) @ k.transpose(-2, -1) + bias.view(batch * 4, tokens, tokens)).softmax(-1)
            return self.out((weights @ v).view(batch, 4, tokens, -1).transpose(1, 2).reshape(batch, tokens, -1))
        q, k, v = (piece.view(batch, 4, tokens, -1) for piece in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(y.permute(0, 2, 1, 3).reshape(batch, tokens, -1))


@pytest.mark.parametrize("undoes", [True, False])
def test_matches_eager(tmp_path, undoes):
    x = torch.randn(5, 6, 16)
    optimized = check_against_eager(Windows(undoes), x, also=((x[:1],),))
    assert_round_trip(optimized, tmp_path, x)


def copies_of(optimized: torch.jit.ScriptModule, x: Tensor) -> int:
    with torch.no_grad():
        for _ in range(3):
            optimized(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            optimized(x)
    return sum(event.name in ("aten::copy_", "ipex::copy_pieces") for event in profile.events())


def test_keys_and_values_are_not_copied():
    x = torch.randn(5, 6, 16)
    traced = torch.jit.trace(Windows().eval(), x)
    # The query, for the tables; and the widths, which einsum leaves permuted.
    assert copies_of(ipex.jit_optimize(traced), x) == 2
    assert copies_of(ipex.jit_optimize(traced, disable=[NAME]), x) > 2
