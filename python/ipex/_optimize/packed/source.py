"""Parameters whose values live in packed ops.

A packed layer keeps its weight in the layout of the kernels, and no second copy. What stands in its `_parameters` says
shape, strides and dtype, and gets the values from the packed op when somebody wants them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from ..._torch_internals import tree_map, uses_of_storage, without_torch_function


class Owner(Protocol):
    """A packed layer, as its parameters see it."""

    def repack(self, changed: Mapping[str, nn.Parameter]) -> None:
        """Pack with some parameters changed."""

    def unpack(self) -> None:
        """Be a module with ordinary parameters."""

    def shared(self, context: Any) -> None:
        """A layer, perhaps this one, has packed a parameter of it."""

    def leave_the_short_way(self) -> None:
        """Let the next call look at everything first."""


# What ordinary parameters were packed to, while they exist: tied parameters stay tied.
_sources: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


class Source:
    """The values of one parameter, which several layers may share."""

    def __init__(self, plain: nn.Parameter) -> None:
        self.parameter = PackedParameter(self, plain)
        self._owners: list[tuple[weakref.ref[Owner], str]] = []
        self._held: Callable[[], Tensor] | None = None
        self._plain: weakref.ref[nn.Parameter] | None = None
        self._lent: Tensor | None = None
        self._successor: Source | None = None  # once the parameter has another dtype

    def add(self, layer: Owner, name: str) -> None:
        """Say that this layer packs the parameter, under this name."""
        self._owners.append((weakref.ref(layer), name))

    def layers(self) -> list[Owner]:
        """Return the layers that pack the parameter."""
        return [layer for owner, _ in self._owners if (layer := owner()) is not None]

    def hold(self, context: Any, values: Callable[[], Tensor]) -> None:
        """Say which context has the values, and what takes them out of it.

        It outlives the layers while somebody holds the parameter.
        """
        self._held = values
        for layer in self.layers():
            layer.shared(context)

    def _packed_values(self) -> Tensor:
        """Return what the context has, which may be its own memory."""
        assert self._held is not None
        return self._held().reshape(self.parameter.shape)  # the kernels of 1-d convolutions are those of 2-d ones

    def discard(self, layer: Owner, name: str) -> None:
        """Say that it no longer does."""
        self._owners = [o for o in self._owners if o[0]() is not None and (o[0]() is not layer or o[1] != name)]

    def plain(self) -> nn.Parameter:
        """Return the values as an ordinary parameter: the same one while somebody holds it."""
        if self._successor is not None:
            return self._successor.plain()
        known = self._plain() if self._plain is not None else None
        if known is not None:
            return known
        values = self._lent if self._lent is not None else self._packed_values().clone()
        plain = nn.Parameter(values, requires_grad=self.parameter.requires_grad)
        _sources[plain] = self  # another layer that packs it joins this source
        self._plain = weakref.ref(plain)
        return plain

    def became(self, other: Source) -> None:
        """Say that the parameter has another shape or dtype now. Layers that have yet to notice get that."""
        self._successor = other

    def write(self, values: Tensor) -> None:
        """Give the parameter these values: each layer packs them."""
        self._lent = values  # for good, where no layer is left
        plain = nn.Parameter(values.detach(), requires_grad=self.parameter.requires_grad)
        _sources[plain] = self
        self._plain = weakref.ref(plain)
        for owner, name in list(self._owners):
            layer = owner()
            if layer is not None:
                self._lent = None
                layer.repack({name: plain})

    def set_data(self, values: Tensor) -> None:
        """Take these values, and see what is written to them later. Where they have another form nothing is packed."""
        own = self.parameter
        if (values.shape, values.stride(), values.dtype, values.device) == (
            own.shape,
            own.stride(),
            own.dtype,
            own.device,
        ):
            self.write(values.detach())
            self.lend(values.detach())
            return
        plain = self.plain()
        for layer in self.layers():
            layer.unpack()
        plain.data = values

    def lend(self, values: Tensor) -> None:
        """Remember values of which somebody got a view, and may write to it."""
        self._lent = values
        for layer in self.layers():
            layer.leave_the_short_way()

    @property
    def is_lent(self) -> bool:
        """Whether somebody may hold a view of the values."""
        return self._lent is not None

    def settle(self) -> bool:
        """Pack what was written to views since they were lent. Returns whether no view is left."""
        lent = self._lent
        if lent is None:
            return True
        self._lent = None
        bits = torch.int32 if lent.itemsize == 4 else torch.int16  # a NaN is the same NaN
        if not torch.equal(lent.view(bits), self._packed_values().view(bits)):
            self.write(lent)
        storage = lent.untyped_storage()
        is_alone = uses_of_storage(storage) <= _own_uses
        if not is_alone:
            self._lent = lent
        return is_alone


# Of a storage that only a tensor, and what Python makes to look at the storage, refer to.
_own_uses = 2


class PackedParameter(Tensor):
    """A parameter of a packed layer. Ops on it see its values; writing to it packs the layer again."""

    source: Source

    @staticmethod
    def __new__(cls, source: Source, like: Tensor) -> PackedParameter:
        made: PackedParameter = Tensor._make_wrapper_subclass(
            cls, like.size(), strides=like.stride(), dtype=like.dtype, device=like.device, requires_grad=False
        )
        made.source = source
        made._is_param = True  # what nn.Parameter asks for in isinstance
        return made

    def __init__(self, source: Source, like: Tensor) -> None:
        pass

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        return f"Packed parameter containing:\n{self.source.plain().detach()!r}"

    @property
    def data(self) -> Tensor:
        """The values without their history, as of any parameter."""
        return Tensor.data.__get__(self)  # type: ignore[attr-defined, no-any-return]

    @data.setter
    def data(self, values: Tensor) -> None:
        self.source.set_data(values)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.source.plain().__deepcopy__(memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.source.plain().__reduce_ex__(protocol)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Not disabled: torch's fast paths that read weights at once, as of transformers, must not be taken.
        with without_torch_function():
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is torch.ops.aten.detach.default:
            return _alias(args[0])
        values: dict[Source, Tensor] = {}

        def plain(value: Any) -> Any:
            if not isinstance(value, PackedParameter):
                return value
            if value.source not in values:
                values[value.source] = value.source.plain().detach()
            return values[value.source]

        written = [
            value
            for argument, value in _by_argument(function, args, kwargs)
            if isinstance(value, PackedParameter) and argument.alias_info is not None
        ]
        result = function(*tree_map(plain, args), **tree_map(plain, kwargs))
        if function._schema.is_mutable:
            for parameter in written:
                parameter.source.write(values[parameter.source])
            return written[0] if written else result
        for parameter in written:  # not written but viewed
            parameter.source.lend(values[parameter.source])
        return result


def _alias(parameter: PackedParameter) -> PackedParameter:
    made = PackedParameter(parameter.source, parameter)
    made._is_param = False
    return made


def _by_argument(function: Any, args: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    pairs = []
    for argument, value in zip(function._schema.arguments, args):
        pairs += [(argument, v) for v in value] if isinstance(value, (list, tuple)) else [(argument, value)]
    by_name = {argument.name: argument for argument in function._schema.arguments}
    return pairs + [(by_name[name], value) for name, value in kwargs.items() if name in by_name]


def source_of(parameter: Tensor) -> Source:
    """Return the source that this parameter's values go to, made at the first request."""
    if isinstance(parameter, PackedParameter):
        return parameter.source
    source: Source | None = _sources.get(parameter)
    like = source.parameter if source is not None else None
    same = like is not None and (like.shape, like.stride(), like.dtype) == (
        parameter.shape,
        parameter.stride(),
        parameter.dtype,
    )
    if source is None or not same:
        known, source = source, Source(parameter)  # type: ignore[arg-type]
        if known is not None:
            known.became(source)
        _sources[parameter] = source
    return source


def forget(parameter: Tensor | None, layer: Owner, name: str) -> None:
    """Say that this layer holds an ordinary parameter now."""
    source = None if parameter is None else _sources.get(parameter)
    if source is not None:
        source.discard(layer, name)
