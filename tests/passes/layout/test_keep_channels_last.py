import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from ir import CONSTANTS, PACKED, packed
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_same,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    kinds,
)

NAME = "keep_channels_last"


def test_converts_once_at_each_border():
    ir = graph_ir(
        "%x : Tensor",
        *PACKED,
        "%r : Tensor = aten::relu(%y)",
        *packed("r", "y2", "2"),
        "%z : Tensor = aten::add(%y2, %r, %one)",
        "%f : Tensor = aten::flatten(%z, %one, %one)",
        returns="%f",
    )
    result = assert_rewrites(NAME, ir)
    assert result.count("ipex::to_channels_last") == 1
    assert result.count("ipex::restore_layout") == 1
    assert result.count("ipex::is_channels_last") == 1


def test_restores_for_every_reader_outside_once():
    readers = ("%f : Tensor = aten::flip(%y, %zeros)", "%g : Tensor = aten::tril(%y, %zero)")
    ir = graph_ir("%x : Tensor", *PACKED, *readers, returns="%f, %g, %y")
    assert assert_rewrites(NAME, ir).count("ipex::restore_layout") == 1


@pytest.mark.parametrize("script", [False, True])
def test_what_is_contiguous_in_eager_is_returned_itself(script):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.conv(x)
            return y.contiguous(), y

    optimized = check_against_eager(Model(), torch.randn(2, 3, 6, 6), script=script)
    with torch.no_grad():
        a, b = optimized(torch.randn(2, 3, 6, 6))
    assert a.data_ptr() == b.data_ptr()


@pytest.mark.parametrize("script", [False, True])
def test_a_cast_of_nothing_that_is_made_contiguous_is_the_tensor_itself(script):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(5, 4, 3, padding=1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.conv(x)
            return y.float().contiguous(), y

    x = torch.randn(3, 5, 6)
    optimized = check_against_eager(Model(), x, script=script)
    with torch.no_grad():
        a, b = optimized(x)
    assert a.data_ptr() == b.data_ptr()


@pytest.mark.parametrize("returns", ["%c", "%t"])
def test_restores_nothing_for_what_is_made_contiguous(returns):
    lines = (
        "%three : int = prim::Constant[value=3]()",
        "%f : Tensor = aten::flatten(%y, %three, %three)",
        "%t : Tensor = aten::transpose(%f, %zero, %one)",
        "%c : Tensor = aten::contiguous(%t, %zero)",
    )
    result = assert_rewrites(NAME, graph_ir("%x : Tensor", *PACKED, *lines, returns=returns))
    assert result.count("ipex::restore_layout") == (returns == "%t")


@pytest.mark.parametrize("is_seen", [True, False])
def test_two_convolutions_share_one_converted_input(is_seen):
    unseen = () if is_seen else ("%z : Tensor = aten::add(%y, %y2, %one)", UNSEEN.format("z"))
    ir = graph_ir("%x : Tensor", *PACKED, *packed("x", "y2", "2"), *unseen, returns="%y, %y2" if is_seen else "%v")
    assert assert_rewrites(NAME, ir).count("ipex::to_channels_last") == 1


def test_does_not_mix_stretches_with_different_roots():
    ir = graph_ir(
        "%x : Tensor, %x2 : Tensor",
        *PACKED,
        *packed("x2", "y2", "2"),
        "%z : Tensor = aten::add(%y, %y2, %one)",
        returns="%z",
    )
    result = assert_rewrites(NAME, ir)
    assert result.count("ipex::restore_layout") == 2
    assert result.graph.index("ipex::restore_layout") < result.graph.index("aten::add")


# A linear's result has no strides from its input, so nobody sees those of the images before it.
UNSEEN = "%v : Tensor = aten::linear(%{}, %w, %none)"


def test_stretches_of_which_nobody_sees_the_strides_are_one():
    ir = graph_ir(
        "%x : Tensor, %x2 : Tensor",
        *PACKED,
        *packed("x2", "y2", "2"),
        "%z : Tensor = aten::add(%y, %y2, %one)",
        UNSEEN.format("z"),
        returns="%v",
    )
    result = assert_rewrites(NAME, ir)
    assert result.count("ipex::restore_layout") == 1
    assert result.graph.index("aten::add") < result.graph.index("ipex::restore_layout")
    assert result.count("ipex::is_channels_last") == 0


def test_one_stretch_is_seen_and_the_other_is_not():
    ir = graph_ir(
        "%x : Tensor, %x2 : Tensor",
        *PACKED,
        *packed("x2", "y2", "2"),
        "%z : Tensor = aten::add(%y, %y2, %one)",
        UNSEEN.format("z"),
        returns="%v, %y",
    )
    result = assert_rewrites(NAME, ir)
    assert result.count("ipex::is_channels_last") == 1
    assert result.count("ipex::restore_layout") == 2  # of %y, as a result, and of %z
    assert result.graph.index("aten::add") < result.graph.index("aten::linear")


class JoinsACopy(nn.Module):
    """As in CSPNet: half of the channels go through a convolution and are made contiguous."""

    def __init__(self, writes: bool = False) -> None:
        super().__init__()
        self.first, self.inner, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(4, 4, 1), nn.Conv2d(8, 6, 1)
        self.linear, self.writes = nn.Linear(6, 5), writes

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x).split(4, dim=1)
        c = self.inner(self.inner(b).contiguous()).contiguous()
        if self.writes:
            c[:, 0] = 1
        return self.linear(self.last(torch.cat([a, c], 1)).mean((2, 3)))


