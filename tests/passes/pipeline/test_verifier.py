"""IPEX_VERIFY=1 looks at the graph after every pass; IPEX_SHUFFLE=SEED draws their order."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex import _C
from support import assert_same, graph_ir

PASSES = _C.pass_names()
PHASES = list(dict.fromkeys(row["phase"] for row in _C.pass_table()))


class Images(nn.Module):
    """Layers and what goes into them, a residual, a gate, a reduction."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.gate = nn.Conv2d(16, 16, 1), nn.Conv2d(16, 16, 1)
        self.last = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu_(self.norm(self.first(x)))
        gate = torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))
        y = self.second(y * gate) + y
        return self.last(nn.functional.dropout(y.mean((2, 3)), 0.1, self.training))


class Text(nn.Module):
    """Embeddings, attention that is written out, norms."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(20, 16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, text: Tensor) -> Tensor:
        x = self.words(text)
        n, length = x.size(0), x.size(1)
        q, k, v = self.qkv(self.norm(x)).view(n, length, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        mask = torch.ones(length, length).tril().log()
        scores = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + mask, -1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(n, length, 16))
        wide = self.wide(self.norm(x))
        return x + self.narrow(wide * torch.sigmoid(wide)) * torch.exp(-x.abs())


MODELS = {"images": (Images, lambda: torch.randn(2, 3, 12, 12)), "text": (Text, lambda: torch.randint(0, 20, (2, 7)))}


def traced(name: str) -> tuple[torch.jit.ScriptModule, Tensor, Tensor]:
    make, inputs = MODELS[name]
    model, x = make().eval(), inputs()
    with torch.no_grad():
        return torch.jit.trace(model, x, check_trace=False), x, model(x)


def test_a_node_that_fits_no_schema_is_an_error(monkeypatch):
    ir = graph_ir("%x : Tensor, %n : int", "%d : Tensor = aten::t(%x)", "%p : float = prim::Constant[value=0.5]()",
                  "%f : bool = prim::Constant[value=0]()", "%e : Tensor = aten::dropout(%d, %p, %f)",
                  "%y : Tensor = aten::relu(%n)", "%z : Tensor = aten::add(%e, %y)", returns="%z")  # fmt: skip
    monkeypatch.setenv("IPEX_VERIFY", "1")
    with pytest.raises(RuntimeError, match="after remove_dropout a node fits no schema of its op: .*aten::relu"):
        _C.run_pass("remove_dropout", ir)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(6))
def test_every_order_that_contracts_allow_gives_eager_s_result(name, seed, monkeypatch, capfd):
    script, x, expected = traced(name)
    monkeypatch.setenv("IPEX_VERIFY", "1")
    monkeypatch.setenv("IPEX_SHUFFLE", str(seed))
    monkeypatch.setenv("IPEX_VERBOSE", "1")
    optimized = ipex.jit_optimize(script)
    ran = list(dict.fromkeys(re.findall(r"^ipex,pass,(\w+)", capfd.readouterr().err, re.MULTILINE)))
    assert sorted(ran) == sorted(PASSES)
    assert ran != PASSES
    assert _C.reason_against_order(ran) == ""
    with torch.no_grad():
        assert_same(optimized(x), expected)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("phase", PHASES)
def test_a_graph_runs_after_every_phase(name, phase, monkeypatch, capfd, tmp_path):
    script, x, expected = traced(name)
    monkeypatch.setenv("IPEX_VERBOSE", "1")
    optimized = ipex.jit_optimize(script, stop_after=phase)
    ran = re.findall(r"^ipex,phase,(\w+)", capfd.readouterr().err, re.MULTILINE)
    assert ran == list(dict.fromkeys([*PHASES[: PHASES.index(phase) + 1], PHASES[-1]]))
    optimized.save(tmp_path / "model.pt")
    with torch.no_grad():
        assert_same(optimized(x), expected)
        assert_same(ipex.load(tmp_path / "model.pt")(x), expected)
    assert list(ipex.explain(optimized))


def test_an_unknown_phase_is_an_error():
    with pytest.raises(RuntimeError, match="expected the name of a phase in stop_after, got 'fuse'"):
        ipex.jit_optimize(traced("images")[0], stop_after="fuse")


def test_sums_of_chains_come_after_what_reads_plain_arithmetic():
    """In bfloat16 the sum of what a layer gives becomes an op of ours, also where no chain was there before."""
    order = [name for name in PASSES if name != "fuse_elementwise_sum"]
    order.insert(order.index("fuse_gate"), "fuse_elementwise_sum")
    assert "plain_arithmetic" in _C.reason_against_order(order)
