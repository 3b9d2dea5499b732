"""vLLM on CPUs, with linears and attention on our kernels. It pins a torch and a transformers: where it is not
installed, the entry point alone is looked at."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import ipex

pytest.importorskip("transformers", reason="transformers is not installed")
from llm.families import make, quiet  # noqa: F401

# In a process of its own: vLLM binds threads, and sets switches of torch.
SCRIPT = """
import json, os, sys
os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
import ipex.llm._vllm
ipex.llm._vllm.register()
ipex.llm._vllm.register()  # each process of vLLM may do so again
from vllm import LLM, SamplingParams
folder, dtype, prompts, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
engine = LLM(folder, dtype=dtype, skip_tokenizer_init=True, max_model_len=128, enforce_eager=True,
             disable_log_stats=True, **options)
asked = SamplingParams(max_tokens=8, temperature=0, detokenize=False)
answers = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts], asked, use_tqdm=False)
modules = [*engine.llm_engine.model_executor.driver_worker.worker.model_runner.model.modules()]
print("linears", *{type(m).__name__ for m in modules if "WeightOnly" in type(m).__name__})
print("attention", *{type(m.impl).__name__ + " " + str(getattr(m.impl, "is_ours", None)) for m in modules
                     if hasattr(m, "impl")})
print("tokens", json.dumps([answer.outputs[0].token_ids for answer in answers]))
"""
THEIRS, OURS = "CPUAttentionBackendImpl None", "PagedAttention True"


def test_the_entry_point_is_there():
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    found = re.search(r'entry-points."vllm.general_plugins"\]\nipex = "ipex\.llm\.(\w+):(\w+)"\n', project)
    assert found
    source = (Path(ipex.llm.__file__).parent / f"{found[1]}.py").read_text()
    assert f"def {found[2]}()" in source


def test_a_vllm_that_moved_its_names_runs_without_us(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", types.ModuleType("vllm"))
    with pytest.warns(UserWarning, match="this vLLM gets no linears and no attention of ours: No module named 'vllm"):
        importlib.import_module("ipex.llm._vllm").register()


def said_by_vllm(folder: Path, dtype: str, prompts: list[list[int]], **options: object) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, folder, dtype, json.dumps(prompts), json.dumps(options)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = ("linears", "attention", "tokens")
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines() if line.startswith(names))


def generated(model: torch.nn.Module, prompts: list[list[int]]) -> str:
    """By transformers, one after the other."""
    return json.dumps(
        [
            model.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)[0, len(prompt) :].tolist()
            for prompt in prompts
        ]
    )


with_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


@with_vllm
@pytest.mark.parametrize(("name", "dtype"), [("ipex_int8", "float32"), ("ipex_int8", "bfloat16")])
def test_vllm_generates_what_the_model_does(name, dtype, tmp_path):
    model = make("Llama", hidden_size=128, intermediate_size=256)
    model.save_pretrained(tmp_path)
    said = said_by_vllm(tmp_path, dtype, [[1, 5, 9]], quantization=name)
    assert said["linears"] == "WeightOnlyLinear"
    assert said["attention"] == THEIRS  # nobody asked for another
    assert said["tokens"] == generated(model, [[1, 5, 9]])


# Prompts of several lengths, in several blocks of 32 tokens, which are read in parts beside steps of the others.
PROMPTS = [[1, 5, 9], [(7 * i) % 90 + 3 for i in range(100)], [8], [(5 * i) % 90 + 3 for i in range(40)]]


@with_vllm
def test_attention_of_ours_generates_what_the_model_does(tmp_path):
    model = make("Llama", hidden_size=128, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2)
    model.save_pretrained(tmp_path)
    said = said_by_vllm(
        tmp_path, "float32", PROMPTS, attention_backend="CUSTOM", block_size=32, max_num_batched_tokens=48
    )
    assert said["attention"] == OURS
    assert said["tokens"] == generated(model, PROMPTS)


@with_vllm
def test_attention_with_a_soft_cap_stays_vllms(tmp_path):
    model = make("Gemma2", hidden_size=128, intermediate_size=256, head_dim=32)
    model.save_pretrained(tmp_path)
    said = said_by_vllm(tmp_path, "float32", PROMPTS, attention_backend="CUSTOM", block_size=32)
    assert said["attention"] == "PagedAttention False"
    assert said["tokens"] == generated(model, PROMPTS)
