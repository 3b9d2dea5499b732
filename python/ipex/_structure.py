"""What models take and give: the tensors in a value, and such a value made of other tensors."""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

_CONSTANTS = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    enum.Enum,
    type,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)


@dataclass(frozen=True)
class Structure:
    """A value without its tensors: a tensor, a constant, a number that is traced as a tensor, or parts with names."""

    kind: Any
    names: tuple[Any, ...] = ()
    parts: tuple[Structure, ...] = ()
    constant: Any = None
    make: Callable[[Sequence[Any]], Any] | None = field(default=None, compare=False, repr=False)

    def of(self, tensors: Iterator[Tensor]) -> Any:
        """Return the value with these tensors."""
        if self.kind is Tensor:
            return next(tensors)
        if self.kind is int:
            return self.constant(next(tensors).item())
        if self.make is None:
            return self.constant
        return self.make([part.of(tensors) for part in self.parts])

    def leaves(self, path: str = "") -> Iterator[tuple[str, Structure]]:
        """Go through what has no parts, each with its place in the value."""
        if self.make is None:
            yield path, self
        for name, part in zip(self.names, self.parts):
            yield from part.leaves(f"{path}.{name}" if is_attribute(self.kind) else f"{path}[{name!r}]")


def taken_apart(value: Any, tensors: list[Tensor], path: str = "") -> Structure:
    """Return the structure of a value, and add its tensors to the list. TypeError names what is neither."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return Structure(Tensor)
    if isinstance(value, _CONSTANTS) or callable(value):
        return Structure("constant", constant=value)
    names, parts, make = _parts(value, path)
    form = "{}.{}" if is_attribute(type(value)) else "{}[{!r}]"
    inner = tuple(taken_apart(part, tensors, form.format(path, name)) for name, part in zip(names, parts))
    return Structure(type(value), tuple(names), inner, make=make)


def is_plain(value: Any) -> bool:
    """Whether TorchScript takes and gives this value as it is: tensors, tuples, lists and dicts of them."""
    if isinstance(value, Tensor):
        return True
    if type(value) is tuple:
        return bool(value) and all(map(is_plain, value))
    if type(value) is list:
        return bool(value) and all(isinstance(one, Tensor) for one in value)
    return (
        type(value) is dict and bool(value) and all(type(k) is str and isinstance(v, Tensor) for k, v in value.items())
    )


def with_numbers_of(eager: Structure, traced: Structure) -> Structure | None:
    """Return the structure of a trace's result, with the numbers that a trace has as tensors. None: they differ."""
    if eager.kind == "constant" and traced.kind is Tensor and type(eager.constant) in (bool, int, float):
        return Structure(int, constant=type(eager.constant))
    if (eager.kind, eager.names, eager.constant) != (traced.kind, traced.names, traced.constant):
        return None
    parts = []
    for one, other in zip(eager.parts, traced.parts):
        part = with_numbers_of(one, other)
        if part is None:
            return None
        parts.append(part)
    return dataclasses.replace(traced, parts=tuple(parts))


def is_attribute(kind: Any) -> bool:
    """Whether the parts of such a value are attributes of it."""
    is_tuple_or_mapping = issubclass(kind, (list, tuple, Mapping)) and not hasattr(kind, "_fields")
    return dataclasses.is_dataclass(kind) or not is_tuple_or_mapping


def _parts(value: Any, path: str) -> tuple[Sequence[Any], Sequence[Any], Callable[[Sequence[Any]], Any]]:
    kind = type(value)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return kind._fields, value, kind._make
    if isinstance(value, (list, tuple)):
        return range(len(value)), value, kind
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value) if f.init]
        return names, [getattr(value, name) for name in names], lambda parts: kind(**dict(zip(names, parts)))
    if isinstance(value, Mapping):
        return list(value), list(value.values()), _maker_of_mapping(value)
    if kind.__module__.startswith("transformers."):  # a cache
        names = list(vars(value))
        return names, list(vars(value).values()), lambda parts: _with_attributes(kind, dict(zip(names, parts)))
    raise TypeError(f"{kind.__name__}{f' at {path}' if path else ''}")


def _maker_of_mapping(value: Mapping[Any, Any]) -> Callable[[Sequence[Any]], Any]:
    names = list(value)
    if not isinstance(value, MutableMapping):
        return lambda parts: type(value)(dict(zip(names, parts)))  # type: ignore[call-arg]
    empty = copy.copy(value)
    for name in names:
        empty[name] = None

    def make(parts: Sequence[Any]) -> Any:
        made = copy.copy(empty)
        made.update(zip(names, parts))
        return made

    return make


def _with_attributes(kind: type, attributes: dict[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    vars(made).update(attributes)
    return made
