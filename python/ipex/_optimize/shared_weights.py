"""Which modules hold a weight: what is done to it is done for all of them, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor, nn

Holders = dict[int, list[tuple[str, nn.Module]]]


def holders_of(model: nn.Module) -> Holders:
    """Return which modules hold each parameter, by its id."""
    found: Holders = {}
    for name, module in model.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                found.setdefault(id(parameter), []).append((name or "the model", module))
    return found


def other_holder(parameter: Tensor, layers: dict[str, nn.Module], holders: Holders) -> str | None:
    """Return a module that holds this parameter and is none of these layers, if there is one."""
    own = set(map(id, layers.values()))
    return next((name for name, module in holders[id(parameter)] if id(module) not in own), None)


def leave_shared(
    layers: dict[str, nn.Module], holders: Holders, weights_of: Callable[[nn.Module], Iterable[Tensor]]
) -> dict[str, str]:
    """Take layers away until none shares a weight with another module. Return the other holder for each of these."""
    left: dict[str, str] = {}
    while True:
        others = {
            name: next(filter(None, (other_holder(weight, layers, holders) for weight in weights_of(layer))), None)
            for name, layer in layers.items()
        }
        found = {name: other for name, other in others.items() if other is not None}
        if not found:
            return left
        left.update(found)
        for name in found:
            del layers[name]
