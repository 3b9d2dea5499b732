"""Makes trained PyTorch models run as fast as the CPU allows, and stay correct.

Importing changes nothing in the process.
"""

import torch  # noqa: F401  (its libraries must be loaded before ours)

from . import isa, optim, quantization
from ._jit_optimize import jit_optimize
from ._load_extension import _C as _C
from ._math_mode import FP32MathMode, fp32_math_mode, get_fp32_math_mode, set_fp32_math_mode
from ._optimize import (
    disable_auto_channels_last,
    enable_auto_channels_last,
    kernel_choices,
    optimize,
    use_kernel_choices,
)
from ._process_wide import jit_passes, register_jit_passes, unregister_jit_passes
from ._report import Decision, Report, explain
from ._script_module import load
from ._version import __version__, cmake_prefix_path

__all__ = [
    "Decision",
    "FP32MathMode",
    "Report",
    "__version__",
    "cmake_prefix_path",
    "disable_auto_channels_last",
    "enable_auto_channels_last",
    "explain",
    "fp32_math_mode",
    "get_fp32_math_mode",
    "isa",
    "jit_optimize",
    "jit_passes",
    "kernel_choices",
    "load",
    "optim",
    "optimize",
    "quantization",
    "register_jit_passes",
    "set_fp32_math_mode",
    "unregister_jit_passes",
    "use_kernel_choices",
]
