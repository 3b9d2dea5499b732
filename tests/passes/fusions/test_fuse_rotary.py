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


def part(
    first: str = "%x, %m1, %n0, %n4, %n1",
    rest: str = "%x, %m1, %n4, %max, %n1",
    listed: str = "%r, %e",
    joined: str = "%m1",
    **more: str,
) -> str:
    return graph_ir(
        "%x : Tensor, %cos : Tensor, %sin : Tensor",
        *CONSTANTS,
        '%form : str = prim::Constant[value="slices"]()',
        f"%f : Tensor = aten::slice({first})",
        "%w : int = aten::size(%f, %m1)",
        "%half : int = aten::floordiv(%w, %n2)",
        f"%e : Tensor = aten::slice({rest})",
        "%r : Tensor = ipex::rotary(%f, %cos, %sin, %form, %m1, %half)",
        f"%l : Tensor[] = prim::ListConstruct({listed})",
        f"%y : Tensor = aten::cat(%l, {joined})",
        *more.get("behind", "").splitlines(),
        returns=more.get("returns", "%y"),
    )


def test_fires_on_a_part_of_each_row():
    result = assert_rewrites(NAME, part())
    assert result.count("ipex::rotary") == 1
    assert result.count("aten::cat") == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (part(first="%x, %m1, %n1, %n4, %n1"), "its parts are not those of a row"),
        (part(first="%x, %m2, %n0, %n4, %n1"), "its parts are not those of a row"),
        (part(rest="%x, %m2, %n4, %max, %n1"), "its parts are not those of a row"),
        (part(first="%x, %m1, %n0, %n4, %n2"), "its parts are not those of a row"),
        (part(rest="%x, %m1, %n2, %max, %n1"), "its parts are not those of a row"),
        (part(rest="%x, %m1, %n4, %n4, %n1"), "its parts are not those of a row"),
        (part(rest="%cos, %m1, %n4, %max, %n1"), "its parts are not those of a row"),
        (part(joined="%m2"), "it does not join the last dimension"),
        (part(behind="%t : Tensor[] = prim::ListConstruct(%y, %r)", returns="%t"), "another reader needs a value"),
        (part(behind="%t : Tensor = aten::add_(%x, %y, %n1)"), "something is overwritten"),
    ],
)
def test_declines_parts(text, reason):
    assert_unchanged(NAME, text, reason=reason)


@pytest.mark.parametrize("listed", ["%e, %r", "%r, %e, %e", "%r, %cos"])
def test_leaves_other_concatenations(listed):
    assert_unchanged(NAME, part(listed=listed), reason=None)


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


class Partial(Attention):
    """The first four numbers of eight are turned, as in GPT-NeoX."""

    def turned(self, x):
        heads = x.view(x.size(0), x.size(1), 3, 8).transpose(1, 2)
        cos, sin = self.cos[: x.size(1), :4], self.sin[: x.size(1), :4]
        first, rest = heads[..., : cos.shape[-1]], heads[..., cos.shape[-1] :]
        return torch.cat((first * cos + self.rotate(first) * sin, rest), dim=-1)


@pytest.mark.parametrize("rotate", [rotate_half, rotate_chunks, rotate_pairs])
def test_parts_match_eager(tmp_path, rotate):
    x = torch.randn(2, 9, 24)
    optimized = check_against_eager(Partial(rotate), x, also=(x[:, :1], torch.randn(1, 40, 24)))
    assert kinds(optimized)["ipex::rotary"] == 2
    assert kinds(optimized)["ipex::cat"] == kinds(optimized)["aten::cat"] == 0
    assert_round_trip(optimized, tmp_path, x)


def test_can_be_switched_off():
    module = torch.jit.trace(Attention(rotate_half).eval(), torch.randn(2, 9, 24))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["ipex::rotary"] == 0
