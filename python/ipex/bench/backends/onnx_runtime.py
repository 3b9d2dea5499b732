"""ONNX Runtime on the CPU."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

from .backend import Backend, Call, Job
from .onnx_export import exported


class OnnxRuntime(Backend):
    """All graph optimisations, one op at a time, arrays in and out."""

    name, title = "onnxruntime", "ONNX Runtime"
    packages = ("onnxruntime", "onnx", "onnxscript", "numpy")
    source: Path

    def prepare(self, job: Job) -> Call:
        """Export with fixed shapes, make a session."""
        self.source = exported(job)
        return self.load(self.source, job)

    def save(self, path: Path) -> bool:
        """Keep the exported model: optimised ones fit one machine only."""
        shutil.copy(self.source, path)
        data = self.source.with_name(self.source.name + ".data")
        if data.exists():  # its name is written in the model
            shutil.copy(data, path.with_name(data.name))
        return True

    def load(self, path: Path, job: Job) -> Call:
        """Make a session."""
        ort: Any = importlib.import_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = job.threads
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        feed = {want.name: x.numpy() for want, x in zip(session.get_inputs(), job.inputs)}
        return lambda: session.run(None, feed)
