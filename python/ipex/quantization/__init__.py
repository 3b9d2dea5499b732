"""Models that compute in int8, or read weights of int8, int4 or FP8.

>>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval()
>>> data = [torch.randn(4, 64) for _ in range(8)]
>>> prepared = ipex.quantization.prepare(model, data[0])
>>> for batch in data:
...     _ = prepared(batch)
>>> quantized = ipex.quantization.convert(prepared)

Without data, for linears, lstm and gru, and embeddings:

>>> quantized = ipex.quantization.dynamic(model, data[0])
>>> quantized = ipex.quantization.weight_only(model, data[0], dtype="int4")

`quantized` is an ordinary ScriptModule: save it, load it, call it from many threads or from C++.

`from_gptq` and `from_awq` read checkpoints that are quantized already. `fp8` trains and runs linears on 8-bit floats.
What `get_weight_only_quant_qconfig_mapping` and `get_smooth_quant_qconfig_mapping` return is for `ipex.llm.optimize`.
"""

from . import fp8
from ._checkpoints import from_awq, from_gptq
from ._dynamic import dynamic
from ._recipe import Recipe, get_smooth_quant_qconfig_mapping
from ._static import Prepared, convert, prepare
from ._weight_only import weight_only
from ._weight_only_module import WeightOnlyLinear
from ._woq import (
    WeightOnlyQuantConfig,
    WoqActQuantMode,
    WoqLowpMode,
    WoqWeightDtype,
    WoqWeightQScheme,
    get_weight_only_quant_qconfig_mapping,
)

__all__ = [
    "Prepared",
    "Recipe",
    "WeightOnlyLinear",
    "WeightOnlyQuantConfig",
    "WoqActQuantMode",
    "WoqLowpMode",
    "WoqWeightDtype",
    "WoqWeightQScheme",
    "convert",
    "dynamic",
    "fp8",
    "from_awq",
    "from_gptq",
    "get_smooth_quant_qconfig_mapping",
    "get_weight_only_quant_qconfig_mapping",
    "prepare",
    "weight_only",
]
