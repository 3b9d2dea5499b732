import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "rewrite_channel_mixing"
INPUTS = "%x : Tensor, %w : Tensor, %b : Tensor"


class TalkingHeads(nn.Module):
    """As in CaiT, and with convolutions as in EfficientFormer v2."""

    def __init__(self, heads: int, others: int, by: type[nn.Module], bias: bool = True) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(heads * 8, heads * 24), nn.Linear(others * 8, 16)
        size = {"kernel_size": 1} if by is nn.Conv2d else {}
        self.before, self.after = by(heads, heads, bias=bias, **size), by(heads, others, bias=bias, **size)
        self.heads, self.repeats = heads, others // heads

    def mix(self, layer: nn.Module, scores: Tensor) -> Tensor:
        if isinstance(layer, nn.Conv2d):
            return layer(scores)
        return layer(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, 8).permute(2, 0, 3, 1, 4).unbind(0)
        weights = self.mix(self.before, (q * 0.3) @ k.transpose(-2, -1)).softmax(dim=-1)
        y = self.mix(self.after, weights) @ torch.cat([v] * self.repeats, 1)
        return self.proj(y.transpose(1, 2).reshape(b, n, -1))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("by", [nn.Linear, nn.Conv2d])
@pytest.mark.parametrize(("heads", "others"), [(4, 4), (1, 3), (5, 15)])
def test_heads_that_talk_are_mixed_as_they_lie(tmp_path, heads, others, by, bias):
    x = torch.randn(2, 37, heads * 8)
    nan = torch.randn(1, 5, heads * 8)
    nan[0, 2, 3] = torch.nan
    optimized = check_against_eager(
        TalkingHeads(heads, others, by, bias), x, also=(x[:1], torch.randn(3, 1, heads * 8), nan)
    )
    assert kinds(optimized)["ipex::mix_channels"] == 2
    assert "in aten" not in ops_of(optimized, x)
    assert_round_trip(optimized, tmp_path, x)


def test_leaves_a_vector():
    orders = ("%a : int[] = prim::Constant[value=[0, 2, 3, 1]]()", "%c : int[] = prim::Constant[value=[0, 3, 1, 2]]()")
    weight = "%w : Float(8, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
    lines = (
        "%none : NoneType = prim::Constant()",
        "%p : Tensor = aten::permute(%x, %a)",
        "%l : Tensor = aten::linear(%p, %w, %none)",
        "%y : Tensor = aten::permute(%l, %c)",
    )
    assert_unchanged(NAME, graph_ir("%x : Tensor", *orders, weight, *lines, returns="%y"), "not a small constant one")


def test_gradients_reach_the_input():
    model, x = TalkingHeads(4, 4, nn.Linear).eval(), torch.randn(1, 6, 32)
    ours, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
    check_against_eager(model, x)(ours).square().sum().backward()
    model(eager).square().sum().backward()
    torch.testing.assert_close(ours.grad, eager.grad)


class Mixer(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Summed(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).sum(dim=(2, 3))


def test_strides_that_somebody_sees_stay():
    x = torch.randn(2, 4, 5, 6)
    assert kinds(check_against_eager(Mixer(4), x))["ipex::mix_channels"] == 0
    assert kinds(check_against_eager(Summed(Mixer(4)), x))["ipex::mix_channels"] == 1


def test_many_channels_are_a_product():
    assert kinds(check_against_eager(Summed(Mixer(17)), torch.randn(2, 17, 5, 6)))["ipex::mix_channels"] == 0


def test_convolutions_of_images_stay():
    x = torch.randn(2, 4, 5, 6)
    assert kinds(check_against_eager(nn.Conv2d(4, 4, 1), x))["ipex::mix_channels"] == 0


def test_other_layouts_are_left_to_aten():
    model, x = Summed(Mixer(4)), torch.randn(2, 4, 5, 6)
    other = x.to(memory_format=torch.channels_last)
    optimized = check_against_eager(model, x, also=(other,))
    assert "its input is not contiguous" in ops_of(optimized, other)


def test_other_dtypes_stay():
    model = Summed(Mixer(4)).double()
    assert kinds(check_against_eager(model, torch.randn(2, 4, 5, 6, dtype=torch.float64)))["ipex::mix_channels"] == 0


def test_declines_weights_that_are_computed():
    lines = (
        "%to : int[] = prim::Constant[value=[0, 2, 3, 1]]()",
        "%back : int[] = prim::Constant[value=[0, 3, 1, 2]]()",
        "%p : Tensor = aten::permute(%x, %to)",
        "%l : Tensor = aten::linear(%p, %w, %b)",
        "%y : Tensor = aten::permute(%l, %back)",
    )
    assert_unchanged(NAME, graph_ir(INPUTS, *lines, returns="%y"), reason="not a small constant one")
    turned = [line.replace("[0, 3, 1, 2]", "[0, 3, 2, 1]") for line in lines]
    assert_unchanged(NAME, graph_ir(INPUTS, *turned, returns="%y"), reason="not the channels of an image")


def ops_of(module: torch.jit.ScriptModule, *inputs: Tensor) -> str:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        module(*inputs)
    return "\n".join(event.key for event in profile.key_averages())


class MixedScores(nn.Module):
    """A small convolution of the scores."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        q = x.view(x.size(0), 2, 3, 4)
        return F.conv2d(q @ q.transpose(-1, -2), self.weight)


def test_a_weight_that_lies_channels_last_decides_the_strides():
    weight = torch.randn(4, 2, 1, 1).to(memory_format=torch.channels_last)
    check_against_eager(MixedScores(weight), torch.randn(2, 6, 4))


def test_a_window_of_scores_is_a_convolution():
    optimized = check_against_eager(MixedScores(torch.randn(4, 2, 3, 3)), torch.randn(2, 6, 4))
    assert kinds(optimized)["ipex::mix_channels"] == 0


class MixedByLinear(Mixer):
    def __init__(self, weight: Tensor) -> None:
        super().__init__(1)
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x.permute(0, 2, 3, 1), self.weight).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (MixedScores(torch.randn(4, 2)), torch.randn(2, 6, 4)),
        (MixedScores(torch.randn(4, 2, 1)), torch.randn(2, 6, 4)),
        (MixedScores(torch.randn(0, 2, 1, 1)), torch.randn(2, 6, 4)),
        (Summed(MixedByLinear(torch.randn(4, 2, 1))), torch.randn(2, 2, 5, 6)),
    ],
    ids=["matrix", "window of rows", "no rows", "linear"],
)
def test_a_weight_that_does_not_fit_is_refused_as_in_eager(model, x):
    optimized = ipex.jit_optimize(torch.jit.script(model.eval()))
    with torch.no_grad():
        with pytest.raises(RuntimeError) as expected:
            model(x)
        with pytest.raises(RuntimeError, match=re.escape(str(expected.value).splitlines()[0])):
            optimized(x)
