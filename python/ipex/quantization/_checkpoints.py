"""Checkpoints of GPTQ and AWQ: packed integers, and what they stand for.

GPTQ   qweight  int32 [inputs * bits / 32, outputs]  neighbours in a column share a word, the first lowest
       qzeros   int32 [groups, outputs * bits / 32]  neighbours in a row share a word; each is one too small, but
                                                     not in version 2 of the format
       scales   floats [groups, outputs]
       g_idx    integers [inputs]                    the group of each input; in order where there is none
AWQ    qweight  int32 [inputs, outputs / 8]          neighbours in a row share a word, in an order of their own
       qzeros   int32 [groups, outputs / 8]          likewise
       scales   floats [groups, outputs]

weight[output, input] = (integer - zero of its group) * scale of its group
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ._weight_only_module import WeightOnlyLinear

# Which of eight neighbours lies in each four bits of a word, from the lowest up.
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_OF_A_LINEAR = ("qweight", "qzeros", "scales", "g_idx", "bias")


def from_gptq(
    model: nn.Module,
    checkpoint: Mapping[str, Tensor] | str | PathLike[str] | tuple[Any, Mapping[str, Any]],
    *,
    bits: int | None = None,
    group_size: int | None = None,
    desc_act: bool | None = None,
    sym: bool | None = None,
    checkpoint_format: str | None = None,
    strict: bool = True,
) -> nn.Module:
    """Return a copy of `model` with the weights of a GPTQ checkpoint. `ipex.jit_optimize` makes it fast.

    `checkpoint` is a state_dict, a safetensors file, a folder of these, or a pair of one of them and a dict of what is
    known, as in `quantize_config.json`. The linears that it has integers for become `WeightOnlyLinear`, everything else
    is loaded as `load_state_dict` does it; `strict=False` ignores tensors that the model has no place for.
    `model` need not have weights: build it under `torch.device("meta")`.

    `bits` (2, 4 or 8), `group_size` (-1 for whole rows), `desc_act` (whether groups are of inputs in an order of their
    own) and `sym` (whether all zeros are in the middle) are in the tensors: what is given is checked.
    `checkpoint_format` is "gptq", the default, or "gptq_v2", which counts zeros from zero. What is not given comes from
    the pair, and else from the configuration in the folder, that of the file too, if there is one.
    """
    tensors, configuration = _read(checkpoint, "gptq")
    known = _Known(
        "from_gptq",
        bits if bits is not None else configuration.get("bits"),
        group_size if group_size is not None else configuration.get("group_size"),
        desc_act if desc_act is not None else configuration.get("desc_act"),
        sym if sym is not None else configuration.get("sym"),
    )
    kind = checkpoint_format or configuration.get("checkpoint_format") or "gptq"
    if kind not in ("gptq", "gptq_v2"):
        raise ValueError(
            f"ipex.quantization.from_gptq: expected 'gptq' or 'gptq_v2' in checkpoint_format, got {kind!r}."
        )
    first_zero = 1 if kind == "gptq" else 0
    return _with_integers(model, tensors, known, strict, lambda own, width: _of_gptq(own, width, known, first_zero))


def from_awq(
    model: nn.Module,
    checkpoint: Mapping[str, Tensor] | str | PathLike[str] | tuple[Any, Mapping[str, Any]],
    *,
    bits: int | None = None,
    group_size: int | None = None,
    strict: bool = True,
) -> nn.Module:
    """Return a copy of `model` with the weights of an AWQ checkpoint, of 4 bits and the layout named "gemm".

    Everything else is as in `ipex.quantization.from_gptq`.
    """
    tensors, configuration = _read(checkpoint, "awq")
    version = str(configuration.get("version", "gemm")).lower()
    if version != "gemm":
        raise ValueError(f"ipex.quantization.from_awq: expected a checkpoint in the layout 'gemm', got {version!r}.")
    known = _Known(
        "from_awq",
        bits if bits is not None else configuration.get("bits", configuration.get("w_bit")),
        group_size if group_size is not None else configuration.get("group_size", configuration.get("q_group_size")),
    )
    return _with_integers(model, tensors, known, strict, lambda own, width: _of_awq(own, width, known))


@dataclass(frozen=True)
class _Known:
    """What is known of a checkpoint beside its tensors."""

    caller: str
    bits: int | None = None
    group_size: int | None = None
    desc_act: bool | None = None
    sym: bool | None = None


class _Tensors:
    """Those of one linear, checked."""

    def __init__(self, path: str, tensors: Mapping[str, Tensor], caller: str) -> None:
        self.path, self.tensors, self.caller = path, tensors, caller

    def get(self, key: str, shape: tuple[int | None, ...], dtypes: str) -> Tensor:
        """Return one of this shape, None being any size, and one of these kinds: "int32", "integers" or "floats"."""
        found = self.tensors.get(_joined(self.path, key))
        if found is None:
            raise self.error(f"{key}", "none")
        is_of_kind = {
            "int32": found.dtype == torch.int32,
            "integers": found.dtype in (torch.int32, torch.int64),
            "floats": found.is_floating_point(),
        }[dtypes]
        sizes = found.dim() == len(shape) and all(own in (None, size) for own, size in zip(shape, found.shape))
        if not is_of_kind or not sizes:
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise self.error(f"{key} of {dtypes} [{wanted}]", f"{found.dtype} {list(found.shape)}")
        return found

    def error(self, wanted: str, got: str, advice: str = "Is it a checkpoint of this model?") -> ValueError:
        """Return what to raise."""
        return ValueError(
            f"ipex.quantization.{self.caller}: expected {wanted} for {self.path or 'the model'}, got {got}. {advice}"
        )


def _of_gptq(own: _Tensors, inputs: int, known: _Known, first_zero: int) -> dict[str, Any]:
    qweight = own.get("qweight", (None, None), "int32")
    outputs = qweight.shape[1]
    bits, left = divmod(32 * qweight.shape[0], inputs)
    if left or bits not in (2, 4, 8) or known.bits not in (None, bits):
        wanted = f"{known.bits}" if known.bits else "2, 4 or 8"
        got = f"{32 * qweight.shape[0] / inputs:g}"
        raise own.error(f"{wanted} bits for each of {inputs} inputs", got, "Other widths are not read.")
    scales = own.get("scales", (None, outputs), "floats")
    groups = len(scales)
    qzeros = own.get("qzeros", (groups, -(-outputs * bits // 32)), "int32")
    largest, half = 2**bits - 1, 2 ** (bits - 1)
    codes = _unpacked(qweight.t(), bits)
    stored = _unpacked(qzeros, bits)[:, :outputs]
    # A zero of 0 was stored as the largest number.
    zeros = stored + first_zero & largest
    if known.sym and not bool((zeros == half).all()):
        found = f"zeros of {int(zeros.min())} to {int(zeros.max())}"
        other = bool((stored + (1 - first_zero) & largest == half).all())
        kind = "gptq_v2" if first_zero else "gptq"
        advice = f"Its checkpoint_format is {kind!r}: say so." if other else "Is it sym=False?"
        raise own.error(f"zeros of {half} in a symmetric checkpoint", found, advice)
    order, size = _order(own, inputs, groups, known)
    if order is not None:
        codes = codes[:, order]
    return _parts(codes - half, scales, zeros - half, order, 4 if bits < 8 else 8, size)


def _of_awq(own: _Tensors, inputs: int, known: _Known) -> dict[str, Any]:
    if known.bits not in (None, 4):
        raise own.error("4 bits", str(known.bits), "Other widths are not read.")
    qweight = own.get("qweight", (inputs, None), "int32")
    outputs = 8 * qweight.shape[1]
    scales = own.get("scales", (None, outputs), "floats")
    qzeros = own.get("qzeros", (len(scales), qweight.shape[1]), "int32")
    places = torch.tensor(_AWQ_ORDER).argsort()

    def in_order(packed: Tensor) -> Tensor:
        of_words = _unpacked(packed, 4).view(len(packed), -1, 8)
        result: Tensor = of_words.index_select(2, places).flatten(1)
        return result

    size = _group_size(own, inputs, len(scales), known)
    return _parts(in_order(qweight).t() - 8, scales, in_order(qzeros) - 8, None, 4, size)


def _parts(
    codes: Tensor, scales: Tensor, offsets: Tensor, order: Tensor | None, bits: int, group_size: int
) -> dict[str, Any]:
    """Return what a WeightOnlyLinear takes."""
    return {
        "codes": codes.to(torch.int8).contiguous(),
        "scales": scales.t().float().contiguous(),
        "offsets": offsets.t().float().contiguous() if bool(offsets.any()) else None,
        "order": order,
        "bits": bits,
        "group_size": group_size,
    }


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    """Return the numbers of each row of words, from 0 up."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    numbers: Tensor = packed.unsqueeze(2) >> shifts & 2**bits - 1
    return numbers.flatten(1).to(torch.int16)


