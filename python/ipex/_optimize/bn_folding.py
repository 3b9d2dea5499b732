"""batch_norm joins the layer before it.

    before   y = batch_norm(layer(x))
    after    y = layer'(x)              weight' = weight * scale, bias' = bias * scale + shift

Nothing changes its class but the batch_norm, which becomes a subclass that hands its input on. Parameters and buffers
keep names, shapes and dtypes, and together compute the same as before: those of the batch_norm become neutral, but for
a shift that a layer without bias can't hold. So a state_dict fits the model as it was, and one of the model as it was
is folded again when it is loaded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._torch_internals import overlaps_itself
from .data_flow import DataFlow
from .notes import Notes
from .packed.layer import PackedLayer


class FoldedBatchNorm1d(nn.BatchNorm1d):
    """An nn.BatchNorm1d that the convolution before it computes."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return handed_on(input, self.training)


class FoldedBatchNorm2d(nn.BatchNorm2d):
    """An nn.BatchNorm2d that the convolution before it computes."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return handed_on(input, self.training)


class FoldedBatchNorm3d(nn.BatchNorm3d):
    """An nn.BatchNorm3d that the convolution before it computes."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return handed_on(input, self.training)


class FoldedAfterLinear(nn.BatchNorm1d):
    """An nn.BatchNorm1d that was folded into a linear.

    Of [N, C] both have the same channels. Of [N, C, L] they don't: then the folding is undone, and batch_norm computed.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the input, or what batch_norm gives for sequences."""
        if self.training or input.dim() != 3:
            return handed_on(input, self.training)
        if input.size(1) != self.num_features:
            raise RuntimeError(
                f"ipex.optimize: expected {self.num_features} channels in dimension 1, got {input.size(1)}."
            )
        scale: Tensor = self.folded_scale.to(input.dtype)  # type: ignore[assignment]
        shift: Tensor = self.folded_shift.to(input.dtype)  # type: ignore[assignment]
        return (input - shift) / scale * scale.unsqueeze(1) + shift.unsqueeze(1)


def handed_on(input: Tensor, training: bool) -> Tensor:
    """Return the input of a batch_norm that is folded."""
    if training:
        raise RuntimeError(
            "ipex.optimize: expected a folded batch_norm in eval mode, got training=True. "
            "Train the model as it was, and optimise it then."
        )
    return input


CONVOLUTIONS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
    nn.ConvTranspose1d: nn.BatchNorm1d,
    nn.ConvTranspose2d: nn.BatchNorm2d,
    nn.ConvTranspose3d: nn.BatchNorm3d,
}
_FOLDED: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm1d: FoldedBatchNorm1d,
    nn.BatchNorm2d: FoldedBatchNorm2d,
    nn.BatchNorm3d: FoldedBatchNorm3d,
}
# Scales that nothing should be divided by.
_LEAST_SCALE = 1e-6


def fold_all(
    knob: str, kinds: dict[type[nn.Module], type[nn.Module]], model: nn.Module, flow: DataFlow, notes: Notes
) -> None:
    """Fold each batch_norm into the layer before it, of these kinds, where that is proven to be right."""
    modules = dict(model.named_modules())
    norms = {name: m for name, m in modules.items() if type(m) in set(kinds.values())}
    if not norms or not any(type(m) in kinds for m in modules.values()):
        return
    if flow.reason is not None:
        notes.failed(knob, f"{flow.reason}. ipex.jit_optimize(model, example_inputs) folds without it")
        return
    users = _users_of_parameters(model)
    for norm_name, norm in norms.items():
        for layer_name in sorted(flow.producers(norm_name)):
            layer = modules.get(layer_name)
            if layer is None or kinds.get(type(layer)) is not type(norm):
                continue
            reason = flow.why_not_a_pair(layer_name, norm_name) or why_not(layer, norm, users)
            if reason is not None:
                notes.declined(knob, norm_name, reason)
            else:
                Pair(layer, norm).install(_common_ancestor(model, layer_name, norm_name))
                notes.applied(knob, norm_name, f"folded into {layer_name}", into=layer_name)


