import pytest
import torch
from torch import Tensor, nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "join_rearrangements"
CONSTANTS = (
    "%zero : int = prim::Constant[value=0]()",
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
    "%true : bool = prim::Constant[value=1]()",
    "%false : bool = prim::Constant[value=0]()",
    "%none : NoneType = prim::Constant()",
    "%sizes : int[] = prim::Constant[value=[2, 4, -1]]()",
    "%order : int[] = prim::Constant[value=[1, 0, 2]]()",
)
RESHAPE = "%a : Tensor = aten::reshape(%x, %sizes)"
PERMUTE = "%b : Tensor = aten::permute(%a, %order)"
FLATTEN = "%c : Tensor = aten::flatten(%b, %zero, %one)"
UNSEEN = "%y : Tensor = aten::linear(%{}, %w, %none)"


def ir(*lines: str, returns: str = "%y") -> str:
    return graph_ir("%x : Tensor, %w : Tensor, %n : int", *CONSTANTS, *lines, returns=returns)


def test_a_row_is_one_op():
    result = assert_rewrites(NAME, ir(RESHAPE, PERMUTE, FLATTEN, UNSEEN.format("c")))
    assert result.count("ipex::rearrange") == 1
    assert result.count("aten::reshape") + result.count("aten::permute") + result.count("aten::flatten") == 0
    assert 'value=["reshape", "permute", "flatten"]' in result.graph
    assert "value=[3, 3, 2]" in result.graph


@pytest.mark.parametrize(
    ("end", "name"),
    [
        ("%c : Tensor = aten::contiguous(%b, %zero)", "contiguous"),
        ("%c : Tensor = ipex::to_channels_last(%b, %two)", "channels_last"),
        ("%c : Tensor = ipex::restore_layout(%b, %false)", "contiguous"),
        ("%c : Tensor = aten::view(%b, %sizes)", "reshape"),
    ],
)
def test_what_may_copy_ends_a_row(end, name):
    result = assert_rewrites(NAME, ir(RESHAPE, PERMUTE, end, UNSEEN.format("c")))
    assert f'"{name}"]' in result.graph


def test_sizes_that_a_call_computes_are_handed_on():
    list_of_sizes = "%s : int[] = prim::ListConstruct(%n, %two, %n)"
    lines = (PERMUTE.replace("%a", "%x"), "%c : Tensor = aten::reshape(%b, %s)", UNSEEN.format("c"))
    assert assert_rewrites(NAME, ir(list_of_sizes, *lines)).count("ipex::rearrange") == 1
    assert_unchanged(NAME, ir("%s : int[] = aten::size(%w)", *lines), reason=None)


def test_views_at_the_end_stay_apart():
    transpose = "%d : Tensor = aten::transpose(%c, %zero, %one)"
    result = assert_rewrites(NAME, ir(RESHAPE, PERMUTE, FLATTEN, transpose, UNSEEN.format("d")))
    assert result.count("aten::transpose") == 1
    assert_unchanged(NAME, ir(RESHAPE, PERMUTE, UNSEEN.format("b")), reason=None)


def test_a_row_begins_after_a_step_that_others_read():
    lines = (RESHAPE, PERMUTE, FLATTEN, UNSEEN.format("c"), "%s : Tensor = aten::sum(%a, %none)")
    result = assert_rewrites(NAME, ir(*lines, returns="%y, %s"))
    assert (result.count("aten::reshape"), result.count("ipex::rearrange")) == (1, 1)


def test_declines_strides_that_somebody_sees():
    assert_unchanged(NAME, ir(RESHAPE, PERMUTE, FLATTEN, returns="%c"), reason="the strides of a result depend on it")


def test_what_is_made_of_sizes_or_overwritten_with_it_sees_no_strides():
    new = "%z : Tensor = aten::new_zeros(%c, %sizes, %none, %none, %none, %none)"
    update = "%u : Tensor = aten::add_(%z, %c, %one)"
    result = assert_rewrites(NAME, ir(RESHAPE, PERMUTE, FLATTEN, new, update, UNSEEN.format("c"), returns="%y, %u"))
    assert result.count("ipex::rearrange") == 1
    like = new.replace("new_zeros(%c, %sizes, ", "zeros_like(%c, %none, ")
    assert_unchanged(NAME, ir(RESHAPE, PERMUTE, FLATTEN, like, UNSEEN.format("c"), returns="%y, %z"), reason="strides")


def test_declines_what_is_overwritten():
    write = "%e : Tensor = aten::relu_(%m)"
    lines = ("%m : Tensor = aten::exp(%x)", RESHAPE.replace("%x", "%m"), PERMUTE, FLATTEN)
    assert_unchanged(NAME, ir(*lines, write, UNSEEN.format("c"), returns="%y, %e"), reason="something is overwritten")


def test_writes_that_are_over_are_seen_by_all_steps():
    made = "%m : Tensor = aten::exp(%x)"
    write = ("%p : Tensor = aten::slice(%m, %zero, %one, %two, %one)", "%e : Tensor = aten::relu_(%p)")
    steps = (RESHAPE.replace("%x", "%m"), PERMUTE, FLATTEN)
    assert assert_rewrites(NAME, ir(made, *write, *steps, UNSEEN.format("c"))).count("ipex::rearrange") == 1
    between = (made, steps[0], *write, *steps[1:], UNSEEN.format("c"))
    assert_unchanged(NAME, ir(*between), reason="something is overwritten")
    result = "%e : Tensor = aten::relu_(%c)"
    assert_unchanged(NAME, ir(made, *write, *steps, result, UNSEEN.format("e")), reason=None)


