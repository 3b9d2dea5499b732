import copy
from collections import Counter

import torch
from torch import Tensor, nn

import ipex
from resnet50 import tiny_resnet
from support import assert_round_trip, check_against_eager, kinds


def test_no_plain_weight_stays():
    optimized = check_against_eager(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), torch.randn(1, 3, 8, 8))
    assert not {"ipex::convolution_prepack", "ipex::linear_prepack"} & kinds(optimized).keys()
    graph = optimized.inlined_graph
    constants = [n for n in graph.findAllNodes("prim::Constant") if n.hasAttribute("value")]
    assert [n for n in constants if n.kindOf("value") == "t"] == []


def test_contexts_are_attributes():
    optimized = check_against_eager(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(2, 4))
    assert "post_ops=relu" in optimized.packed_0.describe()


def test_a_copy_gives_the_same_bits():
    x = torch.randn(1, 3, 32, 32)
    optimized = check_against_eager(tiny_resnet(), x)
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(optimized)(x), optimized(x))


def test_freezing_again_and_saving_that(tmp_path):
    x = torch.randn(1, 3, 32, 32)
    optimized = check_against_eager(tiny_resnet(), x)
    refrozen = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.script(Wrapped(optimized)).eval()))
    refrozen.save(tmp_path / "refrozen.pt")
    with torch.no_grad():
        assert torch.equal(torch.jit.load(tmp_path / "refrozen.pt")(x), optimized(x))


class Wrapped(nn.Module):
    """An optimised module inside a module of the user's."""

    def __init__(self, inner: torch.jit.ScriptModule) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_optimising_twice_changes_nothing(tmp_path):
    x = torch.randn(1, 3, 32, 32)
    once = check_against_eager(tiny_resnet(), x)
    twice = ipex.jit_optimize(once)
    shared = Counter(["prim::ListConstruct", "prim::Constant"] * 1000)  # constants and lists of operands may be
    assert kinds(twice) - shared == kinds(once) - shared
    assert_round_trip(twice, tmp_path, x)
    with torch.no_grad():
        assert torch.equal(twice(x), once(x))
