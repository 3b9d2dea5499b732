import pytest
import torch
from torch import Tensor, nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "remove_idle_conversions"

NUMBERS = (
    "%none : NoneType = prim::Constant()",
    "%no : bool = prim::Constant[value=0]()",
    "%yes : bool = prim::Constant[value=1]()",
    "%contiguous : int = prim::Constant[value=0]()",
    "%also_contiguous : int = prim::Constant[value=0]()",
    "%channels_last : int = prim::Constant[value=2]()",
    "%float : int = prim::Constant[value=6]()",
    "%double : int = prim::Constant[value=7]()",
)


def chain(*steps: str) -> str:
    """Each step reads the one before as %v, the first one %x."""
    names = ["x", *(f"v{i}" for i in range(len(steps)))]
    lines = [f"%{names[i + 1]} : Tensor = {step.replace('%v', '%' + names[i])}" for i, step in enumerate(steps)]
    return graph_ir("%x : Tensor, %s : int[], %d : int", *NUMBERS, *lines, returns=f"%{names[-1]}")


def to(dtype: str, copy: str = "no", memory_format: str = "none") -> str:
    return f"aten::to(%v, %{dtype}, %no, %{copy}, %{memory_format})"


CONTIGUOUS = "aten::contiguous(%v, %contiguous)"


@pytest.mark.parametrize(
    "between",
    [
        (),
        ("aten::view(%v, %s)",),
        ("aten::reshape(%v, %s)", "aten::unsqueeze(%v, %contiguous)"),
        ("aten::flatten(%v, %contiguous, %d)",),
        ("aten::squeeze(%v, %d)",),
    ],
)
def test_contiguous_of_what_is_contiguous(between):
    result = assert_rewrites(NAME, chain(CONTIGUOUS, *between, "aten::contiguous(%v, %also_contiguous)"))
    assert result.count("aten::contiguous") == 1


def test_the_same_format_twice():
    step = "aten::contiguous(%v, %channels_last)"
    assert assert_rewrites(NAME, chain(step, step)).count("aten::contiguous") == 1


def test_the_same_dtype_twice():
    assert assert_rewrites(NAME, chain(to("float"), to("float"))).count("aten::to") == 1
    assert assert_rewrites(NAME, chain(to("float", copy="yes"), to("float"))).count("aten::to") == 1


@pytest.mark.parametrize(
    "steps",
    [
        (CONTIGUOUS, "aten::contiguous(%v, %channels_last)"),
        ("aten::contiguous(%v, %channels_last)", CONTIGUOUS),
        ("aten::contiguous(%v, %channels_last)", "aten::unsqueeze(%v, %d)", "aten::contiguous(%v, %channels_last)"),
        (CONTIGUOUS, "aten::t(%v)", CONTIGUOUS),
        ("aten::view(%v, %s)", CONTIGUOUS),
        ("aten::view(%v, %s)", "aten::view(%v, %s)"),
        (to("float"), to("double")),
        (to("float"), to("float", copy="yes")),
        (to("float"), to("float", memory_format="channels_last")),
    ],
)
def test_leaves_what_may_convert(steps):
    assert_unchanged(NAME, chain(*steps), reason=None)


def test_declines_when_strides_may_change_in_between():
    assert_unchanged(NAME, chain(CONTIGUOUS, "aten::t_(%v)", CONTIGUOUS), reason=None)
    ir = graph_ir(
        "%x : Tensor",
        *NUMBERS,
        "%a : Tensor = aten::contiguous(%x, %contiguous)",
        "%b : Tensor = aten::t_(%x)",
        "%c : Tensor = aten::contiguous(%a, %contiguous)",
        returns="%b, %c",
    )
    assert_unchanged(NAME, ir, reason="overwritten in between")


class Conversions(nn.Module):
    """Conversions that do nothing, and writes to what they give."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = x.transpose(1, 2).contiguous()
        b = a.reshape(a.size(0), -1).contiguous()
        c = x * 2
        d = c.float().float()
        b.add_(1)
        d.mul_(0.5)
        return a, b, c


@pytest.mark.parametrize("script", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matches_eager(tmp_path, script, dtype):
    x = torch.randn(2, 3, 4, dtype=dtype)
    also = (x.transpose(1, 2), x[:, :1])
    optimized = check_against_eager(Conversions(), x, script=script, also=also)
    assert kinds(optimized)["aten::contiguous"] == 1
    assert_round_trip(optimized, tmp_path, x)