def test_copies_whose_strides_nobody_sees_are_removed(tmp_path):
    x = torch.randn(2, 3, 9, 10)
    optimized = check_against_eager(JoinsACopy(), x, also=(x[:1], x.to(memory_format=torch.channels_last)))
    assert kinds(optimized)["aten::contiguous"] == 0
    assert kinds(optimized)["ipex::to_channels_last"] == 0  # read as it lies
    assert_round_trip(optimized, tmp_path, x)
    check_against_eager(JoinsACopy(writes=True), x)


class CopyOfWhatIsOverwritten(nn.Module):
    """Channels-last, the copy is one in eager, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        image = self.second(self.first(x))
        copy = image.contiguous()
        image.exp_()
        return (self.third(copy) + self.third(image)).mean((2, 3))


def test_a_copy_of_what_is_overwritten_afterwards_stays():
    x = torch.randn(2, 3, 9, 10)
    channels_last = x.to(memory_format=torch.channels_last)
    check_against_eager(CopyOfWhatIsOverwritten(), x, script=True, also=(channels_last,))


class Eca(nn.Module):
    """Blocks gated by a convolution over the means of channels, as in ECA-Net; `seen`: the result is an image."""

    def __init__(self, seen: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(c, 8, 1) for c in (3, 8, 8))
        self.gate, self.seen = nn.Conv1d(1, 1, 3, padding=1), seen

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            gate = torch.sigmoid(self.gate(x.mean((2, 3)).view(x.size(0), 1, -1))).view(x.size(0), -1, 1, 1)
            x = x * gate.expand_as(x) + x
        return x if self.seen else x.sum((2, 3)).view(-1)


@pytest.mark.parametrize("seen", [False, True])
def test_a_mean_does_not_show_the_strides_of_its_image(seen):
    x = torch.randn(2, 3, 9, 10)
    optimized = check_against_eager(Eca(seen), x, also=(x[:1], x.to(memory_format=torch.channels_last)))
    graph = optimized.inlined_graph
    ranks = [list(node.inputs())[1].toIValue() for node in graph.findAllNodes("ipex::to_channels_last")]
    assert (ranks.count(2) == 1) == (not seen)


def test_copies_whose_strides_somebody_sees_stay():
    copy = "%c : Tensor = aten::contiguous(%y, %zero)"
    view = ("%sizes : int[] = prim::Constant[value=[8, -1]]()", "%v : Tensor = aten::view(%c, %sizes)")
    for lines, returns in (((copy,), "%c"), ((copy, *view), "%v")):
        ir = graph_ir("%x : Tensor", *PACKED, *lines, returns=returns)
        assert assert_rewrites(NAME, ir).count("aten::contiguous") == 1


def test_a_sum_takes_in_a_tensor_from_outside():
    sum_and_more = ("%z : Tensor = aten::add(%y, %b, %one)", *packed("z", "y2", "2"), UNSEEN.format("y2"))
    result = assert_rewrites(NAME, graph_ir("%x : Tensor, %b : Tensor", *PACKED, *sum_and_more, returns="%v"))
    assert result.count("ipex::to_channels_last") == 2
    assert result.count("ipex::restore_layout") == 1
    seen = assert_rewrites(NAME, graph_ir("%x : Tensor, %b : Tensor", *PACKED, *sum_and_more, returns="%v, %z"))
    assert seen.count("ipex::restore_layout") == 2  # of %y, before the sum


def test_what_is_spread_over_an_image_is_not_copied():
    lines = ("%b : Tensor = aten::expand_as(%c, %y)", "%z : Tensor = aten::mul(%y, %b)", UNSEEN.format("z"))
    result = assert_rewrites(NAME, graph_ir("%x : Tensor, %c : Tensor", *PACKED, *lines, returns="%v"))
    assert result.count("ipex::to_channels_last") == 1


@pytest.mark.parametrize("op", ["expand_as", "reshape_as"])
def test_a_reader_of_sizes_takes_any_layout(op):
    lines = (f"%b : Tensor = aten::{op}(%c, %y)", UNSEEN.format("y"))
    result = assert_rewrites(NAME, graph_ir("%x : Tensor, %c : Tensor", *PACKED, *lines, returns="%v, %b"))
    assert result.count("ipex::restore_layout") == 1  # of %y, for %v
    lines = (f"%b : Tensor = aten::{op}(%y, %c)", UNSEEN.format("y"))
    result = assert_rewrites(NAME, graph_ir("%x : Tensor, %c : Tensor", *PACKED, *lines, returns="%v, %b"))
    assert result.count("ipex::is_channels_last") == 1  # somebody sees the strides of the first input


def test_a_sum_does_not_take_in_what_is_overwritten():
    lines = ("%z : Tensor = aten::add(%y, %b, %one)", UNSEEN.format("z"), "%w2 : Tensor = aten::exp_(%b)")
    assert_unchanged(NAME, graph_ir("%x : Tensor, %b : Tensor", *PACKED, *lines, returns="%v, %w2"), reason=None)


@pytest.mark.parametrize(
    ("line", "restored"),
    [
        ("%r : Tensor = aten::permute(%y, %ones)", 0),
        ("%r : Tensor = aten::transpose(%y, %one, %zero)", 0),
        ("%r : Tensor = aten::sum(%y, %ones, %false, %none)", 0),
        ("%r : Tensor = aten::flatten(%y, %one, %one)", 1),
        ("%r : Tensor = aten::flip(%y, %ones)", 1),
    ],
)
def test_restores_where_nobody_sees_strides_only_for_readers_that_gain(line, restored):
    result = assert_rewrites(NAME, graph_ir("%x : Tensor", *PACKED, line, UNSEEN.format("r"), returns="%v"))
    assert result.count("ipex::restore_layout") == restored


@pytest.mark.parametrize(("mode", "asked"), [("constant", 0), ("reflect", 1)])
def test_padding_takes_any_layout_and_with_a_constant_stays_in_the_stretch(mode, asked):
    lines = (
        f'%mode : str = prim::Constant[value="{mode}"]()',
        "%b : Tensor = aten::pad(%y, %ones, %mode, %none)",
        *packed("b", "y2", "2"),
        UNSEEN.format("y2"),
    )
    result = assert_rewrites(NAME, graph_ir("%x : Tensor", *PACKED, *lines, returns="%v"))
    assert result.count("ipex::restore_layout") == 1  # of %y2
    assert result.count("ipex::to_channels_last") == 1 + asked


class TokensAndImages(nn.Module):
    """A block of PVT's and SegFormer's kind: a depthwise convolution between two linears, over tokens as an image."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow, self.norm = nn.Linear(8, 32), nn.Linear(32, 8), nn.LayerNorm(8)
        self.convolution = nn.Conv2d(32, 32, 3, padding=1, groups=32)

    def forward(self, x: Tensor) -> Tensor:
        image = self.wide(x).transpose(1, 2).view(x.size(0), 32, 6, 6)
        tokens = self.convolution(image).flatten(2).transpose(1, 2)
        return self.norm(x + self.narrow(nn.functional.gelu(tokens)))


