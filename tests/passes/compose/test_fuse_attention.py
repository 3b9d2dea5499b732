import math

import pytest
import torch
from torch import Tensor, nn

from support import (
    assert_rewrites,
    assert_round_trip,
    assert_same,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    kinds,
    told,
)

NAME = "fuse_attention"
LOWEST = torch.finfo(torch.float32).min
CONSTANTS = (
    "%zero : int = prim::Constant[value=0]()",
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
    "%last : int = prim::Constant[value=-1]()",
    "%scale : float = prim::Constant[value=8.]()",
    "%none : NoneType = prim::Constant()",
)
INPUTS = "%q : Tensor, %k : Tensor, %v : Tensor, %mask : Tensor"
LINES = (
    "%s : Tensor = aten::matmul(%q, %k)",
    "%d : Tensor = aten::div(%s, %scale)",
    "%m : Tensor = aten::add(%d, %mask, %one)",
    "%p : Tensor = aten::softmax(%m, %last, %none)",
    "%y : Tensor = aten::matmul(%p, %v)",
)


SCALED_QUERY = f"%e : Tensor = aten::mul(%q, %scale)\n{LINES[0].replace('%q', '%e')}"
TURNED_SCALED_QUERY = "%e : Tensor = aten::mul(%q, %scale)\n%f : Tensor = aten::transpose(%e, %last, %two)\n" + LINES[
    0
].replace("%q", "%f")
TURNED = "%t : Tensor = aten::transpose(%p, %last, %two)\n%y : Tensor = aten::matmul(%v, %t)"
VIEWED_SCORES = "\n".join(
    (
        "%sizes : int[] = prim::ListConstruct(%one, %two, %one, %last)",
        "%w : Tensor = aten::view(%d, %sizes)",
        LINES[2].replace("%d", "%w"),
    )
)
OVERWRITES_WHAT_IS_ITS_OWN = f"%t : Tensor = aten::sigmoid(%mask)\n%u : Tensor = aten::relu_(%t)\n{LINES[2]}"


def attention_ir(old: str = "", new: str = "", returns: str = "%y") -> str:
    """The graph, with one piece of text replaced."""
    text = "\n".join(LINES)
    assert old in text
    return graph_ir(INPUTS, *CONSTANTS, *text.replace(old, new).split("\n"), returns=returns)


@pytest.mark.parametrize(
    ("old", "new", "steps"),
    [
        ("", "", '"matmul", "div_number", "add"'),
        ("%d, %mask", "%mask, %d", '"matmul", "div_number", "add"'),
        ("aten::add(", "aten::add_(", '"matmul", "div_number", "add_"'),
        ("aten::div(", "aten::div_(", '"matmul", "div_number_", "add"'),
        ("aten::div(%s, %scale", "aten::mul(%mask, %s", '"matmul", "mul", "add"'),
        ("aten::matmul(%q, %k)", "aten::bmm(%q, %k)", '"bmm", "div_number", "add"'),
        ("aten::matmul(%q, %k)", "aten::baddbmm(%mask, %q, %k, %one, %one)", '"baddbmm", "div_number", "add"'),
        ("add(%d, %mask, %one)", "masked_fill(%d, %mask, %scale)", '"matmul", "div_number", "masked_fill"'),
        ("add(%d, %mask, %one)", "where(%mask, %d, %scale)", '"matmul", "div_number", "where"'),
        ("add(%d, %mask, %one)", "where(%mask, %scale, %d)", '"matmul", "div_number", "masked_fill"'),
        ("add(%d, %mask, %one)", "where(%mask, %d, %mask)", '"matmul", "div_number", "where_tensor"'),
        ("\n".join(LINES[1:4]), LINES[3].replace("%m", "%s"), '"matmul"'),
        (LINES[0], SCALED_QUERY, '"scale_query", "matmul", "div_number", "add"'),
        (LINES[0], TURNED_SCALED_QUERY, '"scale_query", "matmul", "div_number", "add"'),
        (LINES[2], VIEWED_SCORES, '"matmul", "div_number", "view", "add"'),
        (LINES[2], OVERWRITES_WHAT_IS_ITS_OWN, '"matmul", "div_number", "add"'),
    ],
)
def test_fires(old, new, steps):
    result = assert_rewrites(NAME, attention_ir(old, new))
    assert result.count("ipex::attention") == 1
    assert result.count("aten::softmax") == result.count("aten::matmul") == result.count("aten::bmm") == 0
    assert f"value=[{steps}, " in result.graph


