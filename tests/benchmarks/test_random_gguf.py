"""Files of random weights: a reader takes them for a model of their sizes, whose numbers are of a usual size."""

from __future__ import annotations

import dataclasses

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

from benchmarks.gguf_writer import write
from benchmarks.random_gguf import FORMATS, SHAPES, Shape, fields_of, tensors_of
from ipex import llm
from ipex.llm._gguf import GGUF

SMALL = Shape("qwen3", 2, 64, 96, 4, 2, 32, 300, 10000.0)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_file_is_a_model(architecture, kind, tmp_path):
    path, shape = tmp_path / "random.gguf", dataclasses.replace(SMALL, architecture=architecture)
    write(path, fields_of(shape, kind), tensors_of(shape, kind))
    model = llm.from_gguf(path)
    assert (model.config.hidden_size, model.config.num_hidden_layers, model.config.vocab_size) == (64, 2, 300)
    assert model.config.head_dim == 32
    for linear in (model.lm_head, model.model.layers[1].mlp.down_proj):
        numbers = linear.weight.clone()
        assert 0.015 < numbers.std() < 0.025
        assert abs(numbers.mean()) < 0.004  # codes of Q4_0 are from -8 to 7
    with torch.no_grad():
        assert model(torch.tensor([[1, 2, 3]])).logits.isfinite().all()


@pytest.mark.parametrize("name", SHAPES)
def test_fields_say_what_tensors_are(name, tmp_path):
    small = {"layers": 1, "hidden": 64, "between": 32, "vocabulary": 300}
    shape = dataclasses.replace(SHAPES[name], **small)
    write(tmp_path / "a.gguf", fields_of(shape, "Q4_0"), tensors_of(shape, "Q4_0"))
    file = GGUF(tmp_path / "a.gguf")
    assert len(file.fields["tokenizer.ggml.tokens"]) == len(set(file.fields["tokenizer.ggml.tokens"])) == 300
    assert file.fields[f"{shape.architecture}.attention.key_length"] == shape.numbers
    assert file.shape("token_embd.weight") == (300, 64)
    queries = shape.heads * shape.numbers
    assert file.shape("blk.0.attn_output.weight") == (64, queries)
    if shape.experts:
        assert file.shape("blk.0.ffn_down_exps.weight") == (shape.experts, 64, 32)
