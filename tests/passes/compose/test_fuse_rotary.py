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


def reshaped(*sizes: str, of: str = "%x") -> tuple[str, ...]:
    found = [f"aten::size({of}, %{size})" if size.startswith("n") else size for size in sizes]
    asked = [f"%s{i} : int = {size}" for i, size in enumerate(found)]
    names = ", ".join(f"%s{i}" for i in range(len(sizes)))
    shape = f"%shape : int[] = prim::ListConstruct({names})" if sizes else f"%shape : int[] = aten::size({of})"
    return (*asked, STACK[0], shape, "%r : Tensor = aten::reshape(%t, %shape)")


@pytest.mark.parametrize(
    ("pieces", "joined"),
    [
        (SLICES, CAT),
        (CHUNKS, CAT),
        (PAIRS, STACK),
        (PAIRS, reshaped()),
        (PAIRS, reshaped("n0", "n1", "n2")),
        (PAIRS, reshaped("n0", "prim::Constant[value=8]()")),
    ],
)
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
        (ir(PAIRS, reshaped(of="%cos")), "it does not join pairs"),
        (ir(PAIRS, reshaped("n0", of="%cos")), "it does not join pairs"),
        (ir(PAIRS, reshaped("n0")), "it does not join pairs"),
        (ir(PAIRS, reshaped("n1", "n0")), "it does not join pairs"),
        (ir(PAIRS, reshaped("prim::Constant[value=8]()", "n1")), "it does not join pairs"),
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


def tokens(
    first: str = "%x, %n1, %n0, %n4, %n1",
    rest: str = "%x, %n1, %n4, %max, %n1",
    joined: str = "%n1",
    sizes: tuple[str, ...] = (),
    **more: str,
) -> str:
    """The first tokens are left as they are. With `sizes`, a split cuts them off."""
    cut = (
        *sizes,
        "%both : Tensor[] = aten::split_with_sizes(%x, %sizes, %n1)",
        "%e : Tensor, %f : Tensor = prim::ListUnpack(%both)",
    )
    return graph_ir(
        "%x : Tensor, %cos : Tensor, %sin : Tensor",
        *CONSTANTS,
        '%form : str = prim::Constant[value="chunks"]()',
        "%none : NoneType = prim::Constant()",
        "%no : bool = prim::Constant[value=0]()",
        "%float : int = prim::Constant[value=6]()",
        *(cut if sizes else (f"%e : Tensor = aten::slice({first})", f"%f : Tensor = aten::slice({rest})")),
        "%r : Tensor = ipex::rotary(%f, %cos, %sin, %form, %m1, %n0)",
        *([f"%c : Tensor = {more['cast']}"] if "cast" in more else []),
        f"%l : Tensor[] = prim::ListConstruct(%e, {'%c' if 'cast' in more else '%r'})",
        f"%y : Tensor = aten::cat(%l, {joined})",
        *more.get("behind", "").splitlines(),
        returns=more.get("returns", "%y"),
    )


WHAT_IS_LEFT = (
    "%patches : int = aten::size(%cos, %n0)",
    "%all : int = aten::size(%x, %n1)",
    "%kept : int = aten::sub(%all, %patches)",
    "%sizes : int[] = prim::ListConstruct(%kept, %patches)",
)
TO_FLOAT = "aten::to(%r, %float, %no, %no, %none)"


