"""IPEX's modules and functions for parts of language models compute what eager torch does, and are fused."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from ipex.llm import functional, modules  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
DTYPES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}  # of the largest number


@pytest.fixture(autouse=True)
def _no_grad():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Rotary(nn.Module):
    """A script's calls have their numbers in them."""

    def __init__(self, numbers: int, offset: int) -> None:
        super().__init__()
        self.rotary = modules.RotaryEmbedding(32, numbers, base=500)
        self.numbers, self.offset = numbers, offset

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        return self.rotary(x, places, 4, 16, self.offset, self.numbers)


class Varlen(nn.Module):
    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.attention, self.is_causal = modules.VarlenAttention(), is_causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor, begins: Tensor) -> Tensor:
        out = torch.empty_like(q)
        return self.attention(q, k, v, out, begins, begins, None, 4, 4, 0.0, 0.3, False, self.is_causal, False, None)


class Experts(nn.Module):
    def __init__(self, w1: Tensor, w2: Tensor, w3: Tensor, is_one: bool) -> None:
        super().__init__()
        self.moe = modules.GatedMLPMOE(torch.cat((w1, w3), 1), w2) if is_one else modules.GatedMLPMOE(w1, w2, w3, False)

    def forward(self, x: Tensor, logits: Tensor) -> Tensor:
        return self.moe(x, False, 2, logits, True)


class Grouped(Experts):
    def forward(self, x: Tensor, logits: Tensor, bias: Tensor) -> Tensor:
        return self.moe(x, True, 2, logits, False, 2, 4, scoring_func="sigmoid", e_score_correction_bias=bias)


def turned(x: Tensor, places: Tensor, numbers: int, neighbours: bool, base: float = 500) -> Tensor:
    """Each two numbers as a complex one, times e^(i angle)."""
    angles = places.unsqueeze(-1).float() / base ** (torch.arange(0, numbers, 2) / numbers)
    turn = torch.polar(torch.ones_like(angles), angles).unsqueeze(-2)
    first = x[..., :numbers].float()
    if not neighbours:
        first = first.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)
    result = torch.view_as_real(torch.view_as_complex(first.unflatten(-1, (-1, 2)).contiguous()) * turn).flatten(-2)
    if not neighbours:
        result = result.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    return torch.cat((result.to(x.dtype), x[..., numbers:]), -1)


def attended(q: Tensor, k: Tensor, v: Tensor, begins: Tensor, is_causal: bool, scale: float = 0.3) -> Tensor:
    result = torch.empty_like(q)
    for begin, end in zip(begins.tolist(), begins.tolist()[1:]):
        for head in range(q.shape[1]):
            shared = head * k.shape[1] // q.shape[1]
            scores = q[begin:end, head].float() @ k[begin:end, shared].float().T * scale
            if is_causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf"))
            result[begin:end, head] = (scores.softmax(-1) @ v[begin:end, shared].float()).to(q.dtype)
    return result


