"""vLLM's linears with weights of 8 or 4 bits, and its attention, on our kernels. An entry point names `register`.

    vllm.LLM(model=folder, quantization="ipex_int4", attention_backend="CUSTOM")

One name for each dtype of `ipex.quantization.WoqWeightDtype`. The checkpoint is of floats; a linear is rounded when it
is loaded, where there are several processes the share of each. Attention is in `_vllm_attention`. All else is vLLM's.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from ..quantization import WoqWeightDtype, get_weight_only_quant_qconfig_mapping


def register() -> None:
    """Let vLLM know the names. It calls this in each of its processes, and may do so twice.

    It does so wherever ipex is installed, asked for or not. A vLLM that moved what is imported here runs without us.
    """
    try:
        _register()
    except (ImportError, AttributeError) as error:
        warnings.warn(
            f"ipex: this vLLM gets no linears and no attention of ours: {error}. docs/how_to/llm.md says which fits.",
            stacklevel=1,
        )


def _register() -> None:
    from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
    from vllm.model_executor.layers.quantization import register_quantization_config
    from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    from ._codes import linear_of, rounded

    class Method(UnquantizedLinearMethod):  # type: ignore[misc]
        """Loads a linear as it is, and rounds it then."""

        def __init__(self, dtype: WoqWeightDtype) -> None:
            super().__init__()
            self._config = get_weight_only_quant_qconfig_mapping(weight_dtype=dtype)

        def process_weights_after_loading(self, layer: Any) -> None:
            config, weight = self._config, layer.weight
            size = config.group_size or weight.shape[1]
            is_read = getattr(layer, "_cpu_skip_gemm_dispatch", False)  # vLLM reads the weight itself
            if is_read or weight.shape[1] % size or size % 8:
                super().process_weights_after_loading(layer)
                return
            linear = linear_of(rounded(weight, config.weight_dtype.value, size, config.symmetric), None)
            if weight.dtype is not torch.float32:
                linear.row_bits = 16  # inputs have no more
            layer.ipex_linear = linear
            layer.weight = torch.nn.Parameter(weight.data.new_empty(0), requires_grad=False)

        def apply(self, layer: Any, x: Tensor, bias: Tensor | None = None) -> Tensor:
            linear = getattr(layer, "ipex_linear", None)
            if linear is None:
                as_it_is: Tensor = super().apply(layer, x, bias)
                return as_it_is
            result: Tensor = linear(x)
            return result if bias is None else result + bias

    def registered(dtype: WoqWeightDtype) -> None:
        name = f"ipex_{dtype.name.lower()}"

        class Config(QuantizationConfig):  # type: ignore[misc]
            def get_name(self) -> str:
                return name

            def get_supported_act_dtypes(self) -> list[torch.dtype]:
                return [torch.float32, torch.bfloat16, torch.float16]

            @classmethod
            def get_min_capability(cls) -> int:
                return -1  # of a GPU

            @staticmethod
            def get_config_filenames() -> list[str]:
                return []  # a checkpoint says nothing of it

            @classmethod
            def from_config(cls, config: dict[str, Any]) -> QuantizationConfig:
                raise ValueError(
                    f"{name}: expected a checkpoint of floats, got one that is quantized. Leave {name} out."
                )

            def get_quant_method(self, layer: Any, prefix: str) -> Any:
                if not current_platform.is_cpu():
                    raise ValueError(
                        f"{name}: expected vLLM on a CPU, got {current_platform.device_name}. Leave it out."
                    )
                return Method(dtype) if isinstance(layer, LinearBase) else None

        register_quantization_config(name)(Config)

    for dtype in WoqWeightDtype:
        registered(dtype)
    register_backend(AttentionBackendEnum.CPU_ATTN, "ipex.llm._vllm_attention.Backend")
