"""Tensor parallelism: two processes generate what one does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import ipex

pytest.importorskip("transformers", reason="transformers is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo", allow_module_level=True)

from ipex import llm
from llm.families import IS_NEW, make, quiet  # noqa: F401

# Of each family, in each process: the share of the layers' weights, and whether tokens are those of the whole model.
SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import torch, transformers
import ipex
from llm.families import make, prompts, words
transformers.logging.set_verbosity_error()
torch.distributed.init_process_group("gloo")
torch.set_grad_enabled(False)

def size(model):
    return sum(p.numel() for p in model.base_model.layers.parameters())

def said(*what):
    sys.stdout.write(" ".join(map(str, what)) + chr(10))  # in one piece: two processes write
    sys.stdout.flush()

def refusal(family, **more):
    try:
        ipex.llm.tensor_parallel(make(family, **more))
    except ValueError as error:
        return error

for family in FAMILIES:
    model = make(family)
    share = ipex.llm.tensor_parallel(model)
    optimized = ipex.llm.optimize(share)
    how = {"max_new_tokens": 12, "do_sample": False, **prompts()}
    same = torch.equal(optimized.generate(**how), model.generate(**how))
    graph = str(optimized.__dict__["_compiled_call_impl"].captured.graph.inlined_graph)
    said(family, same, graph.count("ipex_distributed::sum"), round(size(share) / size(model), 1))
model, x = make("Llama"), words(2, 9)
expected = model(x).logits
for dtype in ("float32", "bfloat16"):
    for weights in ("INT8", None):
        mapping = weights and ipex.quantization.get_weight_only_quant_qconfig_mapping()
        optimized = ipex.llm.optimize(
            ipex.llm.tensor_parallel(model), dtype=getattr(torch, dtype), quantization_config=mapping
        )
        said(dtype, weights, float((optimized(x).logits.float() - expected).norm() / expected.norm()) < 0.05)
said("heads", refusal("Llama", num_attention_heads=4, num_key_value_heads=1))
said("channels", refusal("Llama", intermediate_size=97))
said("plan", refusal("OPT"))
said("style", refusal("DeepseekV2"))
"""
SUMS = {"Llama": 4, "Qwen2": 4, "Qwen3": 4, "GPTNeoX": 4, "Phi": 4, "Phi3": 4, "Glm": 4, "Gemma2": 4, "Mixtral": 2}


def test_two_processes_generate_what_one_does(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("FAMILIES", repr(list(SUMS))))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)],
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    said = [line.partition(" ") for line in done.stdout.splitlines()]
    for family, sums in SUMS.items():
        share = 0.9 if family == "Mixtral" else 0.5  # experts are whole
        assert [what for who, _, what in said if who == family] == [f"True {sums} {share}"] * 2
    for dtype in ("float32", "bfloat16"):
        assert sorted(what for who, _, what in said if who == dtype) == ["INT8 True"] * 2 + ["None True"] * 2
    for what, reason in (
        ("heads", "expected num_key_value_heads to be a multiple of 2 processes, got 1."),
        ("channels", "expected layers.0.mlp.gate_proj to divide into 2 processes, got 97 channels."),
        ("plan", "expected a base_model_tp_plan in the configuration, got none that names a linear."),
        ("style", "in the plan, got 'mla_kv_a_proj'." if IS_NEW else "This model can't be shared out."),
    ):
        reasons = [text for who, _, text in said if who == what]
        assert len(reasons) == 2
        assert all(text.startswith("ipex.llm.tensor_parallel: ") and text.endswith(reason) for text in reasons)


def test_calls_that_do_not_fit():
    with pytest.raises(RuntimeError, match=r"expected a process group, got none. Call torch.distributed.init_process"):
        llm.tensor_parallel(make("Llama"))
    with pytest.raises(TypeError, match="expected a model of transformers, got Linear"):
        ipex.llm.tensor_parallel(torch.nn.Linear(2, 2))


def test_weights_that_transformers_shared_out_are_refused(monkeypatch):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_module

    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "0")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    try:
        model = distribute_module(make("Llama"), init_device_mesh("cpu", (1,)))
        with pytest.raises(TypeError, match=r"expected plain weights, got DTensors, .* call ipex.llm.tensor_parallel"):
            llm.optimize(model)
    finally:
        torch.distributed.destroy_process_group()
