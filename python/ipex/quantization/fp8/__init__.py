"""Linears that compute on 8-bit floats, in training and in inference, with IPEX's names.

>>> from ipex.quantization.fp8 import DelayedScaling, fp8_autocast, prepare_fp8
>>> model = torch.nn.Linear(64, 64)
>>> model, optimizer = prepare_fp8(model, torch.optim.SGD(model.parameters(), lr=0.1))
>>> recipe = DelayedScaling()
>>> with fp8_autocast(enabled=True, fp8_recipe=recipe):
...     loss = model(torch.randn(8, 64)).square().mean()
>>> loss.backward()
>>> optimizer.step()

For inference, let a float model see data first:

>>> model = prepare_fp8(torch.nn.Linear(64, 64)).eval()
>>> with fp8_autocast(enabled=False, calibrating=True, fp8_recipe=recipe):
...     _ = model(torch.randn(8, 64))
>>> with fp8_autocast(enabled=True, fp8_recipe=recipe):
...     y = model(torch.randn(8, 64))

Scales and what they come from are in `model.state_dict()`.
"""

from ._autocast import fp8_autocast
from ._linear import FP8Linear
from ._prepare import prepare_fp8
from ._recipe import DelayedScaling, Format

__all__ = ["DelayedScaling", "FP8Linear", "Format", "fp8_autocast", "prepare_fp8"]