@pytest.mark.parametrize("text", [tokens(), tokens(cast=TO_FLOAT), tokens(sizes=WHAT_IS_LEFT)])
def test_fires_behind_tokens_that_are_kept(text):
    result = assert_rewrites(NAME, text)
    assert result.count("ipex::rotary") == 1
    for kind in ("cat", "to", "split_with_sizes"):
        assert result.count(f"aten::{kind}") == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (tokens(joined="%n2"), "it joins another dimension than it cuts"),
        (tokens(behind="%t : Tensor[] = prim::ListConstruct(%y, %r)", returns="%t"), "another reader needs a value"),
        (
            tokens(cast=TO_FLOAT, behind="%t : Tensor[] = prim::ListConstruct(%y, %c)", returns="%t"),
            "another reader needs a value",
        ),
        (tokens(cast="ipex::lower_precision(%r, %float)"), "its cast depends on the input"),
        (tokens(behind="%t : Tensor = aten::add_(%x, %y, %n1)"), "something is overwritten"),
        (tokens(first="%x, %n1, %n1, %n4, %n1"), None),
        (tokens(first="%cos, %n1, %n0, %n4, %n1"), None),
        (tokens(rest="%x, %n1, %n2, %max, %n1"), None),
        (tokens(rest="%x, %n2, %n4, %max, %n1"), None),
        (tokens(sizes=("%sizes : int[] = prim::ListConstruct(%n1, %n4)",)), None),
        (tokens(sizes=(*WHAT_IS_LEFT[:-1], WHAT_IS_LEFT[-1].replace(", ", ", %n0, "))), None),  # three, not two
        (tokens(sizes=WHAT_IS_LEFT, behind="%t : Tensor = aten::unsqueeze_(%cos, %n0)"), None),
        (tokens(sizes=tuple(line.replace("(%x, %n1)", "(%x, %n0)") for line in WHAT_IS_LEFT)), None),
        (tokens(sizes=tuple(line.replace("%all, %patches", "%patches, %all") for line in WHAT_IS_LEFT)), None),
    ],
)
def test_declines_tokens(text, reason):
    assert_unchanged(NAME, text, reason=reason)


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotate_chunks(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotate_pairs(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def rotate_pairs_and_reshape(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).reshape(x.shape)


ROTATIONS = [rotate_half, rotate_chunks, rotate_pairs, rotate_pairs_and_reshape]


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


@pytest.mark.parametrize("rotate", ROTATIONS)
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


@pytest.mark.parametrize("rotate", ROTATIONS)
def test_parts_match_eager(tmp_path, rotate):
    x = torch.randn(2, 9, 24)
    optimized = check_against_eager(Partial(rotate), x, also=(x[:, :1], torch.randn(1, 40, 24)))
    assert kinds(optimized)["ipex::rotary"] == 2
    assert kinds(optimized)["ipex::cat"] == kinds(optimized)["aten::cat"] == 0
    assert_round_trip(optimized, tmp_path, x)


class Patches(Attention):
    """The first token, of a class, is not turned, as in EVA-02 and DINOv3."""

    def __init__(self, rotate, split: bool) -> None:
        super().__init__(rotate)
        self.split = split

    def turned(self, x):
        heads = x.view(x.size(0), x.size(1), 3, 8).transpose(1, 2)
        cos, sin = self.cos[: x.size(1) - 1], self.sin[: x.size(1) - 1]
        if self.split:
            kept, patches = heads.split((heads.shape[-2] - sin.shape[-2], sin.shape[-2]), dim=-2)
            return torch.cat((kept, patches * cos + self.rotate(patches) * sin), dim=-2)
        kept, patches = heads[:, :, :1, :], heads[:, :, 1:, :]
        return torch.cat((kept, (patches * cos + self.rotate(patches) * sin).to(x.dtype)), dim=2).type_as(x)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("rotate", ROTATIONS)
def test_kept_tokens_match_eager(tmp_path, rotate, split):
    x = torch.randn(2, 9, 24)
    optimized = check_against_eager(Patches(rotate, split), x, also=(x[:, :2], torch.randn(1, 40, 24)))
    assert kinds(optimized)["ipex::rotary"] == 2
    assert kinds(optimized)["ipex::cat"] == kinds(optimized)["aten::cat"] == 0
    assert_round_trip(optimized, tmp_path, x)


def test_can_be_switched_off():
    module = torch.jit.trace(Attention(rotate_half).eval(), torch.randn(2, 9, 24))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["ipex::rotary"] == 0
