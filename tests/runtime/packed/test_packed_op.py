"""What a saved context promises: nothing is lost, and a field that can't be right is an error that says so."""

from __future__ import annotations

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn

import ipex
from support import assert_same

CLASS = "__torch__.torch.classes.ipex.ConvolutionContext"
State = tuple[int, dict[str, torch.Tensor], dict[str, list[int]], list[str]]


def conv_relu() -> tuple[nn.Module, State]:
    """A model, and the state that a save writes of its packed op."""
    model = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2), nn.ReLU()).eval()
    context = ipex.jit_optimize(torch.jit.trace(model, torch.randn(1, 4, 8, 8))).packed_0
    state, class_name = context.__getstate__()
    assert class_name == CLASS
    return model, state


def restore(state: State) -> torch.ScriptObject:
    context = torch.ScriptObject.__new__(torch.ScriptObject)
    context.__setstate__((state, CLASS))
    return context


def test_nothing_is_lost():
    model, state = conv_relu()
    version, tensors, integers, post_ops = state
    assert version == 1
    assert torch.equal(tensors["weight"], model[0].weight)
    assert torch.equal(tensors["bias"], model[0].bias)
    assert integers == {
        "spatial_rank": [2],
        "stride": [2, 2],
        "padding_begin": [1, 1],
        "padding_end": [1, 1],
        "dilation": [1, 1],
        "output_padding": [0, 0],
        "groups": [2],
        "transposed": [0],
    }
    assert post_ops == ["relu"]
    again = restore(state).__getstate__()[0]
    assert again[2:] == state[2:]
    assert all(torch.equal(again[1][name], tensor) for name, tensor in tensors.items())


def test_a_channels_last_weight_stays_channels_last():
    weight = torch.randn(8, 4, 3, 3).to(memory_format=torch.channels_last)
    version, _, integers, post_ops = conv_relu()[1]
    state = (version, {"weight": weight}, {**integers, "groups": [1]}, post_ops)
    assert restore(state).__getstate__()[0][1]["weight"].stride() == weight.stride()


BAD = [
    (lambda s: (9, *s[1:]), "expected a saved format of version 1 to 8, got 9"),
    (lambda s: (0, *s[1:]), "expected a saved format of version 1 to 8, got 0"),
    (lambda s: (*s[:3], ["relu", "warp"]), "expected a post-op that this version knows, got 'warp'"),
    (
        lambda s: (s[0], {}, *s[2:]),
        "expected weight to be a plain CPU tensor of float32, bfloat16 or float16 .any, any, any, any., got none",
    ),
    (
        lambda s: (s[0], {"weight": torch.zeros(8, 2, 3)}, *s[2:]),
        "expected weight to be a plain CPU tensor of float32, bfloat16 or float16 .any, any, any, any.",
    ),
    (
        lambda s: (s[0], {"weight": torch.zeros(8, 2, 3, 3).double()}, *s[2:]),
        "expected weight to be a plain CPU tensor of float32, bfloat16 or float16 .any, any, any, any.",
    ),
    (
        lambda s: (s[0], {**s[1], "bias": torch.zeros(7)}, *s[2:]),
        "expected bias to be a plain CPU tensor of float32 .8., got",
    ),
    (
        lambda s: (s[0], {**s[1], "bias": torch.zeros(8).half()}, *s[2:]),
        "expected bias to be a plain CPU tensor of float32 .8., got",
    ),
    (lambda s: (*s[:2], {k: v for k, v in s[2].items() if k != "stride"}, s[3]), "expected a field 'stride', got none"),
    (lambda s: (*s[:2], {**s[2], "stride": [0, 1]}, s[3]), "expected 2 integers of at least 1 in 'stride'"),
    (lambda s: (*s[:2], {**s[2], "padding_end": [1]}, s[3]), "expected 2 integers of at least 0 in 'padding_end'"),
    (lambda s: (*s[:3], ["leaky_relu"]), "expected 1 arguments for post-op 'leaky_relu', got 'leaky_relu'"),
    (lambda s: (*s[:3], ["clamp(1,"]), "expected 2 arguments for post-op 'clamp'"),
    (lambda s: (*s[:2], {**s[2], "groups": [3]}, s[3]), "divisible by groups, got 8 and 3"),
]


@pytest.mark.parametrize(("damage", "message"), BAD)
def test_a_field_that_cant_be_right(damage, message):
    with pytest.raises(RuntimeError, match=message):
        restore(damage(conv_relu()[1]))


def test_shapes_without_end_do_not_grow_memory():
    """The cache of primitives is bounded, and so is what a model remembers about its fallbacks."""
    optimized = ipex.jit_optimize(torch.jit.trace(nn.Conv2d(4, 8, 3).eval(), torch.randn(1, 4, 8, 8)))
    with torch.no_grad():
        for size in range(5, 100):
            optimized(torch.randn(1, 4, size, size + 1))
    assert optimized.packed_0.cached_primitives() <= 16


def conv_relu_relu() -> tuple[nn.Module, torch.jit.ScriptModule, torch.Tensor]:
    model, x = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.ReLU()).eval(), torch.randn(1, 4, 8, 8)
    return model, ipex.jit_optimize(torch.jit.trace(model, x)), x


def test_gradients_through_several_post_ops():
    model, optimized, x = conv_relu_relu()
    ours, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
    optimized(ours).sum().backward()
    model(eager).sum().backward()
    torch.testing.assert_close(ours.grad, eager.grad)


def test_forward_mode_gradients():
    model, optimized, x = conv_relu_relu()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        expected = forward_ad.unpack_dual(model(dual)).tangent
        torch.testing.assert_close(forward_ad.unpack_dual(optimized(dual)).tangent, expected)


def test_autocast_decides_the_dtype():
    model, optimized, x = conv_relu_relu()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected, actual = model(x), optimized(x)
    assert actual.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(actual, expected)


def test_tensors_whose_memory_is_not_their_value():
    model = nn.Linear(4, 3).eval()
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, torch.randn(2, 4)))
        for x in (torch._efficientzerotensor((2, 4)), torch._neg_view(torch.randn(2, 4))):
            assert_same(optimized(x), model(x))
