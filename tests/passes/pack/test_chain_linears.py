import pytest
import torch
from torch import Tensor, nn

import ipex
from ir import linear
from ir import linear_graph as graph
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_same,
    assert_unchanged,
    check_against_eager,
    contexts,
    kinds,
)


def test_fires_on_a_chain():
    ir = graph(*linear("x", "a", 4, 5), *linear("a", "b", 5, 6), *linear("b", "z", 6, 7))
    result = assert_rewrites("chain_linears", ir)
    assert (result.count("ipex::linear_chain_run"), result.count("ipex::linear_run")) == (1, 0)
    assert (result.count("ipex::linear_chain_prepack"), result.count("ipex::linear_prepack")) == (1, 3)
    assert [(d.node.split()[0], d.reason) for d in result.report] == [("ipex::linear_run", "3 linears in one call")]


def test_each_side_of_something_else():
    pair = (*linear("x", "a", 4, 4), *linear("a", "b", 4, 4))
    ir = graph(*pair, "%c : Tensor = aten::erfinv(%b)", *linear("c", "d", 4, 4), *linear("d", "z", 4, 4))
    result = assert_rewrites("chain_linears", ir)
    assert (result.count("ipex::linear_chain_run"), result.count("ipex::linear_run")) == (2, 0)


def test_a_second_reader_ends_a_chain():
    lines = (*linear("x", "a", 4, 4), *linear("a", "b", 4, 4), *linear("b", "z", 4, 4))
    result = assert_rewrites("chain_linears", graph(*lines, returns="%a, %z"))
    assert (result.count("ipex::linear_chain_run"), result.count("ipex::linear_run")) == (1, 1)


def test_declines_a_second_reader():
    assert_unchanged(
        "chain_linears", graph(*linear("x", "a", 4, 4), *linear("a", "z", 4, 4), returns="%a, %z"), reason=None
    )


def test_declines_one_alone():
    assert_unchanged("chain_linears", graph(*linear("x", "z", 4, 4)), reason=None)


def test_declines_operands():
    assert_unchanged(
        "chain_linears", graph(*linear("x", "a", 4, 4), *linear("a", "z", 4, 4, operand="%other")), reason=None
    )


def test_declines_16_bits():
    assert_unchanged(
        "chain_linears", graph(*linear("x", "a", 4, 4), *linear("a", "z", 4, 4, dtype="BFloat16")), reason=None
    )


def test_declines_another_width():
    assert_unchanged("chain_linears", graph(*linear("x", "a", 4, 5), *linear("a", "z", 4, 4)), reason=None)


def test_declines_an_input_that_is_overwritten():
    overwritten = "%n : Tensor = aten::relu_(%x)"
    assert_unchanged("chain_linears", graph(*linear("x", "a", 4, 4), overwritten, *linear("a", "z", 4, 4)), reason=None)


def test_declines_what_a_loop_would_compute_again():
    inner = [f"    {line}" for line in (*linear("a", "b", 4, 4), "-> (%true, %b)")]
    loop = ("%n : int = prim::Constant[value=3]()", "%z : Tensor = prim::Loop(%n, %true, %x)")
    lines = (*linear("x", "a", 4, 4), *loop, "  block0(%i : int, %before : Tensor):", *inner)
    assert_unchanged("chain_linears", graph(*lines), reason=None)


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 7), nn.GELU(), nn.Linear(7, 5)).eval()


class Branch(nn.Module):
    """A chain inside of an if."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()

    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) > 1:
            x = self.layers(x)
        return x


def test_inside_a_branch():
    optimized = check_against_eager(Branch(), torch.randn(2, 6), script=True, also=(torch.randn(1, 6),))
    assert kinds(optimized)["ipex::linear_chain_run"] == 1


def test_survives_save_and_load(tmp_path):
    optimized = check_against_eager(mlp(), torch.randn(1, 6))
    loaded = assert_round_trip(optimized, tmp_path, torch.randn(3, 6))
    assert kinds(loaded)["ipex::linear_chain_run"] == 1
    assert [context.describe() for context in contexts(loaded)] == [c.describe() for c in contexts(optimized)]


def test_the_report_names_the_chain():
    report = ipex.explain(ipex.jit_optimize(torch.jit.trace(mlp(), torch.randn(1, 6))))
    assert [d.reason for d in report.applied if d.pass_name == "chain_linears"] == ["3 linears in one call"]
    assert sum(d.pass_name == "prepack_linear" for d in report.applied) == 3


FURTHER = {
    "optimised again": ipex.jit_optimize,
    "converted": lambda optimized: optimized.eval().float(),
    "frozen in another": lambda optimized: torch.jit.freeze(over(optimized)),
    "optimised in another": lambda optimized: ipex.jit_optimize(over(optimized)),
}


@pytest.mark.parametrize("again", FURTHER.values(), ids=FURTHER.keys())
def test_a_module_that_is_taken_further(again):
    optimized, x = ipex.jit_optimize(torch.jit.trace(mlp(), torch.randn(1, 6))), torch.randn(2, 6)
    with torch.no_grad():
        expected = optimized(x)
        for module in (again(optimized), optimized, over(optimized)):
            for _ in range(3):
                assert torch.equal(module(x), expected)


def over(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """A trace of a model that has `module` in it."""
    return torch.jit.trace(nn.Sequential(nn.Identity(), module).eval(), torch.randn(1, 6))


def test_disabled():
    optimized = ipex.jit_optimize(torch.jit.trace(mlp(), torch.randn(1, 6)), disable=["chain_linears"])
    assert kinds(optimized)["ipex::linear_run"] == 3


def test_in_the_executor():
    model, x = mlp(), torch.randn(2, 6)
    with torch.no_grad(), ipex.jit_passes():
        module = torch.jit.freeze(torch.jit.trace(model, x))
        for _ in range(3):
            assert_same(module(x), model(x))
        executed = [node.kind() for node in torch.jit.last_executed_optimized_graph().nodes()]
    assert executed.count("ipex::linear_chain_run") == 1