@pytest.mark.parametrize("batch", [1, 3])
def test_tokens_as_images_are_not_converted(tmp_path, batch):
    x = torch.randn(batch, 36, 8)
    optimized = check_against_eager(TokensAndImages(), x, also=(torch.randn(8, 36, batch).permute(2, 1, 0),))
    assert kinds(optimized)["ipex::restore_layout"] == 0
    assert_round_trip(optimized, tmp_path, x)


class AttentionOfImages(nn.Module):
    """A block of MobileViT v2's kind: the residual comes first, and a piece is weighed by another."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.split = nn.GroupNorm(1, 8), nn.Conv2d(8, 17, 1)
        self.joined, self.head = nn.Conv2d(8, 8, 1), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            query, key, value = self.split(self.norm(x)).split([1, 8, 8], dim=1)
            context = (key * query.softmax(-1)).sum(-1, keepdim=True)
            x = x + self.joined(torch.relu(value) * context.expand_as(value))
        return self.head(x.mean((2, 3)))


def test_images_of_unseen_strides_match_eager(tmp_path):
    x = torch.randn(2, 8, 4, 9)
    also = (x.to(memory_format=torch.channels_last), x[:1], x[:, :, :, ::2], x.transpose(2, 3))
    optimized = check_against_eager(AttentionOfImages(), x, script=True, also=also)
    assert_round_trip(optimized, tmp_path, x)


def test_declines_a_value_that_is_overwritten():
    ir = graph_ir("%x : Tensor", *PACKED, "%z : Tensor = aten::exp_(%y)", returns="%z")
    assert_unchanged(NAME, ir, reason=None)


def test_declines_an_input_that_is_overwritten():
    ir = graph_ir("%x : Tensor", *PACKED, "%z : Tensor = aten::exp_(%x)", returns="%y, %z")
    assert_unchanged(NAME, ir, reason=None)


def test_declines_without_a_convolution():
    assert_unchanged(
        NAME, graph_ir("%x : Tensor", *CONSTANTS, "%y : Tensor = aten::relu(%x)", returns="%y"), reason=None
    )


class Stack(nn.Module):
    """Convolutions, pools and a residual; results from inside, the end, and a view of the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.pool, self.average = nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        a = self.pool(torch.relu(self.first(x)))
        b = torch.relu(self.second(a) + a)
        c = self.average(b)
        return a, b, c, b[:, 2:5]


