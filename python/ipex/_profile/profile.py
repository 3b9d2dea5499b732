"""Where the time of an optimised model goes, op by op, and how near each comes to what the machine can do."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .._explain import Report, explain
from .._explain.fates import fate_of_final
from .._explain.graphs import FinalNode
from .._explain.page import page
from .._explain.text import table
from .._inputs import arguments, call, copied, in_order
from .._load_extension import _C
from .._script_module import cpp_module
from .events import Measured, measure
from .machine import Machine
from .machine import measure as measure_machine
from .op_time import OpTime
from .roofline import svg
from .work import bytes_moved, operations

WARM_UP = 3  # TorchScript compiles again after the first calls


@dataclass(frozen=True)
class Profile:
    """The times of an optimised model. Print it, or write it as JSON, as a page, or as a roofline plot."""

    report: Report
    machine: Machine
    microseconds: float
    ops: tuple[OpTime, ...]

    @property
    def packed_share(self) -> float:
        """The share of the ops' time that is spent in packed ops and other kernels of ipex."""
        total = sum(op.microseconds for op in self.ops)
        return sum(op.microseconds for op in self.ops if op.op.startswith("ipex::")) / total if total else 0.0

    @property
    def operations(self) -> float:
        """The multiplications and additions of a call, as far as they are known: those of products."""
        return sum(op.operations or 0.0 for op in self.ops)

    @property
    def verdict(self) -> tuple[str, ...]:
        """The whole in a few lines."""
        return (
            *self.report.verdict,
            f"{self.packed_share:.0%} of the time in ops of ipex; a call takes {_time(self)}.",
        )

    def __str__(self) -> str:
        total = sum(op.microseconds for op in self.ops) or 1.0
        rows = [
            (
                f"{op.microseconds:.0f}",
                f"{op.microseconds / total:.0%}",
                op.op,
                op.module,
                " ".join("x".join(map(str, shape)) for shape in op.shapes[:2]),
                f"{op.operations / op.microseconds / 1e3:.1f}" if op.operations else "",
                f"{op.share_of_limit:.0%}" if op.share_of_limit is not None else "",
                op.kernel,
            )
            for op in sorted(self.ops, key=lambda op: -op.microseconds)[:30]
        ]
        head = ("us", "share", "op", "module", "shapes", "GFLOP/s", "of limit", "kernel")
        lines = [*self.verdict, self._limits, "", table(head, rows)]
        if len(self.ops) > 30:
            lines.append(f"and {len(self.ops) - 30} more, {sum(op.microseconds for op in self._short()):.0f} us")
        return "\n".join([*lines, *self._rejected])

    def as_dict(self) -> dict[str, Any]:
        """Return it as dictionaries."""
        return {
            "verdict": list(self.verdict),
            "machine": dataclasses.asdict(self.machine),
            "microseconds": self.microseconds,
            "ops": [dataclasses.asdict(op) for op in self.ops],
        }

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(self.as_dict(), indent=1)

    def to_html(self, path: str | Path | None = None, title: str = "Where the time goes") -> str:
        """Return the page of the report, coloured by time. Write it to `path`, if given."""
        timed = {
            op.number: {
                "us": round(op.microseconds, 1),
                "share": op.share_of_limit,
                "shape": "x".join(map(str, op.result)) if op.result else "",
                "kernel": op.kernel,
            }
            for op in self.ops
        }
        text = page(self.report.fates, self.report.final, title, self.verdict, timed)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_svg(self, path: str | Path | None = None) -> str:
        """Return a roofline plot: what each op reaches, below what the machine can do. Write it to `path`, if given."""
        text = svg(self.machine, self.ops)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @property
    def _limits(self) -> str:
        m = self.machine
        return (
            f"This machine reaches {m.operations_per_second / 1e9:.0f} GFLOP/s in float32 products and "
            f"{m.bytes_per_second / 1e9:.1f} GB/s from memory, with {m.threads} threads."
        )

    @property
    def _rejected(self) -> list[str]:
        asked = Counter(rejected for op in self.ops for rejected in op.rejected)
        rows = [(str(count), *rejected.split(": ", 1)) for rejected, count in sorted(asked.items())]
        return ["", table(("ops", "rejected", "reason"), rows)] if rows else []

    def _short(self) -> list[OpTime]:
        return sorted(self.ops, key=lambda op: -op.microseconds)[30:]


def profile(optimized: torch.jit.ScriptModule, inputs: Any, *, calls: int = 10) -> Profile:
    """Return where the time of a model that `jit_optimize` returned goes.

    `inputs` are a tensor, a tuple or list of arguments, or a mapping of keyword arguments. The model is called `calls`
    times under torch's profiler, which makes each call a little slower; times are medians. Measuring the machine takes
    a second.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> x = torch.randn(2, 8)
    >>> profile = ipex.profile(ipex.jit_optimize(model, x), x)
    >>> [op.op for op in profile.ops]
    ['ipex::linear_run']
    """
    arguments(inputs, "profile")
    if calls < 1:
        raise ValueError(f"ipex.profile: expected at least 1 call, got calls={calls}.")
    cpp_module(optimized, "profile")
    report = explain(optimized)
    with torch.no_grad():
        for _ in range(WARM_UP):
            call(optimized, copied(inputs), "profile")
        sizes = dict(
            _C.intermediates(optimized._c, in_order(optimized, *arguments(copied(inputs), "profile"), "profile"), True)
        )
        machine = measure_machine()
        given = iter([copied(inputs) for _ in range(calls)])
        measured, whole = measure(lambda: call(optimized, next(given), "profile"), report.final, calls)
    report = explain(optimized)  # with the kernels that the calls have chosen
    ops = tuple(
        _op_time(number, node, measured[number], sizes.get(node.loaded_name or node.name), machine)
        for number, node in enumerate(report.final)
        if number in measured
    )
    return Profile(report, machine, whole, ops)


def _op_time(number: int, node: FinalNode, m: Measured, size: Any, machine: Machine) -> OpTime:
    result = tuple(size) if size is not None else None
    work, moved = operations(node, m.shapes, result), bytes_moved(node, m.shapes, result)
    became = fate_of_final(node)
    # What a view would have to move is not moved.
    share = machine.least_seconds(work, moved) * 1e6 / m.microseconds if moved and became != "view" else None
    kernel = _kernel(node, m)
    return OpTime(
        number, node.kind, node.module, m.microseconds, m.shapes, result, work, moved, share, kernel, became, m.rejected
    )


def _kernel(node: FinalNode, m: Measured) -> str:
    if not node.kind.startswith("ipex::"):
        return "aten"
    if m.in_aten:
        return f"aten: {m.in_aten}"
    is_own = m.kernel not in ("", "oneDNN")
    names = [m.kernel] if is_own else list(dict.fromkeys(k for layer in node.layers for k in layer.kernels[:1]))
    fallen = list(dict.fromkeys(reason for layer in node.layers for reason in layer.fallback_reasons))
    return ", ".join([*names, *(f"in part aten: {reason}" for reason in fallen)]) or "ipex"


def _time(profile: Profile) -> str:
    return f"{profile.microseconds / 1e3:.2f} ms"
