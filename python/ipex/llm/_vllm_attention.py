"""vLLM's attention on our kernels, where a user asks for it:

    vllm.LLM(model=folder, attention_backend="CUSTOM")

On CPUs vLLM takes one class for all attention but MLA, whatever a user asks for, and its registry says which. The
plugin puts `Backend` there: vLLM's own class, but for the layers of a user who asks for CUSTOM. Scheduler, blocks of
the cache and metadata of a batch stay vLLM's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.config import get_current_vllm_config, get_current_vllm_config_or_none
from vllm.logger import init_logger
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, CPUAttentionBackendImpl
from vllm.v1.attention.backends.registry import AttentionBackendEnum

import ipex  # noqa: F401

logger = init_logger(__name__)


class Backend(CPUAttentionBackend):  # type: ignore[misc]
    """vLLM's, with other layers for those who ask."""

    @staticmethod
    def get_impl_cls() -> Any:
        config = get_current_vllm_config_or_none()
        asks = config is not None and config.attention_config.backend is AttentionBackendEnum.CUSTOM
        return PagedAttention if asks else CPUAttentionBackendImpl


class PagedAttention(CPUAttentionBackendImpl):  # type: ignore[misc]
    """A layer whose cache holds keys and values as `ipex::attend_paged` keeps them, or else vLLM's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        reason = self._reason_against()
        self.is_ours = reason is None
        if reason is not None:
            logger.warning_once("ipex: attention of a layer stays vLLM's: %s.", reason)
        if self.kv_sharing_target_layer_name is not None:
            layers = get_current_vllm_config().compilation_config.static_forward_context
            if layers[self.kv_sharing_target_layer_name].impl.is_ours != self.is_ours:
                raise ValueError(
                    f"ipex: expected one attention for the cache of {self.kv_sharing_target_layer_name}, got ours and"
                    f" vLLM's ({reason}). Leave attention_backend out."
                )

    def _reason_against(self) -> str | None:
        config = get_current_vllm_config()
        if self.attn_type != AttentionType.DECODER or config.attention_config.use_non_causal:
            return "its tokens see those behind them"
        if self.kv_cache_dtype != "auto":
            return f"its cache is of {self.kv_cache_dtype}"
        if self.alibi_slopes is not None or self.logits_soft_cap or self.sinks is not None:
            return "it has ALiBi, a soft cap or sinks"
        if config.kv_transfer_config is not None:
            return "its cache is sent to other machines"
        return None

    def do_kv_cache_update(self, layer: Any, key: Tensor, value: Tensor, kv_cache: Tensor, slots: Tensor) -> None:
        if not self.is_ours:  # else `forward` writes
            super().do_kv_cache_update(layer, key, value, kv_cache, slots)

    def forward(
        self,
        layer: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kv_cache: Tensor,
        attn_metadata: Any,
        output: Tensor,
        *others: Any,
        **named: Any,
    ) -> Tensor:
        if not self.is_ours or attn_metadata is None:
            theirs: Tensor = super().forward(
                layer, query, key, value, kv_cache, attn_metadata, output, *others, **named
            )
            return theirs
        if not attn_metadata.causal or attn_metadata.dynamic_causal is not None:
            raise NotImplementedError(
                "ipex: expected tokens that see those before them, got a batch that is not causal."
                " Leave attention_backend out."
            )
        count, writes = attn_metadata.num_actual_tokens, self.kv_sharing_target_layer_name is None
        result = torch.ops.ipex.attend_paged(
            kv_cache,
            query[:count],
            key[:count] if writes else None,
            value[:count] if writes else None,
            attn_metadata.slot_mapping[:count],
            attn_metadata.block_table,
            attn_metadata.query_start_loc,
            attn_metadata.seq_lens,
            self.scale,
            max(self.sliding_window, 0),
        )
        output[:count].copy_(result.view_as(output[:count]))
        return output
