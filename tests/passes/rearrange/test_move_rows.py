from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds, told

NAME = "move_rows"
CONSTANTS = (
    "%zero : int = prim::Constant[value=0]()",
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
    "%three : int = prim::Constant[value=3]()",
    "%true : bool = prim::Constant[value=1]()",
    "%false : bool = prim::Constant[value=0]()",
    "%none : NoneType = prim::Constant()",
    "%eps : float = prim::Constant[value=1e-05]()",
    "%five : Scalar = prim::Constant[value=5]()",
    '%constant : str = prim::Constant[value="constant"]()',
    "%width : int[] = prim::Constant[value=[8]]()",
    "%windows : int[] = prim::Constant[value=[-1, 2, 3, 8]]()",
    "%cut : int[] = prim::Constant[value=[-1, 4]]()",
    "%order : int[] = prim::Constant[value=[0, 2, 1, 3]]()",
    "%turned : int[] = prim::Constant[value=[0, 3, 1, 2]]()",
    "%shifts : int[] = prim::Constant[value=[-1, 2]]()",
    "%dims : int[] = prim::Constant[value=[1, 2]]()",
    "%nowhere : int[] = prim::ListConstruct()",
    "%border : int[] = prim::Constant[value=[0, 0, 1, 2]]()",
    "%sides : int[] = prim::Constant[value=[1, 2]]()",
)
NORM = "%{} : Tensor = aten::layer_norm(%{}, %width, %w, %w, %eps, %true)"
SUM = "%{}, %s : Tensor = ipex::layer_norm.of_sum(%{}, %{}, %width, %w, %w, %eps, %true, %false)"
ROLL = "%{} : Tensor = aten::roll(%{}, %shifts, %dims)"
PAD = "%{} : Tensor = aten::constant_pad_nd(%{}, %border, %zero)"
RESHAPE = "%{} : Tensor = aten::reshape(%{}, %windows)"
PERMUTE = "%{} : Tensor = aten::permute(%{}, %order)"
UNSEEN = "%y : Tensor = aten::linear(%{}, %w, %none)"


# Whether a norm has an operand that is added before, and whether it is its result that moves.
TO_ROWS, OF_ROWS, SUM_TO_ROWS, SUM_OF_ROWS = (False, True), (False, False), (True, True), (True, False)


def moved(graph) -> list[tuple[bool, bool]]:
    norms = told(graph, "ipex::layer_norm")
    return sorted(("keep_sum" in norm, norm["moves_result"]) for norm in norms if "moves" not in norm)


def ir(*lines: str, returns: str = "%y") -> str:
    return graph_ir("%x : Tensor, %z : Tensor, %w : Tensor", *CONSTANTS, *lines, returns=returns)


STEPS = (ROLL.format("b", "a"), RESHAPE.format("c", "b"), PERMUTE.format("d", "c"))


def test_a_norm_writes_its_rows_where_they_go():
    result = assert_rewrites(NAME, ir(NORM.format("a", "x"), *STEPS, UNSEEN.format("d")))
    assert moved(result) == [TO_ROWS]
    assert result.count("ipex::row_moves_prepack") == 1
    assert result.count("aten::layer_norm") + result.count("aten::roll") + result.count("aten::permute") == 0
    assert 'value=["roll", "reshape", "permute"]' in result.graph
    assert "value=[4, 4, 4]" in result.graph


def test_a_sum_is_normalised_to_where_its_rows_go():
    lines = (SUM.format("a", "x", "z"), *STEPS, UNSEEN.format("d"))
    assert moved(assert_rewrites(NAME, ir(*lines))) == [SUM_TO_ROWS]
    assert moved(assert_rewrites(NAME, ir(*lines, returns="%y, %s"))) == [SUM_TO_ROWS]
    early = (SUM.format("a", "x", "z"), "%e : Tensor = aten::relu(%s)", PERMUTE.format("d", "a"), UNSEEN.format("d"))
    assert_unchanged(NAME, ir(*early, returns="%y, %e"), reason="its sum is read before")


