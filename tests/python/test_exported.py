"""Programs of torch.export: the same results, for all sizes that were exported as dynamic."""

import warnings

import pytest
import torch
from torch import nn
from torch.export import Dim

import ipex
from ipex._cli import main
from support import assert_same

pytestmark = pytest.mark.filterwarnings("ignore")


class Model(nn.Module):
    """Sizes, constants, lists of ops, buffers, infinity, devices; keyword inputs and results with names."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 6)
        self.register_buffer("shift", torch.randn(6))

    def forward(self, x, *, others, scale=None):
        y = torch.relu(self.norm(self.convolution(x))).mean((2, 3))
        first, second = y.split(2, 1)
        y = self.head(torch.cat([second, first], 1)) + self.shift
        mask = torch.arange(y.shape[0]).unsqueeze(1) > 1
        y = y.masked_fill(mask, float("-inf")) + others[0] - others[1]["more"]
        count = x.shape[0] * x.shape[2]
        return {"logits": y, "rows": (y.reshape(x.shape[0] * 2, -1), torch.ones(count)), "nothing": None}


def inputs(batch, size=8):
    return {"x": torch.randn(batch, 3, size, size), "others": [torch.randn(batch, 6), {"more": torch.randn(1)}]}


def exported():
    sizes = {"x": {0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC}, "others": [{0: Dim.DYNAMIC}, {"more": None}]}
    model, given = Model().eval(), inputs(2)
    return model, torch.export.export(model, (given.pop("x"),), given, dynamic_shapes=sizes)


@pytest.mark.parametrize("as_module", [False, True])
def test_sizes_stay_dynamic(as_module):
    model, program = exported()
    optimized = ipex.jit_optimize(program.module() if as_module else program)
    assert "ipex::convolution_run" in str(optimized.graph)
    for sizes in ((2, 8), (5, 6), (1, 11)):
        assert ipex.verify(model, optimized, inputs(*sizes))


def test_one_tensor_needs_no_adapter(tmp_path):
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.randn(2, 4)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: Dim.DYNAMIC},))
    optimized = ipex.jit_optimize(program)
    optimized.save(tmp_path / "model.pt")
    for other in (optimized, ipex.load(tmp_path / "model.pt")):
        assert ipex.verify(model, other, torch.randn(7, 4))


def test_quantization_takes_them():
    _, program = exported()
    assert ipex.quantization.dynamic(program)(**inputs(3))["logits"].shape == (3, 6)


def test_a_model_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    model = transformers.BertModel(transformers.BertConfig(**sizes)).eval()
    ids = torch.arange(14).reshape(2, 7)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    sizes = {name: {0: Dim.DYNAMIC, 1: Dim.DYNAMIC} for name in given}
    optimized = ipex.jit_optimize(torch.export.export(model, (), given, dynamic_shapes=sizes))
    assert ipex.verify(model, optimized, given)
    assert ipex.verify(model, optimized, {name: value[:, :5] for name, value in given.items()})


class Branches(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


def test_what_is_refused():
    _, program = exported()
    with pytest.raises(
        TypeError, match="expected no example_inputs with an exported program, got Tensor. It is not tr"
    ):
        ipex.jit_optimize(program, torch.randn(2))
    branches = torch.export.export(Branches(), (torch.randn(2),))
    with pytest.raises(
        TypeError, match=r"program of aten's ops, got cond. Control flow .* give the nn.Module and exam"
    ):
        ipex.jit_optimize(branches)


def test_on_the_command_line(tmp_path, capsys):
    model, program = exported()
    torch.export.save(program, tmp_path / "program.pt2")
    assert main(["optimize", str(tmp_path / "program.pt2"), "-o", str(tmp_path / "fast.pt")]) == 0
    assert "The models agree" in capsys.readouterr().out  # on the example inputs in the file
    given = inputs(4)
    others = given["others"]
    logits = ipex.load(tmp_path / "fast.pt")(given["x"], others[0], others[1]["more"])[0]
    assert torch.allclose(logits, model(**given)["logits"], atol=1e-4)
    (tmp_path / "other.pt2").write_bytes(b"no program")
    assert main(["optimize", str(tmp_path / "other.pt2"), "-o", str(tmp_path / "fast.pt")]) == 2
    assert "expected a program that torch.export.save wrote in" in capsys.readouterr().err


def test_an_argument_called_input(tmp_path):
    """As that of nn.Sequential is, and of most modules of torch."""
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), torch.randn(2, 8)
    program = torch.export.export(model, (x,))
    optimized = ipex.jit_optimize(program)
    assert_same(optimized(input=x), model(x))
    assert_same(optimized(x), model(x))
    torch.export.save(program, tmp_path / "program.pt2")
    assert main(["optimize", str(tmp_path / "program.pt2"), "-o", str(tmp_path / "fast.pt")]) == 0
    assert_same(ipex.load(tmp_path / "fast.pt")(x), model(x))


def test_torch_warns_of_nothing_of_its_own():
    program = torch.export.export(nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval(), (torch.randn(2, 8),))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        ipex.jit_optimize(program)