def test_fires_where_the_value_is_multiplied_by_turned_weights():
    result = assert_rewrites(NAME, attention_ir(LINES[4], TURNED))
    assert 'value=["matmul", "div_number", "add", "softmax", "turned_matmul"]' in result.graph
    assert result.count("aten::matmul") == result.count("aten::transpose") == 0


@pytest.mark.parametrize("returned", ["%p", "%t"])
def test_declines_turned_weights_that_somebody_reads(returned):
    assert_unchanged(NAME, attention_ir(LINES[4], TURNED, returns=f"%y, {returned}"), reason="another reader")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("aten::div(%s, %scale)", "aten::tanh(%s)", "aten::tanh stands between"),
        ("%mask, %one", "%mask, %two", "aten::add stands between"),
        ("%mask, %one", "%scale, %one", "aten::add stands between"),
        ("%m, %last", "%m, %one", "not over the last dimension"),
        ("%p : Tensor", "%w : Tensor = aten::relu_(%q)\n%p : Tensor", "something is overwritten"),
    ],
)
def test_declines(old, new, reason):
    assert_unchanged(NAME, attention_ir(old, new), reason)


@pytest.mark.parametrize(
    "reader",
    ["%w : Tensor = aten::mul(%e, %q)", "%w : Tensor = aten::relu_(%q)"],
    ids=["another reader", "overwritten"],
)
def test_a_scaled_query_that_somebody_needs_stays(reader):
    scaled = f"%e : Tensor = aten::mul(%q, %scale)\n{reader}\n{LINES[0].replace('%q', '%e')}"
    result = assert_rewrites(NAME, attention_ir(LINES[0], scaled, returns="%y, %w"))
    assert result.count("ipex::attention") == 1
    assert "scale_query" not in result.graph


@pytest.mark.parametrize("returned", ["%s", "%m", "%p"])
def test_declines_a_model_that_returns_its_scores(returned):
    assert_unchanged(NAME, attention_ir(returns=f"%y, {returned}"), reason="another reader")


def test_says_nothing_of_a_product_without_softmax():
    assert_unchanged(NAME, attention_ir("aten::softmax(%m, %last, %none)", "aten::sigmoid(%m)"), reason=None)


def test_says_nothing_of_weights_that_are_given():
    assert_unchanged(NAME, attention_ir("\n".join(LINES[:4]), LINES[3].replace("%m", "%q")), reason=None)


def test_fires_inside_a_block():
    lines = [f"    {line}" for line in LINES]
    ir = graph_ir(
        f"{INPUTS}, %c : bool",
        *CONSTANTS,
        "%r : Tensor = prim::If(%c)",
        "  block0():",
        *lines,
        "    -> (%y)",
        "  block1():",
        "    -> (%q)",
        returns="%r",
    )
    assert assert_rewrites(NAME, ir).count("ipex::attention") == 1


SPELLINGS = {
    "bert": lambda s, m: s / math.sqrt(8) + m,
    "vit": lambda s, _: s * 8**-0.5,
    "in place": lambda s, m: s.div_(math.sqrt(8)).add_(m),
    "distilbert": lambda s, m: s.masked_fill(m < 0, -math.inf),
    "distilbert, old": lambda s, m: s.masked_fill((m < 0).expand(2, 1, 1, 5).expand_as(s), LOWEST),
    "gpt2": lambda s, m: torch.where(torch.ones(5, 5).tril() > 0, s / 3, torch.full([], LOWEST)) + m,
    "t5": lambda s, m: s + (torch.ones(1, 4, 5, 5) + m),
}


