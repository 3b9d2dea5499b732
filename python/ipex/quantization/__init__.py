"""Models that compute in 8 bits, or read weights of 8 or 4.

    prepared = ipex.quantization.prepare(model, example_inputs)
    for batch in data:
        prepared(batch)
    quantized = ipex.quantization.convert(prepared)

Without data, for linears:

    quantized = ipex.quantization.dynamic(model, example_inputs)
    quantized = ipex.quantization.weight_only(model, example_inputs, dtype="int4")

`quantized` is an ordinary ScriptModule: save it, load it, run it from many threads or from C++.

`fp8` trains and runs linears on 8-bit floats.
"""

from . import fp8
from ._dynamic import dynamic
from ._recipe import Recipe
from ._static import Prepared, convert, prepare
from ._weight_only import weight_only

__all__ = ["Prepared", "Recipe", "convert", "dynamic", "fp8", "prepare", "weight_only"]