@pytest.mark.parametrize("second", [True, False])
def test_a_sum_reads_rows_where_they_lie(second):
    steps = (RESHAPE.format("b", "x"), PERMUTE.format("c", "b"), ROLL.format("d", "c"))
    norm = SUM.format("n", "z", "d") if second else SUM.format("n", "d", "z")
    result = assert_rewrites(NAME, ir(*steps, norm, UNSEEN.format("n")))
    assert moved(result) == [SUM_OF_ROWS]
    assert "layer_norm(%z, %x, " in result.graph
    seen = "the strides of a result"
    assert_unchanged(NAME, ir(*steps, norm, UNSEEN.format("n"), returns="%y, %s"), reason=seen)
    in_place = norm.replace("%true, %false", "%true, %true")
    if second:
        assert moved(assert_rewrites(NAME, ir(*steps, in_place, UNSEEN.format("n")))) == [SUM_OF_ROWS]
    else:  # in place of what was moved: only the roll is joined
        assert assert_rewrites(NAME, ir(*steps, in_place, UNSEEN.format("n"))).count("ipex::move_rows") == 1


def test_what_moves_before_a_norm_is_normalised_first():
    steps = (RESHAPE.format("b", "x"), PERMUTE.format("c", "b"))
    result = assert_rewrites(NAME, ir(*steps, NORM.format("d", "c"), UNSEEN.format("d")))
    assert moved(result) == [OF_ROWS]
    # A row of zeros is not one after it has been normalised.
    assert_unchanged(NAME, ir(PAD.format("b", "x"), NORM.format("d", "b"), UNSEEN.format("d")), reason=None)


def test_a_roll_is_one_copy_with_the_steps_around_it():
    steps = (PAD.format("a", "x"), *STEPS)
    result = assert_rewrites(NAME, ir(*steps, UNSEEN.format("d")))
    assert result.count("ipex::move_rows") == 1
    assert_unchanged(NAME, ir(ROLL.format("b", "x"), UNSEEN.format("b")), reason=None)


def test_a_second_border_stays():
    lines = (NORM.format("a", "x"), PAD.format("b", "a"), PAD.format("c", "b"), UNSEEN.format("c"))
    result = assert_rewrites(NAME, ir(*lines))
    assert moved(result) == [TO_ROWS]
    assert result.count("aten::constant_pad_nd") == 1
    lines = (PAD.format("a", "x"), PAD.format("b", "a"), ROLL.format("c", "b"), UNSEEN.format("c"))
    result = assert_rewrites(NAME, ir(*lines))
    assert (result.count("ipex::move_rows"), result.count("aten::constant_pad_nd")) == (1, 1)


def test_sizes_are_asked_of_what_is_left():
    size = "%n : int = aten::size(%{}, %one)"
    to = "%l : int[] = prim::ListConstruct(%n, %two)"
    end = "%e : Tensor = aten::expand(%z, %l, %false)"
    of_pad = (NORM.format("a", "x"), PAD.format("p", "a"), size.format("p"), PERMUTE.format("d", "p"))
    result = assert_rewrites(NAME, ir(*of_pad, UNSEEN.format("d"), to, end, returns="%y, %e"))
    assert result.count("ipex::padded_size") == 1
    assert result.count("aten::size") == 0
    of_norm = (SUM.format("a", "x", "z"), size.format("a"), *STEPS)
    result = assert_rewrites(NAME, ir(*of_norm, UNSEEN.format("d"), to, end, returns="%y, %e"))
    assert result.count("ipex::padded_size") == 1
    of_roll = (NORM.format("a", "x"), ROLL.format("b", "a"), size.format("b"), PERMUTE.format("d", "b"))
    result = assert_rewrites(NAME, ir(*of_roll, UNSEEN.format("d"), to, end, returns="%y, %e"))
    assert "aten::size(%x, " in result.graph
    sizes = "%t : int[] = prim::ListConstruct(%two, %k, %two)"
    number = ("%k : int = aten::size(%x, %two)", NORM.format("a", "x"), sizes, "%r : Tensor = aten::reshape(%a, %t)")
    of_number = (*number, PAD.format("p", "r"), size.format("p"), "%d : Tensor = aten::transpose(%p, %zero, %one)")
    last = (*of_number, UNSEEN.format("d"), to, end)
    assert_unchanged(NAME, ir(*last, returns="%y, %e"), reason=None)  # rows of two numbers are none of the norm's
    whole = [line.replace("(%two, %k, %two)", "(%two, %k, %k)") for line in last]
    assert assert_rewrites(NAME, ir(*whole, returns="%y, %e")).count("ipex::padded_number") == 1
    of_permuted = (NORM.format("a", "x"), PERMUTE.format("c", "a"), size.format("c"), RESHAPE.format("d", "c"))
    result = assert_rewrites(NAME, ir(*of_permuted, UNSEEN.format("d"), to, end, returns="%y, %e"))
    assert result.count("aten::reshape") == 1  # it stays, and the value before it
    listed = ("%o : int[] = prim::ListConstruct(%zero, %two, %one, %three)", *of_permuted)
    lines = [line.replace("(%a, %order)", "(%a, %o)") for line in listed]
    result = assert_rewrites(NAME, ir(*lines, UNSEEN.format("d"), to, end, returns="%y, %e"))
    assert result.count("aten::reshape") == 1


