"""Rotary embeddings: eager's values and strides, in every form, layout and dtype."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from support import assert_same, own_thread_count, why_aten

FORMS = ["slices", "chunks", "pairs"]
FLOATS = [torch.float32, torch.bfloat16, torch.float16]


def spelled_out(x: Tensor, cos: Tensor, sin: Tensor, form: str) -> Tensor:
    half = x.size(-1) // 2
    if form == "pairs":
        exchanged = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    elif form == "chunks":
        first, second = x.chunk(2, -1)
        exchanged = torch.cat((-second, first), -1)
    else:
        exchanged = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos + exchanged * sin


def rotary(x: Tensor, cos: Tensor, sin: Tensor, form: str, dim: int = -1, half: int | None = None) -> Tensor:
    return torch.ops.ipex.rotary(x, cos, sin, form, dim, x.size(-1) // 2 if half is None else half)


def angles(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    angle = torch.randn(shape) * 10
    return angle.cos().to(dtype), angle.sin().to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [2, 6, 16, 20, 64, 80, 126, 128])
def test_matches_eager(dtype, form, size):
    tolerance = 1e-6 if dtype == torch.float32 else 0
    tokens = torch.randn(2, 7, 3, size).to(dtype)
    heads = torch.randn(2, 3, 7, size + 8).to(dtype)[..., 4:-4]
    for x in (tokens, tokens.transpose(1, 2), heads, tokens[:1, :1].transpose(1, 2), tokens[0, 0]):
        for shape in (x.shape, (x.size(-2), size), (size,), (1,) * (x.dim() - 1) + (size,)):
            cos, sin = angles(*shape, dtype=dtype)
            assert why_aten(lambda: rotary(x, cos, sin, form)) is None  # noqa: B023
            assert_same(rotary(x, cos, sin, form), spelled_out(x, cos, sin, form), tolerance)


def partial(x: Tensor, cos: Tensor, sin: Tensor, form: str, turned: int, cut: int = -1) -> Tensor:
    half = x.narrow(cut, 0, turned).size(-1) // 2
    return torch.ops.ipex.rotary(x, cos, sin, form, -1, half, turned, cut)


def partial_spelled_out(x: Tensor, cos: Tensor, sin: Tensor, form: str, turned: int, cut: int = -1) -> Tensor:
    first, rest = x.narrow(cut, 0, turned), x.narrow(cut, turned, x.size(cut) - turned)
    return torch.cat((spelled_out(first, cos, sin, form), rest), -1)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("size", "turned"), [(5, 2), (64, 16), (80, 32), (33, 20), (12, 12)])
def test_parts_of_rows_match_eager(dtype, form, size, turned):
    tolerance = 1e-6 if dtype == torch.float32 else 0
    tokens = torch.randn(2, 7, 3, size).to(dtype)
    heads = torch.randn(2, 3, 7, size + 8).to(dtype)[..., 4:-4]
    for x in (tokens, tokens.transpose(1, 2), heads, tokens[:1, :1].transpose(1, 2), tokens[0, 0], tokens[:, :, :1]):
        for shape in ((*x.shape[:-1], turned), (x.size(-2), turned), (turned,)):
            cos, sin = angles(*shape, dtype=dtype)
            assert why_aten(lambda: partial(x, cos, sin, form, turned)) is None  # noqa: B023
            assert_same(partial(x, cos, sin, form, turned), partial_spelled_out(x, cos, sin, form, turned), tolerance)


def test_parts_that_are_left_to_aten():
    x = torch.randn(2, 3, 4, 10)
    cos, sin = angles(4, 6)

    def why(x: Tensor, turned: int = 6, cut: int = -1, cos: Tensor = cos, sin: Tensor = sin) -> str | None:
        expected = partial_spelled_out(x, cos, sin, "slices", turned, cut)
        assert_same(partial(x, cos, sin, "slices", turned, cut), expected, 1e-6)
        return why_aten(lambda: partial(x, cos, sin, "slices", turned, cut))

    assert why(x, cut=3) is None
    assert why(x.double()) == "its input is of another dtype"
    assert why(x.to(memory_format=torch.channels_last)) == "its input is channels-last"
    assert why(x[:0]) == "its input is empty, or has many dimensions"
    square = torch.randn(4, 6)
    assert why(square, turned=2, cut=0, cos=cos[:1], sin=sin[:1]) is None  # each part by itself


def test_threads_give_the_same_parts():
    x = torch.randn(2, 40, 12, 64).transpose(1, 2)
    cos, sin = angles(40, 24)
    with own_thread_count():
        torch.set_num_threads(1)
        alone = partial(x, cos, sin, "slices", 24)
        torch.set_num_threads(5)
        assert torch.equal(partial(x, cos, sin, "slices", 24), alone)


def behind(
    x: Tensor, cos: Tensor, sin: Tensor, form: str, kept: int, cut: int = -2, dtype: torch.dtype | None = None
) -> Tensor:
    return torch.ops.ipex.rotary(x, cos, sin, form, -1, x.size(-1) // 2, kept, cut, dtype)


def behind_spelled_out(
    x: Tensor, cos: Tensor, sin: Tensor, form: str, kept: int, cut: int = -2, dtype: torch.dtype | None = None
) -> Tensor:
    first, rest = x.narrow(cut, 0, kept), x.narrow(cut, kept, x.size(cut) - kept)
    turned = spelled_out(rest, cos, sin, form)
    return torch.cat((first, turned.to(dtype) if dtype else turned), cut)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kept", [0, 1, 5, 6])
def test_rows_behind_those_that_are_kept_match_eager(dtype, form, kept):
    tolerance = 1e-6 if dtype == torch.float32 else 0
    tokens = torch.randn(2, 7, 3, 36).to(dtype)
    for x in (tokens, tokens[..., 2:-2], tokens[:1], tokens[0, :, 0]):
        for cut in range(x.dim() - 1) if x.dim() == 2 else (1,):
            x = x.transpose(1, 2) if x.dim() == 4 else x
            cut = 2 if x.dim() == 4 else cut
            cos, sin = angles(x.size(cut) - kept, x.size(-1), dtype=dtype)
            for to in (None, dtype):
                assert why_aten(lambda: behind(x, cos, sin, form, kept, cut, to)) is None  # noqa: B023
                expected = behind_spelled_out(x, cos, sin, form, kept, cut, to)
                assert_same(behind(x, cos, sin, form, kept, cut, to), expected, tolerance)


def test_kept_rows_that_are_left_to_aten():
    x = torch.randn(2, 3, 4, 6)
    cos, sin = angles(3, 6)

    def why(
        x: Tensor, kept: int = 1, cut: int = 2, dtype: torch.dtype | None = None, cos: Tensor = cos, sin: Tensor = sin
    ) -> str | None:
        expected = behind_spelled_out(x, cos, sin, "chunks", kept, cut, dtype)
        assert_same(behind(x, cos, sin, "chunks", kept, cut, dtype), expected, 1e-6)
        return why_aten(lambda: behind(x, cos, sin, "chunks", kept, cut, dtype))

    assert why(x.double(), dtype=torch.float32) == "its input is of another dtype"
    assert why(x.to(memory_format=torch.channels_last)) == "its input is channels-last"
    assert why(x[:0]) == "its input is empty, or has many dimensions"
    # These are joined by aten.
    assert why(x, dtype=torch.float64) is None
    cos, sin = angles(4, 4)
    assert why(x, kept=2, cut=3, cos=cos, sin=sin) is None


@pytest.mark.parametrize("form", FORMS)
def test_nan_and_infinity(form):
    x = torch.randn(3, 8)
    x[0, 0], x[1, 5], x[2, 7] = torch.nan, torch.inf, -torch.inf
    cos, sin = angles(3, 8)
    sin[1] = 0
    assert_same(rotary(x, cos, sin, form), spelled_out(x, cos, sin, form))


def test_what_is_left_to_aten():
    x = torch.randn(2, 3, 4, 6)
    cos, sin = angles(4, 6)

    def why(x: Tensor, cos: Tensor = cos, sin: Tensor = sin, **more: int) -> str | None:
        return why_aten(lambda: rotary(x, cos, sin, "slices", **more))

    assert why(x) is None
    assert why(x, dim=3) is None
    assert why(x.double()) == "its input is of another dtype"
    assert why(x.bfloat16()) == "its inputs are of several dtypes"
    assert why(x.clone().requires_grad_()) == "an input requires a gradient"
    assert why(x[:0]) == "its input is empty, or has many dimensions"
    assert why(x, half=2) == "its halves differ in size"
    assert why(x[..., ::2], cos[:, ::2], sin[:, ::2], half=1) == "its halves differ in size"
    assert why(torch.randn(4, 12)[:, ::2]) == "its rows have gaps"
    assert why(x, cos[:, :1], sin) == "an angle is not given for each number of a row"
    assert why(x[:, :, :1]) == "its input is broadcast"
    many, wide, apart = torch.randn(1, 1, 1, 1, *x.shape, 6), angles(1, 2, 3, 4, 6), (t.T for t in angles(6, 4))
    others: list[tuple[Tensor, Tensor, Tensor]] = [
        (many.transpose(4, 5), cos[0], sin[0]),
        (x[0], *wide),
        (x, *apart),
    ]
    assert why(*others[0]) == "its input is empty, or has many dimensions"
    assert why(*others[1]) == why(*others[2]) == "an angle is not given for each number of a row"
    for given in others:
        assert_same(rotary(*given, "slices"), spelled_out(*given, "slices"), 0)
    assert why(x.to(memory_format=torch.channels_last)) == "its input is channels-last"
    with torch.autocast("cpu"):
        assert why(x) == "autocast is on"
    for other in (x.double(), x.bfloat16(), x[:0], x[:, :, :1], x.to(memory_format=torch.channels_last)):
        assert_same(rotary(other, cos, sin, "slices"), spelled_out(other, cos, sin, "slices"), 0)


@pytest.mark.parametrize("form", FORMS)
def test_threads_give_the_same(form):
    x = torch.randn(2, 40, 12, 64).transpose(1, 2)
    cos, sin = angles(40, 64)
    with own_thread_count():
        torch.set_num_threads(1)
        alone = rotary(x, cos, sin, form)
        torch.set_num_threads(5)
        assert torch.equal(rotary(x, cos, sin, form), alone)


def test_gradients():
    x = torch.randn(4, 6, requires_grad=True)
    cos, sin = angles(4, 6)
    rotary(x, cos, sin, "slices").sum().backward()
    ours, x.grad = x.grad, None
    spelled_out(x, cos, sin, "slices").sum().backward()
    assert_same(ours, x.grad)


def test_unknown_forms_are_refused():
    with pytest.raises(RuntimeError, match="expected form"):
        rotary(torch.randn(4, 6), *angles(4, 6), "spirals")
