"""Writes a model as ONNX with fixed shapes, once per model and batch."""

from __future__ import annotations

from pathlib import Path

import torch

from .backend import Job


def exported(job: Job) -> Path:
    """Export with the new exporter or, if it can't, with the one of TorchScript."""
    path = job.folder / "model.onnx"
    if path.exists():
        return path
    model = job.build()
    attempt = job.folder / "attempt"
    attempt.mkdir(exist_ok=True)
    new = attempt / path.name
    try:
        if isinstance(model, torch.jit.ScriptModule):
            raise TypeError("the new exporter takes no TorchScript")
        torch.onnx.export(model, job.inputs, new, dynamo=True, verbose=False)
    except Exception as why:
        print(f"dynamo=True: {why}\nNow with TorchScript.")
        torch.onnx.export(model, job.inputs, new, dynamo=False, opset_version=17)
    data = new.with_name(new.name + ".data")
    if data.exists():
        data.rename(job.folder / data.name)
    return new.rename(path)  # last: whoever sees it sees all of it
