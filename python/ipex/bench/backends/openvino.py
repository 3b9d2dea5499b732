"""OpenVINO on the CPU."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from .backend import Backend, Call, Job
from .onnx_export import exported


class OpenVINO(Backend):
    """One request, tuned for latency; inputs and outputs are not copied."""

    name, title = "openvino", "OpenVINO"
    packages = ("openvino", "numpy")
    model: Any

    def prepare(self, job: Job) -> Call:
        """Convert with fixed shapes, from torch or else from ONNX, and compile."""
        ov: Any = importlib.import_module("openvino")
        try:
            shapes = [list(x.shape) for x in job.inputs]
            self.model = ov.convert_model(job.trace(), example_input=job.inputs, input=shapes)
        except Exception as why:
            print(f"convert_model: {why}\nNow from ONNX.")
            self.model = ov.convert_model(exported(job))
        return self._compile(self.model, job)

    def save(self, path: Path) -> bool:
        """Save as OpenVINO's IR, weights in float32."""
        ov: Any = importlib.import_module("openvino")
        ov.save_model(self.model, path.with_suffix(".xml"), compress_to_fp16=False)
        return True

    def load(self, path: Path, job: Job) -> Call:
        """Read and compile."""
        ov: Any = importlib.import_module("openvino")
        return self._compile(ov.Core().read_model(path.with_suffix(".xml")), job)

    def _compile(self, model: Any, job: Job) -> Call:
        ov: Any = importlib.import_module("openvino")
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": job.threads,
            "INFERENCE_PRECISION_HINT": "f32",  # the default is bfloat16 where the CPU has it
        }
        request = ov.Core().compile_model(model, "CPU", settings).create_infer_request()
        arrays = [x.numpy() for x in job.inputs]
        return lambda: request.infer(arrays, share_inputs=True, share_outputs=True)
