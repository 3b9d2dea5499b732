"""optimize_lstm: LSTM and GRU layers compute with packed weights."""

from __future__ import annotations

from torch import nn

from .data_flow import DataFlow
from .notes import Notes
from .weights_prepack import prepack_weights

KNOB = "optimize_lstm"


def optimize_recurrent_layers(model: nn.Module, flow: DataFlow, notes: Notes, *, casts: bool) -> None:
    """Pack every LSTM and GRU."""
    prepack_weights(model, flow, notes, casts=casts, recurrent=True, knob=KNOB)