class Attention(nn.Module):
    """Self-attention, with the heads merged in the end or returned as they are."""

    def __init__(self, spelling: str, merge: bool) -> None:
        super().__init__()
        self.qkv, self.spelling, self.merge = nn.Linear(32, 96), SPELLINGS[spelling], merge

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(2, 5, 12, 8).transpose(1, 2).split(4, 1)
        y = self.spelling(torch.matmul(q, k.transpose(-1, -2)), mask).softmax(-1) @ v
        return y.transpose(1, 2).contiguous().view(2, 5, 32) if self.merge else y


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_matches_eager(tmp_path, spelling, merge):
    x, mask = torch.randn(2, 5, 32), torch.zeros(2, 1, 1, 5)
    mask[1, ..., 3:] = LOWEST
    model = Attention(spelling, merge)
    optimized = check_against_eager(model, x, mask)
    assert kinds(optimized)["ipex::attention"] == 1
    assert kinds(optimized)["aten::softmax"] == 0
    assert_round_trip(optimized, tmp_path, x, mask)
    mask[0] = -math.inf  # decided at run time: a row of NaN
    assert_same(optimized(x, mask), model(x, mask))


class OldT5(nn.Module):
    """Casts to float32 and back to the dtype of the scores."""

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        scores = torch.matmul(x, x.transpose(3, 2))
        scores += bias
        return torch.matmul(nn.functional.softmax(scores.float(), dim=-1).type_as(scores), x)


@pytest.mark.parametrize("script", [False, True])
def test_casts_to_the_dtype_of_the_scores(script):
    x, bias = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 5)
    optimized = check_against_eager(OldT5(), x, bias, script=script)
    assert kinds(optimized)["ipex::attention"] == 1
    if script:  # tracing forgets that the cast to float32 is one
        assert_same(optimized(x.double(), bias.double()), OldT5()(x.double(), bias.double()))


def test_declines_the_dtype_of_another_value():
    ir = attention_ir(LINES[4], "%t : Tensor = aten::type_as(%p, %v)\n%y : Tensor = aten::matmul(%t, %v)")
    assert_unchanged(NAME, ir, reason="aten::type_as stands between")


class TwoHeads(nn.Module):
    """3-D tensors, as MultiheadAttention has them where it needs the weights."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.bmm(torch.softmax(torch.baddbmm(mask, q, k.transpose(1, 2)), dim=-1), v)
        weights = torch.softmax(torch.bmm(q * 0.5, k.transpose(1, 2)), dim=-1)
        return first, weights @ v


def test_matches_eager_in_three_dimensions():
    q, k, v = torch.randn(6, 4, 8), torch.randn(6, 7, 8), torch.randn(6, 7, 8)
    optimized = check_against_eager(TwoHeads(), q, k, v, torch.randn(6, 4, 7))
    assert kinds(optimized)["ipex::attention"] == 2


def test_a_reader_that_minds_the_layout_gets_eagers():
    class Swapped(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return ((x @ x.transpose(-1, -2)).softmax(-1) @ x).transpose(1, 2)

    check_against_eager(Swapped(), torch.randn(2, 3, 5, 8))


class MergedHeads(nn.Module):
    """Heads are merged, in a shape that is read off the result of attention."""

    def forward(self, x: Tensor) -> Tensor:
        y = (x @ x.transpose(-1, -2)).softmax(-1) @ x
        return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], y.shape[1] * y.shape[3])


@pytest.mark.parametrize("script", [False, True])
def test_merging_heads_takes_any_layout(script):
    optimized = check_against_eager(MergedHeads(), torch.randn(2, 3, 5, 8), script=script)
    assert told(optimized, "ipex::attention")[0]["eager_layout"] is False


class Channels(nn.Module):
    """Attention over channels, whose heads are put together position by position."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        batch, positions, channels = x.shape
        q, k, v = self.qkv(x).reshape(batch, positions, 3, 3, 8).permute(2, 0, 3, 4, 1).unbind(0)
        y = (q @ k.transpose(-2, -1)).softmax(dim=-1) @ v
        return self.out(y.permute(0, 3, 1, 2).reshape(batch, positions, channels))