def _order(own: _Tensors, inputs: int, groups: int, known: _Known) -> tuple[Tensor | None, int]:
    """Return the inputs, group by group, where that is another order than theirs; and the size of a group."""
    if _joined(own.path, "g_idx") not in own.tensors:
        if known.desc_act:
            raise own.error("g_idx, as groups have an order of their own", "none")
        return None, _group_size(own, inputs, groups, known)
    group_of = own.get("g_idx", (inputs,), "integers").long()
    if bool((group_of < 0).any()) or bool((group_of >= groups).any()):
        raise own.error(f"groups 0 to {groups - 1} in g_idx", f"{int(group_of.min())} to {int(group_of.max())}")
    size = _group_size(own, inputs, groups, known, int((group_of == 0).sum()))
    in_order = torch.arange(inputs) // size
    if torch.equal(group_of, in_order):
        return None, size
    if known.desc_act is False:
        raise own.error("g_idx in order", "another order", "Say desc_act=True.")
    order = group_of.argsort(stable=True)
    if not torch.equal(group_of[order], in_order):
        raise own.error(f"{size} inputs in each group of g_idx", f"{group_of.bincount().tolist()}")
    return order, size


def _group_size(own: _Tensors, inputs: int, groups: int, known: _Known, seen: int | None = None) -> int:
    size = inputs if known.group_size == -1 else known.group_size or seen or -(-inputs // groups)
    if size <= 0 or -(-inputs // size) != groups:
        raise own.error(f"groups of {size} of {inputs} inputs", f"scales of {groups} groups")
    if size % 8 != 0 and size != inputs:
        raise own.error("groups of a multiple of 8 inputs", str(size), "Others have no kernel.")
    return size


def _with_integers(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    known: _Known,
    strict: bool,
    parts_of: Any,
) -> nn.Module:
    """Return the copy, with linears of what `parts_of` reads out of their tensors."""
    caller = f"ipex.quantization.{known.caller}"
    modules = dict(model.named_modules())
    paths = [name[: -len("qweight")].rstrip(".") for name in tensors if name.split(".")[-1] == "qweight"]
    if not paths:
        raise ValueError(f"{caller}: expected tensors named qweight in the checkpoint, got none. It is not quantised.")
    made: dict[int, nn.Module] = {}
    rest = dict(tensors)
    for path in paths:
        linear = modules.get(path)
        if type(linear) is not nn.Linear:
            got = "no such module" if linear is None else type(linear).__name__
            raise ValueError(
                f"{caller}: expected an nn.Linear at {path or 'the model'}, got {got}. Is it its checkpoint?"
            )
        own = _Tensors(path, tensors, known.caller)
        parts = parts_of(own, linear.in_features)
        if len(parts["codes"]) != linear.out_features:
            raise own.error(f"{linear.out_features} outputs", str(len(parts["codes"])))
        made[id(linear)] = WeightOnlyLinear(**parts, bias=_bias(own, linear), dtype=linear.weight.dtype)
        for key in _OF_A_LINEAR:
            rest.pop(_joined(path, key), None)
    return _loaded(copy.deepcopy(model, made), rest, strict, caller)  # its memo: these count as copied


def _bias(own: _Tensors, linear: nn.Linear) -> Tensor | None:
    """Return it. Some writers give linears without one a bias of zeros."""
    if linear.bias is None and _joined(own.path, "bias") not in own.tensors:
        return None
    bias = own.get("bias", (linear.out_features,), "floats").float()
    return bias.clone() if linear.bias is not None or bool(bias.any()) else None


def _loaded(model: nn.Module, tensors: dict[str, Tensor], strict: bool, caller: str) -> nn.Module:
    own = {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, WeightOnlyLinear)
        for name in module.state_dict()
    }
    # Without weights there is nothing to copy into.
    is_empty = any(parameter.is_meta for parameter in model.parameters())
    missing, unexpected = model.load_state_dict(tensors, strict=False, assign=is_empty)
    state = model.state_dict(keep_vars=True)
    there = {id(tensor) for name, tensor in state.items() if name not in missing}
    missing = [name for name in missing if name not in own and id(state[name]) not in there]  # not of tied weights
    if missing:
        raise ValueError(f"{caller}: expected {', '.join(missing[:5])} in the checkpoint, got no such tensor.")
    if strict and unexpected:
        raise ValueError(
            f"{caller}: expected tensors that the model has a place for, got {', '.join(unexpected[:5])}. "
            "With strict=False they are ignored."
        )
    return model


def configuration_of(checkpoint: Any, caller: str) -> dict[str, Any]:
    """Return what is known of a checkpoint beside its tensors: what its folder says, and what the caller gives."""
    if not isinstance(checkpoint, tuple):
        if not isinstance(checkpoint, (str, PathLike)):
            return {}
        path = Path(checkpoint)
        return _configuration(path if path.is_dir() else path.parent)
    if len(checkpoint) != 2 or not isinstance(checkpoint[1], Mapping):
        raise TypeError(
            f"ipex.{caller}: expected a pair of a checkpoint and a dict, as {{'quant_method': 'gptq'}}, got a tuple of "
            f"{', '.join(type(each).__name__ for each in checkpoint)}."
        )
    return {**configuration_of(checkpoint[0], caller), **checkpoint[1]}


def _read(checkpoint: Any, method: str) -> tuple[Mapping[str, Tensor], dict[str, Any]]:
    """Return the tensors, and what is known of them."""
    caller = f"ipex.quantization.from_{method}"
    configuration = configuration_of(checkpoint, f"quantization.from_{method}")
    if (found := configuration.get("quant_method", method)) != method:
        raise ValueError(f"{caller}: expected a checkpoint of {method}, got quant_method {found!r}.")
    if isinstance(checkpoint, tuple):
        checkpoint = checkpoint[0]
    if isinstance(checkpoint, Mapping):
        return checkpoint, configuration
    if not isinstance(checkpoint, (str, PathLike)):
        raise TypeError(f"{caller}: expected a state_dict or a path in checkpoint, got {type(checkpoint).__name__}.")
    path = Path(checkpoint)
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files or not path.exists():
        raise ValueError(f"{caller}: expected a safetensors file, or a folder of them, got {path}.")
    tensors: dict[str, Tensor] = {}
    for file in files:
        tensors.update(_read_file(file, caller))
    return tensors, configuration


def _read_file(path: Path, caller: str) -> dict[str, Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise ImportError(f"{caller}: expected the package safetensors, got none. pip install safetensors.") from error
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise ValueError(
            f"{caller}: expected a whole safetensors file at {path}, got: {error}. Download it again."
        ) from error
    return tensors


def _configuration(folder: Path) -> dict[str, Any]:
    for name, key in (
        ("quantize_config.json", None),
        ("quant_config.json", None),
        ("config.json", "quantization_config"),
    ):
        file = folder / name
        if file.is_file():
            found = json.loads(file.read_text())
            found = found if key is None else found.get(key)
            if isinstance(found, dict):
                return found
    return {}


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
