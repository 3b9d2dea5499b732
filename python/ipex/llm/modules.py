"""IPEX's modules for parts of language models, as plain PyTorch, which `ipex.jit_optimize` packs and fuses.

>>> gate, up = torch.nn.Linear(8, 16), torch.nn.Linear(8, 16)
>>> gate_up = ipex.llm.modules.Linear2SiluMul(gate, up)  # silu(gate(x)) * up(x)
>>> gate_up(torch.randn(2, 8)).shape
torch.Size([2, 16])

They work in eager mode, in traces and in scripts. A module whose weights are packed one by one, by `ipex.optimize`, may
be given as a linear too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._torch_internals import grouped_mm
from . import functional
from .functional import at_positions, not_offered, silu_mul, turned


class _Linear(nn.Module):
    after: Any

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.after(self.linear(x))
        return result


class _LinearWith(_Linear):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        result: Tensor = self.after(self.linear(x), y)
        return result


class _LinearWithTwo(_Linear):
    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:  # type: ignore[override]
        result: Tensor = self.after(self.linear(x), y, z)
        return result


def _new_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _add_add(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x + y + z


# The name, what it is given beside x, what follows the linear, and how one writes it.
_AFTER_A_LINEAR: tuple[tuple[str, type, Callable[..., Tensor], str], ...] = (
    ("LinearSilu", _Linear, F.silu, "silu(linear(x))"),
    ("LinearRelu", _Linear, F.relu, "relu(linear(x))"),
    ("LinearGelu", _Linear, F.gelu, "gelu(linear(x))"),
    ("LinearNewGelu", _Linear, _new_gelu, "gelu(linear(x), approximate='tanh')"),
    ("LinearMul", _LinearWith, torch.mul, "linear(x) * y"),
    ("LinearAdd", _LinearWith, torch.add, "linear(x) + y"),
    ("LinearSiluMul", _LinearWith, silu_mul, "silu(linear(x)) * y"),
    ("LinearAddAdd", _LinearWithTwo, _add_add, "linear(x) + y + z"),
)
for _name, _base, _after, _formula in _AFTER_A_LINEAR:
    globals()[_name] = type(
        _name, (_base,), {"after": staticmethod(_after), "__doc__": f"Return {_formula}.", "__module__": __name__}
    )


class Linear2SiluMul(nn.Module):
    """Return silu(linear_s(x)) * linear_m(x)."""

    def __init__(self, linear_s: nn.Module, linear_m: nn.Module) -> None:
        super().__init__()
        self.linear_s, self.linear_m = linear_s, linear_m

    def forward(self, x: Tensor) -> Tensor:
        """Compute it."""
        return silu_mul(self.linear_s(x), self.linear_m(x))


def _kept(weight: Tensor) -> nn.Parameter:
    return weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight, requires_grad=False)


class RMSNorm(nn.Module):
    """Root mean square norm over the last dimension."""

    apply_function = staticmethod(functional.rms_norm)

    def __init__(self, hidden_size: int, eps: float = 1e-6, weight: Tensor | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.weight = _kept(torch.ones(hidden_size) if weight is None else weight)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise."""
        return functional.rms_norm(x, self.weight, self.eps)


