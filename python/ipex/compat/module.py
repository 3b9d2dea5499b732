"""The module that a script for IPEX imports."""

from __future__ import annotations

import importlib
import types
from typing import Any

import ipex

from .not_covered import message

NAME = "intel_extension_for_pytorch"

# Same name, same meaning, same arguments.
SAME = (
    "FP32MathMode",
    "disable_auto_channels_last",
    "enable_auto_channels_last",
    "get_fp32_math_mode",
    "optimize",
    "set_fp32_math_mode",
)


def enable_onednn_fusion(enabled: bool) -> None:
    """Let frozen TorchScript modules go through our passes, or not."""
    if enabled:
        ipex.register_jit_passes()
    else:
        ipex.unregister_jit_passes()


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if f"{self.__name__}.{name}" in SUBMODULES:
            return importlib.import_module(f"{self.__name__}.{name}")
        # What Python and its tools look for in any module is simply not there.
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(message(f"{self.__name__}.{name}"))


def _submodule(name: str, *covered: str) -> types.ModuleType:
    """Return IPEX's module of this name, with the names that are covered: without any, all that ours offers."""
    module, ours = _Module(f"{NAME}.{name}"), importlib.import_module(f"ipex.{name}")
    module.__path__ = []
    for each in covered or ours.__all__:
        setattr(module, each, getattr(ours, each))
    return module


# Made when they are first asked for: ipex.llm imports transformers.
SUBMODULES = {
    f"{NAME}.llm": lambda: _submodule("llm", "optimize"),
    f"{NAME}.llm.functional": lambda: _submodule("llm.functional"),
    f"{NAME}.llm.modules": lambda: _submodule("llm.modules"),
    f"{NAME}.quantization": lambda: _submodule(
        "quantization",
        "WoqActQuantMode",
        "WoqLowpMode",
        "WoqWeightDtype",
        "WoqWeightQScheme",
        "convert",
        "get_smooth_quant_qconfig_mapping",
        "get_weight_only_quant_qconfig_mapping",
        "prepare",
    ),
}


def make_module() -> types.ModuleType:
    """Return a module with the names that are covered."""
    module = _Module(NAME, "The part of IPEX's API that ipex covers.")
    module.__path__ = []
    module.__version__ = ipex.__version__  # type: ignore[attr-defined]
    for name in SAME:
        setattr(module, name, getattr(ipex, name))
    module.enable_onednn_fusion = enable_onednn_fusion  # type: ignore[attr-defined]
    return module