def images() -> list[Tensor]:
    x = torch.randn(2, 3, 8, 8)
    return [
        x,
        x.to(memory_format=torch.channels_last),
        x[:, :, ::2],
        x.permute(0, 1, 3, 2),
        x[:1],
        x[0],
        torch.randn(8, 8, 3).permute(2, 0, 1),
        torch.randn(1, 3, 2, 2),
    ]


@pytest.mark.parametrize("script", [False, True])
@pytest.mark.parametrize("channels_last_weights", [False, True])
def test_strides_are_those_of_eager(tmp_path, script, channels_last_weights):
    model = Stack()
    if channels_last_weights:
        model = model.to(memory_format=torch.channels_last)
    first, *others = images()
    optimized = check_against_eager(model, first, script=script, also=tuple(others))
    loaded = torch.jit.load(_saved(optimized, tmp_path))
    with torch.no_grad():
        for x in images():
            for ours, again in zip(optimized(x), loaded(x)):
                assert ours.stride() == again.stride()
                assert torch.equal(ours, again)


def _saved(optimized: torch.jit.ScriptModule, folder) -> str:
    optimized.save(folder / "model.pt")
    return str(folder / "model.pt")


@pytest.mark.parametrize("channels", [1, 2])
def test_shapes_whose_layout_is_ambiguous(channels):
    model = nn.Sequential(nn.Conv2d(channels, 1, 1), nn.ReLU(), nn.Conv2d(1, 4, 1))
    x = torch.randn(2, channels, 5, 5)
    also = (x.to(memory_format=torch.channels_last), x[..., :1], x[..., :1, :1], x[..., :1, :1].contiguous())
    check_against_eager(model, x, also=also)


def test_nothing_is_converted_between_layers(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten())
    x = torch.randn(2, 3, 16, 16)
    optimized = check_against_eager(model, x)
    assert kinds(optimized)["ipex::to_channels_last"] == 0  # read as it lies
    assert kinds(optimized)["ipex::restore_layout"] == 1
    assert_round_trip(optimized, tmp_path, x)


