"""concat_linear: linears on one input, as query, key and value.

They stay apart. One product of three weights below one another is no faster on these kernels than three products, and
its results have to be cut apart: docs/decisions/products.md has the times. The report names
the groups.
"""

from __future__ import annotations

from torch import nn

from .data_flow import DataFlow
from .notes import Notes

KNOB = "concat_linear"


def concat_linears(model: nn.Module, flow: DataFlow, notes: Notes) -> None:
    """Note which linears read one value, and that joining them does not pay."""
    linears = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    for group in flow.readers_of_one_value(linears):
        reason = "on one input; packed linears are as fast apart, and joined their results would have to be cut"
        notes.declined(KNOB, ", ".join(group), reason)
