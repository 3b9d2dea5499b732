"""Writes a model repository for Triton Inference Server, with a ResNet-50: python make_repository.py FOLDER.

    FOLDER/resnet50/config.pbtxt
    FOLDER/resnet50/1/model.pt      optimised by ipex

`write_model` does the same for your model.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

import ipex

TYPES = {torch.float32: "TYPE_FP32", torch.float64: "TYPE_FP64", torch.int64: "TYPE_INT64", torch.int32: "TYPE_INT32"}
# Triton's backend knows the inputs and results of a TorchScript model by their places.
CONFIG = """\
name: "{name}"
backend: "pytorch"
platform: "pytorch_libtorch"
max_batch_size: {most_rows}
input [
{inputs}
]
output [
{outputs}
]
# Requests are joined, for at most 2 ms.
dynamic_batching {{ max_queue_delay_microseconds: 2000 }}
# Each instance runs one batch at a time, with so many threads. Instances times threads: the cores.
instance_group [ {{ count: 1, kind: KIND_CPU }} ]
parameters: {{ key: "INTRA_OP_THREAD_COUNT" value: {{ string_value: "{threads}" }} }}
parameters: {{ key: "INFERENCE_MODE" value: {{ string_value: "true" }} }}
# Instances share one copy of the weights.
parameters: {{ key: "ENABLE_WEIGHT_SHARING" value: {{ string_value: "true" }} }}
"""


def _tensors(kind: str, tensors: tuple[Tensor, ...]) -> str:
    lines = []
    for place, tensor in enumerate(tensors):
        dims = ", ".join(map(str, tensor.shape[1:]))
        lines.append(f'  {{ name: "{kind}__{place}", data_type: {TYPES[tensor.dtype]}, dims: [ {dims} ] }}')
    return ",\n".join(lines)


def write_model(
    folder: Path, name: str, model: nn.Module, inputs: tuple[Tensor, ...], most_rows: int = 8, threads: int = 2
) -> Path:
    """Optimise the model and write it into the repository. Returns the model's folder."""
    with torch.no_grad():
        optimized = ipex.jit_optimize(model, inputs)
        result = optimized(*inputs)
    outputs = result if isinstance(result, tuple) else (result,)
    (folder / name / "1").mkdir(parents=True, exist_ok=True)
    optimized.save(folder / name / "1" / "model.pt")
    config = CONFIG.format(
        name=name,
        most_rows=most_rows,
        threads=threads,
        inputs=_tensors("INPUT", inputs),
        outputs=_tensors("OUTPUT", outputs),
    )
    (folder / name / "config.pbtxt").write_text(config)
    return folder / name


if __name__ == "__main__":
    from resnet50 import resnet50

    warnings.filterwarnings("ignore", message=".*torch.jit.*")
    print(write_model(Path(sys.argv[1]), "resnet50", resnet50(), (torch.randn(1, 3, 224, 224),)))
