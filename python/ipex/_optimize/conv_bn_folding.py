"""conv_bn_folding: batch_norm joins the convolution, transposed or not, that nothing else reads."""

from __future__ import annotations

from torch import nn

from .bn_folding import CONVOLUTIONS, fold_all
from .data_flow import DataFlow
from .notes import Notes

KNOB = "conv_bn_folding"


def fold_into_convolutions(model: nn.Module, flow: DataFlow, notes: Notes) -> None:
    """Fold every batch_norm that follows a convolution."""
    fold_all(KNOB, CONVOLUTIONS, model, flow, notes)
