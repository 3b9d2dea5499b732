"""torch as it is: eager, and TorchScript with what it can do by itself."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from .backend import Backend, Call, Job, NotApplicable

CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


class Eager(Backend):
    """The model itself."""

    name, title = "eager", "eager"

    def prepare(self, job: Job) -> Call:
        """Nothing to do."""
        model = job.build()
        return lambda: model(*job.inputs)


def freeze(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Freeze a module; one that was loaded may be frozen already."""
    return torch.jit.freeze(module) if hasattr(module, "training") else module


class TorchScript(Backend):
    """A trace, made faster by `transform`."""

    module: torch.jit.ScriptModule

    def transform(self, traced: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
        """Make the trace faster."""
        raise NotImplementedError

    def prepare(self, job: Job) -> Call:
        """Trace and transform."""
        self.module = module = self.transform(job.trace())
        return lambda: module(*job.inputs)


class Frozen(TorchScript):
    """Weights as constants, batch_norm folded."""

    name, title = "freeze", "torch.jit.freeze"

    def transform(self, traced: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
        """Freeze."""
        return freeze(traced)

    def save(self, path: Path) -> bool:
        """Save as TorchScript."""
        self.module.save(path)
        return True

    def load(self, path: Path, job: Job) -> Call:
        """Load TorchScript."""
        module = torch.jit.load(path)
        return lambda: module(*job.inputs)


class ChannelsLast(TorchScript):
    """The same for images in torch's other memory format, as its tuning guide advises for convolutions."""

    name, title = "channels_last", "torch.jit.freeze, channels-last"

    def prepare(self, job: Job) -> Call:
        """Convert weights and inputs, trace, freeze."""
        model = job.build()
        if isinstance(model, torch.jit.ScriptModule):
            raise NotApplicable("needs a Python model")
        if not any(isinstance(m, CONVOLUTIONS) for m in model.modules()):
            raise NotApplicable("no convolutions of images")
        inputs = tuple(x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in job.inputs)
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        module = torch.jit.freeze(torch.jit.trace(model, inputs, check_trace=False))
        return lambda: module(*inputs)


class OptimizedForInference(TorchScript):
    """Convolutions in oneDNN's own layouts."""

    name, title = "optimize_for_inference", "torch.jit.optimize_for_inference"

    def transform(self, traced: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
        """Freeze, if it is not frozen, and optimise."""
        return torch.jit.optimize_for_inference(traced)


class GraphFuser(Frozen):
    """oneDNN's graph fuser, which is switched on for the whole process. It compiles in the first calls."""

    name, title = "onednn_fusion", "oneDNN graph fuser"

    def transform(self, traced: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
        """Freeze."""
        torch.jit.enable_onednn_fusion(True)
        return freeze(traced)

    def load(self, path: Path, job: Job) -> Call:
        """Switch the fuser on, load TorchScript."""
        torch.jit.enable_onednn_fusion(True)
        return super().load(path, job)