class FastLayerNorm(nn.Module):
    """torch's layer_norm."""

    apply_function = staticmethod(functional.fast_layer_norm)

    def __init__(
        self,
        normalized_shape: int | list[int] | tuple[int, ...],
        eps: float,
        weight: Tensor,
        bias: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.normalized_shape: list[int] = (
            [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
        )
        self.eps = eps
        self.weight, self.bias = _kept(weight), None if bias is None else _kept(bias)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Normalise."""
        return F.layer_norm(hidden_states, self.normalized_shape, self.weight, self.bias, self.eps)


# Frequencies that do not depend on the length of the text.
_ROTARY_KINDS = ("default", "linear", "llama3", "yarn")


class RotaryEmbedding(nn.Module):
    """Rotary embeddings with a table of sines and cosines, as transformers computes it.

    `extra_rope_config` is the `rope_scaling` of a model's configuration. `backbone` changes nothing: the call says
    which numbers are turned together.
    """

    apply_function = staticmethod(functional.rotary_embedding)

    def __init__(
        self,
        max_position_embeddings: int,
        pos_embd_dim: int,
        base: float = 10000,
        backbone: str | None = None,
        extra_rope_config: dict[str, Any] | None = None,
    ) -> None:
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        super().__init__()
        self.cos: Tensor
        self.sin: Tensor
        extra = dict(extra_rope_config or {})
        factors = "longrope" if "long_factor" in extra or "short_factor" in extra else "default"
        kind = extra.pop("type", extra.get("rope_type", factors))
        if kind not in _ROTARY_KINDS:
            raise ValueError(
                f"ipex.llm RotaryEmbedding: expected a rotary embedding of {', '.join(_ROTARY_KINDS)}, got {kind}. "
                "Compute sin and cos, and call ipex.llm.functional.rotary_embedding."
            )
        config = LlamaConfig(
            head_dim=pos_embd_dim,
            max_position_embeddings=max_position_embeddings,
            rope_parameters={**extra, "rope_type": kind, "rope_theta": float(base)},
        )
        rotary = LlamaRotaryEmbedding(config)
        angles = torch.outer(torch.arange(max_position_embeddings, dtype=torch.float32), rotary.inv_freq)
        self.register_buffer("cos", angles.cos() * rotary.attention_scaling, persistent=False)
        self.register_buffer("sin", angles.sin() * rotary.attention_scaling, persistent=False)

    def forward(
        self,
        x: Tensor,
        position_ids: Tensor,
        num_head: int,
        head_dim: int,
        offset: int,
        rotary_ndims: int,
        seq_len: int | None = None,
        num_concats: int | None = None,
    ) -> Tensor:
        """Turn heads, [batch, tokens, heads, numbers]. `offset` says how far apart the two numbers of a pair lie.

        With `num_concats`, x is query, key and value side by side, and all three are returned, the last as it is. A
        script, whose functions return one type, raises then.
        """
        heads = x.reshape(x.shape[0], x.shape[1], -1, head_dim)
        cos = at_positions(self.cos, position_ids, x.shape[1])
        sin = at_positions(self.sin, position_ids, x.shape[1])
        if num_concats is None:
            return turned(heads, cos, sin, rotary_ndims, offset != 1)
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            raise ValueError(
                "ipex.llm RotaryEmbedding: expected no num_concats in a script, where a function returns one type. "
                "Split query, key and value, and call it for two of them."
            )
        else:
            shared = (heads.shape[2] - num_head) // 2
            both, value = heads.split([num_head + shared, shared], dim=2)
            both = turned(both, cos, sin, rotary_ndims, offset != 1)
            return (*both.split([num_head, shared], dim=2), value)  # type: ignore[return-value]


class VarlenAttention(nn.Module):
    """Attention within each of several texts that lie one behind the other."""

    apply_function = staticmethod(functional.varlen_attention)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor,
        seqlen_q: Tensor,
        seqlen_k: Tensor,
        alibi_slopes: Tensor | None,
        max_seqlen_q: int,
        max_seqlen_k: int,
        pdropout: float,
        softmax_scale: float | None,
        zero_tensors: bool,
        is_causal: bool,
        return_softmax: bool,
        gen_: torch.Generator | None,
        window_size_left: int = -1,
        window_size_right: int = -1,
        softcap: float = -1.0,
    ) -> Tensor:
        """Attend, and fill `out`."""
        return functional.varlen_attention(
            query,
            key,
            value,
            out,
            seqlen_q,
            seqlen_k,
            alibi_slopes,
            max_seqlen_q,
            max_seqlen_k,
            pdropout,
            softmax_scale,
            zero_tensors,
            is_causal,
            return_softmax,
            gen_,
            window_size_left,
            window_size_right,
            softcap,
        )


def _best(
    scores: Tensor, bias: Tensor | None, groups: int, kept: int, top_k: int, renormalize: bool
) -> tuple[Tensor, Tensor]:
    """Return weights and numbers of the best experts, of the best groups.

    A group counts by its best expert, and with a bias, as in DeepSeek-V3, by its two best. The bias chooses, and is not
    in the weights.
    """
    asked = scores if bias is None else scores + bias
    if kept < groups:
        grouped = asked.unflatten(-1, (groups, -1))
        of_groups = grouped.amax(dim=-1) if bias is None else grouped.topk(2, dim=-1)[0].sum(dim=-1)
        is_kept = torch.zeros_like(of_groups).scatter(-1, of_groups.topk(kept, dim=-1)[1], 1.0) > 0
        asked = grouped.masked_fill(~is_kept.unsqueeze(-1), float("-inf")).flatten(-2)
    chosen = asked.topk(top_k, dim=-1)[1]
    weights = scores.gather(-1, chosen)
    return (weights / weights.sum(dim=-1, keepdim=True) if renormalize else weights), chosen


class GatedMLPMOE(nn.Module):
    """A mixture of experts: each token's best of w2(silu(w1(x)) * w3(x)), weighted.

    `W13` is [experts, 2 * inner, hidden], w1 above w3, or w1 alone with `W3` given; `W2` is [experts, hidden, inner].
    `use_prepack` changes nothing: `ipex.jit_optimize` packs.
    """

    def __init__(self, W13: Tensor, W2: Tensor, W3: Tensor | None = None, use_prepack: bool = True) -> None:
        super().__init__()
        self.W13 = _kept(W13 if W3 is None else torch.cat((W13, W3), dim=1))
        self.W2 = _kept(W2)

    def forward(
        self,
        hidden_states: Tensor,
        use_grouped_topk: bool,
        top_k: int,
        router_logits: Tensor,
        renormalize: bool,
        topk_group: int | None = None,
        num_expert_group: int | None = None,
        custom_routing_function: Any | None = None,
        scoring_func: str = "softmax",
        e_score_correction_bias: Tensor | None = None,
    ) -> Tensor:
        """Choose experts for each token, [tokens, hidden], and return the weighted sum of what they compute."""
        if scoring_func == "softmax":
            scores = router_logits.softmax(dim=-1, dtype=torch.float32)
        elif scoring_func == "sigmoid":
            scores = router_logits.float().sigmoid()
        else:
            raise ValueError("ipex.llm GatedMLPMOE: expected scoring_func softmax or sigmoid, got " + scoring_func)
        groups, kept = 1, 1
        if use_grouped_topk:
            if topk_group is None or num_expert_group is None:
                raise ValueError(
                    "ipex.llm GatedMLPMOE: expected topk_group and num_expert_group, got None. Groups need them."
                )
            groups, kept = num_expert_group, topk_group
        if custom_routing_function is not None and not use_grouped_topk:
            if torch.jit.is_scripting():  # type: ignore[attr-defined]
                raise ValueError(
                    "ipex.llm GatedMLPMOE: expected no custom_routing_function in a script, which cannot be given a "
                    "function. Trace the model."
                )
            else:
                weights, chosen = custom_routing_function(
                    hidden_states=hidden_states, gating_output=router_logits, topk=top_k, renormalize=renormalize
                )
                return self._experts(hidden_states, weights, chosen)
        weights, chosen = _best(scores, e_score_correction_bias, groups, kept, top_k, renormalize)
        return self._experts(hidden_states, weights, chosen)

    def _experts(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        rows, order, ends = torch.ops.ipex.rows_by_expert(tokens, chosen, self.W2.shape[0])
        inner = grouped_mm(rows, self.W13.transpose(1, 2), ends)
        gate, up = inner.chunk(2, dim=-1)
        found = grouped_mm(silu_mul(gate, up), self.W2.transpose(1, 2), ends)
        result: Tensor = torch.ops.ipex.sum_of_experts(found, order, weights)
        return result


class _NotOffered(type):
    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(not_offered(cls.__name__))

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(not_offered(cls.__name__))


# A script may import them: only use raises.
IndirectAccessKVCacheAttention = _NotOffered("IndirectAccessKVCacheAttention", (), {"__module__": __name__})
MambaMixer = _NotOffered("MambaMixer", (), {"__module__": __name__})
PagedAttention = _NotOffered("PagedAttention", (), {"__module__": __name__})

__all__ = [
    *(name for name, *_ in _AFTER_A_LINEAR),
    "FastLayerNorm",
    "GatedMLPMOE",
    "IndirectAccessKVCacheAttention",
    "Linear2SiluMul",
    "MambaMixer",
    "PagedAttention",
    "RMSNorm",
    "RotaryEmbedding",
    "VarlenAttention",
]
