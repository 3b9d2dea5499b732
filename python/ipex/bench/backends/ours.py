"""ipex, as a user gets it, and with the math mode BF32."""

from __future__ import annotations

from pathlib import Path

import torch

from ..._jit_optimize import jit_optimize
from ..._math_mode import FP32MathMode
from ..._script_module import load
from .backend import BF32_TOLERANCE, Call, Job
from .stock import TorchScript


class IPEX(TorchScript):
    """Products of float32 numbers, also if the environment says something else."""

    name, title, is_peer = "ipex", "ipex", False
    mode = FP32MathMode.FP32

    def transform(self, traced: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
        """Optimise."""
        return jit_optimize(traced, fp32_math_mode=self.mode)

    def save(self, path: Path) -> bool:
        """Save as TorchScript."""
        self.module.save(path)
        return True

    def load(self, path: Path, job: Job) -> Call:
        """Load."""
        module = load(path)
        return lambda: module(*job.inputs)


class IPEXInBF32(IPEX):
    """Factors may be rounded to bfloat16. Not compared with peers, which compute in float32."""

    name, title = "ipex_bf32", "ipex, BF32"
    tolerance = BF32_TOLERANCE
    mode = FP32MathMode.BF32
