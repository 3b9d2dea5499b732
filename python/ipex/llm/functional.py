"""IPEX's functions for parts of language models, as plain PyTorch: `ipex.jit_optimize` fuses what they write out.

They work in eager mode, in traces and in scripts. Buffers that IPEX wrote into (`out`, `add_back`, the query and key of
`rotary_embedding`, the output of LoRA products) are written into here too.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "bgmv_expand",
    "bgmv_expand_slice",
    "bgmv_shrink",
    "fast_layer_norm",
    "gelu_mul",
    "indirect_access_kv_cache_attention",
    "rms_norm",
    "rotary_embedding",
    "sgmv_expand",
    "sgmv_expand_slice",
    "sgmv_shrink",
    "silu_mul",
    "varlen_attention",
]

# What is not offered, and what to use.
NOT_OFFERED = {
    "IndirectAccessKVCacheAttention": "Call ipex.llm.optimize(model), whose cache is written in place, or "
    "torch.nn.functional.scaled_dot_product_attention with a cache of your own.",
    "MambaMixer": "Use the mixers of transformers (MambaMixer, JambaMambaMixer), which are plain PyTorch.",
    "PagedAttention": "Gather the blocks of a text with index_select and call "
    "torch.nn.functional.scaled_dot_product_attention, or serve the model with `ipex llm serve`.",
}


def not_offered(name: str) -> str:
    """Return the error for a name of IPEX's that is not offered."""
    return f"ipex.llm: expected a part that is offered, got {name}. {NOT_OFFERED[name]}"


def _given(result: Tensor, out: Tensor | None) -> Tensor:
    return result if out is None else out.copy_(result)


