"""The ways to run a model, in the order of the tables. BACKENDS is the one list of them."""

from __future__ import annotations

import importlib

from .backend import Backend, Call, Job
from .compiled import Inductor
from .onnx_runtime import OnnxRuntime
from .openvino import OpenVINO
from .ours import IPEX, IPEXInBF32
from .stock import ChannelsLast, Eager, Frozen, GraphFuser, OptimizedForInference

OURS = IPEX.name
BACKENDS: dict[str, type[Backend]] = {
    backend.name: backend
    for backend in (
        IPEX,
        IPEXInBF32,
        Eager,
        Frozen,
        ChannelsLast,
        OptimizedForInference,
        GraphFuser,
        Inductor,
        OnnxRuntime,
        OpenVINO,
    )
}


def find(name: str) -> Backend:
    """Return one of BACKENDS, or make one from `module:Class`: a backend of your own."""
    if name in BACKENDS:
        return BACKENDS[name]()
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ValueError(f"ipex bench: expected a backend out of {', '.join(BACKENDS)} or module:Class, got {name!r}.")
    backend = getattr(importlib.import_module(module), attribute)()
    assert isinstance(backend, Backend), f"{name} is not an ipex.bench.backends.Backend"
    return backend


__all__ = ["BACKENDS", "OURS", "Backend", "Call", "Job", "find"]
