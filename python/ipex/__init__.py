"""Makes trained PyTorch models run as fast as the CPU allows, and stay correct.

Importing changes nothing in the process.
"""

import torch  # noqa: F401  (its libraries must be loaded before ours)

from . import isa
from ._load_extension import _C as _C
from ._optimize import Decision, Report, explain, jit_optimize, load, optimize
from ._process_wide import jit_passes, register_jit_passes, unregister_jit_passes
from ._version import __version__, cmake_prefix_path

__all__ = [
    "Decision",
    "Report",
    "__version__",
    "cmake_prefix_path",
    "explain",
    "isa",
    "jit_optimize",
    "jit_passes",
    "load",
    "optimize",
    "register_jit_passes",
    "unregister_jit_passes",
]
