"""`ipex.quantization.dynamic` and `.weight_only`: which linears they take, what they say, and what they refuse."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from ipex import quantization
from support import assert_same, kinds, packed_post_ops

BOTH = pytest.mark.parametrize("quantize", [quantization.dynamic, quantization.weight_only])


class Block(nn.Module):
    """What a transformer has of linears."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(128)
        self.wide, self.narrow, self.few = nn.Linear(128, 256), nn.Linear(256, 128), nn.Linear(128, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.narrow(F.gelu(self.wide(self.norm(x))))
        return self.few(x)


def said(model: torch.jit.ScriptModule) -> dict[str, str]:
    """What was decided about each module."""
    found = {}
    for decision in ipex.explain(model):
        if decision.pass_name == "quantize_linears":
            module = decision.node.split(" in ")[1].split(" ")[0]
            found[module] = decision.reason
    return found


@BOTH
def test_large_linears_are_taken_with_what_is_fused(quantize):
    model, x = Block().eval(), torch.randn(4, 9, 128)
    quantized = quantize(model, x)
    what = "runs in int8" if quantize is quantization.dynamic else "its weight is int8"
    small = "its weight of [3, 128] is too small to gain"
    assert said(quantized) == {"wide": what, "narrow": what, "few": small}
    found = kinds(quantized)
    op = "dynamic_linear" if quantize is quantization.dynamic else "weight_only_linear"
    assert (found[f"ipex::{op}_run"], found["ipex::linear_run"]) == (2, 1)
    assert packed_post_ops(quantized)[:2] == [["gelu"], ["radd"]] or packed_post_ops(quantized)[0] == ["gelu"]
    with torch.no_grad():
        assert_same(quantized(x), model(x), tolerance=0.02)


@BOTH
def test_layers_that_stay_in_float(quantize):
    model, x = nn.ModuleDict({"first": Block(), "second": Block()}), torch.randn(2, 128)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.secondary = model["first"], model["second"], nn.Linear(3, 4096)

        def forward(self, x: Tensor) -> Tensor:
            return self.secondary(self.second(x) + self.first(x))

    quantized = quantize(Both().eval(), x, float_layers=["second", "first.wide"])
    found = said(quantized)
    left = "it is one of the layers to leave in float"
    assert {name for name, reason in found.items() if reason == left} == {
        "second.wide",
        "second.narrow",
        "second.few",
        "first.wide",
    }
    assert found["first.narrow"] != left
    with pytest.raises(ValueError, match=r"expected paths of modules with linears.* in float_layers, got 'third'"):
        quantize(Both().eval(), x, float_layers=["third"])
    with pytest.raises(TypeError, match=r"expected a list of module paths in float_layers, got the string 'first'"):
        quantize(Both().eval(), x, float_layers="first")


@BOTH
def test_what_is_declined(quantize):
    x = torch.randn(4, 128)
    model = nn.Sequential(nn.Linear(128, 128), nn.BatchNorm1d(128)).eval()
    assert said(quantize(model, x)) == {"0": "a batch_norm was folded into it"}
    model = nn.Sequential(nn.Linear(128, 128)).eval()
    with torch.no_grad():
        model[0].weight[5, 6] = float("inf")
    assert said(quantize(model, x)) == {"0": "its weight is not finite"}
    model = nn.Sequential(nn.Linear(128, 128)).eval().bfloat16()
    assert said(quantize(model, x.bfloat16())) == {"0": "its weight has 16 bits"}


def test_long_rows():
    model, x = nn.Sequential(nn.Linear(1 << 17, 2)).eval(), torch.randn(1, 1 << 17)
    assert said(quantization.dynamic(model, x)) == {"0": "its sums of 131072 products don't fit 32 bits"}
    assert said(quantization.weight_only(model, x)) == {"0": "its weight is int8"}


@BOTH
def test_what_is_refused(quantize):
    model, x = nn.Sequential(nn.Linear(128, 128)).eval(), torch.randn(2, 128)
    caller = f"ipex.quantization.{quantize.__name__}"
    with pytest.raises(ValueError, match=f"{caller}: expected a module in eval mode"):
        quantize(nn.Linear(128, 128), x)
    with pytest.raises(TypeError, match=f"{caller}: expected inputs, got None. Pass a tensor"):
        quantize(model)
    with pytest.raises(RuntimeError, match="expected a model that was not optimised before"):
        quantize(ipex.jit_optimize(model, x))
    chain = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128)).eval()  # one packed op
    with pytest.raises(RuntimeError, match=f"{caller}: expected a model that was not optimised before"):
        quantize(ipex.jit_optimize(chain, x))


def test_a_script_module_is_taken():
    model, x = torch.jit.script(nn.Sequential(nn.Linear(128, 128)).eval()), torch.randn(2, 128)
    assert kinds(quantization.dynamic(model))["ipex::dynamic_linear_run"] == 1
    assert kinds(model)["ipex::dynamic_linear_run"] == 0
    with torch.no_grad():
        assert_same(quantization.dynamic(model)(x), model(x), tolerance=0.02)


@BOTH
def test_products_with_a_transposed_weight(quantize):
    """As transformers' Conv1D has it, which GPT-2 is made of."""

    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(128, 256)), nn.Parameter(torch.randn(256))

        def forward(self, x: Tensor) -> Tensor:
            y = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
            return y.view(*x.size()[:-1], 256)

    model, x = Conv1D().eval(), torch.randn(2, 5, 128)
    quantized = quantize(model, x)
    assert kinds(quantized)["ipex::dynamic_linear_run"] + kinds(quantized)["ipex::weight_only_linear_run"] == 1
    with torch.no_grad():
        assert_same(quantized(x), model(x), tolerance=0.02)


def test_recipes_of_weights():
    model, x = nn.Sequential(nn.Linear(128, 128)).eval(), torch.randn(2, 128)
    for arguments, group, symmetric in (
        ({}, "row", 1),
        ({"dtype": "int4"}, "row", 1),  # its 128 inputs are one group
        ({"dtype": "int4", "group_size": 32}, "32", 1),
        ({"dtype": "int8", "group_size": 64, "symmetric": False}, "64", 0),
        ({"dtype": "bfloat16"}, "row", 1),
        ({"dtype": "float8_e4m3fn"}, "row", 1),
        ({"dtype": "float8_e5m2", "group_size": 32}, "32", 1),
    ):
        text = quantization.weight_only(model, x, **arguments).packed_0.describe()
        assert f"weight_format={arguments.get('dtype', 'int8')}, group={group}, symmetric={symmetric}" in text
    for arguments, message in (
        ({"dtype": "int2"}, "expected one of 'int8', 'int4', 'nf4', 'bfloat16', .* in dtype, got 'int2'"),
        ({"dtype": "bfloat16", "group_size": 32}, "expected no group_size for bfloat16, got 32. It has no scales"),
        ({"dtype": "float8_e4m3fn", "symmetric": False}, "expected symmetric=True for float8_e4m3fn, got False"),
    ):
        with pytest.raises(ValueError, match=message):
            quantization.weight_only(model, x, **arguments)
    for bad in (12, -8, 2.0, True):
        with pytest.raises(ValueError, match="expected a multiple of 8, or 0 for whole rows, in group_size"):
            quantization.weight_only(model, x, group_size=bad)
