"""The tensors that a case is called with. Only torch is needed: a failing program carries this file inside it.

A tensor is described by plain data, so that it can be made again for every call: eager, optimised, in float64.
It is a view of a base; the whole base is compared after a call, so that a write beside the view is seen too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

LAYOUTS = ("contiguous", "channels_last", "sliced", "transposed", "expanded", "offset", "strided", "channel_slice")
CONTENTS = ("normal", "nan", "inf", "nan_and_inf", "dyadic", "positive", "zeros", "large", "tiny")
STRANGERS = {
    "nan": [math.nan],
    "inf": [math.inf, -math.inf],
    "nan_and_inf": [math.nan, math.inf, -math.inf, 0.0, -0.0],
}


class TensorSpec(NamedTuple):
    """One argument of a call."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: str = "contiguous"
    content: str = "normal"
    seed: int = 0
    high: int = 0  # above 0: whole numbers from 0 to high - 1, for indices


def make(spec: TensorSpec) -> tuple[Tensor, Tensor]:
    """The base, and the argument that is a view of it."""
    shape, layout = spec.shape, spec.layout
    if layout == "offset":
        base = _fill((math.prod(shape) + 1,), spec)
        return base, base[1:].view(shape)
    if not shape or layout == "contiguous":
        base = _fill(shape, spec)
        return base, base
    if layout == "sliced":
        base = _fill((*shape[:-1], shape[-1] + 3), spec)
        return base, base[..., 1 : 1 + shape[-1]]
    if layout == "strided":
        base = _fill((*shape[:-1], shape[-1] * 2), spec)
        return base, base[..., ::2]
    if layout == "expanded":
        base = _fill((1, *shape[1:]), spec)
        return base, base.expand(shape)
    if len(shape) == 1:
        base = _fill(shape, spec)
        return base, base
    if layout == "transposed":
        base = _fill((*shape[:-2], shape[-1], shape[-2]), spec)
        return base, base.transpose(-1, -2)
    # Channels last, whole or one slice of wider ones. An image without a batch has its channels in front.
    channel = 0 if len(shape) in (2, 3) else 1
    wider = 2 if layout == "channel_slice" else 0
    base = _fill((*shape[:channel], *shape[channel + 1 :], shape[channel] + wider), spec)
    return base, base.movedim(-1, channel).narrow(channel, wider // 2, shape[channel])


def _fill(shape: tuple[int, ...], spec: TensorSpec) -> Tensor:
    generator = torch.Generator().manual_seed(spec.seed)
    if spec.high:
        return torch.randint(0, spec.high, shape, generator=generator)
    values = torch.randn(shape, generator=generator)
    if spec.content == "dyadic":  # sums of few of these are exact in any order
        values = (values * 4).round() / 4
    elif spec.content == "positive":
        values = values.abs()
    elif spec.content == "zeros":
        values = values * 0
    elif spec.content == "large":
        values = values * 1e4
    elif spec.content == "tiny":
        values = values * 1e-39
    elif spec.content in STRANGERS and values.numel():
        flat = values.view(-1)
        for where in torch.randint(0, flat.numel(), (1 + flat.numel() // 50,), generator=generator).tolist():
            flat[where] = STRANGERS[spec.content][where % len(STRANGERS[spec.content])]
    dtype = getattr(torch, spec.dtype)
    return values.to(dtype) if dtype.is_floating_point else (values.nan_to_num(0, 3, -3) * 2).to(dtype)


def settle(model: nn.Module, content: str = "normal", seed: int = 0) -> nn.Module:
    """Make a model ready: eval mode, no training, statistics and weights that do something."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            module.running_mean.copy_(torch.randn(module.num_features, generator=generator) / 2)
            module.running_var.copy_(torch.rand(module.num_features, generator=generator) + 0.5)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if content == "dyadic":
            parameter.copy_((parameter * 4).round() / 4)
        elif content == "zeros":
            parameter.zero_()
        elif content == "channels_last" and parameter.dim() == 4:
            parameter.data = parameter.contiguous(memory_format=torch.channels_last)
        elif content in STRANGERS and parameter.numel() and parameter.dim() == 2:
            # In linears alone: what convolutions (over padding) and batch_norm make of it depends on the memory format.
            parameter.view(-1)[seed % parameter.numel()] = STRANGERS[content][0]
    return model.eval()
