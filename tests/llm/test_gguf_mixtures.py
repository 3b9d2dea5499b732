"""Mixtures of experts in files of llama.cpp: the numbers are transformers' own, and experts stay codes."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

import transformers
from torch import nn

import ipex
from benchmarks.gguf_writer import TYPES, write
from benchmarks.random_gguf import Shape, fields_of, tensors_of
from ipex import llm
from ipex.llm._codes import Codes, ExpertsOfCodes
from ipex.llm._gguf import GGUF
from llm.gguf_file import random_blocks

QWEN3 = Shape("qwen3moe", 2, 64, 96, 4, 2, 32, 300, 10000.0, experts=6, used=2)
QWEN2 = dataclasses.replace(QWEN3, architecture="qwen2moe", numbers=16, of_all=160)
MIXTRAL = dataclasses.replace(QWEN3, architecture="llama", numbers=16)
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
NAMES |= {"self_attn.o_proj": "attn_output", "mlp.gate": "ffn_gate_inp", "mlp.experts.down_proj": "ffn_down_exps"}
NAMES |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
OF_HEADS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
OF_ALL = {"mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp"}
OF_ALL |= {"mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp"}


def halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows 0, 1, 2, 3 .. of a head in the order 0, 2, .., 1, 3, .. of transformers."""
    return torch.cat([torch.cat([head[::2], head[1::2]]) for head in weight.chunk(heads)])


def by_hand(shape: Shape, file: GGUF) -> nn.Module:
    """The model of transformers that such a file stands for, in floats."""

    def numbers(name: str) -> torch.Tensor:
        tensor = file.tensor(name)
        return tensor.numbers().view(file.shape(name)) if isinstance(tensor, Codes) else tensor.float()

    own = {
        "vocab_size": 300,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": shape.numbers,
        "intermediate_size": 96,
        "moe_intermediate_size": 96,
        "num_experts_per_tok": 2,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "pad_token_id": 0,
    }
    if shape is MIXTRAL:
        model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**own, num_local_experts=6))
    elif shape is QWEN2:
        config = transformers.Qwen2MoeConfig(**own, num_experts=6, shared_expert_intermediate_size=160)
        model = transformers.Qwen2MoeForCausalLM(config)
    else:
        model = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**own, num_experts=6, norm_topk_prob=True))
    weights = model.state_dict()
    for layer in range(2):
        more = {"qwen2moe": OF_ALL, "qwen3moe": OF_HEADS}.get(shape.architecture, {})
        for ours, stored in (NAMES | more).items():
            weight = numbers(f"blk.{layer}.{stored}.weight")
            if shape is MIXTRAL and stored in ("attn_q", "attn_k"):
                weight = halves(weight, 4 if stored == "attn_q" else 2)
            place = next(weights[name] for name in _places(layer, ours) if name in weights)
            place.copy_(weight.view(place.shape))
        both = [numbers(f"blk.{layer}.ffn_{name}_exps.weight") for name in ("gate", "up")]
        weights[f"model.layers.{layer}.mlp.experts.gate_up_proj"].copy_(torch.cat(both, 1))
        for name in "qkv" if shape is QWEN2 else "":
            weights[f"model.layers.{layer}.self_attn.{name}_proj.bias"].copy_(numbers(f"blk.{layer}.attn_{name}.bias"))
    head = "output.weight" if shape is QWEN2 else "token_embd.weight"
    for ours, stored in (("model.embed_tokens", "token_embd.weight"), ("lm_head", head)):
        weights[f"{ours}.weight"].copy_(numbers(stored))
    weights["model.norm.weight"].copy_(numbers("output_norm.weight"))
    return model.eval()


def _places(layer: int, name: str) -> list[str]:
    return [f"model.layers.{layer}.{name}{end}" for end in ("", ".weight")]


