import pytest
import torch
from torch import Tensor, nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds, why_aten

NAME = "keep_streams_contiguous"
CONSTANTS = (
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
    "%eps : float = prim::Constant[value=1e-05]()",
    "%none : NoneType = prim::Constant()",
    "%shape : int[] = prim::Constant[value=[8]]()",
    "%true : bool = prim::Constant[value=1]()",
    "%false : bool = prim::Constant[value=0]()",
)
TRANSPOSED = "%t : Tensor = aten::transpose(%x, %one, %two)"
NORM = "%y : Tensor = aten::layer_norm({}, %shape, %none, %none, %eps, %false)"
RMS_NORM = "%y : Tensor = ipex::rms_norm({}, %b, %eps, %none, %none)"
ADD_NORM = "%y : Tensor, %sum : Tensor = ipex::layer_norm.of_sum(%t, %b, %shape, %none, %none, %eps, %true, %false)"


def ir(*lines: str, returns: str = "%y") -> str:
    return graph_ir("%x : Tensor, %b : Tensor", *CONSTANTS, *lines, returns=returns)


@pytest.mark.parametrize("moved", [TRANSPOSED, "%t : Tensor = aten::permute(%x, %shape)"])
@pytest.mark.parametrize("norm", [NORM, f"{RMS_NORM}\n%z : Tensor = aten::linear(%y, %b, %none)"])
def test_fires_before_a_norm(moved, norm):
    result = assert_rewrites(NAME, ir(moved, *norm.format("%t").splitlines(), returns="%z" if "%z" in norm else "%y"))
    assert result.count("aten::contiguous") == 1


def test_fires_where_a_sum_goes_on_as_a_stream():
    second = "%z : Tensor, %s : Tensor = ipex::layer_norm.of_sum(%sum, %y, %shape, %none, %none, %eps, %false, %false)"
    result = assert_rewrites(NAME, ir(TRANSPOSED, ADD_NORM, second, returns="%z"))
    assert result.count("aten::contiguous") == 1


def test_fires_before_elementwise_ops_lists_and_slices():
    lines = (
        "%a : Tensor = aten::add(%t, %b, %one)",
        "%list : Tensor[] = prim::ListConstruct(%a, %b)",
        "%joined : Tensor = aten::cat(%list, %one)",
        "%piece : Tensor = aten::slice(%joined, %one, %one, %two, %one)",
        "%size : int = aten::size(%piece, %one)",
    )
    result = assert_rewrites(NAME, ir(TRANSPOSED, *lines, NORM.format("%piece"), returns="%y, %size"))
    assert result.count("aten::contiguous") == 1


@pytest.mark.parametrize(
    ("line", "returns"),
    [
        ("%r : Tensor = aten::relu(%t)", "%y, %r"),
        ("%r : (Tensor, Tensor) = prim::TupleConstruct(%t, %y)", "%r"),
        ("%r : Tensor = aten::view(%t, %shape)", "%y, %r"),
        ("%r : int[] = aten::stride(%t)", "%y, %r"),
        ("%r : Tensor = aten::logcumsumexp(%t, %one)", "%y"),  # has no row
    ],
)
def test_declines_strides_that_somebody_sees(line, returns):
    assert_unchanged(
        NAME, ir(TRANSPOSED, NORM.format("%t"), line, returns=returns), reason="the strides of a result depend on it"
    )


def test_declines_a_sum_that_is_returned():
    assert_unchanged(NAME, ir(TRANSPOSED, ADD_NORM, returns="%y, %sum"), reason="the strides of a result depend on it")


def test_declines_a_source_that_is_overwritten():
    made = "%c : Tensor = aten::relu(%x)", TRANSPOSED.replace("%x", "%c")
    assert_unchanged(
        NAME, ir(*made, NORM.format("%t"), "%w : Tensor = aten::exp_(%c)"), reason="something is overwritten"
    )


