import pytest
import torch
from torch import nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "fuse_rotary"
CONSTANTS = tuple(
    f"%{name} : int = prim::Constant[value={value}]()"
    for name, value in {"m2": -2, "m1": -1, "n0": 0, "n1": 1, "n2": 2, "n4": 4, "max": 2**63 - 1}.items()
)
SLICES = (
    "%f : Tensor = aten::slice(%x, %m1, %n0, %n4, %n1)",
    "%s : Tensor = aten::slice(%x, %m1, %n4, %max, %n1)",
)
CHUNKS = ("%c : Tensor[] = aten::chunk(%x, %n2, %m1)", "%f : Tensor, %s : Tensor = prim::ListUnpack(%c)")
PAIRS = (
    "%f : Tensor = aten::slice(%x, %m1, %n0, %max, %n2)",
    "%s : Tensor = aten::slice(%x, %m1, %n1, %max, %n2)",
)
CAT = ("%r : Tensor = aten::cat(%l, %m1)",)
STACK = ("%t : Tensor = aten::stack(%l, %m1)", "%r : Tensor = aten::flatten(%t, %m2, %m1)")


def ir(pieces: tuple[str, ...], joined: tuple[str, ...], *more: str, alpha: str = "n1", returns: str = "%y") -> str:
    return graph_ir(
        "%x : Tensor, %cos : Tensor, %sin : Tensor",
        *CONSTANTS,
        "%a : Tensor = aten::mul(%x, %cos)",
        *pieces,
        "%n : Tensor = aten::neg(%s)",
        "%l : Tensor[] = prim::ListConstruct(%n, %f)",
        *joined,
        "%b : Tensor = aten::mul(%r, %sin)",
        f"%y : Tensor = aten::add(%a, %b, %{alpha})",
        *more,
        returns=returns,
    )


@pytest.mark.parametrize(("pieces", "joined"), [(SLICES, CAT), (CHUNKS, CAT), (PAIRS, STACK)])
def test_fires(pieces, joined):
    result = assert_rewrites(NAME, ir(pieces, joined))
    assert result.count("ipex::rotary") == 1
    for kind in ("mul", "neg", "cat", "stack", "add", "chunk"):
        assert result.count(f"aten::{kind}") == 0


def test_declines_another_reader():
    more = ("%t : Tensor[] = prim::ListConstruct(%y, %r)",)
    assert_unchanged(NAME, ir(SLICES, CAT, *more, returns="%t"), reason="another reader needs a value in between")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ir(SLICES, CAT, alpha="n2"), "it scales a term"),
        (ir(SLICES, ("%r : Tensor = aten::cat(%l, %m2)",)), "it does not join the last dimension"),
        (ir((SLICES[0].replace("%n0", "%n1"), SLICES[1]), CAT), "its first half does not begin the row"),
        (ir((SLICES[0], SLICES[1].replace("%max", "%n4")), CAT), "its second half does not end the row"),
        (ir(tuple(s.replace("%n1)", "%n2)") for s in SLICES), CAT), "its halves have gaps"),
        (ir((CHUNKS[0].replace("%n2", "%n4"), CHUNKS[1]), CAT), "it does not cut in two"),
        (ir((PAIRS[0], PAIRS[1].replace("%n1", "%n2")), STACK), "its pairs are not neighbours"),
        (ir(PAIRS, (STACK[0], STACK[1].replace("%m2", "%n2"))), "it does not join pairs"),
    ],
)
def test_declines(text, reason):
    assert_unchanged(NAME, text, reason=reason)


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotate_chunks(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotate_pairs(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, rotate) -> None:
        super().__init__()
        self.query, self.key, self.rotate = nn.Linear(24, 24), nn.Linear(24, 24), rotate
        angle = torch.arange(50).unsqueeze(1) / 7.0 ** torch.arange(8)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def turned(self, x):
        heads = x.view(x.size(0), x.size(1), 3, 8).transpose(1, 2)
        cos, sin = self.cos[: x.size(1)], self.sin[: x.size(1)]
        return heads * cos + self.rotate(heads) * sin

    def forward(self, x):
        query, key = self.turned(self.query(x)), self.turned(self.key(x))
        return query, torch.softmax(query @ key.transpose(-1, -2), -1)


@pytest.mark.parametrize("rotate", [rotate_half, rotate_chunks, rotate_pairs])
def test_matches_eager(tmp_path, rotate):
    x = torch.randn(2, 9, 24)
    optimized = check_against_eager(Attention(rotate), x, also=(x[:, :1], torch.randn(1, 40, 24)))
    assert kinds(optimized)["ipex::rotary"] == 2
    assert_round_trip(optimized, tmp_path, x)


def test_can_be_switched_off():
    module = torch.jit.trace(Attention(rotate_half).eval(), torch.randn(2, 9, 24))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["ipex::rotary"] == 0