def mixed(x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    result = torch.zeros(x.shape)
    for token in range(len(x)):
        for weight, expert in zip(weights[token], chosen[token]):
            inner = F.silu(w1[expert] @ x[token]) * (w3[expert] @ x[token])
            result[token] += weight * (w2[expert] @ inner).float()
    return result.to(x.dtype)


def best(x: Tensor, logits: Tensor, *w: Tensor) -> Tensor:
    weights, chosen = logits.float().softmax(-1).topk(2)
    return mixed(x, *w, weights / weights.sum(-1, keepdim=True), chosen)


def best_of_groups(x: Tensor, logits: Tensor, bias: Tensor, *w: Tensor) -> Tensor:
    """Two of four groups of two experts, by the sum of both; then two experts. The bias is not in the weights."""
    scores = logits.float().sigmoid()
    weights, chosen = [], []
    for row in scores:
        asked = (row + bias).tolist()
        groups = sorted(range(4), key=lambda g: -(asked[2 * g] + asked[2 * g + 1]))[:2]
        experts = sorted((2 * g + i for g in groups for i in (0, 1)), key=lambda e: -asked[e])[:2]
        weights.append(row[experts])
        chosen.append(torch.tensor(experts))
    return mixed(x, *w, torch.stack(weights), torch.stack(chosen))


def cases(dtype: torch.dtype) -> dict[str, tuple[Any, tuple[Tensor, ...], Any, dict[str, int]]]:
    """The module, what it is given, what torch computes, and how often the graph has which ops."""

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=dtype)

    first, second = nn.Linear(64, 32).to(dtype), nn.Linear(64, 32, bias=False).to(dtype)
    x, y, z, weight, bias = some(5, 64), some(5, 32), some(5, 32), some(64), some(64)
    one = {"ipex::linear_run": 1, "aten::silu": 0, "aten::mul": 0, "aten::add": 0, "aten::gelu": 0, "aten::relu": 0}
    heads, places = some(2, 3, 4, 16), torch.tensor([[4, 5, 6], [0, 1, 2]])
    rotary = {"ipex::rotary": 1, "aten::mul": 0}
    texts = some(7, 4, 16), some(7, 2, 16), some(7, 2, 16), torch.tensor([0, 3, 7])
    w1, w3, w2 = some(8, 32, 16) / 4, some(8, 32, 16) / 4, some(8, 16, 32) / 4
    tokens, logits, correction = some(6, 16), some(6, 8), torch.randn(8)
    grouped = {"ipex::grouped_linear_run": 2 if dtype == torch.float32 else 0}
    return {
        "LinearSilu": (modules.LinearSilu(first), (x,), F.silu(first(x)), one),
        "LinearRelu": (modules.LinearRelu(first), (x,), F.relu(first(x)), one),
        "LinearGelu": (modules.LinearGelu(first), (x,), F.gelu(first(x)), one),
        "LinearNewGelu": (
            modules.LinearNewGelu(first),
            (x,),
            transformers.activations.NewGELUActivation()(first(x)),
            one,
        ),
        "LinearMul": (modules.LinearMul(first), (x, y), first(x) * y, one),
        "LinearAdd": (modules.LinearAdd(first), (x, y), first(x) + y, one),
        "LinearSiluMul": (modules.LinearSiluMul(first), (x, y), F.silu(first(x)) * y, one),
        "LinearAddAdd": (modules.LinearAddAdd(first), (x, y, z), first(x) + y + z, one),
        "Linear2SiluMul": (
            modules.Linear2SiluMul(first, second),
            (x,),
            F.silu(first(x)) * second(x),
            {**one, "ipex::linear_run": 2},
        ),
        "RMSNorm": (modules.RMSNorm(64, weight=weight), (x,), rms(x, weight, 1e-6), {"ipex::rms_norm": 1}),
        "FastLayerNorm": (
            modules.FastLayerNorm(64, 1e-5, weight, bias),
            (x,),
            F.layer_norm(x, (64,), weight, bias),
            {"ipex::layer_norm": 1},
        ),
        "RotaryEmbedding of halves": (Rotary(16, 8), (heads, places), turned(heads, places, 16, False), rotary),
        "RotaryEmbedding of neighbours": (Rotary(8, 1), (heads, places), turned(heads, places, 8, True), rotary),
        "VarlenAttention": (Varlen(True), texts, attended(*texts, True), {}),
        "VarlenAttention to both sides": (Varlen(False), texts, attended(*texts, False), {}),
        "GatedMLPMOE": (Experts(w1, w2, w3, True), (tokens, logits), best(tokens, logits, w1, w2, w3), grouped),
        "GatedMLPMOE of groups": (
            Grouped(w1, w2, w3, False),
            (tokens, logits, correction),
            best_of_groups(tokens, logits, correction, w1, w2, w3),
            grouped,
        ),
    }


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * (wide.pow(2).mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype) * weight