@pytest.mark.parametrize("script", [False, True])
def test_heads_of_channels_stay_as_they_lie(script):
    optimized = check_against_eager(Channels(), torch.randn(2, 40, 24) / 8, script=script)
    assert told(optimized, "ipex::attention")[0]["eager_layout"] is False


class Windows(nn.Module):
    """Windows of an image with a bias for each head, and a mask for each window."""

    def __init__(self, split: bool, masks: int) -> None:
        super().__init__()
        self.qkv, self.split, self.masks = nn.Linear(16, 48), split, masks

    def forward(self, x: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
        windows, tokens, _ = x.shape
        q, k, v = self.qkv(x).reshape(windows, tokens, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * 8**-0.5) @ k.transpose(-2, -1) + bias
        if self.split:
            for _ in range(self.masks):
                scores = scores.view(windows // 4, 4, 2, tokens, tokens) + mask.unsqueeze(1).unsqueeze(0)
            scores = scores.view(-1, 2, tokens, tokens)
        y = scores.softmax(-1) @ v
        return y.transpose(1, 2).reshape(windows, tokens, 16)


@pytest.mark.parametrize(("split", "masks"), [(False, 0), (True, 1), (True, 2)])
@pytest.mark.parametrize("images", [1, 3])
def test_windows_with_masks_of_their_own(tmp_path, split, masks, images):
    x, bias, mask = torch.randn(4 * images, 9, 16), torch.randn(1, 2, 9, 9), torch.zeros(4, 9, 9)
    mask[1:, 4:, :4] = -100.0
    mask[2, :, 6:] = LOWEST
    model = Windows(split, masks)
    optimized = check_against_eager(model, x, bias, mask)
    assert kinds(optimized)["ipex::attention"] == 1
    assert kinds(optimized)["aten::softmax"] == kinds(optimized)["aten::mul"] == 0
    assert "in aten" not in ops_of(optimized, x, bias, mask)
    assert_round_trip(optimized, tmp_path, x, bias, mask)
    mask[3] = -math.inf  # decided at run time: rows of NaN
    assert_same(optimized(x, bias, mask), model(x, bias, mask))


def test_keys_that_only_the_sum_of_two_masks_closes():
    x, bias, mask = torch.randn(4, 9, 16), torch.zeros(1, 2, 9, 9), torch.zeros(4, 9, 9)
    bias[..., 5:], mask[..., 5:] = LOWEST / 2, LOWEST / 2
    mask[1, :, 7:], bias[..., 8:] = -LOWEST / 2, 0.0
    check_against_eager(Windows(True, 1), x, bias, mask)


class OldBart(nn.Module):
    """Heads and batches are one dimension, and get a mask for each batch in between."""

    def forward(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        scores = torch.bmm(q, k.transpose(1, 2)).view(2, 3, 4, 7) + mask
        weights = scores.view(6, 4, 7).softmax(-1).view(2, 3, 4, 7).view(6, 4, 7)
        return torch.bmm(weights, k)


def test_a_batch_of_heads_in_one_dimension():
    q, k, mask = torch.randn(6, 4, 8), torch.randn(6, 7, 8), torch.randn(2, 1, 4, 7)
    optimized = check_against_eager(OldBart(), q, k, mask)
    assert kinds(optimized)["ipex::attention"] == 1
    assert "in aten" not in ops_of(optimized, q, k, mask)


class ImageAttention(nn.Module):
    """With the channels before the pixels, as in LeViT, non-local networks and autoencoders of images."""

    def __init__(self, heads: int, turn: str) -> None:
        super().__init__()
        self.qkv, self.proj, self.heads, self.turn = nn.Conv2d(12, 36, 1), nn.Conv2d(12, 8, 1), heads, turn

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        b, _, h, w = x.shape
        q, k, v = self.qkv(x).view(b, 3 * self.heads, -1, h * w).chunk(3, dim=1)
        if self.turn == "bmm":
            q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
            weights = (torch.bmm(q.permute(0, 2, 1), k) * 0.5).softmax(dim=2)
            y = torch.bmm(v, weights.permute(0, 2, 1))
        else:
            weights = (q.transpose(-1, -2) @ k * 0.5).softmax(dim=-1)
            y = v @ (weights.transpose(2, 3) if self.turn == "counted" else weights.transpose(-1, -2))
        return self.proj(nn.functional.hardswish(y.view(b, -1, h, w))), y


@pytest.mark.parametrize("turn", ["bmm", "counted", "from the end"])
@pytest.mark.parametrize("heads", [1, 3])
def test_channels_before_pixels(tmp_path, heads, turn):
    x = torch.randn(2, 12, 5, 7)
    also = (x.to(memory_format=torch.channels_last), torch.randn(1, 12, 1, 6), torch.full((1, 12, 2, 3), torch.nan))
    optimized = check_against_eager(ImageAttention(heads, turn), x, also=also)
    assert kinds(optimized)["ipex::attention"] == 1
    assert "in aten" not in ops_of(optimized, x)
    assert_round_trip(optimized, tmp_path, x)


class ScaledBefore(nn.Module):
    """Multiplied by a number before it is transposed, as in EfficientViT and DaViT."""

    def __init__(self, scales: str) -> None:
        super().__init__()
        self.scales = scales

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        factor = 8**-0.5
        turned = q.transpose(2, 3)
        by_query, by_key = (q * factor).transpose(2, 3), (k.transpose(2, 3) * factor).transpose(2, 3)
        scores = by_query @ k if self.scales == "query" else turned @ by_key
        return scores.softmax(-1) @ v


@pytest.mark.parametrize("scales", ["query", "key"])
def test_what_is_scaled_may_be_transposed(scales):
    q, k, v = torch.randn(2, 3, 8, 5), torch.randn(2, 3, 8, 7), torch.randn(2, 3, 7, 6)
    optimized = check_against_eager(ScaledBefore(scales), q, k, v, also=((q * 1e30, k, v), (q * torch.nan, k, v)))
    assert kinds(optimized)["aten::mul"] == 0


class BetweenConvolutions(nn.Module):
    """Nobody sees how the result lies."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.attention = ImageAttention(heads, "counted")

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x)[0].mean((2, 3))


@pytest.mark.parametrize("heads", [1, 3])
def test_pixels_between_convolutions_are_not_turned(tmp_path, heads):
    x = torch.randn(2, 12, 5, 7)
    also = (x.to(memory_format=torch.channels_last), torch.randn(1, 12, 1, 6), torch.full((1, 12, 2, 3), torch.nan))
    optimized = check_against_eager(BetweenConvolutions(heads), x, also=also)
    assert told(optimized, "ipex::attention")[0]["eager_layout"] is False
    assert "copy_transposed" not in ops_of(optimized, x.to(memory_format=torch.channels_last))
    assert_round_trip(optimized, tmp_path, x)


class OddlyTurned(nn.Module):
    """Weights whose other dimensions are swapped."""

    def forward(self, q: Tensor) -> Tensor:
        return q.transpose(-1, -2) @ (q @ q.transpose(-1, -2)).softmax(-1).transpose(1, 2)


def test_other_turns_are_left_to_aten():
    q = torch.randn(2, 4, 4, 4)
    assert "its weights are not transposed" in ops_of(check_against_eager(OddlyTurned(), q), q)


class TurnedScores(nn.Module):
    """A view that divides rows of scores."""

    def forward(self, q: Tensor) -> Tensor:
        scores = (q @ q.transpose(1, 2)).view(3, 2, 8)
        return scores.softmax(-1).view(3, 4, 4) @ q


def test_a_view_that_divides_rows_is_left_to_aten():
    q = torch.randn(3, 4, 8)
    optimized = check_against_eager(TurnedScores(), q)
    assert "a view divides more than its heads" in ops_of(optimized, q)


def ops_of(module: torch.jit.ScriptModule, *inputs: Tensor) -> str:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        module(*inputs)
    return "\n".join(event.key for event in profile.key_averages())
