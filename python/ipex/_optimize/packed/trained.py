"""nn.Conv2d with 3x3 windows in training, forward and backward, on ipex::trained_convolution.

Parameters and their gradients stay plain: decision 0034 says what is gained, and why nothing else is packed here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from ..._torch_internals import is_in_functorch, is_tracing


class TrainedConv2d(nn.Conv2d):
    """A convolution that can be trained faster than torch's."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        sides = self._reversed_padding_repeated_twice  # from the last dimension to the first
        padding = [sides[2], sides[0]]
        if _is_plain(input, weight) and torch.ops.ipex.trained_convolution_pays(input, weight, padding):
            return _Convolution.apply(input, weight, bias, padding)  # type: ignore[no-any-return, no-untyped-call]
        return super()._conv_forward(input, weight, bias)  # type: ignore[no-any-return]

    def __prepare_scriptable__(self) -> nn.Module:
        """torch.jit.script compiles the module that this one was."""
        plain = nn.Conv2d.__new__(nn.Conv2d)
        plain.__dict__.update(self.__dict__)
        return plain


def why_not(module: nn.Module) -> str | None:
    """Return why a module stays torch's, if there is a reason."""
    if type(module) is not nn.Conv2d or not _slides_by_one(module):
        return "in training it pays for convolutions of 3x3 windows, one pixel apart, alone (decision 0034)"
    if "forward" in module.__dict__ or "_conv_forward" in module.__dict__:
        return "it has a forward of its own"
    if module.padding_mode != "zeros":
        return f"its padding_mode is {module.padding_mode}"
    if type(module._parameters.get("weight")) is not nn.Parameter or module.weight.device.type != "cpu":
        return "its weight is no parameter on the CPU"
    if module.weight.dtype != torch.float32:
        return f"in training it pays in float32 alone (decision 0034), and its weight is {module.weight.dtype}"
    if not torch.ops.ipex.has_trained_convolution(module.in_channels, module.out_channels):
        return f"{module.in_channels} to {module.out_channels} channels leave too little to multiply"
    return None


def _slides_by_one(module: nn.Conv2d) -> bool:
    return (
        module.kernel_size == (3, 3)
        and module.stride == module.dilation == (1, 1)
        and module.groups == 1
        and max(module._reversed_padding_repeated_twice) <= 2
    )


def _is_plain(input: Tensor, weight: Tensor) -> bool:
    """Whether this is a call that only autograd looks at."""
    return (
        not torch.compiler.is_compiling()
        and type(input) in (Tensor, nn.Parameter)
        and type(weight) in (Tensor, nn.Parameter)
        and not torch.is_autocast_enabled("cpu")
        and not is_tracing()
        and not is_in_functorch()
        and forward_ad._current_level < 0
    )


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, image: Tensor, weight: Tensor, bias: Tensor | None, padding: list[int]) -> Tensor:
        ctx.save_for_backward(image, weight)
        ctx.padding = padding
        ctx.bias_sizes = None if bias is None else [len(bias)]
        return torch.ops.ipex.trained_convolution(image, weight, bias, padding)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        image, weight = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:3])
        of_image = None
        if wanted[0] and not torch.is_grad_enabled():  # else somebody asks for gradients of gradients
            turned, padding = weight.flip(2, 3).transpose(0, 1), [2 - p for p in ctx.padding]
            if torch.ops.ipex.trained_convolution_pays(gradient, turned, padding):
                wanted[0] = False
                of_image = torch.ops.ipex.trained_convolution(gradient, turned, None, padding)
        if any(wanted):
            others = ([1, 1], ctx.padding, [1, 1], False, [0, 0], 1, wanted)
            found = torch.ops.aten.convolution_backward(gradient, image, weight, ctx.bias_sizes, *others)
            return (found[0] if of_image is None else of_image), found[1], found[2], None
        return of_image, None, None, None
