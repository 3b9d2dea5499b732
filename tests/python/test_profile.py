"""`ipex.profile`: shapes, work and times of each op. No time itself is asserted."""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch import Tensor, nn

import ipex
from resnet50 import tiny_resnet
from support import optimized_for


@pytest.fixture(scope="module")
def times() -> ipex.Profile:
    x = torch.randn(2, 3, 32, 32)
    return ipex.profile(optimized_for(tiny_resnet(), x), x, calls=3)


def test_every_op_has_a_time_and_shapes(times):
    assert len(times.ops) == len(times.report.final)
    first = next(op for op in times.ops if op.op == "ipex::convolution_run")
    assert first.shapes[0] == (2, 3, 32, 32)
    assert first.result == (2, 8, 16, 16)
    assert all(op.microseconds > 0 for op in times.ops)
    assert 0 < times.packed_share <= 1


def test_operations_are_torchs_own_count(times):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        tiny_resnet()(torch.randn(2, 3, 32, 32))
    assert times.operations == counter.get_total_flops()


def test_torchs_profiler_shows_the_shapes_of_packed_ops():
    x = torch.randn(2, 3, 32, 32)
    optimized = optimized_for(tiny_resnet(), x)
    optimized(x)
    with torch.profiler.profile(record_shapes=True, with_flops=True) as profiler:
        optimized(x)
    packed = [event for event in profiler.events() if event.name == "ipex::convolution_run"]
    assert len(packed) == sum(op.op == "ipex::convolution_run" for op in ipex.profile(optimized, x, calls=1).ops)
    assert packed[0].input_shapes[0] == [2, 3, 32, 32]
    # torch knows the operations of its own ops alone, by name. Once it counts these too, the documentation can say so.
    assert not any(event.flops for event in packed)


def test_torchs_flop_counter_counts_optimised_models_as_the_original():
    from torch.utils.flop_counter import FlopCounterMode

    model, x = tiny_resnet(), torch.randn(2, 3, 32, 32)
    optimized = optimized_for(model, x)
    with FlopCounterMode(display=False) as expected, torch.no_grad():
        model(x)
    with FlopCounterMode(display=False) as counted, torch.no_grad():
        optimized(x)
    assert counted.get_total_flops() == expected.get_total_flops() > 0


@pytest.mark.parametrize("stride", [1, 2])
def test_operations_of_a_transposed_convolution(stride):
    from torch.utils.flop_counter import FlopCounterMode

    model, x = nn.ConvTranspose2d(4, 4, 3, stride=stride).eval(), torch.randn(1, 4, 8, 8)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x)
    found = ipex.profile(optimized_for(model, x), x, calls=1)
    expected = counter.get_total_flops()
    if stride == 1:  # aten counts by the result, which is larger here; the work is by the input
        expected = 2 * 64 * 4 * 4 * 9
    assert sum(op.operations or 0 for op in found.ops) == expected


def test_the_table_and_json(times):
    text = str(times)
    assert "of the time in ops of ipex" in text
    assert "GFLOP/s" in text
    data = json.loads(times.to_json())
    assert data["ops"][0]["op"] == times.ops[0].op
    assert data["machine"]["threads"] == torch.get_num_threads()


def test_an_op_names_its_kernel_and_those_that_were_rejected():
    model = nn.Sequential(nn.Conv2d(64, 64, 3), nn.Conv2d(64, 64, 3, stride=2))
    x = torch.randn(1, 64, 20, 20)
    times = ipex.profile(optimized_for(model, x), x, calls=1)
    first, second = (op for op in times.ops if op.op == "ipex::convolution_run")
    assert first.kernel == "winograd"
    assert "depthwise: it is not depthwise" in first.rejected
    assert "winograd: its windows are not 3x3 and one pixel apart" in second.rejected
    assert second.kernel not in ("oneDNN", "ipex")
    assert re.search(r"2 +depthwise +it is not depthwise", str(times))
    assert json.loads(times.to_json())["ops"][first.number]["rejected"] == list(first.rejected)


def test_the_plot_has_a_dot_per_product(times, tmp_path):
    text = times.to_svg(tmp_path / "roofline.svg")
    assert (tmp_path / "roofline.svg").read_text() == text
    products = [op for op in times.ops if op.operations]
    assert text.count("<title>") == len(products) == 13


def test_the_page_has_times(times):
    assert re.search(r'"us":\d', times.to_html())


def test_loops_leave_ops_without_times():
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(int(x.size(0))):
                x = self.linear(x)
            return torch.cumsum(x, 0)

    optimized = ipex.jit_optimize(torch.jit.script(Loop().eval()))
    found = ipex.profile(optimized, torch.randn(3, 4), calls=2)
    assert {op.op for op in found.ops} == {"aten::cumsum"}


def test_a_module_is_refused():
    for module, kind in ((ipex.optimize(nn.Linear(2, 2).eval()), "Linear, which ipex.optimize"), (nn.ReLU(), "ReLU")):
        message = f"ipex.profile: expected a ScriptModule, got the nn.Module .*{kind}.* Call ipex.jit_optimize"
        with pytest.raises(TypeError, match=message):
            ipex.profile(module, torch.ones(1, 2))
    with pytest.raises(ValueError, match="expected at least 1 call, got calls=0"):
        ipex.profile(optimized_for(nn.Linear(2, 2), torch.ones(1, 2)), torch.ones(1, 2), calls=0)