def assert_close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", cases(torch.float32))
def test_eager_scripted_and_optimised(name, dtype):
    torch.manual_seed(1)
    module, inputs, expected, ops = cases(dtype)[name]
    module.eval()
    assert_close(module(*inputs), expected, DTYPES[dtype])
    scripted = torch.jit.script(module)
    assert_close(scripted(*inputs), expected, DTYPES[dtype])
    for optimized in (ipex.jit_optimize(scripted), ipex.jit_optimize(module, inputs)):
        for _ in range(2):
            assert_close(optimized(*inputs), expected, DTYPES[dtype])
        for kind, count in ops.items():
            assert len(optimized.inlined_graph.findAllNodes(kind)) == count, kind


def test_every_name_is_tested_or_refused():
    tested = {name.split(" ")[0] for name in cases(torch.float32)}
    assert tested | set(functional.NOT_OFFERED) == set(modules.__all__)


@pytest.mark.parametrize("name", functional.NOT_OFFERED)
def test_what_is_not_offered_says_what_to_use(name):
    offered = getattr(modules, name)
    with pytest.raises(NotImplementedError, match=f"got {name}. (Call|Use|Gather)"):
        offered(64, 8)
    with pytest.raises(AttributeError, match=f"got {name}. (Call|Use|Gather)"):
        offered.reshape_and_cache  # noqa: B018
    with pytest.raises(NotImplementedError, match="got IndirectAccess"):
        functional.indirect_access_kv_cache_attention(1, 2)


def test_modules_can_be_copied_and_pickled():
    module, x = modules.LinearSilu(nn.Linear(4, 4)), torch.randn(2, 4)
    assert torch.equal(copy.deepcopy(module)(x), module(x))
    assert torch.equal(pickle.loads(pickle.dumps(module))(x), module(x))
    assert modules.LinearSilu.__doc__ == "Return silu(linear(x))."


def test_linears_that_ipex_optimize_packed():
    module, x = modules.Linear2SiluMul(nn.Linear(64, 32), nn.Linear(64, 32)).eval(), torch.randn(3, 64)
    packed = ipex.optimize(module)
    assert type(packed.linear_s).__name__ == "PackedLinear"
    assert_close(packed(x), module(x), 1e-5)


def test_experts_without_tokens_and_a_routing_of_the_users():
    w = torch.randn(4, 16, 8), torch.randn(4, 8, 8)
    module, x = modules.GatedMLPMOE(*w), torch.randn(3, 8)

    def always_the_second(hidden_states, gating_output, topk, renormalize):
        return torch.ones(3, 1), torch.ones(3, 1, dtype=torch.long)

    found = module(x, False, 1, torch.randn(3, 4), False, custom_routing_function=always_the_second)
    inner = F.silu(x @ w[0][1, :8].T) * (x @ w[0][1, 8:].T)
    assert_close(found, inner @ w[1][1].T, 1e-5)
    with pytest.raises(ValueError, match="expected topk_group and num_expert_group"):
        module(x, True, 1, torch.randn(3, 4), False)
    with pytest.raises(ValueError, match="expected scoring_func softmax or sigmoid, got tanh"):
        module(x, False, 1, torch.randn(3, 4), False, scoring_func="tanh")


def test_rotary_embedding_of_query_key_and_value_side_by_side():
    rotary, x = modules.RotaryEmbedding(32, 16, base=500), torch.randn(2, 3, 8 * 16)
    places = torch.arange(3).expand(2, 3)
    query, key, value = rotary(x, places, 4, 16, 8, 16, 3, 3)
    heads = x.unflatten(-1, (8, 16))
    assert_close(query, turned(heads[:, :, :4], places, 16, False), 1e-5)
    assert_close(key, turned(heads[:, :, 4:6], places, 16, False), 1e-5)
    assert torch.equal(value, heads[:, :, 6:])
    with pytest.raises(torch.jit.Error, match="expected no num_concats in a script"):
        torch.jit.script(rotary)(x, places, 4, 16, 8, 16, 3, 3)
    # One position is that of the first token.
    shifted = rotary(heads, torch.tensor(5), 8, 16, 8, 16)
    assert_close(shifted, turned(heads, places + 5, 16, False), 1e-5)


