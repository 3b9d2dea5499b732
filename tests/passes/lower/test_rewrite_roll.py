import torch
from torch import nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "rewrite_roll"


def test_fires():
    ir = graph_ir("%x : Tensor, %s : int[], %d : int[]", "%y : Tensor = aten::roll(%x, %s, %d)", returns="%y")
    result = assert_rewrites(NAME, ir)
    assert result.count("ipex::roll") == 1
    assert result.count("aten::roll") == 0


def test_leaves_other_ops():
    ir = graph_ir("%x : Tensor, %d : int[]", "%y : Tensor = aten::flip(%x, %d)", returns="%y")
    assert_unchanged(NAME, ir, reason=None)


class Shifted(nn.Module):
    """As the windows of a Swin transformer are, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        shifted = torch.roll(x, (-3, -3), (1, 2))
        return x + torch.roll(self.linear(shifted), (3, 3), (1, 2))


def test_matches_eager(tmp_path):
    x = torch.randn(2, 14, 14, 16)
    turned = torch.randn(2, 16, 14, 14).permute(0, 2, 3, 1)
    optimized = check_against_eager(Shifted(), x, also=(x[:1], turned, torch.randn(1, 28, 7, 16)))
    assert kinds(optimized)["ipex::roll"] == 2
    assert kinds(optimized)["aten::roll"] == 0
    assert_round_trip(optimized, tmp_path, x)


def test_can_be_switched_off():
    module = torch.jit.trace(Shifted().eval(), torch.randn(2, 14, 14, 16))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::roll"] == 2
