import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex import _C
from support import assert_rewrites, assert_same, assert_unchanged, check_against_eager, graph_ir, kinds

SCRIPT = """
import torch, ipex
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
ipex.jit_optimize(torch.jit.trace(model, torch.randn(2, 4)))
"""


def stderr_at(level: str) -> str:
    environment = {**os.environ, "IPEX_VERBOSE": level}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    return done.stderr


def test_verbose_levels():
    assert stderr_at("0") == ""
    assert "ipex,pass,fuse_activation,applied=1,declined=0\n" in stderr_at("1")
    assert "ipex,applied,fuse_activation,aten::relu" in stderr_at("2")
    assert "graph(" in stderr_at("3")


def test_a_pass_can_be_left_out():
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval(), torch.randn(2, 4)
    optimized = ipex.jit_optimize(torch.jit.trace(model, x), disable=["fuse_activation"])
    assert kinds(optimized)["aten::relu"] == 1
    with torch.no_grad():
        assert_same(optimized(x), model(x))


@pytest.mark.parametrize("name", _C.pass_names())
def test_every_pass_can_be_left_out(name):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Dropout()).eval()
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        assert_same(ipex.jit_optimize(torch.jit.trace(model, x), disable=[name])(x), model(x))


def test_an_unknown_pass_is_an_error():
    with pytest.raises(RuntimeError, match="expected the name of a pass in disable, got 'fuse_rellu'"):
        ipex.jit_optimize(torch.jit.trace(nn.Linear(2, 2).eval(), torch.randn(1, 2)), disable=["fuse_rellu"])


class Branches(nn.Module):
    """Anchors inside if and loop."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 4:
            for _ in range(x.size(0)):
                x = torch.relu(self.conv(x) + x)
        else:
            x = torch.relu(self.linear(x))
        return x


def test_control_flow():
    optimized = check_against_eager(Branches(), torch.randn(2, 4, 6, 6), script=True, also=(torch.randn(3, 4),))
    left = {"aten::conv2d", "aten::linear", "aten::relu", "aten::add", "aten::add_"} & kinds(optimized).keys()
    assert left == set()


def test_the_report_is_saved_with_the_model(tmp_path):
    optimized = check_against_eager(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(2, 4))
    optimized.save(tmp_path / "model.pt")
    report = ipex.explain(optimized)
    assert ipex.explain(ipex.load(tmp_path / "model.pt")) == report
    assert [d.pass_name for d in report.applied] == ["prepack_linear", "fuse_activation"]
    assert "applied   fuse_activation: aten::relu in 1 (%" in "\n".join(map(str, report))


def test_explain_needs_an_optimised_module():
    with pytest.raises(RuntimeError, match="expected a module that ipex.jit_optimize returned"):
        ipex.explain(torch.jit.trace(nn.Linear(2, 2), torch.randn(1, 2)))


class TwoMethods(nn.Module):
    """Nodes of the same names in two methods, of which one is taken and the other left."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        return torch.relu(y)

    @torch.jit.export
    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.linear(x)
        return torch.relu(y), y


def test_the_report_tells_methods_apart():
    optimized = ipex.jit_optimize(torch.jit.script(TwoMethods().eval()))
    relu = [row for row in ipex.explain(optimized) if row.node.startswith("aten::relu")]
    assert {row.method for row in relu if row.applied} == {"forward"}
    assert {row.method for row in relu if not row.applied} == {"encode"}


def test_a_decision_names_its_node_its_module_and_what_stands_for_it():
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Softmax(-1)).eval()
    report = ipex.explain(ipex.jit_optimize(torch.jit.trace(model, torch.randn(2, 4))))
    relu, softmax = (next(d for d in report if d.node.startswith(op)) for op in ("aten::relu", "aten::softmax"))
    assert (relu.module, softmax.module) == ("0.1", "1")
    assert relu.node == f"aten::relu in 0.1 (%{relu.name})"
    assert relu.reason == "fused into ipex::linear_run"
    linear = next(node for node in report.original if node.kind == "aten::linear")
    assert relu.into == linear.name
    assert (softmax.reason, softmax.into) == ("became ipex::softmax", softmax.name)


def test_a_report_of_an_earlier_version_is_read():
    class Saved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ipex_report = torch.jit.Attribute(
                [("fuse_add", "aten::add (%y)", True, "fused")], list[tuple[str, str, bool, str]]
            )

        def forward(self, x: Tensor) -> Tensor:
            return x

    (row,) = ipex.explain(torch.jit.script(Saved().eval()))
    assert row == ipex.Decision("fuse_add", "aten::add (%y)", True, "fused", "forward")


def test_an_op_of_somebody_else_s_may_do_anything():
    """Whatever its schema says: aten::neg is computed once more after it."""
    ir = graph_ir(
        "%x : Tensor",
        "%a : Tensor = aten::neg(%x)",
        "%p : Tensor = somebody::peek(%x)",
        "%b : Tensor = aten::neg(%x)",
        "%c : Tensor = aten::mul(%a, %b)",
        "%d : Tensor = aten::mul(%c, %p)",
        returns="%d",
    )
    with torch.library._scoped_library("somebody", "DEF") as library:
        library.define("peek(Tensor x) -> Tensor")
        assert_unchanged("share_subexpressions", ir, reason=None)
    assert assert_rewrites("share_subexpressions", ir.replace("somebody::peek", "aten::exp")).count("aten::neg") == 1
