"""The whole in a few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from .._load_extension import _C
from .fates import Fate, fate_of_final
from .graphs import FinalNode

_ACTIVATIONS = {
    pattern.removeprefix("aten::").partition("(")[0].removesuffix("_?")
    for _, pattern, is_packed in _C.activation_patterns()
    if is_packed
}
_FAMILIES = {
    "convolution": ("_convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                    "conv_transpose3d", "convolution"),
    "linear": ("linear", "addmm"),
    "recurrent layer": ("lstm", "gru"),
    "product": ("matmul", "bmm", "baddbmm", "einsum", "mm"),
    "attention": ("scaled_dot_product_attention",),
    "norm": ("batch_norm", "layer_norm", "group_norm", "softmax", "rms_norm", "instance_norm"),
    "pooling": ("max_pool2d", "adaptive_avg_pool2d", "avg_pool2d", "max_pool1d", "adaptive_avg_pool1d",
                "max_pool3d", "avg_pool3d"),
    "elementwise op": (*_ACTIVATIONS, "add", "sub", "mul", "div", "maximum", "minimum", "rsub"),
}  # fmt: skip
_FAMILY_OF = {f"aten::{kind}": family for family, kinds in _FAMILIES.items() for kind in kinds}
_DONE = {
    "convolution": "packed",
    "linear": "packed",
    "recurrent layer": "packed",
    "product": "packed or part of attention",
    "attention": "on a kernel of ipex",
    "norm": "folded, fused or on a kernel of ipex",
    "pooling": "on a kernel of ipex",
    "elementwise op": "fused",
}
_CONVERSIONS = {"ipex::to_channels_last", "ipex::restore_layout"}


def verdict(fates: Iterable[Fate], final: Sequence[FinalNode]) -> tuple[str, ...]:
    """Return the whole in a few lines."""
    all_of, taken = Counter[str](), Counter[str]()
    left: Counter[str] = Counter()
    for fate in fates:
        family = _FAMILY_OF.get(fate.node.kind.rstrip("_"))
        if family:
            all_of[family] += 1
            taken[family] += fate.became != "left"
        if fate.became == "left":
            left[fate.node.kind] += 1
    lines = []
    parts = [f"{taken[f]} of {_counted(all_of[f], f)} {_DONE[f]}" for f in _FAMILIES if all_of[f]]
    if parts:
        lines.append(". ".join(parts) + ".")
    layers = [layer for node in final for layer in node.layers]
    conversions = sum(node.kind in _CONVERSIONS for node in final)
    megabytes = sum(layer.weight_bytes for layer in layers) / 1e6
    lines.append(
        f"{_counted(len(layers), 'packed op')} with {megabytes:.1f} MB of weights, "
        f"{_counted(conversions, 'layout conversion')}, {len(final)} ops in all."
    )
    kinds = ", ".join(f"{count} x {kind}" for kind, count in left.most_common(6))
    lines.append(f"Left to aten: {kinds}{', ...' if len(left) > 6 else ''}." if left else "Nothing is left to aten.")
    fallen = Counter(reason for layer in layers for reason in layer.fallback_reasons)
    lines += [f"At run time {_counted(count, 'packed op')} fell back: {reason}." for reason, count in fallen.items()]
    return tuple(lines)


def kinds_of_final(final: Iterable[FinalNode]) -> Counter[str]:
    """How many nodes of the result are of each kind."""
    return Counter(fate_of_final(node) for node in final)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
