import torch
from torch import Tensor, nn

import ipex
from ipex import _C
from support import assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "restore_in_place"


class Joined(nn.Module):
    """relu in place, which no packed op can take: it comes after cat."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.conv, self.relu = nn.Conv2d(3, 4, 3), nn.ReLU(inplace)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.relu(torch.cat([y, y], 1))


def test_restores_what_was_in_place_and_nothing_else(tmp_path):
    x = torch.randn(2, 3, 8, 8)
    optimized = check_against_eager(Joined(inplace=True), x)
    assert kinds(optimized)["aten::relu_"] == 1
    assert "aten::relu" not in kinds(optimized)
    assert_round_trip(optimized, tmp_path, x)
    assert "aten::relu_" not in kinds(check_against_eager(Joined(inplace=False), x))


def test_leaves_what_a_packed_op_has_taken():
    optimized = check_against_eager(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)), torch.randn(2, 3, 8, 8))
    assert not {"aten::relu", "aten::relu_"} & kinds(optimized).keys()


def test_leaves_a_relu_that_was_none_in_place():
    ir = graph_ir("%x : Tensor", "%y : Tensor = aten::neg(%x)", "%z : Tensor = aten::relu(%y)", returns="%z")
    assert_unchanged(NAME, ir, reason=None)


def test_leaves_what_a_loop_would_write_again():
    ir = """graph(%x : Tensor, %n : int):
  %yes : bool = prim::Constant[value=1]()
  %y : Tensor = aten::neg(%x)
  %z : Tensor = prim::Loop(%n, %yes, %x)
    block0(%i : int, %before : Tensor):
      %s : Tensor = aten::silu[was_in_place="aten::silu_"](%y)
      -> (%yes, %s)
  return (%z)
"""
    graph, changed, _ = _C.run_pass(NAME, ir)
    assert not changed
    assert graph.count("aten::silu(") == 1


def test_leaves_what_somebody_else_reads():
    lines = (
        "%one : int = prim::Constant[value=1]()",
        "%y : Tensor = aten::neg(%x)",
        '%z : Tensor = aten::silu[was_in_place="aten::silu_"](%y)',
        "%s : Tensor = aten::add(%y, %z, %one)",
    )
    graph, changed, _ = _C.run_pass(NAME, graph_ir("%x : Tensor", *lines, returns="%s"))
    assert not changed
    assert graph.count("aten::silu(") == 1


def test_gradients_then_inference_mode():
    """TorchScript refuses tensors made in inference mode in what it has differentiated: it does not, of relu_."""
    model = Joined(inplace=True).eval().requires_grad_(False)
    x = torch.randn(2, 3, 8, 8)
    optimized = ipex.jit_optimize(torch.jit.trace(model, x, check_trace=False))
    for _ in range(2):
        optimized(x.clone().requires_grad_()).sum().backward()
    with torch.inference_mode():
        torch.testing.assert_close(optimized(x[:1].clone()), model(x[:1]))
