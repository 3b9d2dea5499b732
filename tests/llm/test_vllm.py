"""vLLM on CPUs, with linears on our kernels. It pins a torch and a transformers: where it is not installed, the entry
point alone is looked at."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import ipex

pytest.importorskip("transformers", reason="transformers is not installed")
from llm.families import make, quiet  # noqa: F401

# In a process of its own: vLLM binds threads, and sets switches of torch.
SCRIPT = """
import os, sys
os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
import ipex.llm._vllm
ipex.llm._vllm.register()
ipex.llm._vllm.register()  # each process of vLLM may do so again
from vllm import LLM, SamplingParams
engine = LLM(sys.argv[1], quantization=sys.argv[2], dtype=sys.argv[3], skip_tokenizer_init=True, max_model_len=64,
             enforce_eager=True, disable_log_stats=True)
asked = SamplingParams(max_tokens=8, temperature=0, detokenize=False)
(answer,) = engine.generate([{"prompt_token_ids": [1, 5, 9]}], asked, use_tqdm=False)
print("kinds", *sorted({type(m).__name__ for m in engine.llm_engine.model_executor.driver_worker.worker.model_runner
                        .model.modules() if "Packed" in type(m).__name__}))
print("tokens", *answer.outputs[0].token_ids)
"""


def test_the_entry_point_is_there():
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    found = re.search(r'entry-points."vllm.general_plugins"\]\nipex = "ipex\.llm\.(\w+):(\w+)"\n', project)
    assert found
    source = (Path(ipex.llm.__file__).parent / f"{found[1]}.py").read_text()
    assert f"def {found[2]}()" in source


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.parametrize(("name", "dtype"), [("ipex_int8", "float32"), ("ipex_int8", "bfloat16")])
def test_vllm_generates_what_the_model_does(name, dtype, tmp_path):
    model = make("Llama", hidden_size=128, intermediate_size=256)
    model.save_pretrained(tmp_path)
    expected = model.generate(torch.tensor([[1, 5, 9]]), max_new_tokens=8, do_sample=False)[0, 3:]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, tmp_path, name, dtype],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("kinds", "tokens")))
    assert said == {"kinds": "PackedWeightOnlyLinear", "tokens": " ".join(map(str, expected.tolist()))}