def test_leaves_what_is_made_contiguous_already():
    copy = ("%zero : int = prim::Constant[value=0]()", "%c : Tensor = aten::contiguous(%t, %zero)")
    assert_unchanged(NAME, ir(TRANSPOSED, *copy, NORM.format("%c")), reason=None)


def test_leaves_what_is_not_normalised_alone():
    assert_unchanged(NAME, ir(TRANSPOSED, "%y : Tensor = aten::relu(%t)"), reason=None)
    assert_unchanged(NAME, ir(TRANSPOSED, "%y : Tensor = aten::softmax(%t, %one, %none)"), reason=None)


class SpelledNorm(nn.Module):
    """As transformers spells it: the result lies as what it is computed of."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Block(nn.Module):
    """Norm, mix, add; norm, linear, add."""

    def __init__(self, width: int, tokens: int, norm: type[nn.Module]) -> None:
        super().__init__()
        self.first, self.second = norm(width), norm(width)
        self.mix, self.linear = nn.Linear(tokens, tokens), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + torch.relu(self.linear(self.second(x)))


class Patches(nn.Module):
    """A transformer without a class token: its stream lies transposed in eager."""

    def __init__(self, *, returns_stream: bool = False, norm: type[nn.Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.embed, self.position = nn.Conv2d(3, 24, 4, stride=4), nn.Parameter(torch.randn(1, 16, 24))
        self.blocks = nn.Sequential(*(Block(24, 16, norm) for _ in range(3)))
        self.norm, self.head = norm(24), nn.Linear(24, 5)
        self.returns_stream = returns_stream

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = self.blocks(self.embed(x).flatten(2).transpose(1, 2) + self.position)
        y = self.head(self.norm(tokens).mean(1))
        return y, (tokens if self.returns_stream else y)


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script):
    x = torch.randn(2, 3, 16, 16)
    also = (x.to(memory_format=torch.channels_last), x[:1], x.transpose(2, 3))
    optimized = check_against_eager(Patches(), x, script=script, also=also)
    assert kinds(optimized)["ipex::rearrange"] >= 1  # takes the copy, with the views before it
    assert kinds(optimized)["ipex::to_channels_last"] == 0  # read as it lies
    assert kinds(optimized)["ipex::restore_layout"] == 0
    assert_round_trip(optimized, tmp_path, x)


@pytest.mark.parametrize("norm", [nn.LayerNorm, SpelledNorm])
def test_no_norm_of_the_stream_is_left_to_aten(norm):
    x = torch.randn(2, 3, 16, 16)
    optimized = check_against_eager(Patches(norm=norm), x)
    assert kinds(optimized)["ipex::rms_norm"] == (7 if norm is SpelledNorm else 0)
    assert why_aten(lambda: optimized(x)) is None


def test_a_stream_that_is_returned_has_eagers_strides():
    optimized = check_against_eager(Patches(returns_stream=True), torch.randn(2, 3, 16, 16))
    assert "the strides of a result depend on it" in str(optimized.ipex_report)


def test_leaves_what_a_convolution_reads_alone():
    """Where a norm over channels follows it, it had better stay channels-last: ConvNeXt's blocks."""
    lines = (
        "%ones : int[] = prim::Constant[value=[1, 1]]()",
        "%y0 : Tensor = aten::layer_norm(%x, %shape, %none, %none, %eps, %false)",
        "%t : Tensor = aten::permute(%y0, %shape)",
        "%c : Tensor = aten::conv2d(%t, %b, %none, %ones, %ones, %ones, %one)",
        "%y : Tensor = aten::layer_norm(%c, %shape, %none, %none, %eps, %false)",
    )
    assert_unchanged(NAME, ir(*lines), reason=None)


def test_what_moves_twice_is_made_contiguous_once():
    again = "%t2 : Tensor = aten::transpose(%t, %one, %two)"
    assert assert_rewrites(NAME, ir(TRANSPOSED, again, NORM.format("%t2"))).count("aten::contiguous") == 1
