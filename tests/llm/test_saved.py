"""A language model that `ipex.aot_save` wrote comes back ready: it generates what it did."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

import ipex

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from ipex import llm  # noqa: E402
from ipex.quantization import WoqWeightDtype, get_weight_only_quant_qconfig_mapping  # noqa: E402
from llm.families import make, prompts  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
INT4 = get_weight_only_quant_qconfig_mapping(weight_dtype=WoqWeightDtype.INT4)


def generated(model, **how):
    return model.generate(max_new_tokens=8, **{"do_sample": False, **prompts(), **how})


@pytest.mark.parametrize("family", ["Llama", "GPT2", "Gemma2", "Mixtral", "Bloom"])
@pytest.mark.parametrize(
    "how",
    [{}, {"quantization_config": INT4}, {"dtype": torch.bfloat16}, {"kv_cache_dtype": torch.int8}],
    ids=["float32", "int4", "bfloat16", "int8 cache"],
)
def test_generates_what_it_did(tmp_path, family, how):
    model = llm.optimize(make(family), **how)
    model.generation_config.repetition_penalty = 1.5
    ipex.aot_save(model, tmp_path / "saved")
    loaded = ipex.aot_load(tmp_path / "saved")
    assert type(loaded) is type(model)
    assert (loaded.dtype, loaded.device) == (model.dtype, model.device)
    assert loaded.generation_config.repetition_penalty == 1.5
    for more in ({}, {"num_beams": 3}):
        assert torch.equal(generated(loaded, **more), generated(model, **more))
    assert "read from a file" in str(ipex.explain(loaded))
    with pytest.raises(RuntimeError, match="expected a call that the captured step computes"):
        loaded(**prompts(), output_attentions=True)


def test_another_process_packs_nothing(tmp_path):
    model = llm.optimize(make("Llama"), quantization_config=INT4)
    ipex.aot_save(model, tmp_path)
    torch.save((prompts(), generated(model)), tmp_path / "expected.pt")
    code = (
        "import sys, torch, ipex; given, expected = torch.load(sys.argv[1] + '/expected.pt')\n"
        "model = ipex.aot_load(sys.argv[1])\n"
        "assert torch.equal(model.generate(**given, max_new_tokens=8, do_sample=False), expected)\n"
        "assert ipex.aot_describe(sys.argv[1] + '/step.ipex')['packed_again'] == ''"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Own(transformers.LlamaForCausalLM):
    pass


def with_weights():
    return llm.optimize(make("Llama"), deployment_mode=False)


def with_an_encoder():
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "vocab_size": 64}
    return llm.optimize(transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)).eval())


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (with_weights, "that its step alone computes"),
        (with_an_encoder, "that its step alone computes"),
        (lambda: llm.optimize(Own(make("Llama").config).eval()), "a model that transformers has, got Own"),
    ],
)
def test_what_is_not_saved(tmp_path, made, message):
    with pytest.raises(ValueError, match=f"^ipex.aot_save: expected .*{message}"):
        ipex.aot_save(made(), tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_takes_no_example_inputs(tmp_path):
    with pytest.raises(ValueError, match="expected no example_inputs for a language model"):
        ipex.aot_save(llm.optimize(make("Llama")), tmp_path, example_inputs=torch.zeros(1, 1))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    ipex.aot_save(llm.optimize(make("Llama")), folder)
    return folder


@pytest.mark.parametrize(
    "damage",
    [
        {"version": 2},
        {"version": None},
        {"model": "AutoModel"},
        {"model": "os"},
        {"model": 3},
        {"output": "os.PathLike"},
        {"output": "transformers.nothing.Output"},
        {"output": "transformers.utils.ModelOutput"},
        {"sliding": [False]},
        {"sliding": [0, 0]},
        {"sizes": []},
        {"sizes": [[1, 2]]},
        {"sizes": [[1, 2, -4], [1, 2, 4]]},
        {"sizes": [[1, 2, True], [1, 2, 4]]},
        {"dtype": "int8"},
        {"dtype": ["float32"]},
        {"codes": "float32"},
        {"own_attention": None},
        {"counts_attended": 1},
    ],
    ids=str,
)
def test_damaged_facts(saved, tmp_path, damage):
    for file in saved.iterdir():
        (tmp_path / file.name).symlink_to(file)
    facts = json.loads((saved / "step.json").read_text()) | damage
    (tmp_path / "step.json").unlink()
    (tmp_path / "step.json").write_text(json.dumps(facts))
    with pytest.raises(RuntimeError, match=r"^ipex\.aot_load: expected .*, got .* in .*step\.json\.$"):
        ipex.aot_load(tmp_path)


@pytest.mark.parametrize("text", [None, "", "[]", "{", '"step"'])
def test_files_that_are_no_facts(saved, tmp_path, text):
    if text is not None:
        (tmp_path / "step.json").write_text(text)
    with pytest.raises(RuntimeError, match=r"^ipex\.aot_load: expected .*, got .* in .*step\.json\.$"):
        ipex.aot_load(tmp_path)
