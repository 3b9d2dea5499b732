import pytest
import torch
from torch import Tensor, nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "fuse_rms_norm"
CONSTANTS = (
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
    "%three : int = prim::Constant[value=3]()",
    "%float : int = prim::Constant[value=6]()",
    "%half : float = prim::Constant[value=-0.5]()",
    "%eps : float = prim::Constant[value=1e-05]()",
    "%true : bool = prim::Constant[value=1]()",
    "%false : bool = prim::Constant[value=0]()",
    "%none : NoneType = prim::Constant()",
    "%last : int[] = prim::Constant[value=[-1]]()",
    "%first : int[] = prim::Constant[value=[0]]()",
)
LINES = (
    "%s : Tensor = aten::pow(%x, %two)",
    "%m : Tensor = aten::mean(%s, %last, %true, %none)",
    "%p : Tensor = aten::add(%m, %eps, %one)",
    "%r : Tensor = aten::rsqrt(%p)",
    "%n : Tensor = aten::mul(%x, %r)",
    "%c : Tensor = aten::to(%n, %float, %false, %false, %none)",
    "%y : Tensor = aten::mul(%w, %c)",
)


def rms_ir(old: str = "", new: str = "", returns: str = "%y") -> str:
    """The graph, with one piece of text replaced."""
    text = "\n".join(LINES)
    assert old in text
    return graph_ir("%x : Tensor, %w : Tensor", *CONSTANTS, *text.replace(old, new).split("\n"), returns=returns)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("aten::pow(%x, %two)", "aten::mul(%x, %x)"),
        ("aten::pow(%x, %two)", "aten::square(%x)"),
        ("aten::mul(%x, %r)", "aten::mul(%r, %x)"),
        ("aten::mul(%w, %c)", "aten::mul(%c, %w)"),
        ("\n".join(LINES[5:]), "%y : Tensor = aten::mul(%w, %n)"),
        ("\n".join(LINES[4:]), "%y : Tensor = aten::mul(%x, %r)"),
        ("aten::rsqrt(%p)", "aten::pow(%p, %half)"),
        (
            "%r : Tensor = aten::rsqrt(%p)\n%n : Tensor = aten::mul(%x, %r)",
            "%q : Tensor = aten::sqrt(%p)\n%n : Tensor = aten::div(%x, %q)",
        ),
    ],
)
def test_fires(old, new):
    result = assert_rewrites(NAME, rms_ir(old, new))
    assert result.count("ipex::rms_norm") == 1
    assert result.count("aten::mul") == result.count("aten::mean") == 0


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("%x, %two", "%x, %three", "exponent is not 2"),
        ("%s, %last", "%s, %first", "not over the last dimension"),
        ("%true, %none", "%false, %none", "drops a dimension"),
        ("%true, %none", "%true, %float", "another dtype"),
        ("%eps, %one", "%eps, %two", "alpha is not 1"),
        ("%eps, %one", "%w, %one", "eps is not a constant"),
        ("\n".join(LINES[5:]), "%y : Tensor = aten::mul_(%n, %w)", "multiplied in place"),
        ("\n".join(LINES[4:]), "%y : Tensor = aten::mul_(%x, %r)", "scaled in place"),
        ("aten::rsqrt(%p)", "aten::pow(%p, %eps)", "root is not square"),
    ],
)
def test_declines(old, new, reason):
    assert_unchanged(NAME, rms_ir(old, new), reason)


@pytest.mark.parametrize("arguments", ["%false, %false, %two", "%false, %true, %none"])
def test_a_cast_that_does_more_stays(arguments):
    """Into another layout, or to a copy."""
    result = assert_rewrites(NAME, rms_ir("%false, %false, %none", arguments))
    assert (result.count("ipex::rms_norm"), result.count("aten::to")) == (1, 1)


def test_declines_a_second_reader():
    assert_unchanged(NAME, rms_ir(returns="%y, %r"), reason="another reader")


def test_says_nothing_of_another_structure():
    assert_unchanged(NAME, rms_ir("aten::mul(%x, %r)", "aten::mul(%w, %r)"), reason=None)


class Spelled(nn.Module):
    """As transformers writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


class Plain(nn.Module):
    """As Gemma writes it, and with a division."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * torch.pow(x.pow(2).mean(-1, keepdim=True) + 1e-6, -0.5)
        z = x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return y, z


MODELS = {
    "spelled": Spelled(),
    "plain": Plain(),
    "aten": nn.RMSNorm(8, eps=1e-6),
    "aten, its own eps": nn.RMSNorm(8),
    "aten, no weight": nn.RMSNorm(8, elementwise_affine=False),
}


def test_the_eps_of_the_dtype():
    tiny = torch.randn(5, 8) * 1e-4
    optimized = check_against_eager(nn.RMSNorm(8), tiny, also=(tiny * 10,))
    assert kinds(optimized)["ipex::rms_norm"] == 1


@pytest.mark.parametrize("cast", ["%false, %true, %none", "%false, %false, %one"])
def test_a_cast_that_makes_more_than_numbers_stays_behind_the_norm(cast):
    assert assert_rewrites(NAME, rms_ir("%false, %false, %none", cast)).count("aten::to") == 1


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, model, script):
    x = torch.randn(2, 3, 8)
    optimized = check_against_eager(model, x, script=script, also=(x.transpose(0, 1), x[:0]))
    if not script:
        assert kinds(optimized)["ipex::rms_norm"] == (2 if isinstance(model, Plain) else 1)
        assert_round_trip(optimized, tmp_path, x)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("layout", ["channels last", "channel slice", "swapped"])
def test_strides_are_those_of_eager(model, layout):
    images = torch.randn(2, 5, 6, 8).contiguous(memory_format=torch.channels_last)
    x = {"channels last": images, "channel slice": images[:, 1:4], "swapped": torch.randn(2, 6, 5, 8).transpose(1, 2)}
    check_against_eager(model, x[layout])
