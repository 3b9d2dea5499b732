"""Linears that compute on 8-bit floats, in training and in inference, with IPEX's names.

    model, optimizer = prepare_fp8(model, optimizer)
    with fp8_autocast(enabled=True, fp8_recipe=DelayedScaling()):
        loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()

For inference, let a float model see data first:

    model = prepare_fp8(model).eval()
    with fp8_autocast(enabled=False, calibrating=True, fp8_recipe=recipe):
        model(x)
    with fp8_autocast(enabled=True, fp8_recipe=recipe):
        y = model(x)

Scales and what they come from are in `model.state_dict()`.
"""

from ._autocast import fp8_autocast
from ._linear import FP8Linear
from ._prepare import prepare_fp8
from ._recipe import DelayedScaling, Format

__all__ = ["DelayedScaling", "FP8Linear", "Format", "fp8_autocast", "prepare_fp8"]
