"""`ipex.explain`: what became of each op, where it stands in the source, and the tables."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch
from torch import Tensor, nn

import ipex
from anchored import trace
from ipex._explain.fates import FATES
from ipex._explain.packed import packed_op
from resnet50 import tiny_resnet
from support import contexts, optimized_for


class Branch(nn.Module):
    """A scripted model with control flow."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = torch.relu(self.linear(x))
        return torch.cumsum(x, 1)


@pytest.fixture(scope="module")
def resnet() -> torch.jit.ScriptModule:
    return optimized_for(tiny_resnet(), torch.randn(1, 3, 32, 32))


def test_every_op_of_a_resnet_has_a_fate(resnet):
    report = ipex.explain(resnet)
    became = Counter((fate.node.kind, fate.became) for fate in report.fates)
    assert became == {
        ("aten::_convolution", "packed"): 12,
        ("aten::batch_norm", "folded"): 12,
        ("aten::relu_", "fused"): 10,
        ("aten::add_", "fused"): 3,
        ("aten::linear", "packed"): 1,
        ("aten::max_pool2d", "kernel"): 1,
        ("aten::adaptive_avg_pool2d", "kernel"): 1,
        ("aten::flatten", "fused"): 1,
    }
    assert all(fate.became in FATES for fate in report.fates)


def test_the_op_that_computes_it_now(resnet):
    report = ipex.explain(resnet)
    for fate in report.fates:
        if fate.became == "view":
            continue
        assert fate.final is not None
        final = report.final[fate.final]
        assert final.kind.startswith("ipex::")
        if fate.node.kind in ("aten::batch_norm", "aten::_convolution"):
            # A batch_norm lies in the convolution of its own block.
            assert final.module.rpartition(".")[0] == fate.node.module.rpartition(".")[0]


def test_the_verdict_counts(resnet):
    packed, ops, left = ipex.explain(resnet).verdict
    assert "12 of 12 convolutions packed. 1 of 1 linear packed" in packed
    assert "13 packed ops with" in ops
    assert "1 layout conversion" in ops
    assert left == "Nothing is left to aten."


class Commented(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        # f(): so begins a line of a trace, with a number between the brackets
        return self.linear(x)


def test_a_comment_is_no_line_of_a_trace():
    report = ipex.explain(ipex.jit_optimize(torch.jit.script(Commented().eval())))
    (place,) = {fate.node.place for fate in report.fates if fate.node.kind == "aten::linear"}
    assert place.startswith("linear test_report.py:")


def test_places_are_the_users_own(resnet):
    places = {fate.node.place for fate in ipex.explain(resnet).fates if fate.node.kind == "aten::_convolution"}
    assert any(place.startswith("stages.0.conv1 resnet50.py:") for place in places)
    # The stem is an nn.Sequential: the line is the one that calls it.
    assert any(place.startswith("stem.0 resnet50.py:") for place in places)


def test_a_place_is_not_in_ipex_which_traces():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    for fate in ipex.explain(ipex.jit_optimize(model, torch.ones(1, 4))).fates:
        assert fate.node.file == __file__


def test_places_outlive_a_file(resnet, tmp_path):
    resnet.save(tmp_path / "model.pt")
    loaded = ipex.explain(ipex.load(tmp_path / "model.pt"))
    assert loaded.fates == ipex.explain(resnet).fates
    assert [node.inputs for node in loaded.final] == [node.inputs for node in ipex.explain(resnet).final]
    assert loaded.decisions == ipex.explain(resnet).decisions


def test_a_script_tells_its_lines():
    optimized = ipex.jit_optimize(torch.jit.script(Branch().eval()))
    by_kind = {fate.node.kind: fate for fate in ipex.explain(optimized).fates}
    assert by_kind["aten::linear"].became == "packed"
    assert by_kind["aten::linear"].node.file == __file__
    assert by_kind["aten::linear"].node.module == "linear"
    assert by_kind["aten::cumsum"].became == "left"
    assert "aten::cumsum" in ipex.explain(optimized).verdict[-1]


def test_a_resnet_50_fits_one_screen():
    from resnet50 import resnet50

    text = str(ipex.explain(optimized_for(resnet50(), torch.randn(1, 3, 64, 64))))
    assert "53 of 53 convolutions packed" in text
    assert len(text.splitlines()) <= 40


def test_details_have_a_line_per_op(resnet):
    report = ipex.explain(resnet)
    assert len(report.details().splitlines()) == 2 + len(report.original)


def test_json_has_everything(resnet):
    report = ipex.explain(resnet)
    data = json.loads(report.to_json())
    assert data["verdict"] == list(report.verdict)
    assert len(data["decisions"]) == len(report.decisions)
    assert data["original"][0]["became"] == "packed"
    assert data["final"][data["original"][0]["final"]]["layers"][0]["op"] == "ipex::convolution_run"


def test_weights_are_counted(resnet):
    layers = [layer for node in ipex.explain(resnet).final for layer in node.layers]
    convolutions = [m for m in tiny_resnet().modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    assert sum(layer.weight_bytes for layer in layers) == 4 * sum(m.weight.numel() for m in convolutions)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("projection", [0, 3])
def test_weights_of_a_recurrent_layer_are_counted(projection):
    lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, proj_size=projection)
    (context,) = contexts(ipex.jit_optimize(trace(lstm, torch.randn(4, 2, 6))))
    weights = sum(p.numel() for name, p in lstm.named_parameters() if "weight" in name)
    assert packed_op(context).weight_bytes == 4 * weights


def test_post_ops_with_numbers_stay_whole():
    model = nn.Sequential(nn.Linear(8, 8), nn.Hardtanh(-0.5, 0.25), nn.LeakyReLU(0.1))
    (context,) = contexts(optimized_for(model, torch.randn(2, 8)))
    op = packed_op(context)
    assert (op.weight, op.dtype) == ((8, 8), "float32")
    assert op.post_ops.startswith("clamp") or op.post_ops.startswith("hardtanh")
    assert op.post_ops.endswith("leaky_relu(0.1)")
    assert op.math_mode == "as the process"


def test_the_kernels_of_calls_are_named(resnet):
    for _ in range(2):
        resnet(torch.randn(1, 3, 32, 32))
    kernels = {kernel for node in ipex.explain(resnet).final for layer in node.layers for kernel in layer.kernels}
    assert kernels
    assert not any("ref" in kernel for kernel in kernels)


def test_a_model_of_an_earlier_version_is_explained_by_its_decisions(resnet):
    report = ipex.explain(resnet)
    old = ipex.Report(report.decisions, (), report.final)
    assert old.fates == ()
    assert "13 packed ops" in str(old)


def test_a_report_of_modules_has_no_page():
    report = ipex.explain(ipex.optimize(tiny_resnet()))
    with pytest.raises(ValueError, match="expected the report of a ScriptModule for a page"):
        report.to_html()
