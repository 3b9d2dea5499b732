"""Files of llama.cpp: their blocks stand for the numbers that the format says, and a damaged file is refused."""

from __future__ import annotations

import dataclasses
import math
import struct
import warnings

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

import transformers

import ipex
from benchmarks.gguf_writer import TYPES, write
from benchmarks.random_gguf import Shape, fields_of, tensors_of
from ipex import llm
from ipex.llm._gguf import GGUF, Codes
from ipex.quantization import WeightOnlyLinear
from llm.gguf_file import numbers_of, random_blocks

BLOCKS = [kind for kind in TYPES if kind.startswith("Q")]
HIDDEN, WIDE, HEADS, SHARED, LAYERS, VOCABULARY = 256, 512, 4, 2, 2, 160
FIELDS = {
    "general.architecture": "llama",
    "llama.block_count": LAYERS,
    "llama.context_length": 128,
    "llama.embedding_length": HIDDEN,
    "llama.feed_forward_length": WIDE,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": SHARED,
    "llama.rope.freq_base": 10000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.tokens": ["a", "b"],
}


def tensors(kind: str) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    def blocks(rows: int, columns: int, seed: int) -> tuple[str, tuple[int, ...], bytes]:
        return kind, (rows, columns), random_blocks(kind, rows * columns // TYPES[kind][1], seed)

    ones = ("F32", (HIDDEN,), struct.pack(f"<{HIDDEN}f", *[1 + i / HIDDEN for i in range(HIDDEN)]))
    found = {"token_embd.weight": blocks(VOCABULARY, HIDDEN, 0), "output_norm.weight": ones}
    key_rows = HIDDEN // HEADS * SHARED
    sizes = {
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (key_rows, HIDDEN),
        "attn_v": (key_rows, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_gate": (WIDE, HIDDEN),
        "ffn_up": (WIDE, HIDDEN),
        "ffn_down": (HIDDEN, WIDE),
    }
    for layer in range(LAYERS):
        for number, (name, (rows, columns)) in enumerate(sizes.items()):
            found[f"blk.{layer}.{name}.weight"] = blocks(rows, columns, 10 * layer + number + 1)
        found |= {f"blk.{layer}.attn_norm.weight": ones, f"blk.{layer}.ffn_norm.weight": ones}
    return found


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.gguf"
    write(path, FIELDS, tensors("Q4_1"))
    return path


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_stand_for_their_numbers(kind, tmp_path):
    _, numbers, size = TYPES[kind]
    data = random_blocks(kind, 24, seed=3)
    write(tmp_path / "a.gguf", {}, {"x": (kind, (6, 4 * numbers), data)})
    found = GGUF(tmp_path / "a.gguf").tensor("x")
    assert isinstance(found, Codes)
    assert found.each().int().abs().max() <= (8 if found.bits == 4 else 128)
    expected = [number for i in range(0, len(data), size) for number in numbers_of(kind, data[i : i + size])]
    expected = torch.tensor(expected).view(6, -1)
    torch.testing.assert_close(found.numbers(), expected, rtol=0, atol=2e-6 * expected.abs().max().item())


def test_floats_are_as_they_are(tmp_path):
    write(tmp_path / "a.gguf", {"n": 3}, {"x": ("F16", (1, 3), struct.pack("<3e", 1, -2, 0.5))})
    file = GGUF(tmp_path / "a.gguf")
    assert file.fields == {"n": 3}
    assert torch.equal(file.tensor("x"), torch.tensor([[1, -2, 0.5]], dtype=torch.float16))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"])
def test_a_model_generates_what_its_numbers_generate(kind, tmp_path):
    """Against transformers' own model with the numbers that the blocks stand for, in its order of rows."""
    path, content = tmp_path / "model.gguf", tensors(kind)
    write(path, FIELDS, content)
    model = llm.from_gguf(path)
    layer = model.model.layers[0]
    assert isinstance(layer.mlp.up_proj, WeightOnlyLinear)
    reference = type(model)(model.config).eval()
    file = GGUF(path)

    def numbers(name: str) -> torch.Tensor:
        tensor = file.tensor(name)
        return tensor.numbers() if isinstance(tensor, Codes) else tensor

    def halves(weight: torch.Tensor) -> torch.Tensor:
        size = HIDDEN // HEADS  # of a head: its rows 0, 1, 2, 3 .. are 0, 2, .., 1, 3, .. in transformers
        return torch.cat([torch.cat([head[::2], head[1::2]]) for head in weight.split(size)])

    own = reference.state_dict()
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
    names |= {"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
    names |= {"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    for number in range(LAYERS):
        for ours, stored in names.items():
            weight = numbers(f"blk.{number}.{stored}.weight")
            own[f"model.layers.{number}.{ours}.weight"].copy_(halves(weight) if stored[-2:] in ("_q", "_k") else weight)
    own["model.embed_tokens.weight"].copy_(numbers("token_embd.weight"))
    own["lm_head.weight"].copy_(numbers("token_embd.weight"))
    own["model.norm.weight"].copy_(numbers("output_norm.weight"))
    x = torch.randint(0, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = reference(x).logits
        tolerance = 1e-3 * expected.abs().max().item()
        torch.testing.assert_close(model(x).logits, expected, rtol=0, atol=tolerance)
        optimized = llm.optimize(model)
        torch.testing.assert_close(optimized(x).logits, expected, rtol=0, atol=tolerance)
        how = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0}
        assert torch.equal(optimized.generate(x, **how), model.generate(x, **how))
        assert optimized.__dict__["_compiled_call_impl"].reasons == set()


JOINED = Shape("phi3", 2, 96, 160, 3, 1, 32, 300, 10000.0, 1e-5, turned=24)
PHI4 = dataclasses.replace(JOINED, context=160, trained=20)


def by_hand(shape: Shape, file: GGUF, window: int) -> torch.nn.Module:
    """The model of transformers that such a file stands for, in floats."""

    def numbers(name: str) -> torch.Tensor:
        tensor = file.tensor(name)
        return tensor.numbers() if isinstance(tensor, Codes) else tensor

    rotary = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}
    if shape.trained:
        rotary |= {
            name: numbers(f"rope_factors_{name[:-7]}.weight").tolist() for name in ("short_factor", "long_factor")
        }
        rotary |= {"rope_type": "longrope", "original_max_position_embeddings": 20}
        rotary["attention_factor"] = math.sqrt(1 + math.log(8) / math.log(20))
    config = transformers.Phi3Config(
        vocab_size=300,
        hidden_size=96,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        max_position_embeddings=shape.context,
        original_max_position_embeddings=shape.trained or shape.context,
        rope_parameters=rotary,
        partial_rotary_factor=0.75,
        sliding_window=window,
        pad_token_id=0,
    )
    model = transformers.Phi3ForCausalLM(config).eval()
    names = {"self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output"}
    names |= {"mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    own = model.state_dict()
    for layer in range(2):
        for ours, stored in names.items():
            own[f"model.layers.{layer}.{ours}.weight"].copy_(numbers(f"blk.{layer}.{stored}.weight"))
    for ours in ("model.embed_tokens", "lm_head"):
        own[f"{ours}.weight"].copy_(numbers("token_embd.weight"))
    return model


@pytest.mark.parametrize(("shape", "window"), [(JOINED, 6), (PHI4, 1000)], ids=["window", "longrope"])
def test_a_file_whose_linears_are_joined(shape, window, tmp_path):
    """As of phi3: queries, keys and values in one, gate and up in one; a part of a head turns; a head that is tied.

    With a window, or as of Phi-4 mini: texts longer than those that it was trained with have frequencies of their own.
    """
    path = tmp_path / "model.gguf"
    write(path, {**fields_of(shape, "Q8_0"), "phi3.attention.sliding_window": window}, tensors_of(shape, "Q8_0"))
    model = llm.from_gguf(path)
    assert type(model).__name__ == "Phi3ForCausalLM"
    assert model.config.sliding_window == window
    reference = by_hand(shape, GGUF(path), window)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimized = llm.optimize(model)
        assert not ipex.explain(optimized).declined
        for count in (5, 20, 21, 40):  # 20 is the longest that has the frequencies of short texts
            x = torch.randint(0, 300, (2, count), generator=draw)
            expected = reference(x).logits
            for found in (model(x).logits, optimized(x).logits):
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-3 * expected.abs().max().item())
        how = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        x = torch.randint(0, 300, (1, 16), generator=draw)
        assert torch.equal(optimized.generate(x, **how), reference.generate(x, **how))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_factors_long.weight": None}, r"expected rope_factors_long.weight in .*, got no such tensor"),
        (
            {"rope_factors_short.weight": ("F32", (11,), bytes(44))},
            r"expected rope_factors_short.weight of \(12,\) .*, got \(11,\)",
        ),
    ],
)
def test_factors_of_frequencies_that_do_not_fit(change, message, tmp_path):
    path = tmp_path / "model.gguf"
    content = {name: one for name, one in {**tensors_of(PHI4, "Q8_0"), **change}.items() if one is not None}
    write(path, fields_of(PHI4, "Q8_0"), content)
    with pytest.raises(ValueError, match=message):
        llm.from_gguf(path)


def test_a_truncated_file_is_refused(file, tmp_path):
    content = file.read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in [0, 3, 7, 20, 100, 500, 2000, len(content) - 1]:
        cut.write_bytes(content[:size])
        with pytest.raises(ValueError, match="expected a whole GGUF file at .*, got .*damaged, or another format"):
            llm.from_gguf(cut)


def test_numbers_of_the_tables_are_not_believed(file, tmp_path):
    """Each 8 bytes of the tables in turn become very large: an error in words, and no allocation of that size."""
    content, bad, messages = bytearray(file.read_bytes()), tmp_path / "bad.gguf", []
    for place in range(8, 1200, 4):
        changed = content.copy()
        changed[place : place + 8] = b"\xff\xff\xff\xff\xff\xff\xff\x7f"
        bad.write_bytes(changed)
        try:
            GGUF(bad)
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) > 100
    assert all(message.startswith("ipex.llm: expected") for message in messages)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "bert"}, "expected one of llama, phi3, .*, qwen3moe in .*, got 'bert'"),
        ({"llama.rope.scaling.type": "yarn"}, "expected rope.scaling none, linear or longrope, got yarn"),
        ({"llama.embedding_length": None}, "expected llama.embedding_length in .*, got no such field"),
        ({"llama.block_count": 3}, r"expected blk.2.* in .*, got no such tensor"),
        ({"llama.block_count": 1}, r"expected tensors that LlamaForCausalLM has a place for, got blk.1"),
        ({"llama.feed_forward_length": 256}, r"expected blk.0.ffn_gate.weight of \(256, 256\) .*, got \(512, 256\)"),
    ],
)
def test_files_that_are_no_model_we_know(change, message, tmp_path):
    fields = {key: value for key, value in {**FIELDS, **change}.items() if value is not None}
    path = tmp_path / "model.gguf"
    write(path, fields, tensors("Q4_0"))
    with pytest.raises(ValueError, match=message):
        llm.from_gguf(path)


def test_a_type_that_is_not_known(tmp_path):
    path = tmp_path / "model.gguf"
    write(path, FIELDS, {"x": ("F32", (1,), bytes(4))})
    content = path.read_bytes()
    place = content.index(b"\x01\x00\x00\x00\x00\x00\x00\x00x") + 9 + 4 + 8
    path.write_bytes(content[:place] + struct.pack("<I", 29) + content[place + 4 :])
    with pytest.raises(ValueError, match=r"expected tensors of F32, F16, .* got ggml's type 29"):
        llm.from_gguf(path)


def test_a_dtype_that_comes_later(file):
    """Codes and scales stay as they are, and results are of that dtype."""
    model, expected = llm.from_gguf(file), llm.from_gguf(file, dtype=torch.bfloat16)
    table, words = model.get_input_embeddings(), torch.tensor([[3, 5, 7]])
    before = {name: buffer.clone() for name, buffer in table.named_buffers()}
    model.to(torch.bfloat16)
    assert all(torch.equal(buffer, before[name]) for name, buffer in table.named_buffers())
    assert torch.equal(table(words), expected.get_input_embeddings()(words))
    assert model(words).logits.dtype is expected(words).logits.dtype is torch.bfloat16
