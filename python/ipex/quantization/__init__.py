"""Models that compute in 8 bits, or read weights of 8 or 4.

    prepared = ipex.quantization.prepare(model, example_inputs)
    for batch in data:
        prepared(batch)
    quantized = ipex.quantization.convert(prepared)

Without data, for linears, lstm and gru, and embeddings:

    quantized = ipex.quantization.dynamic(model, example_inputs)
    quantized = ipex.quantization.weight_only(model, example_inputs, dtype="int4")

`quantized` is an ordinary ScriptModule: save it, load it, run it from many threads or from C++.

Checkpoints that are quantised already:

    model = ipex.quantization.from_gptq(model, "folder")
    quantized = ipex.jit_optimize(model, example_inputs)

`fp8` trains and runs linears on 8-bit floats. What `get_weight_only_quant_qconfig_mapping` returns is for
`ipex.llm.optimize`.
"""

from . import fp8
from ._checkpoints import from_awq, from_gptq
from ._dynamic import dynamic
from ._recipe import Recipe
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
    "get_weight_only_quant_qconfig_mapping",
    "prepare",
    "weight_only",
]
