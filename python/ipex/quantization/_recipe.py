"""How a model is quantised."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_RANGES = ("min_max", "moving_average", "percentile", "mean_squared_error")


def module_paths(caller: str, float_layers: Iterable[str]) -> tuple[str, ...]:
    """Return them as a tuple, for an iterator is read once. `caller` is for messages."""
    if isinstance(float_layers, str):
        raise TypeError(
            f"ipex.quantization.{caller}: expected a list of module paths in float_layers, got the string "
            f"{float_layers!r}. Take [{float_layers!r}]."
        )
    return tuple(float_layers)


def check_float_layers(caller: str, names: Iterable[str], layers: str, paths: Iterable[str]) -> None:
    """Raise where none of these modules is one of those named, or lies in it."""
    there = list(paths)
    for name in names:
        if not any(f"{path}.".startswith(f"{name}.") for path in there):
            raise ValueError(
                f"ipex.{caller}: expected paths of modules with {layers} in float_layers, got {name!r}, of which the "
                "trace has none. Take paths that model.named_modules() gives, of a model that is traced, not scripted."
            )


@dataclass(frozen=True)
class Recipe:
    """How a model is quantised.

    `activations` says how the range of a tensor follows from what calibration saw: "min_max", all of it;
    "moving_average", of the ranges of the calls; "percentile", without the outermost values, so that `percentile`
    percent stay; "mean_squared_error", the range with the smallest error, found by trying. `float_layers` names
    modules, as in "layer4.1.conv2" or "head", whose layers stay in float. `smooth`, SmoothQuant's alpha, lets the
    weights of linears take over the differences between the channels of their inputs: 0.5 is usual for transformers,
    None leaves them. With `attention=False` the products of attention stay in 16 or 32 bits; with `embeddings=True`
    tables of embeddings become rows of 8-bit numbers. A CPU without int8 instructions computes in float32, which is
    faster there, unless the recipe is `forced`, as for a file for other CPUs.
    """

    activations: str = "mean_squared_error"
    percentile: float = 99.99
    float_layers: Iterable[str] = ()
    smooth: float | None = None
    attention: bool = True
    embeddings: bool = False
    forced: bool = False

    def __post_init__(self) -> None:
        """Refuse what can't be meant."""
        if self.activations not in _RANGES:
            raise ValueError(
                f"ipex.quantization.Recipe: expected one of {', '.join(_RANGES)} in activations, "
                f"got {self.activations!r}."
            )
        if not 50 < self.percentile <= 100:
            raise ValueError(
                f"ipex.quantization.Recipe: expected more than 50 and at most 100 in percentile, got {self.percentile}."
            )
        object.__setattr__(self, "float_layers", module_paths("Recipe", self.float_layers))
        if self.smooth is not None and not (isinstance(self.smooth, (int, float)) and 0 <= self.smooth <= 1):
            raise ValueError(f"ipex.quantization.Recipe: expected 0 to 1 in smooth, got {self.smooth!r}.")


def get_smooth_quant_qconfig_mapping(
    alpha: float = 0.5,
    act_observer: None = None,
    act_ic_observer: None = None,
    wei_observer: None = None,
    wei_ic_observer: None = None,
    share_weight_observers: bool = True,
) -> Recipe:
    """Return `Recipe(smooth=alpha)`, under IPEX's name for it. Observers are ours: a Recipe says what they look for."""
    given = {
        "act_observer": act_observer,
        "act_ic_observer": act_ic_observer,
        "wei_observer": wei_observer,
        "wei_ic_observer": wei_ic_observer,
        "share_weight_observers": None if share_weight_observers else share_weight_observers,
    }
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"ipex.quantization.get_smooth_quant_qconfig_mapping: expected no {name}, got {value!r}. Leave it out; "
                "activations of ipex.quantization.Recipe says how ranges follow from what is seen."
            )
    return Recipe(smooth=alpha)
