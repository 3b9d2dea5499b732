"""Reshapes and permutations in a row: the values of eager, whatever the strides, and one copy at most."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch import Tensor

from support import assert_same_error

rearrange = torch.ops.ipex.rearrange
Step = tuple[str, tuple[int, ...]]

WINDOWS: list[Step] = [("reshape", (2, 3, 4, 5, 2, 16)), ("permute", (0, 1, 3, 2, 4, 5)), ("reshape", (-1, 8, 16))]
UNFOLDED: list[Step] = [
    ("flatten", (0, 1)),
    ("reshape", (-1, 2, 5, 2)),
    ("transpose", (1, 2)),
    ("reshape", (2, 12, -1, 4)),
]
HEADS: list[Step] = [("transpose", (1, -2)), ("contiguous", ()), ("reshape", (2, 10, -1)), ("transpose", (1, 2))]
IMAGE: list[Step] = [("flatten", (1, 2)), ("permute", (0, 2, 1)), ("reshape", (2, 16, 12, 10)), ("channels_last", (2,))]
INDIVISIBLE: list[Step] = [
    ("permute", (0, 2, 1, 3)),
    ("reshape", (2, 15, -1)),
    ("transpose", (0, 1)),
    ("reshape", (-1,)),
]
ROWS = {"windows": WINDOWS, "unfolded": UNFOLDED, "heads": HEADS, "image": IMAGE, "indivisible": INDIVISIBLE}


def in_eager(x: Tensor, row: list[Step]) -> Tensor:
    for name, numbers in row:
        if name == "channels_last":
            x = torch.ops.ipex.to_channels_last(x, *numbers)
        elif name in ("reshape", "permute"):
            x = getattr(x, name)(numbers)
        elif name in ("im2col", "col2im"):
            x = getattr(torch.ops.aten, name)(x, *[numbers[i : i + 2] for i in range(0, len(numbers), 2)])
        else:
            x = getattr(x, name)(*numbers)
    return x


def ours(x: Tensor, row: list[Step]) -> Tensor:
    numbers = [number for _, own in row for number in own]
    result: Tensor = rearrange(x, [name for name, _ in row], [len(own) for _, own in row], numbers)
    return result


def layouts(x: Tensor) -> list[Tensor]:
    """The same elements in other strides."""
    apart = torch.zeros(*x.shape, 2, dtype=x.dtype)
    apart[..., 1] = x
    transposed = x.transpose(1, 3).contiguous().transpose(1, 3)
    return [x, x.contiguous(memory_format=torch.channels_last), transposed, apart[..., 1]]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.bool])
def test_rows_give_the_elements_of_eager(row, dtype):
    for x in layouts(torch.randint(0, 200, (2, 12, 10, 16)).to(dtype)):
        assert torch.equal(ours(x, row), in_eager(x, row))


# kernel, dilation, padding, stride
CUTS = [
    (3, 3, 1, 1, 1, 1, 2, 2),
    (9, 1, 1, 1, 4, 0, 1, 1),
    (2, 4, 1, 1, 0, 0, 2, 4),
    (3, 2, 2, 3, 0, 1, 1, 2),
    (1, 1, 1, 1, 0, 0, 1, 1),
    (4, 4, 1, 1, 2, 0, 3, 5),
]
AFTER_WINDOWS: dict[str, list[Step]] = {
    "as_they_are": [],
    "of_pixels": [("transpose", (1, 2)), ("contiguous", ())],
    "of_heads": [("reshape", (2, 4, 3, -1)), ("permute", (0, 3, 1, 2)), ("reshape", (2, -1))],
    "a_permutation": [("transpose", (0, 1))],
}


@pytest.mark.parametrize("after", AFTER_WINDOWS.values(), ids=AFTER_WINDOWS)
@pytest.mark.parametrize("windows", CUTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_windows_that_overlap(windows, after, dtype):
    row: list[Step] = [("im2col", windows), *after]
    for x in layouts(torch.randn(2, 12, 10, 16, dtype=dtype)):
        y = ours(x, row)
        assert torch.equal(y, in_eager(x, row))
        assert y.stride() == in_eager(x, row).contiguous().stride()
        y.zero_()  # eager's windows are new memory, however little there is to copy
        assert x.count_nonzero() > 0


@pytest.mark.parametrize("size", [(10, 12), (9, 12), (10, 2)])
@pytest.mark.parametrize(
    "windows", [(2, 2, 1, 1, 0, 0, 2, 2), (1, 1, 3, 1, 0, 0, 1, 1), (5, 1, 1, 2, 0, 0, 5, 1), (3, 3, 1, 1, 1, 1, 2, 2)]
)
def test_windows_are_put_together(size, windows):
    image = torch.randn(2, 6, *size)
    for given in (image, image[0]):
        columns = in_eager(given, [("im2col", windows)])
        for x in (columns, columns.transpose(-1, -2).contiguous().transpose(-1, -2)):
            row: list[Step] = [("col2im", (*size, *windows))]
            assert torch.equal(ours(x, row), in_eager(x, row))
            assert ours(x, row).stride() == in_eager(x, row).stride()
    assert torch.equal(ours(image, [("im2col", windows), *row]), in_eager(image, [("im2col", windows), *row]))


def test_windows_after_a_reshape_and_of_no_batch():
    tokens = torch.randn(2, 160, 12)
    row: list[Step] = [("transpose", (1, 2)), ("reshape", (2, 12, 10, 16)), ("im2col", CUTS[0])]
    assert torch.equal(ours(tokens, row), in_eager(tokens, row))
    x = torch.randn(2, 12, 10, 16).permute(0, 2, 3, 1)
    row = [("flatten", (1, 2)), ("reshape", (2, 12, 10, 16)), ("im2col", CUTS[3])]
    assert torch.equal(ours(x, row), in_eager(x, row))
    assert torch.equal(ours(tokens, [("im2col", CUTS[1])]), in_eager(tokens, [("im2col", CUTS[1])]))


def random_step(random: Random, x: Tensor) -> Step:
    rank = x.dim()
    first, last = sorted((random.randrange(rank), random.randrange(rank)))
    left, sizes = x.numel(), []
    for _ in range(random.randrange(5)):
        sizes.append(random.choice([size for size in range(1, left + 1) if left % size == 0]))
        left //= sizes[-1]
    steps: list[Step] = [
        ("reshape", (*sizes, -1)),
        ("permute", tuple(random.sample(range(rank), rank))),
        ("transpose", (random.randrange(-rank, rank), last)),
        ("flatten", (first, last - rank)),
        ("unsqueeze", (random.randrange(-rank - 1, rank + 1),)),
        ("contiguous", ()),
    ]
    return random.choice(steps)


@pytest.mark.parametrize("seed", range(300))
def test_random_rows_give_the_elements_of_eager(seed):
    random = Random(seed)
    x = torch.randn(4, 6, 8, 12)[:: random.choice((1, 2)), random.choice((0, 3)) :, ::2]
    x = y = x.permute(random.sample(range(4), 4))
    row: list[Step] = []
    for _ in range(random.randrange(1, 8)):
        row.append(random_step(random, y))
        y = in_eager(y, row[-1:])
    assert torch.equal(ours(x, row), y)


@pytest.mark.parametrize("shape", [(2, 16, 12, 10), (16, 12, 10), (16, 120), (2, 3, 16, 4, 10)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_last_step_decides_the_layout(shape, rank):
    x = torch.randn(shape[::-1]).permute(*reversed(range(len(shape))))
    row: list[Step] = [("unsqueeze", (0,)), ("reshape", shape)]
    channels_last = ours(x, [*row, ("channels_last", (rank,))])
    assert channels_last.equal(x)
    if len(shape) in (rank + 1, rank + 2):
        assert channels_last.stride() == torch.ops.ipex.to_channels_last(x.contiguous(), rank).stride()
    assert ours(x, [*row, ("contiguous", ())]).stride() == x.contiguous().stride()
    assert ours(x, [*row, ("contiguous", ()), ("reshape", (2, -1))]).is_contiguous()


def test_copies_once_at_most():
    x = torch.randn(2, 12, 10, 16)
    with torch.profiler.profile() as profile:
        ours(x, UNFOLDED)
    copies = [event for event in profile.events() if event.name in ("aten::copy_", "ipex::copy_transposed")]
    assert len(copies) == 1
    joined: list[Step] = [("reshape", (2, 12, 10, 4, 4)), ("flatten", (1, 2)), ("transpose", (0, 1))]
    assert ours(x, joined).data_ptr() == x.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("width", [2, 4, 8, 19, 70])
@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (15, 2), (16, 32), (17, 33), (100, 65)])
def test_pieces_in_blocks(dtype, width, rows, columns):
    x = torch.arange(2 * rows * 3 * columns * width).reshape(2, rows, 3, columns, width).to(dtype)
    for step in [("permute", (2, 0, 3, 1, 4)), ("permute", (3, 0, 2, 1, 4)), ("permute", (1, 3, 2, 0, 4))]:
        row: list[Step] = [step, ("contiguous", ())]
        assert torch.equal(ours(x, row), in_eager(x, row))


@pytest.mark.parametrize(("width", "copy"), [(4, "ipex::copy_pieces"), (3, "aten::copy_")])
def test_the_smallest_piece(width, copy):
    x = torch.randn(1, 10, 3, 2, width)
    with torch.profiler.profile() as profile:
        ours(x, [("permute", (2, 0, 3, 1, 4)), ("contiguous", ())])
    assert [event.name for event in profile.events() if "copy" in event.name] == [copy]


def test_windows_that_are_cut_anew_keep_their_channels_side_by_side():
    """8 windows of 7 pixels, cut into 7 of 8: no view, so it is copied twice, in pieces of channels both times."""
    x = torch.randn(2, 64, 49, 16)
    image: list[Step] = [
        ("reshape", (2, 8, 8, 7, 7, 16)),
        ("permute", (0, 5, 1, 3, 2, 4)),
        ("reshape", (2, 16, 56, 56)),
    ]
    cut: list[Step] = [
        ("reshape", (2, 16, 7, 8, 7, 8)),
        ("permute", (0, 2, 4, 3, 5, 1)),
        ("reshape", (2, 49, 64, 16)),
    ]
    with torch.profiler.profile() as profile:
        y = ours(x, [*image, *cut])
    assert torch.equal(y, in_eager(x, [*image, *cut]))
    copies = [event.name for event in profile.events() if "copy" in event.name]
    assert copies == ["ipex::copy_pieces"] * 2


def test_what_is_no_plain_tensor_takes_the_steps_one_by_one():
    x = torch.randn(2, 12, 10, 16, requires_grad=True)
    ours(x, WINDOWS).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    empty = torch.randn(0, 12, 10, 16)
    assert ours(empty, [("transpose", (1, 2)), ("flatten", (0, 2))]).shape == (0, 16)
    assert ours(torch.randn(2, 12, 10, 16, device="meta"), HEADS).shape == (2, 192, 10)


@pytest.mark.parametrize(
    "row",
    [
        [("reshape", (7, -1))],
        [("reshape", (-1, -1))],
        [("permute", (0, 1, 2))],
        [("permute", (0, 1, 2, 2))],
        [("transpose", (0, 4))],
        [("flatten", (2, 1))],
        [("unsqueeze", (6,))],
        [("im2col", (11, 3, 1, 1, 0, 0, 1, 1))],
        [("im2col", (0, 3, 1, 1, 0, 0, 1, 1))],
        [("im2col", (3, 3, 1, 1, 0, 0, 0, 1))],
        [("flatten", (0, 2)), ("im2col", CUTS[0])],
        [("flatten", (2, 3)), ("col2im", (20, 12, 2, 2, 1, 1, 0, 0, 2, 2))],
        [("flatten", (2, 3)), ("col2im", (20, 32, 5, 2, 1, 1, 0, 0, 5, 2))],
        [("flatten", (2, 3)), ("col2im", (20, 32, 2, 2, 2, 2, 0, 0, 2, 2))],
    ],
)
def test_errors_are_those_of_eager(row):
    x = torch.randn(2, 12, 10, 16)
    assert_same_error(lambda: ours(x, row), lambda: in_eager(x, row))


def test_damaged_steps_are_refused():
    x = torch.randn(2, 3)
    for steps, counts, numbers in ((["reshape"], [2], [6]), (["turn"], [1], [0]), (["transpose"], [1], [0])):
        with pytest.raises(RuntimeError, match="damaged"):
            rearrange(x, steps, counts, numbers)