class WritesThroughAnAlias(nn.Module):
    """A value inside a stretch is overwritten by way of another name."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y.type_as(x).add_(1)
        return self.second(y)


def test_a_write_that_alias_analysis_does_not_see():
    check_against_eager(WritesThroughAnAlias(), torch.randn(2, 3, 8, 8))


class TokensAsImages(nn.Module):
    """Tokens that a depthwise convolution and a pool read as an image, as in MViT."""

    def __init__(self, returns_image: bool = False) -> None:
        super().__init__()
        self.first, self.mix, self.last = nn.Linear(8, 8), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Linear(8, 4)
        self.returns_image = returns_image

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        image = self.first(x).reshape(x.size(0), 4, 6, 8).permute(0, 3, 1, 2).contiguous()
        tokens = (self.mix(image) + torch.max_pool2d(image, 3, 1, 1)).flatten(2).transpose(1, 2)
        return (self.last(tokens), image) if self.returns_image else self.last(tokens)


@pytest.mark.parametrize("returns_image", [False, True])
def test_an_image_is_not_made_contiguous_for_what_reads_any_layout(returns_image):
    model = TokensAsImages(returns_image)
    optimized = check_against_eager(model, torch.randn(2, 24, 8), also=(torch.randn(1, 24, 8),))
    assert kinds(optimized)["aten::contiguous"] == returns_image


WRITE_TO_A_PIECE = (
    "%piece : Tensor = aten::slice(%whole, %zero, %zero, %one, %one)",
    "%z : Tensor = aten::exp_(%piece)",
    "%w : Tensor = aten::mul_(%z, %z)",
)


def test_a_write_to_a_piece_of_fresh_memory_does_not_matter():
    fresh = "%whole : Tensor = aten::relu(%x)"
    ir = graph_ir("%x : Tensor", *PACKED, fresh, *WRITE_TO_A_PIECE, returns="%y, %whole")
    assert assert_rewrites(NAME, ir).count("ipex::to_channels_last") == 1


@pytest.mark.parametrize(
    "shared",
    [
        ("%whole : Tensor = aten::type_as(%x, %y)",),
        ("%r : Tensor = aten::relu(%x)", "%whole : Tensor = aten::set_(%r, %x)"),
    ],
    ids=["type_as", "set_"],
)
def test_a_write_to_a_piece_of_what_may_be_shared_ends_the_pass(shared):
    ir = graph_ir("%x : Tensor", *PACKED, *shared, *WRITE_TO_A_PIECE, returns="%y, %whole")
    assert_unchanged(NAME, ir, reason=None)


def test_a_write_to_what_was_in_a_list_with_the_image_is_no_write_to_the_image():
    lines = (
        "%whole : Tensor = aten::relu(%x)",
        "%list : Tensor[] = prim::ListConstruct(%whole, %x)",
        "%joined : Tensor = aten::concat(%list, %zero)",
    )
    ir = graph_ir("%x : Tensor", *PACKED, *lines, *WRITE_TO_A_PIECE, returns="%y, %joined")
    assert assert_rewrites(NAME, ir).count("ipex::to_channels_last") == 1


@pytest.mark.parametrize(
    "again",
    [
        ("%list : Tensor[] = prim::ListConstruct(%whole)", "%again : Tensor = prim::ListUnpack(%list)"),
        (
            "%list : Tensor[] = prim::ListConstruct()",
            "%same : Tensor[] = aten::append(%list, %whole)",
            "%again : Tensor = aten::__getitem__(%list, %zero)",
        ),
        (
            "%again : Tensor = prim::If(%true)",
            "  block0():",
            "    -> (%whole)",
            "  block1():",
            "    -> (%x)",
        ),
        ("%again : Tensor = aten::reshape(%whole, %zeros)",),
    ],
    ids=["list", "append", "if", "reshape"],
)
def test_what_may_be_overwritten_is_not_copied(again):
    lines = ("%whole : Tensor = aten::relu(%x)", *again, *packed("again", "y", ""), *WRITE_TO_A_PIECE)
    assert_unchanged(NAME, graph_ir("%x : Tensor", *CONSTANTS, *lines, returns="%y, %whole"), reason=None)


class WritesToPieces(nn.Module):
    """Pieces of results are overwritten between convolutions, through chains of views."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        a = self.first(x)
        before = self.second(a)
        a[:, 1:].transpose(2, 3)[..., :2].mul_(2).add_(1)
        after = self.second(a)
        b = self.third(torch.relu(after))
        steps = torch.arange(8, dtype=torch.float32).view(2, 4)
        steps[0].mul_(3)
        return before, after, a, b * steps.flatten(), steps


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_values_where_pieces_are_overwritten(layout, tmp_path):
    x = torch.randn(2, 3, 8, 8).to(memory_format=layout)
    optimized = check_against_eager(WritesToPieces(), x)
    assert "ipex::to_channels_last" in kinds(optimized)
    assert_round_trip(optimized, tmp_path, x)


SHUFFLE = (
    "%split : int[] = prim::Constant[value=[1, 2, 4, 5, 5]]()",
    "%joined : int[] = prim::Constant[value=[1, 8, 5, 5]]()",
)


def shuffled(input_name: str, output_name: str) -> str:
    return f"%{output_name} : Tensor = ipex::channel_shuffle(%{input_name}, %split, %joined, %false, %true, %true)"


def test_a_shuffle_begins_a_stretch_that_is_contiguous_in_eager():
    ir = graph_ir("%x : Tensor", *PACKED, *SHUFFLE, shuffled("y", "s"), *packed("s", "y2", "2"), returns="%y2")
    result = assert_rewrites(NAME, ir)
    assert result.count("ipex::to_channels_last") == 1
    assert result.count("ipex::restore_layout") == 1
    assert result.graph.index("ipex::channel_shuffle") < result.graph.index("ipex::restore_layout")


def test_a_shuffle_alone_is_left_as_it_is():
    ir = graph_ir("%x : Tensor", *CONSTANTS, *SHUFFLE, shuffled("x", "s"), returns="%s")
    assert_unchanged(NAME, ir, reason=None)


CHUNK = (
    "%two : int = prim::Constant[value=2]()",
    "%list : Tensor[] = aten::chunk(%y, %two, %one)",
    "%a : Tensor, %b : Tensor = prim::ListUnpack(%list)",
)


def test_slices_stay_in_the_stretch():
    ir = graph_ir(
        "%x : Tensor", *PACKED, *CHUNK, *packed("b", "z", "2"), "%s : Tensor = aten::relu(%a)", returns="%z, %s"
    )
    result = assert_rewrites(NAME, ir)
    assert result.count("ipex::to_channels_last") == 1
    assert result.count("ipex::restore_layout") == 2
    assert result.count("aten::chunk") == 1


def test_a_slice_for_a_reader_outside_is_cut_from_what_eager_has():
    ir = graph_ir("%x : Tensor", *PACKED, *CHUNK, *packed("b", "z", "2"), returns="%z, %a")
    result = assert_rewrites(NAME, ir)
    assert result.count("aten::chunk") == 2
    assert result.count("ipex::restore_layout") == 2