def content_of(shape: Shape, kinds: dict[str, str]) -> dict:
    """The tensors of a file, some experts in other blocks, with norms, routers and biases that matter."""
    content = tensors_of(shape, "Q4_0")
    for name, (kind, sizes, _) in list(content.items()):
        numbers = torch.Size(sizes).numel()
        draw = torch.Generator().manual_seed(numbers)
        other = next((other for part, other in kinds.items() if part in name), kind)
        if other in ("F32", "F16"):
            floats = (torch.randn(sizes, generator=draw) * 0.1).to(torch.float16 if other == "F16" else torch.float32)
            content[name] = other, sizes, floats.numpy().tobytes()
        elif other != kind:
            content[name] = other, sizes, random_blocks(other, numbers // TYPES[other][1], seed=numbers)
    return content


@pytest.mark.parametrize(
    ("shape", "kinds"),
    [
        (QWEN3, {}),
        (QWEN3, {"up_exps": "Q8_0", "down_exps": "Q4_1"}),  # gate and up in different blocks
        (QWEN3, {"gate_exps": "Q5_1", "up_exps": "Q5_0"}),  # offsets beside none
        (QWEN3, {"down_exps": "F16"}),
        (QWEN2, {}),
        (MIXTRAL, {}),
    ],
)
def test_a_mixture_generates_what_its_numbers_generate(shape, kinds, tmp_path):
    """Against transformers' own model with the numbers that the blocks stand for."""
    path = tmp_path / "model.gguf"
    write(path, fields_of(shape, "Q4_0"), content_of(shape, kinds))
    model = llm.from_gguf(path)
    reference = by_hand(shape, GGUF(path))
    assert type(model) is type(reference)
    experts = [module for module in model.modules() if isinstance(module, ExpertsOfCodes)]
    assert len(experts) == (0 if "F16" in kinds.values() else 2)
    x = torch.randint(0, 300, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimized = llm.optimize(model)
        assert not ipex.explain(optimized).declined
        for words in (x, x[:1, :3]):
            expected = reference(words).logits
            for found in (model(words).logits, optimized(words).logits):
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-3 * expected.abs().max().item())
        how = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        assert torch.equal(optimized.generate(x, **how), reference.generate(x, **how))
        assert optimized.__dict__["_compiled_call_impl"].reasons == set()


def test_a_tensor_for_each_expert(tmp_path):
    """As files of Mixtral had them at first."""
    content, apart = tensors_of(MIXTRAL, "Q4_0"), {}
    for name, (kind, sizes, data) in content.items():
        if "_exps" not in name:
            apart[name] = kind, sizes, data
            continue
        data = data() if callable(data) else data
        size = len(data) // sizes[0]
        for i in range(sizes[0]):
            own = name.replace("_exps.weight", f".{i}.weight")
            apart[own] = kind, sizes[1:], data[i * size : (i + 1) * size]
    models = []
    for name, each in (("together", content), ("apart", apart)):
        write(tmp_path / name, fields_of(MIXTRAL, "Q4_0"), each)
        models.append(llm.from_gguf(tmp_path / name))
    assert sum(isinstance(module, ExpertsOfCodes) for module in models[1].modules()) == 2
    x = torch.randint(0, 300, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(models[0](x).logits, models[1](x).logits)
    del apart["blk.1.ffn_up.3.weight"]
    write(tmp_path / "apart", fields_of(MIXTRAL, "Q4_0"), apart)
    with pytest.raises(ValueError, match="expected blk.1.ffn_up.3.weight in .*, got no such tensor"):
        llm.from_gguf(tmp_path / "apart")


def test_experts_stay_codes(tmp_path):
    """All that a model holds is codes of 4 bits with a float for 32 of them, its few floats aside."""
    shape = dataclasses.replace(QWEN3, hidden=128, between=256, experts=16)
    path = tmp_path / "model.gguf"
    write(path, fields_of(shape, "Q4_0"), tensors_of(shape, "Q4_0"))
    before = ipex.memory_allocated()
    model = llm.from_gguf(path)
    numbers = 16 * 3 * 128 * 256
    assert ipex.memory_allocated() - before < 1.1 * 2 * (numbers // 2 + numbers // 32 * 4)
    for layer in model.model.layers:
        assert not [*layer.mlp.experts.parameters(), *layer.mlp.experts.buffers()]
        held = [layer.mlp.experts.gate_up_proj, layer.mlp.experts.down_proj]
        assert sum(one.codes.nbytes + one.scales.nbytes for one in held) == numbers // 2 + numbers // 32 * 4
    graph = llm.optimize(model).__dict__["_compiled_call_impl"].captured.graph
    contexts = [node for node in graph.graph.nodes() if node.kind() == "ipex::grouped_linear_run"]
    assert len(contexts) == 2 * 2
    assert all("codes" in str(node.schema()) for node in contexts)
    assert not any("grouped_mm" in node.kind() for node in graph.graph.nodes())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expert_used_count": 7}, "expected qwen2moe.expert_used_count from 1 to 6 in .*, got 7"),
        ({"expert_used_count": None}, "expected qwen2moe.expert_used_count in .*, got no such field"),
        ({"expert_count": 0}, "expected qwen2moe.expert_count from 1 to .*, got 0"),
        ({"expert_count": 1 << 30}, "expected qwen2moe.expert_count from 1 to 1048576 in .*, got 1073741824"),
        ({"expert_count": 1 << 20}, r"expected blk.0.ffn_gate_inp.weight of \(1048576, 64\) .*, got \(6, 64\)"),
        ({"expert_count": 5}, r"expected blk.0.ffn_gate_inp.weight of \(5, 64\) .*, got \(6, 64\)"),
        ({"expert_feed_forward_length": 48}, r"expected blk.0.ffn_gate_exps.weight of \(6, 48, 64\) .*, got \(6, 96"),
        ({"expert_shared_feed_forward_length": 32}, r"expected blk.0.ffn_gate_shexp.weight of \(32, 64\)"),
        ({"block_count": 1 << 20}, "expected qwen2moe.block_count from 1 to [0-9]+ in .*, got 1048576"),
        ({"attention.head_count": 0}, "expected qwen2moe.attention.head_count from 1 to .*, got 0"),
        ({"embedding_length": "64"}, "expected qwen2moe.embedding_length from 1 to .*, got '64'"),
        ({"attention.head_count_kv": 3}, r"expected blk.0.attn_k.bias of \(48,\) .*, got \(32,\)"),
        ({"rope.freq_base": "a"}, "expected qwen2moe.rope.freq_base of a number in .*, got 'a'"),
        (
            dict.fromkeys(("embedding_length", "expert_count", "expert_feed_forward_length"), 1 << 20),
            "expected fields of a Qwen2Moe model in .*, got some that it refuses: RuntimeError: .* overflow",
        ),
        ({"rope.dimension_count": 8}, "expected qwen2moe.rope.dimension_count of 16 in .*, got 8"),
    ],
)  # fmt: skip
def test_counts_that_do_not_fit(change, message, tmp_path):
    fields = {**fields_of(QWEN2, "Q4_0"), **{f"qwen2moe.{name}": value for name, value in change.items()}}
    path = tmp_path / "model.gguf"
    write(path, {key: value for key, value in fields.items() if value is not None}, tensors_of(QWEN2, "Q4_0"))
    with pytest.raises(ValueError, match=message):
        llm.from_gguf(path)


@pytest.mark.parametrize("name", ["token_embd", "blk.1.ffn_up_exps", "blk.1.ffn_gate_inp_shexp", "blk.0.ffn_gate_inp"])
def test_a_tensor_that_is_not_there(name, tmp_path):
    content = tensors_of(QWEN2, "Q4_0")
    del content[f"{name}.weight"]
    path = tmp_path / "model.gguf"
    write(path, fields_of(QWEN2, "Q4_0"), content)
    with pytest.raises(ValueError, match=f"expected {name}.weight in .*, got no such tensor"):
        llm.from_gguf(path)