@pytest.mark.parametrize("line", ["aten::contiguous(%b, %two)", "ipex::restore_layout(%b, %true)"])
def test_declines_a_layout_that_is_not_contiguous(line):
    lines = (PERMUTE.replace("%a", "%x"), f"%c : Tensor = {line}", UNSEEN.format("c"))
    assert_unchanged(NAME, ir(*lines), reason=None)


@pytest.mark.parametrize(
    ("line", "joined"), [("aten::expand(%x, %sizes, %false)", True), ("aten::softmax(%x, %one, %none)", False)]
)
def test_a_reshape_alone_is_taken_where_it_may_copy(line, joined):
    lines = (f"%a : Tensor = {line}", "%c : Tensor = aten::flatten(%a, %zero, %one)", UNSEEN.format("c"))
    if joined:
        assert assert_rewrites(NAME, ir(*lines)).count("ipex::rearrange") == 1
    else:
        assert_unchanged(NAME, ir(*lines), reason=None)


PAIRS = "%pair : int[] = prim::Constant[value=[2, 2]]()", "%threes : int[] = prim::Constant[value=[3, 3]]()"
UNFOLD = "%a : Tensor = aten::im2col(%x, {}, %pair, %pair, %pair)"
FOLD = "%a : Tensor = aten::col2im(%x, %pair, {}, %pair, %pair, %pair)"


@pytest.mark.parametrize(("line", "step"), [(UNFOLD.format("%threes"), "im2col"), (FOLD.format("%pair"), "col2im")])
def test_windows_are_a_row_alone_and_with_others(line, step):
    lines = ("%z : Tensor = aten::softmax(%x, %one, %none)", line.replace("%x", "%z"))
    assert f'value=["{step}"]' in assert_rewrites(NAME, ir(*PAIRS, *lines, UNSEEN.format("a"))).graph
    result = assert_rewrites(NAME, ir(*PAIRS, *lines, PERMUTE, FLATTEN, UNSEEN.format("c")))
    assert f'value=["{step}", "permute", "flatten"]' in result.graph


@pytest.mark.parametrize("kernel", ["%threes", "%one_number"])
def test_what_overlaps_is_added_up_by_aten(kernel):
    one_number = "%one_number : int[] = prim::Constant[value=[2]]()"
    assert_unchanged(NAME, ir(*PAIRS, one_number, FOLD.format(kernel), UNSEEN.format("a")), reason=None)


class Windows(nn.Module):
    """As in Swin and MaxViT: windows are cut out of an image, and put together again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.convolution = nn.Linear(8, 8), nn.Linear(8, 3), nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.convolution(x)
        batch, channels, height, width = x.shape
        x = x.permute(0, 2, 3, 1)
        x = x.view(batch, height // 2, 2, width // 3, 3, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, 6, channels)
        x = self.inner(x).view(batch, height // 2, width // 3, 2, 3, channels).permute(0, 1, 3, 2, 4, 5).contiguous()
        return self.outer(x.view(batch, height, width, channels))


class Patches(nn.Module):
    """As in MobileViT: the pixels at one place of all patches are a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(4, 8, 1), nn.Conv2d(8, 4, 1)
        self.inner, self.head = nn.Linear(8, 8), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        batch, channels, height, width = x.shape
        rows, columns = height // 2, width // 3
        x = x.reshape(batch * channels * rows, 2, columns, 3).transpose(1, 2)
        x = x.reshape(batch, channels, rows * columns, 6)
        x = torch.relu(self.inner(x.transpose(1, 3).reshape(batch * 6, rows * columns, channels)))
        x = x.contiguous().view(batch, 6, rows * columns, channels).transpose(1, 3)
        x = x.reshape(batch * channels * rows, columns, 2, 3).transpose(1, 2).reshape(batch, channels, height, width)
        return self.head(self.after(x).mean((2, 3)))


class Unfolded(nn.Module):
    """As in VOLO and ConvBERT, where windows overlap, and in MobileViT v2, where they are put together again."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after, self.head = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 4, 1), nn.Linear(9, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        size = x.size(2), x.size(3)
        windows = nn.functional.unfold(x, 3, padding=1).transpose(1, 2).reshape(x.size(0), -1, 4, 9)
        columns = nn.functional.unfold(x, [2, 3], stride=[2, 3])
        patches = self.after(columns.reshape(x.size(0), 4, 6, -1)).reshape(x.size(0), 24, -1)
        x = nn.functional.fold(patches, size, [2, 3], stride=[2, 3])
        return self.head(windows).sum(1) + self.after(x).mean((2, 3)).unsqueeze(1)


@pytest.mark.parametrize("model", [Windows, Patches, Unfolded])
@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(model, script, tmp_path):
    x = torch.randn(2, 4 if model is Patches else 8, 6, 9)
    also = (x.to(memory_format=torch.channels_last), torch.randn(2, x.size(1), 9, 6).transpose(2, 3))
    optimized = check_against_eager(model(), x, script=script, also=also)
    assert kinds(optimized)["ipex::rearrange"] >= 2
    assert_round_trip(optimized, tmp_path, x)