def test_sizes_are_asked_of_any_layout():
    ir = graph_ir("%x : Tensor", *PACKED, "%n : int[] = aten::size(%y)", returns="%n")
    assert assert_rewrites(NAME, ir).count("ipex::restore_layout") == 0


@pytest.mark.parametrize("script", [False, True])
def test_a_cast_of_nothing_is_the_tensor_itself_for_readers_outside(tmp_path, script):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.conv(x)
            return y.float(), y

    optimized = check_against_eager(Model(), torch.randn(2, 3, 6, 6), script=script)
    assert kinds(optimized)["ipex::restore_layout"] == 1
    with torch.no_grad():
        a, b = optimized(torch.randn(2, 3, 6, 6))
    assert a.data_ptr() == b.data_ptr()
    assert_round_trip(optimized, tmp_path, torch.randn(2, 3, 6, 6))


def test_the_shuffle_of_torch_stays_in_the_stretch(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ChannelShuffle(2), nn.Conv2d(8, 4, 1))
    optimized = check_against_eager(model, torch.randn(2, 3, 6, 6), also=(torch.randn(1, 3, 9, 5),))
    assert kinds(optimized)["ipex::restore_layout"] == 1
    assert_round_trip(optimized, tmp_path, torch.randn(2, 3, 6, 6))


class Slices(nn.Module):
    """A network of which each half of the channels goes its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        y = self.first(x)
        a, b = y.chunk(2, 1)
        c, d, e = torch.split(y, [4, 2, 2], 1)
        return torch.cat((self.second(a), b), 1), torch.relu(c), a, d * e, y.chunk(2, 2)[1].reshape(-1)


@pytest.mark.parametrize("script", [False, True])
def test_slices_have_the_strides_of_eager(tmp_path, script):
    first, *others = images()
    optimized = check_against_eager(Slices(), first, script=script, also=tuple(x for x in others if x.dim() == 4))
    assert_round_trip(optimized, tmp_path, first)


def test_gradients_of_an_instance_norm():
    """aten's gets them wrong where what comes back to it is channels-last."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.conv = nn.InstanceNorm2d(16), nn.Conv2d(16, 16, 3, groups=16)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(self.norm(x))

    model, x = Model().eval(), torch.randn(1, 16, 5, 4)
    optimized = ipex.jit_optimize(torch.jit.script(model))
    assert kinds(optimized)["ipex::to_channels_last"] == 1
    gradients = []
    for module in (model, optimized):
        leaf = x.clone().requires_grad_()
        (module(leaf) * torch.arange(6).view(3, 2)).sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


VIEW = (
    "%sizes : int[] = prim::Constant[value=[2, 8, -1]]()",
    "%v : Tensor = aten::view(%y, %sizes)",
    "%t : Tensor = aten::transpose(%v, %one, %zero)",
)
TOKENS = "%l : Tensor = aten::linear(%t, %w, %none)"


def test_a_view_whose_strides_nobody_sees_is_loosened():
    result = assert_rewrites(NAME, graph_ir("%x : Tensor", *PACKED, *VIEW, TOKENS, returns="%l"))
    assert (result.count("aten::view"), result.count("aten::reshape")) == (0, 1)
    assert result.count("ipex::restore_layout") == 0


@pytest.mark.parametrize("returns", ["%t", "%v", "%l, %v"])
def test_a_view_whose_strides_somebody_sees_is_not(returns):
    result = assert_rewrites(NAME, graph_ir("%x : Tensor", *PACKED, *VIEW, TOKENS, returns=returns))
    assert (result.count("aten::view"), result.count("aten::reshape")) == (1, 0)
    assert result.count("ipex::restore_layout") == 1


def test_a_view_that_is_overwritten_is_not_loosened():
    write = "%e : Tensor = aten::exp_(%v)"
    assert_unchanged(NAME, graph_ir("%x : Tensor", *PACKED, *VIEW, write, TOKENS, returns="%l"), reason=None)


def test_a_reader_that_sees_no_strides_takes_what_another_one_sees():
    permute = "%t : Tensor = aten::permute(%y, %ones)"
    result = assert_rewrites(NAME, graph_ir("%x : Tensor", *PACKED, permute, TOKENS, returns="%l, %y"))
    assert result.count("ipex::restore_layout") == 1
    image = re.search(r"(%\w+) : Tensor = ipex::convolution_run", result.graph)
    assert image
    assert f"aten::permute({image[1]}," in result.graph


