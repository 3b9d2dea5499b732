"""Models that compute in 8 bits.

    prepared = ipex.quantization.prepare(model, example_inputs)
    for batch in data:
        prepared(batch)
    quantized = ipex.quantization.convert(prepared)

`quantized` is an ordinary ScriptModule: save it, load it, run it from many threads or from C++.
"""

from .recipe import Recipe
from .static import Prepared, convert, prepare

__all__ = ["Prepared", "Recipe", "convert", "prepare"]