def why_not(layer: nn.Module, norm: Any, users: dict[int, int]) -> str | None:
    """Return why this batch_norm may not be folded into this layer, if there is a reason."""
    if norm.training or norm.running_mean is None or norm.running_var is None:
        return "it uses the statistics of the batch"
    for module, what in ((layer, "the layer before it"), (norm, "it")):
        if "forward" in module.__dict__:
            return f"{what} has a forward of its own"
        if any(module.__dict__[hooks] for hooks in _HOOKS):
            return f"{what} has hooks, which would see other values"
    if layer.weight.shape[_channel_dimension(layer)] * _channel_groups(layer) != norm.num_features:  # type: ignore
        return "it has another number of channels"
    tensors = [*layer.parameters(), *norm.parameters(), norm.running_mean, norm.running_var]
    if any(users.get(id(t), 1) > 1 for t in tensors):
        return "a parameter is shared with another module"
    if len({t.device for t in tensors}) > 1 or len({t.dtype for t in tensors}) > 1:
        return "the layer and it are of several dtypes or devices"
    if any(t.is_inference() or overlaps_itself(t) for t in tensors):
        return "a parameter can't be written to"
    if any(t.is_meta for t in tensors):
        return "its parameters have no values yet"
    if norm.eps >= 1:
        return f"its eps is {norm.eps}, too large for neutral statistics"
    if isinstance(layer, nn.Linear) and _scale_and_shift(norm)[0].abs().min() < _LEAST_SCALE:
        return "a scale is too near to 0 to be undone for inputs of 3 dimensions"
    return None


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Pair:
    """A layer and the batch_norm that is folded into it. Copied and saved with both."""

    def __init__(self, layer: nn.Module, norm: Any) -> None:
        self.layer, self.norm = layer, norm
        self.is_loading = 0

    def install(self, ancestor: nn.Module) -> None:
        """Fold, and fold again whenever parameters are loaded into the pair. `ancestor` holds both."""
        if self.layer.bias is None:
            # Where forward looks for a bias, and neither a state_dict nor named_parameters.
            del self.layer._parameters["bias"]
            self.layer.register_buffer("bias", None, persistent=False)
        after_linear = isinstance(self.layer, nn.Linear)
        self.norm.__class__ = FoldedAfterLinear if after_linear else _FOLDED[type(self.norm)]
        if after_linear:
            self.norm.register_buffer("folded_scale", None, persistent=False)
            self.norm.register_buffer("folded_shift", None, persistent=False)
        self.norm.__dict__["_ipex_pair"] = self
        self.fold()
        self.norm.register_load_state_dict_post_hook(self.norm_was_loaded)
        ancestor.register_load_state_dict_pre_hook(self.loading_begins)
        ancestor.register_load_state_dict_post_hook(self.loading_ends)

    def loading_begins(self, *_: Any) -> None:
        """Called before both are loaded: the layer may come after the batch_norm."""
        self.is_loading += 1

    def loading_ends(self, *_: Any) -> None:
        """Called when both are loaded."""
        self.is_loading -= 1
        self.fold()

    def norm_was_loaded(self, *_: Any) -> None:
        """Called when the batch_norm is loaded, alone or with the layer."""
        if not self.is_loading:
            self.fold()

    @torch.no_grad()
    def fold(self) -> None:
        """Move what the batch_norm does into the layer. Changes nothing where it is there already."""
        layer, norm = self.layer, self.norm
        packed = isinstance(layer, PackedLayer)
        if packed:
            layer.unpack()  # type: ignore[operator]
        scale, shift = _scale_and_shift(norm)
        weight = layer.weight
        weight.copy_(_scaled(layer, weight.double(), scale))  # type: ignore
        own_bias = layer._parameters.get("bias")
        if own_bias is not None:
            own_bias.copy_(own_bias.double() * scale + shift)
        else:
            layer._buffers["bias"] = shift.to(weight.dtype)  # type: ignore
        left = torch.zeros_like(shift) if own_bias is not None else shift
        norm.running_mean.copy_(-left)
        norm.running_var.fill_(1 - norm.eps)
        if norm.affine:
            norm.weight.fill_(1)
            norm.bias.zero_()
        if isinstance(norm, FoldedAfterLinear):
            self._remember(scale, shift)
        if packed:
            layer._pack_again()  # type: ignore[operator]

    def _remember(self, scale: Tensor, shift: Tensor) -> None:
        """Keep what undoes the folding. A batch_norm that was neutral already is not the one that was folded."""
        is_neutral = torch.allclose(scale, torch.ones_like(scale), rtol=1e-6, atol=0)
        if self.norm.folded_scale is None or not is_neutral:
            self.norm.folded_scale, self.norm.folded_shift = scale.float(), shift.float()


def _scale_and_shift(norm: Any) -> tuple[Tensor, Tensor]:
    """batch_norm is y * scale + shift, in double."""
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    if norm.affine:
        scale = scale * norm.weight.double()
    shift = -norm.running_mean.double() * scale
    return scale, shift + norm.bias.double() if norm.affine else shift


def _channel_dimension(layer: nn.Module) -> int:
    return 1 if getattr(layer, "transposed", False) else 0


def _channel_groups(layer: nn.Module) -> int:
    return int(layer.groups) if getattr(layer, "transposed", False) else 1  # type: ignore[arg-type]


def _scaled(layer: nn.Module, weight: Tensor, scale: Tensor) -> Tensor:
    if not getattr(layer, "transposed", False):
        return weight * scale.view(-1, *[1] * (weight.dim() - 1))
    groups = _channel_groups(layer)
    by_group = weight.reshape(groups, -1, *weight.shape[1:])
    return (by_group * scale.view(groups, 1, -1, *[1] * (weight.dim() - 2))).reshape(weight.shape)


def _users_of_parameters(model: nn.Module) -> dict[int, int]:
    """How many places hold each parameter and buffer, by its id."""
    users: dict[int, int] = {}
    for module in model.modules():
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is not None:
                users[id(tensor)] = users.get(id(tensor), 0) + 1
    return users


def _common_ancestor(model: nn.Module, first: str, second: str) -> nn.Module:
    common = []
    for a, b in zip(first.split("."), second.split(".")):
        if a != b:
            break
        common.append(a)
    return model.get_submodule(".".join(common))
