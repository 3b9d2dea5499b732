"""linear_bn_folding: batch_norm of [N, C] joins the linear that nothing else reads."""

from __future__ import annotations

from torch import nn

from .bn_folding import fold_all
from .data_flow import DataFlow
from .notes import Notes

KNOB = "linear_bn_folding"


def fold_into_linears(model: nn.Module, flow: DataFlow, notes: Notes) -> None:
    """Fold every batch_norm that follows a linear."""
    fold_all(KNOB, {nn.Linear: nn.BatchNorm1d}, model, flow, notes)