class AttentionOverPixels(nn.Module):
    """A block of LeViT's kind: heads are views of what a convolution gives, and what they give is an image again."""

    def __init__(self, returns_image: bool) -> None:
        super().__init__()
        self.joined, self.projected = nn.Conv2d(4, 24, 1), nn.Conv2d(12, 4, 1)
        self.head, self.returns_image = nn.Linear(4, 3), returns_image

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(2):
            heads = self.joined(x).view(x.size(0), 3, 8, x.size(2) * x.size(3))
            query, key, value = heads.split([2, 2, 4], dim=2)
            weights = (query.transpose(-2, -1) @ key).softmax(-1)
            image = (value @ weights.transpose(-2, -1)).view(x.size(0), 12, x.size(2), x.size(3))
            x = x + self.projected(nn.functional.hardswish(image))
        result = self.head(x.mean((2, 3)))
        return result, x if self.returns_image else result


@pytest.mark.parametrize("returns_image", [False, True])
def test_attention_over_pixels_matches_eager(tmp_path, returns_image):
    x = torch.randn(2, 4, 5, 6)
    also = (x[:1], x[:, :, :1, :1], x[:, :, ::2])
    optimized = check_against_eager(AttentionOverPixels(returns_image), x, script=True, also=also)
    if not returns_image:
        assert kinds(optimized)["aten::view"] == 0
        assert kinds(optimized)["ipex::restore_layout"] == 1  # of the mean, a pixel
    assert_round_trip(optimized, tmp_path, x)


class ResidualOfTokens(nn.Module):
    """A linear adds tokens that are a view of an image: the result may have their strides, and is viewed."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.tokens, self.head = nn.Conv2d(4, 6, 1), nn.Linear(5, 35), nn.Linear(7, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        image = self.image(x)
        tokens = image.view(x.size(0), 6, -1)
        return self.head((self.tokens(y) + tokens).view(x.size(0), 6, 5, 7))


def test_a_view_of_what_has_a_residuals_strides_is_loosened():
    x, y = torch.randn(2, 4, 5, 7), torch.randn(2, 6, 5)
    check_against_eager(ResidualOfTokens(), x, y)


class Recurrent(nn.Module):
    """A branch and a loop between convolutions, as in networks that refine an image round by round."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.wide, self.narrow = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 1)
        self.gate, self.step = (nn.Conv2d(2 * channels, channels, 3, padding=1) for _ in range(2))
        self.last = nn.Linear(channels, 4)

    def refine(self, x: Tensor, rounds: int, wide: bool) -> tuple[Tensor, Tensor]:
        y = self.first(x).relu()
        y = self.wide(y) + y if wide else self.narrow(y).relu()
        h = y
        for _ in range(rounds):
            both = torch.cat([h, y], 1)
            gate = torch.sigmoid(self.gate(both))
            h = (1 - gate) * h + gate * torch.tanh(self.step(both))
        return h, y

    def forward(self, x: Tensor, rounds: int, wide: bool) -> Tensor:
        return self.last(self.refine(x, rounds, wide)[0].flatten(2).mean(2))


class Refined(Recurrent):
    """The same, whose image is seen."""

    def forward(self, x: Tensor, rounds: int, wide: bool) -> tuple[Tensor, Tensor]:
        return self.refine(x, rounds, wide)


class Viewed(Recurrent):
    """The same, whose image is viewed by its sizes after the loop, and in it."""

    def forward(self, x: Tensor, rounds: int, wide: bool) -> Tensor:
        h, y = self.refine(x, rounds, wide)
        total = y.view(y.size(0), y.size(1), -1).sum()
        for _ in range(rounds):
            h = h.relu()
            total = total + h.view(h.size(0), h.size(1), -1).sum()
        return h.contiguous().view(-1) * total


ROUNDS = [(0, True), (1, False), (3, True)]


@pytest.mark.parametrize("kind", [Recurrent, Refined, Viewed])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_branches_and_loops_match_eager(tmp_path, kind, batch, layout):
    model = kind().eval()
    x = torch.randn(batch, 3, 9, 7).contiguous(memory_format=layout)
    optimized = ipex.jit_optimize(torch.jit.script(model))
    for given in ROUNDS:
        with torch.no_grad():
            assert_same(optimized(x, *given), model(x, *given))
    assert_round_trip(optimized, tmp_path, x, *ROUNDS[2])


def test_a_stretch_goes_through_branches_and_loops():
    optimized = ipex.jit_optimize(torch.jit.script(Recurrent().eval()))
    graph = str(optimized.graph)
    assert graph.count("ipex::to_channels_last") == 0  # read as it lies
    assert "ipex::restore_layout" not in graph


