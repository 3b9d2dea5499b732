"""Makes trained PyTorch models run as fast as the CPU allows, and stay correct.

Importing changes nothing in the process. `ipex.llm` needs transformers, and is imported when it is first asked for.
"""

import importlib
from types import ModuleType

import torch  # noqa: F401  (its libraries must be loaded before ours)

from . import isa, optim, quantization
from ._aot import aot_describe, aot_load, aot_save
from ._explain import Decision, Report, explain
from ._jit_optimize import jit_optimize
from ._load_extension import _C as _C
from ._math_mode import FP32MathMode, fp32_math_mode, get_fp32_math_mode, set_fp32_math_mode
from ._memory import (
    empty_cache,
    get_memory_limit,
    mapped_bytes,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_memory_limit,
    use_allocator,
)
from ._optimize import (
    disable_auto_channels_last,
    enable_auto_channels_last,
    kernel_choices,
    optimize,
    use_kernel_choices,
)
from ._process_wide import jit_passes, register_jit_passes, unregister_jit_passes
from ._profile import OpTime, Profile, profile
from ._script_module import load
from ._stream_pool import StreamPool
from ._verify import Verification, verify
from ._version import __version__, cmake_prefix_path

__all__ = [
    "Decision",
    "FP32MathMode",
    "OpTime",
    "Profile",
    "Report",
    "StreamPool",
    "Verification",
    "__version__",
    "aot_describe",
    "aot_load",
    "aot_save",
    "cmake_prefix_path",
    "disable_auto_channels_last",
    "empty_cache",
    "enable_auto_channels_last",
    "explain",
    "fp32_math_mode",
    "get_fp32_math_mode",
    "get_memory_limit",
    "isa",
    "jit_optimize",
    "jit_passes",
    "kernel_choices",
    "load",
    "mapped_bytes",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "optim",
    "optimize",
    "profile",
    "quantization",
    "register_jit_passes",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_fp32_math_mode",
    "set_memory_limit",
    "unregister_jit_passes",
    "use_allocator",
    "use_kernel_choices",
    "verify",
]


def __getattr__(name: str) -> ModuleType:
    if name == "llm":
        return importlib.import_module(".llm", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
