"""Whether an optimised model computes what the original does."""

from __future__ import annotations

import copy
import dataclasses
import json
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .._explain.report import Report, explain
from .._inputs import arguments, call, copied
from .._tolerance import tolerance_for
from .._tracing import traced
from .compare import Compared, compare_all, tensors_in
from .layers import Layer, quantized_layers
from .parting import Parting, first_in_graph, first_in_modules
from .precision import precision_of

CALLS = 3  # TorchScript compiles again after the first ones


@dataclass(frozen=True)
class Verification:
    """What a comparison gave. It is true where the two models agree."""

    precision: str
    outputs: tuple[Compared, ...]
    inputs_kept: bool
    repeats: bool
    original_repeats: bool = True
    parting: Parting | None = None
    layers: tuple[Layer, ...] = ()
    original_trains: bool = False

    @property
    def ok(self) -> bool:
        """Whether the optimised model computes what the original does."""
        return all(o.agrees for o in self.outputs) and self.inputs_kept and self.repeats

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines = [f"{'The models agree' if self.ok else 'The models differ'} (computed in {self.precision})"]
        lines += [f"  {output}" for output in self.outputs if not (output.agrees and output.note)]  # None and the like
        lines.append(f"  inputs: {'as the original leaves them' if self.inputs_kept else 'CHANGED'}")
        lines.append(f"  repeated calls: {'equal to the bit' if self.repeats else 'DIFFER'}")
        if self.original_trains:
            lines.append("  the original is in training mode: call eval() on it for the results of inference")
        elif not self.original_repeats:
            lines.append("  the original gives other results at each call: does it draw numbers, or keep a state?")
        if self.parting:
            lines.append(f"  they part at {self.parting}")
        if self.layers:
            ratios = [layer.signal_to_noise for layer in self.layers]
            lines.append(f"  layers in 8 bits: signal to noise {min(ratios):.0f} to {max(ratios):.0f} dB")
            worst = min(self.layers, key=lambda layer: layer.signal_to_noise)
            lines += [f"    {layer}" for layer in self.layers if layer is worst or layer.saturates]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return it as dictionaries."""
        return {"ok": self.ok, **dataclasses.asdict(self)}

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(self.as_dict(), indent=1)


def verify(original: nn.Module, optimized: nn.Module, inputs: Any, *, tolerance: float | None = None) -> Verification:
    """Compare an optimised model with the original on some inputs.

    `inputs` are a tensor, a tuple or list of arguments, or a mapping of keyword arguments. Compared are the results
    (dtype, shape, NaN and infinity, values), what the call leaves in the inputs, and repeated calls with each other.
    `tolerance` is relative to the largest element; without, it is that of the precision that the optimised model
    computes in. Where the results differ, the answer names the first op at which they part, with its source line. Of a
    model that `ipex.quantization.convert` made, `layers` has the noise of each layer, and says which ones saturate.
    An original in training mode is compared as it is, and the answer says so.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> x = torch.randn(2, 8)
    >>> assert ipex.verify(model, ipex.jit_optimize(model, x), x)
    """
    arguments(inputs, "verify")  # refuse the wrong kind before anything runs
    trains = any(getattr(module, "training", False) for module in original.modules())  # a frozen one has no such state
    inference = original
    if trains:  # a call would change its statistics, and no graph can be made of it
        original, inference = copy.deepcopy(original), copy.deepcopy(original).eval()
    with torch.no_grad():
        expected_inputs, our_inputs = copied(inputs), copied(inputs)
        expected = copied(call(original, expected_inputs, "verify"))
        actual = copied(call(optimized, our_inputs, "verify"))
        again = [copied(call(optimized, copied(inputs), "verify")) for _ in range(CALLS - 1)]
        report = _report(optimized)
        precision = precision_of(original, optimized, report, [t.dtype for t in tensors_in(expected)])

        def allowed(dtype: torch.dtype) -> float:
            return tolerance if tolerance is not None else tolerance_for(dtype, precision)

        outputs = tuple(compare_all(expected, actual, allowed))
        kept = all(_equal(e, a) for e, a in zip(tensors_in(expected_inputs), tensors_in(our_inputs)))
        repeats = all(_equal_all(actual, other) for other in again)
        original_repeats, parting = True, None
        if not repeats or not all(o.agrees for o in outputs):
            original_repeats = _equal_all(expected, call(original, copied(inputs), "verify"))
        if not all(o.agrees for o in outputs):
            parting = _first_parting(inference, optimized, inputs, allowed, report)
        layers: tuple[Layer, ...] = ()
        if precision == "int8" and isinstance(optimized, torch.jit.ScriptModule):
            layers = quantized_layers(_script(inference, inputs), optimized, inputs)
    return Verification(precision, outputs, kept, repeats, original_repeats, parting, layers, trains)


def _first_parting(original: nn.Module, optimized: nn.Module, inputs: Any, allowed: Any, report: Report | None) -> Any:
    if not isinstance(optimized, torch.jit.ScriptModule):
        return first_in_modules(original, optimized, inputs, allowed, report or Report(()))
    return first_in_graph(_script(original, inputs), optimized, inputs, allowed)


def _script(original: nn.Module, inputs: Any) -> torch.jit.ScriptModule:
    if isinstance(original, torch.jit.ScriptModule):
        return original
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return traced(original, *arguments(copied(inputs), "verify"), "verify")


def _report(optimized: nn.Module) -> Report | None:
    try:
        return explain(optimized)
    except (RuntimeError, TypeError):
        return None  # not one of ours: it can be compared all the same


def _equal_all(one: Any, other: Any) -> bool:
    return all(_equal(a, b) for a, b in zip(tensors_in(one), tensors_in(other)))


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    return bool(((one == other) | (one.isnan() & other.isnan())).all())