@pytest.mark.parametrize(
    "extra",
    [
        {"rope_type": "linear", "factor": 2.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
        {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    ],
)
def test_rotary_embeddings_of_longer_texts_are_those_of_transformers(extra):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    kind = {"rope_type": extra.get("type", extra.get("rope_type")), "rope_theta": 10000.0}
    rest = {name: value for name, value in extra.items() if name != "type"}
    config = transformers.LlamaConfig(head_dim=16, max_position_embeddings=64, rope_parameters={**rest, **kind})
    x, places = torch.randn(1, 3, 4, 16), torch.tensor([[40, 41, 42]])
    cos, sin = LlamaRotaryEmbedding(config)(x, places)
    expected, _ = apply_rotary_pos_emb(x, x, cos, sin, unsqueeze_dim=2)
    plain = modules.RotaryEmbedding(64, 16)(x, places, 4, 16, 8, 16)
    found = modules.RotaryEmbedding(64, 16, extra_rope_config=extra)(x, places, 4, 16, 8, 16)
    assert_close(found, expected, 1e-5)
    assert not torch.allclose(found, plain, atol=1e-2)


def test_rotary_embeddings_that_depend_on_the_length_are_refused():
    with pytest.raises(ValueError, match="got longrope. Compute sin and cos"):
        modules.RotaryEmbedding(64, 16, extra_rope_config={"long_factor": [1.0], "short_factor": [1.0]})


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("dims", [3, 4])
def test_function_rotary_embedding_writes_into_query_and_key(dims, half, twice):
    shape = (3,) if dims == 3 else (2, 3)
    query, key = torch.randn(*shape, 4, 16), torch.randn(*shape, 2, 16)
    places = torch.tensor([3, 9, 1])
    angles = places.unsqueeze(-1) / 500 ** (torch.arange(0, 16, 2) / 16)
    expected = [turned(one, places, 16, not half) for one in (query, key)]
    angles = torch.cat((angles, angles), -1) if twice else angles
    found = functional.rotary_embedding(query, key, angles.sin(), angles.cos(), 16, half)
    assert found[0] is query
    assert found[1] is key
    for one, other in zip(found, expected):
        assert_close(one, other, 1e-5)


def test_functions_with_a_sum_or_a_product_before():
    x, y, weight, bias = torch.randn(5, 64), torch.randn(5, 64), torch.randn(64), torch.randn(64)
    add_rms, add_norm = functional.add_rms_norm, functional.add_layer_norm
    residual = y.clone()
    assert_close(add_rms(residual, x, weight, bias, 1e-6), rms(x + y, weight, 1e-6) + bias, 1e-5)
    assert_close(add_norm(residual, x, weight, bias, 1e-6), F.layer_norm(x + y, (64,), weight, bias, 1e-6), 1e-5)
    assert torch.equal(residual, y)
    assert_close(add_rms(None, x, weight, None, 1e-6), rms(x, weight, 1e-6), 1e-5)
    add_rms(residual, x, weight, None, 1e-6, True)
    assert torch.equal(residual, x + y)
    add_norm(residual, x, weight, None, 1e-6, True)
    assert torch.equal(residual, x + y + x)
    out = torch.empty_like(x)
    assert functional.silu_mul(x, y, out) is out
    assert_close(out, F.silu(x) * y, 1e-6)
    assert_close(functional.gelu_mul(x, y, None, "tanh"), F.gelu(x, approximate="tanh") * y, 1e-6)
    assert functional.gelu_mul(x, y, out) is out
    assert_close(out, F.gelu(x) * y, 1e-6)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (
            functional.add_rms_norm(x, y, self.weight, None, 1e-6),
            functional.add_layer_norm(x, y, self.weight, None, 1e-6),
            functional.silu_mul(x, y) + functional.gelu_mul(x, y),
        )


def test_functions_are_fused():
    block, inputs = Block().eval(), (torch.randn(5, 64), torch.randn(5, 64))
    optimized = ipex.jit_optimize(torch.jit.script(block))
    for found, expected in zip(optimized(*inputs), block(*inputs)):
        assert_close(found, expected, 1e-5)
    counts = {"ipex::rms_norm": 1, "ipex::elementwise": 1, "aten::silu": 0, "aten::gelu": 0, "aten::layer_norm": 0}
    for kind, count in counts.items():
        assert len(optimized.inlined_graph.findAllNodes(kind)) == count, kind


def test_varlen_attention_refuses_what_it_does_not_compute():
    q = torch.randn(4, 2, 8)
    given = [q, q, q, torch.empty_like(q), torch.tensor([0, 4]), torch.tensor([0, 4])]
    rest = [None, 4, 4, 0.0, None, False, True, False, None]
    assert_close(functional.varlen_attention(*given, *rest), attended(q, q, q, given[4], True, 8**-0.5), 1e-5)
    with pytest.raises(ValueError, match="expected no window and no softcap"):
        functional.varlen_attention(*given, *rest, 3)
    with pytest.raises(ValueError, match="alibi_slopes=None"):
        functional.varlen_attention(*given, torch.ones(2), *rest[1:])


def test_products_of_lora():
    inputs, a, b = torch.randn(5, 16), torch.randn(3, 4, 16), torch.randn(3, 12, 4)
    chosen = torch.tensor([2, -1, 0, 0, 1])
    shrunk, expanded = torch.full((5, 6), 7.0), torch.ones(5, 20)
    functional.bgmv_shrink(inputs, a, shrunk, chosen, 0.5)
    functional.bgmv_expand(shrunk, b, expanded, chosen, True)
    sliced = torch.ones(5, 20)
    functional.bgmv_expand_slice(shrunk[:, :4], b, sliced, chosen, 3, 12, False)
    for row, lora in enumerate(chosen.tolist()):
        small = 0.5 * (a[lora] @ inputs[row]) if lora >= 0 else torch.zeros(4)
        large = b[lora] @ small if lora >= 0 else torch.zeros(12)
        assert_close(shrunk[row], torch.cat((small, torch.full((2,), 7.0))), 1e-5)
        assert_close(expanded[row], 1 + torch.cat((large, torch.zeros(8))), 1e-5)
        assert_close(sliced[row], torch.cat((torch.ones(3), large, torch.ones(5))), 1e-5)
    # Of texts with 3 and 2 tokens.
    lengths, ones, of_texts = torch.tensor([3, 2]), torch.tensor([2, 0]), torch.tensor([2, 2, 2, 0, 0])
    both = torch.zeros(2, 5, 4), torch.zeros(2, 5, 20), torch.zeros(2, 5, 20)
    functional.sgmv_shrink(inputs, a, both[0][0], lengths, lengths, ones, 2, 3, 0.5)
    functional.bgmv_shrink(inputs, a, both[0][1], of_texts, 0.5)
    functional.sgmv_expand(both[0][0], b, both[1][0], lengths, lengths, ones, 2, 3, True)
    functional.bgmv_expand(both[0][0], b, both[1][1], of_texts, True)
    functional.sgmv_expand_slice(both[0][0], b, both[2][0], lengths, lengths, ones, 2, 3, 3, 12)
    functional.bgmv_expand_slice(both[0][0], b, both[2][1], of_texts, 3, 12, False)
    for by_text, by_token in both:
        assert by_text.abs().max() > 0
        assert torch.equal(by_text, by_token)