def test_what_the_first_round_is_given_is_converted():
    class Model(Recurrent):
        def forward(self, x: Tensor, rounds: int, h: Tensor) -> Tensor:
            for _ in range(rounds):
                h = torch.tanh(self.wide(h) + self.first(x))
            return self.last(h.flatten(2).mean(2))

    model, given = Model().eval(), (torch.randn(1, 3, 6, 6), 2, torch.randn(1, 16, 6, 6))
    optimized = ipex.jit_optimize(torch.jit.script(model))
    with torch.no_grad():
        assert_same(optimized(*given), model(*given))
    loop = optimized.graph.findNode("prim::Loop")
    body = next(loop.blocks())
    assert [node.kind() for node in body.nodes()].count("ipex::to_channels_last") == 0
    assert str(optimized.graph).count("ipex::to_channels_last") == 2


def test_branches_that_differ_end_a_stretch():
    class Model(Recurrent):
        def forward(self, x: Tensor, y: Tensor, wide: bool) -> Tensor:
            z = self.wide(y) if wide else y
            return self.narrow(z).relu() + z

    model, y = Model().eval(), torch.randn(1, 16, 6, 6)
    optimized = ipex.jit_optimize(torch.jit.script(model))
    for wide in (True, False):
        with torch.no_grad():
            assert_same(optimized(y, y, wide), model(y, y, wide))


def test_a_pool_of_volumes_gets_images_as_eager_has_them():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(3, 4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(F.max_pool3d(self.first(x), 2)).mean((2, 3))

    for script in (False, True):
        check_against_eager(Model(), torch.randn(2, 3, 8, 8), script=script)


@pytest.mark.parametrize(
    "piece",
    [lambda y: y.chunk(2, 1)[1], lambda y: y[:, 1:3], lambda y: y.split([1, 3], 1)[0]],
    ids=["chunk", "slice", "split"],
)
def test_pieces_of_averages_are_views_of_them(piece):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.first(x)
            return piece(y.mean((2, 3))), piece(y.amax((2, 3), keepdim=True))

    x = torch.randn(3, 3, 8, 8)
    optimized = check_against_eager(Model(), x, also=(x.to(memory_format=torch.channels_last),))
    assert kinds(optimized)["ipex::convolution_run"] == 1


class Speech(nn.Module):
    """The convolutions that read samples in wav2vec 2.0 and its like."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv1d(1, 32, 10, 5), nn.GroupNorm(32, 32), nn.Conv1d(32, 32, 3, 2)

    def forward(self, x):
        return self.second(F.gelu(self.norm(self.first(x)))).sum(-1)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # group_norm looks at its sizes
def test_a_norm_of_groups_between_convolutions_of_samples_copies_nothing():
    x = torch.randn(1, 1, 400)
    optimized = check_against_eager(Speech(), x, also=(torch.randn(2, 1, 400),))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        optimized(x)
    assert not [event.key for event in profile.key_averages() if event.key == "ipex::copy_transposed"]


class Backbone(nn.Module):
    """Tokens are mixed in between, and laid out as an image again: the caller gets an image, whose strides he sees."""

    def __init__(self, spell: str) -> None:
        super().__init__()
        self.stem, self.mix, self.last = nn.Conv2d(3, 8, 2, 2), nn.Linear(8, 8), nn.Conv2d(8, 8, 1)
        self.register_buffer("channels", torch.randn(8, 1, 1))
        self.register_buffer("columns", torch.randn(1, 1, 6))
        self.spell = spell

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        batch, channels, height, width = x.shape
        tokens = self.mix(x.permute(0, 2, 3, 1).reshape(batch, height * width, channels))
        mixed = tokens.reshape(batch, height, width, channels).permute(0, 3, 1, 2)
        if self.spell == "scaled":
            x = x + self.channels * mixed
        elif self.spell == "product":
            x = x * mixed
        elif self.spell == "mixed first":
            x = mixed + x
        elif self.spell == "columns":
            x = x + self.columns * mixed
        else:
            x = x[:, :, :1] + mixed  # one row is repeated
        return self.last(x).relu() + x


@pytest.mark.parametrize("spell", ["scaled", "product", "mixed first", "columns", "one row"])
def test_an_image_of_tokens_that_is_added_has_the_strides_of_what_it_is_added_to(spell):
    images = [torch.randn(2, 3, 8, 12), torch.randn(1, 3, 2, 12)]
    also = (images[1], *(image.to(memory_format=torch.channels_last) for image in images))
    optimized = check_against_eager(Backbone(spell), images[0], also=also)
    restored = re.search(
        r"(%\w+) : Tensor = ipex::convolution_run.*packed_0.*\n(?:.*\n)*.*restore_layout\(\1,", str(optimized.graph)
    )
    assert (restored is None) == (spell in ("scaled", "product"))


class AsItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.last(y.view_as(y) + 1).mean((2, 3))


def test_a_view_as_itself_is_two_uses_of_one_value():
    """Its second use was looked at when the node was gone: `make asan` sees that."""
    optimized = check_against_eager(AsItself().eval(), torch.randn(1, 4, 8, 8))
    assert "aten::reshape_as" in kinds(optimized)