@pytest.mark.parametrize(
    "step",
    [
        "%d : Tensor = aten::reshape(%a, %cut)",
        "%d : Tensor = aten::permute(%a, %turned)",
        "%d : Tensor = aten::roll(%a, %shifts, %nowhere)",
        "%d : Tensor = aten::roll(%a, %nowhere, %nowhere)",
        "%d : Tensor = aten::constant_pad_nd(%a, %border, %five)",
        "%d : Tensor = aten::constant_pad_nd(%a, %sides, %zero)",
        "%d : Tensor = aten::transpose(%a, %one, %two)",
        "%d : Tensor = aten::flatten(%a, %one, %two)",  # moves nothing
    ],
)
def test_leaves_other_steps(step):
    assert_unchanged(NAME, ir(NORM.format("a", "x"), step, UNSEEN.format("d")), reason=None)


def test_declines_what_others_read_see_or_write():
    norm = NORM.format("a", "x")
    assert_unchanged(NAME, ir(norm, PERMUTE.format("d", "a"), UNSEEN.format("d"), returns="%y, %a"), reason=None)
    assert_unchanged(NAME, ir(norm, PERMUTE.format("d", "a"), returns="%d"), reason="the strides of a result")
    write = ("%m : Tensor = aten::exp(%x)", NORM.format("a", "m"), "%e : Tensor = aten::relu_(%m)")
    lines = (*write, PERMUTE.format("d", "a"), UNSEEN.format("d"))
    assert_unchanged(NAME, ir(*lines, returns="%y, %e"), reason="something is overwritten")


class Attention(nn.Module):
    """Within windows of an image: cut, shifted, padded where they do not fit, and put together again."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift, self.inner, self.outer = shift, nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        _, height, width, channels = x.shape
        x = functional.pad(x, (0, 0, 0, -width % 4, 0, -height % 4))
        batch, rows, columns, _ = x.shape
        if self.shift > 0:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        x = x.view(batch, rows // 4, 4, columns // 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        x = self.outer(torch.tanh(self.inner(x.reshape(-1, 16, channels))))
        x = x.view(batch, rows // 4, columns // 4, 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        x = x.reshape(batch, rows, columns, channels)
        if self.shift > 0:
            x = torch.roll(x, (self.shift, self.shift), (1, 2))
        return x[:, :height, :width, :].contiguous()


class NormFirst(nn.Module):
    """As in Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Linear(3, 16), nn.Linear(16, 5)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(5))
        self.attention = nn.ModuleList((Attention(0), Attention(2)))
        self.linears = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        x = x + self.attention[0](self.norms[0](x))
        x = x + self.linears[0](self.norms[1](x))
        x = x + self.attention[1](self.norms[2](x))
        x = x + self.linears[1](self.norms[3](x))
        return self.head(self.norms[4](x))


class NormLast(nn.Module):
    """As in Swin V2."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Linear(3, 16), nn.Linear(16, 5)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.attention = nn.ModuleList((Attention(0), Attention(2)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        x = x + self.norms[0](self.attention[0](x))
        return self.head(x + self.norms[1](self.attention[1](x)))


@pytest.mark.parametrize(
    ("model", "norms"),
    [(NormFirst, [TO_ROWS, SUM_OF_ROWS, SUM_OF_ROWS, SUM_TO_ROWS]), (NormLast, [OF_ROWS, OF_ROWS])],
)
@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(model, norms, script, tmp_path):
    x = torch.randn(2, 8, 12, 3)
    also = (torch.randn(1, 5, 7, 3), torch.randn(3, 4, 4, 3), torch.full((1, 8, 8, 3), torch.inf), x.transpose(1, 2))
    optimized = check_against_eager(model(), x, script=script, also=also)
    if not script:
        found = kinds(optimized)
        assert moved(optimized) == norms
        assert found["ipex::move_rows"] == (model is NormLast)
        assert found["ipex::roll"] == found["aten::roll"] == 0
    assert_round_trip(optimized, tmp_path, x)


def test_can_be_switched_off():
    module = torch.jit.trace(NormFirst().eval(), torch.randn(2, 8, 12, 3))
    optimized = ipex.jit_optimize(module, disable=[NAME])
    assert kinds(optimized)["ipex::roll"] == 2
    assert moved(optimized) == []