def silu_mul(x: Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    """Return silu(x) * y."""
    return _given(F.silu(x) * y, out)


def gelu_mul(x: Tensor, y: Tensor, out: Tensor | None = None, approximate: str = "none") -> Tensor:
    """Return gelu(x) * y."""
    return _given(F.gelu(x, approximate=approximate) * y, out)


def rms_norm(hidden_states: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Divide by the root mean square of the last dimension, and multiply by the weight."""
    return F.rms_norm(hidden_states, [hidden_states.shape[-1]], weight, eps)


def fast_layer_norm(
    hidden_states: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """Return torch's layer_norm."""
    return F.layer_norm(hidden_states, normalized_shape, weight, bias, eps)


def _summed(residual: Tensor | None, x: Tensor, add_back: bool) -> Tensor:
    if residual is None:
        return x
    return residual.add_(x) if add_back else residual + x


def add_rms_norm(
    residual: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    add_back: bool = False,
) -> Tensor:
    """Return rms_norm(residual + x) + bias. `add_back` keeps the sum in the residual."""
    normal = rms_norm(_summed(residual, x, add_back), weight, eps)
    return normal if bias is None else normal + bias


def add_layer_norm(
    residual: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    add_back: bool = False,
) -> Tensor:
    """Return layer_norm(residual + x). `add_back` keeps the sum in the residual."""
    return F.layer_norm(_summed(residual, x, add_back), [x.shape[-1]], weight, bias, eps)


def _halves_turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def _pairs_turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2) * sin


def turned(x: Tensor, cos: Tensor, sin: Tensor, rotary_dim: int, rotary_half: bool) -> Tensor:
    """Turn the first `rotary_dim` numbers of each head. cos and sin have a number for each two."""
    if rotary_half:
        cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)
    else:
        cos, sin = cos.repeat_interleave(2, dim=-1), sin.repeat_interleave(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    first = x[..., :rotary_dim]
    result = _halves_turned(first, cos, sin) if rotary_half else _pairs_turned(first, cos, sin)
    return result if rotary_dim == x.shape[-1] else torch.cat((result, x[..., rotary_dim:]), dim=-1)


def at_positions(rows: Tensor, position_ids: Tensor | None, tokens: int) -> Tensor:
    """Return the rows of these positions, with a dimension for heads. One position is that of the first token."""
    if position_ids is None:
        return rows[:tokens].unsqueeze(-2)
    if position_ids.numel() == 1:
        position_ids = position_ids.reshape(1) + torch.arange(tokens, device=position_ids.device)
    return rows[position_ids].unsqueeze(-2)


def rotary_embedding(
    query: Tensor,
    key: Tensor,
    sin: Tensor,
    cos: Tensor,
    rotary_dim: int,
    rotary_half: bool,
    position_ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Turn query and key in place, [batch, tokens, heads, numbers] or [tokens, heads, numbers], and return them.

    A row of sin and cos is that of a position. It has a number for each two of `rotary_dim`, or these twice over.
    `rotary_half` says that the two lie half a `rotary_dim` apart, as in Llama, and not side by side, as in GPT-J.
    """
    tokens, half = query.shape[-3], rotary_dim // 2
    rows_cos = at_positions(cos.reshape(-1, cos.shape[-1])[:, :half], position_ids, tokens)
    rows_sin = at_positions(sin.reshape(-1, sin.shape[-1])[:, :half], position_ids, tokens)
    query.copy_(turned(query, rows_cos, rows_sin, rotary_dim, rotary_half))
    key.copy_(turned(key, rows_cos, rows_sin, rotary_dim, rotary_half))
    return query, key


def varlen_attention(
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
    """Attend within each of several texts that lie one behind the other, [tokens, heads, numbers], and fill `out`.

    `seqlen_q` and `seqlen_k` say where each text begins, and where the last ends. Each has torch's attention.
    """
    if zero_tensors or return_softmax or gen_ is not None or alibi_slopes is not None:
        raise ValueError(
            "ipex.llm varlen_attention: expected zero_tensors=False, return_softmax=False, gen_=None and "
            "alibi_slopes=None, as IPEX on CPUs did. Leave them so."
        )
    if window_size_left != -1 or window_size_right != -1 or softcap > 0:
        raise ValueError(
            "ipex.llm varlen_attention: expected no window and no softcap, as IPEX on CPUs did. Leave them at -1."
        )
    groups = query.shape[1] // key.shape[1]
    keys, values = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    for i in range(seqlen_q.shape[0] - 1):
        of_query = slice_of(query, seqlen_q, i)
        attended = F.scaled_dot_product_attention(
            of_query.transpose(0, 1).unsqueeze(0),
            slice_of(keys, seqlen_k, i).transpose(0, 1).unsqueeze(0),
            slice_of(values, seqlen_k, i).transpose(0, 1).unsqueeze(0),
            dropout_p=pdropout,
            is_causal=is_causal,
            scale=softmax_scale,
        )
        slice_of(out, seqlen_q, i).copy_(attended.squeeze(0).transpose(0, 1))
    return out


def slice_of(tokens: Tensor, begins: Tensor, text: int) -> Tensor:
    """Return the tokens of one text."""
    return tokens[int(begins[text]) : int(begins[text + 1])]


def indirect_access_kv_cache_attention(*_: Any, **__: Any) -> Any:
    """Raise: see NOT_OFFERED."""
    raise NotImplementedError(not_offered("IndirectAccessKVCacheAttention"))


def _lora(inputs: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    """Return each row's product with the matrix that is chosen for it, [out, in]. -1 chooses none: zeros."""
    matrices = (weights.squeeze(1) if weights.dim() == 4 else weights)[chosen.clamp(min=0)]
    product = torch.bmm(matrices.to(inputs.dtype), inputs[:, : matrices.shape[2]].unsqueeze(2)).squeeze(2)
    return product.masked_fill((chosen < 0).unsqueeze(1), 0.0)


def _written(output: Tensor, product: Tensor, begin: int, size: int, adds: bool) -> None:
    columns = output[:, begin : begin + size]
    product = product[:, :size].to(output.dtype)
    if adds:
        columns.add_(product)
    else:
        columns.copy_(product)


def bgmv_shrink(
    input: Tensor, lora_weights: Tensor, output: Tensor, token_lora_mapping: Tensor, scaling: float
) -> None:
    """Write scaling * (each token's LoRA matrix @ the token) into the first columns of the output."""
    product = _lora(input, lora_weights, token_lora_mapping) * scaling
    _written(output, product, 0, product.shape[1], False)


def bgmv_expand(
    input: Tensor, lora_weights: Tensor, output: Tensor, token_lora_mapping: Tensor, add_inputs: bool
) -> None:
    """Write each token's LoRA matrix @ the token into the first columns of the output, or add it."""
    product = _lora(input, lora_weights, token_lora_mapping)
    _written(output, product, 0, product.shape[1], add_inputs)


def bgmv_expand_slice(
    input: Tensor,
    lora_weights: Tensor,
    output: Tensor,
    token_lora_mapping: Tensor,
    slice_offset: int,
    slice_size: int,
    add_inputs: bool,
) -> None:
    """Write each token's LoRA matrix @ the token into these columns of the output, or add it."""
    _written(output, _lora(input, lora_weights, token_lora_mapping), slice_offset, slice_size, add_inputs)


def sgmv_shrink(
    inputs: Tensor,
    lora_a_weights: Tensor,
    output_tensor: Tensor,
    b_seq_start_loc: Tensor,
    seq_len_tensor: Tensor,
    lora_indices_tensor: Tensor,
    batches: int,
    max_seq_length: int,
    scaling: float,
) -> None:
    """Do bgmv_shrink for texts of several tokens, each with one matrix."""
    mapping = lora_indices_tensor.repeat_interleave(seq_len_tensor)
    bgmv_shrink(inputs, lora_a_weights, output_tensor, mapping, scaling)


def sgmv_expand(
    inputs: Tensor,
    lora_b_weights: Tensor,
    output_tensor: Tensor,
    b_seq_start_loc: Tensor,
    seq_len_tensor: Tensor,
    lora_indices_tensor: Tensor,
    batches: int,
    max_seq_length: int,
    add_inputs: bool = False,
) -> None:
    """Do bgmv_expand for texts of several tokens, each with one matrix."""
    mapping = lora_indices_tensor.repeat_interleave(seq_len_tensor)
    bgmv_expand(inputs, lora_b_weights, output_tensor, mapping, add_inputs)


def sgmv_expand_slice(
    inputs: Tensor,
    lora_b_weights: Tensor,
    output_tensor: Tensor,
    b_seq_start_loc: Tensor,
    seq_len_tensor: Tensor,
    lora_indices_tensor: Tensor,
    batches: int,
    max_seq_length: int,
    slice_offset: int,
    slice_size: int,
    add_inputs: bool = False,
) -> None:
    """Do bgmv_expand_slice for texts of several tokens, each with one matrix."""
    mapping = lora_indices_tensor.repeat_interleave(seq_len_tensor)
    bgmv_expand_slice(inputs, lora_b_weights, output_tensor, mapping, slice_offset, slice_size, add_inputs)
