"""A linear that computes on 8-bit floats where it is called in a region of fp8_autocast."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ._autocast import current_region
from ._product import product, rounded
from ._recipe import DelayedScaling
from ._scales import GRADIENT, INPUT, WEIGHT, TensorScales


class FP8Linear(nn.Linear):
    """An `nn.Linear` that computes on 8-bit floats in regions of `fp8_autocast`, and saves its scales with its weight.

    `ipex.quantization.fp8.prepare_fp8` makes them of a model's linears. `fp8_scales` holds `scale`, `amax_history` and
    `updates`, each for the input, the weight and the gradient of the result, in this order.
    """

    fp8_scales: TensorScales

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.fp8_scales = TensorScales()

    def forward(self, input: Tensor) -> Tensor:
        """Compute as the region says."""
        region = current_region()
        if region is None or not region.takes(input.device):
            return super().forward(input)
        scales = self.fp8_scales
        scales.begin(region.recipe, input.device)
        looks = self.training or region.calibrating
        if looks:
            region.seen[id(scales)] = scales
            scales.see(INPUT, input)
            scales.see(WEIGHT, self.weight)
        elif not scales.were_seen:
            warnings.warn(
                "ipex.quantization.fp8: expected a model that has seen data, got one whose scales are all 1. Call it "
                "in fp8_autocast(enabled=False, calibrating=True) first, or load a state_dict that has scales.",
                stacklevel=2,
            )
        if region.enabled:
            return _multiply(input, self.weight, self.bias, scales, region.recipe, looks)
        result = super().forward(input)
        if looks and result.requires_grad:
            result.register_hook(lambda gradient: scales.see(GRADIENT, gradient))
        return result

    def get_extra_state(self) -> dict[str, Tensor]:
        """Return the scales, for state_dict."""
        return self.fp8_scales.state()

    def set_extra_state(self, state: Any) -> None:
        """Take the scales of a state_dict."""
        self.fp8_scales.load(state)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        # A checkpoint of the float model has no scales: those here stay as they are.
        found = {f"{prefix}_extra_state": self.get_extra_state(), **state_dict}
        super()._load_from_state_dict(found, prefix, *rest)


class _Product(torch.autograd.Function):
    """The linear, on numbers rounded to 8 bits, and its gradients on that of the result, rounded too."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        scales: TensorScales,
        recipe: DelayedScaling,
        looks: bool,
    ) -> Tensor:
        input_dtype, weight_dtype, _ = recipe.fp8_format.dtypes()
        x = rounded(input.reshape(-1, input.shape[-1]), scales.scale[INPUT], input_dtype)
        w = rounded(weight, scales.scale[WEIGHT], weight_dtype)
        ctx.save_for_backward(x, w, scales.scale)
        ctx.scales, ctx.recipe, ctx.looks = scales, recipe, looks
        ctx.input_shape, ctx.dtypes = input.shape, (input.dtype, weight.dtype, None if bias is None else bias.dtype)
        kind = input.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else input.dtype
        result = product(x, w, scales.scale[INPUT], scales.scale[WEIGHT], dtype, bias)
        return result.reshape(*input.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, w, scale = ctx.saved_tensors
        scales: TensorScales = ctx.scales
        input_dtype, weight_dtype, bias_dtype = ctx.dtypes
        if ctx.looks:
            scales.see(GRADIENT, gradient)
        own_scale = scales.scale[GRADIENT]
        gradient = gradient.reshape(-1, gradient.shape[-1])
        g = rounded(gradient, own_scale, ctx.recipe.fp8_format.dtypes()[GRADIENT])
        of_input = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_input = product(g, w.t(), own_scale, scale[WEIGHT], input_dtype).reshape(ctx.input_shape)
        if ctx.needs_input_grad[1]:
            of_weight = product(g.t(), x.t(), own_scale, scale[INPUT], weight_dtype)
        if bias_dtype is not None and ctx.needs_input_grad[2]:
            of_bias = gradient.sum(0, dtype=torch.float32).to(bias_dtype)
        return of_input, of_weight, of_bias, None, None, None


def _multiply(*arguments: Any) -> Tensor:
    result: Tensor = _Product.apply(*arguments)  # type: ignore[no-untyped-call]
    return result
