"""Modules that compute with a packed op, and are what they were in every other respect.

A packed layer is the user's own module object. Its class becomes a subclass of the one that it had: isinstance, hooks,
attributes, names and everything else stay. Where a call is not what the packed op is for, the forward of that class
computes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..._load_extension import _C
from ..._saved_once import save_once
from ..._torch_internals import graph_break, held_by_trace, is_in_functorch, is_tracing
from .source import PackedParameter, forget, source_of


class PackedLayer(nn.Module):
    """What all packed layers share. Stands before the module's own class among the bases of the class it gets."""

    plain_class: ClassVar[type[nn.Module]]
    op: ClassVar[str]

    # In the __dict__ of the instance, where nothing takes them for parts of the model.
    _ipex_context: Any
    _ipex_dtype: torch.dtype
    _ipex_casts: bool

    def prepack(self, values: Mapping[str, Tensor]) -> Any:
        """Return the context for these parameters."""
        raise NotImplementedError

    def parameters_to_pack(self) -> list[str]:
        """Return the names of the parameters that go into the context."""
        raise NotImplementedError

    @staticmethod
    def values_in(context: Any, name: str) -> Tensor:
        """Return the values of a parameter, perhaps the context's own memory."""
        values: Tensor = context.__getstate__()[0][1][name]
        return values

    def bound_arguments(self) -> tuple[Any, ...]:
        """Return what the op takes after its tensors."""
        return (self._ipex_context, [], True)

    # The life of the packed weight.

    def pack(self) -> None:
        """Pack the parameters, and hold them nowhere else."""
        own = self.__dict__["_parameters"]
        names = [name for name in self.parameters_to_pack() if own.get(name) is not None]
        with torch.no_grad():
            context = self.prepack({name: _plain(own[name]).detach() for name in names})
        self.__dict__["_ipex_context"] = context
        self.__dict__["_ipex_dtype"] = own[names[0]].dtype
        for name in names:
            source = source_of(own[name])
            source.discard(self, name)
            source.add(self, name)
            source.hold(context, partial(self.values_in, context, name))
            own[name] = source.parameter
        self.parameters_changed()
        self._take_the_short_way()

    def unpack(self) -> None:
        """Be a module with ordinary parameters, until it is packed again."""
        own = self.__dict__["_parameters"]
        for name, parameter in list(own.items()):
            if isinstance(parameter, PackedParameter):
                parameter.source.settle()
                own[name] = parameter.source.plain()
        for name in self.parameters_to_pack():
            forget(own.get(name), self, name)
        self.__dict__["_ipex_context"] = None
        self.parameters_changed()
        self.leave_the_short_way()

    def repack(self, changed: Mapping[str, nn.Parameter]) -> None:
        """Pack with some parameters changed."""
        own = self.__dict__["_parameters"]
        plain = {
            name: changed[name] if name in changed else own[name].source.plain()
            for name in self.parameters_to_pack()
            if isinstance(own.get(name), PackedParameter)
        }
        with torch.no_grad():
            context = self.prepack({name: values.detach() for name, values in plain.items()})
        self.__dict__["_ipex_context"] = context
        for name in plain:
            own[name].source.hold(context, partial(self.values_in, context, name))
        self._take_the_short_way()

    def shared(self, context: Any) -> None:
        """A layer that has a parameter of this one too, or this one, has packed it."""

    def parameters_changed(self) -> None:
        """Tell whoever keeps a list of the parameters."""

    def _can_pack(self) -> bool:
        parameters = [self.__dict__["_parameters"].get(name) for name in self.parameters_to_pack()]
        present = [p for p in parameters if p is not None]
        dtypes = {p.dtype for p in present}
        return (
            all(p.device.type == "cpu" for p in present)
            and len(dtypes) == 1
            and dtypes <= {torch.float32, torch.bfloat16, torch.float16}
        )

    def _pack_again(self) -> None:
        """After parameters may have become anything: where they can't be packed, the module works as its class does."""
        if self._can_pack():
            try:
                self.pack()
            except RuntimeError:
                self.__dict__["_ipex_context"] = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.parameters_to_pack() or self.__dict__.get("_ipex_context") is None:
            return super().__setattr__(name, value)
        self.unpack()
        super().__setattr__(name, value)
        self._pack_again()

    # Calls.

    def _take_the_short_way(self) -> None:
        """Let nn.Module.__call__ go to the op at once, where nothing stands against it."""

    def leave_the_short_way(self) -> None:
        """Let the next call look at everything first."""
        self.__dict__.pop("_compiled_call_impl", None)

    def _is_packed_now(self) -> bool:
        """Whether the context holds what the parameters say, and nobody wants their gradients."""
        if self.__dict__.get("_ipex_context") is None or is_in_functorch():
            return False
        own = self.__dict__["_parameters"]
        for name in self.parameters_to_pack():
            parameter = own.get(name)
            if parameter is None:
                continue
            if not isinstance(parameter, PackedParameter):
                return False  # replaced
        return not self._wants_gradients()

    def is_packed_in_graph(self, input: Tensor) -> bool:
        """Whether a graph may call the packed op. No gradient comes out of it."""
        wants_gradient = torch.is_grad_enabled() and input.requires_grad
        return self._ipex_context is not None and not wants_gradient

    def _settle(self) -> None:
        """Pack what was written through views, and take the short way again if no view is left."""
        if "_compiled_call_impl" in self.__dict__:
            return
        own = self.__dict__["_parameters"]
        packed = [p for p in own.values() if isinstance(p, PackedParameter)]
        # All of them, also after one that is still lent.
        if all([p.source.settle() for p in packed]):
            self._take_the_short_way()
        else:
            self.leave_the_short_way()

    def call_op(self, *inputs: Tensor) -> Any:
        """Call the packed op on inputs of its dtype."""
        if torch.compiler.is_compiling():
            return self.call_graph_op(*inputs)
        return getattr(torch.ops.ipex, self.op)(*inputs, *self.bound_arguments())

    def call_graph_op(self, *inputs: Tensor) -> Any:
        """Call the op of graph_ops.py that stands for the packed one in a graph."""
        raise NotImplementedError

    def forward_of_class(self, *inputs: Any) -> Any:
        """Compute as the module's own class does."""
        is_plain = self.__dict__.get("_ipex_context") is None
        if is_plain or isinstance(inputs[0], torch.fx.Proxy) or self._wants_gradients():
            return super().forward(*inputs)
        return self.as_plain_module().forward(*inputs)

    def _wants_gradients(self) -> bool:
        own = self.__dict__["_parameters"].values()
        return torch.is_grad_enabled() and any(p.requires_grad for p in own if isinstance(p, PackedParameter))

    def as_plain_module(self) -> nn.Module:
        """Return a module of the class that this one had, with ordinary parameters."""
        plain = self.plain_class.__new__(self.plain_class)
        state = {k: v for k, v in self.__dict__.items() if not k.startswith("_ipex_") and k != "_compiled_call_impl"}
        plain.__dict__.update(state)
        plain.__dict__["_parameters"] = self._as_plain()
        return plain

    def _as_plain(self) -> dict[str, nn.Parameter | None]:
        return {name: _plain(p) for name, p in self.__dict__["_parameters"].items()}

    # What else asks for parameters.

    @property
    def _parameters(self) -> dict[str, nn.Parameter | None]:  # type: ignore[override]
        being_traced = held_by_trace()
        if being_traced is None:
            return self.__dict__["_parameters"]  # type: ignore[no-any-return]
        plain = self._as_plain()
        being_traced[("ipex", id(self))] = plain  # held until the trace is done
        return plain

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self.unpack()
        try:
            return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        finally:
            self._pack_again()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        own = self.__dict__["_parameters"]
        for name, parameter in own.items():
            if parameter is not None and keep_vars:
                destination[prefix + name] = _plain(parameter)
            elif parameter is not None:
                save_once(destination, prefix + name, parameter, lambda p: _plain(p).detach())

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.unpack()
        try:
            super()._load_from_state_dict(*args, **kwargs)
        finally:
            self._pack_again()

    def __reduce_ex__(self, protocol: Any) -> Any:
        own = self.__getstate__()  # type: ignore[no-untyped-call]
        own.pop("_ipex_plain", None)
        state = {**own, "_parameters": self._as_plain(), "_ipex_context": None}
        return _unpickled, (type(self).__bases__[0], type(self).plain_class), state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._pack_again()

    def __prepare_scriptable__(self) -> nn.Module:
        """torch.jit.script compiles the module that this one was."""
        return self.as_plain_module()


def _plain(parameter: Any) -> Any:
    return parameter.source.plain() if isinstance(parameter, PackedParameter) else parameter


def _unpickled(family: type[PackedLayer], plain_class: type[nn.Module]) -> Any:
    packed = packed_class(family, plain_class)
    return packed.__new__(packed)


# One for each class of modules: two packed layers of one class are of one class.
_subclasses: dict[Any, Any] = {}


def packed_class(family: Any, plain_class: Any) -> Any:
    """Return the subclass of a module's class that computes with a packed op."""
    return subclass("Packed", family, plain_class)


def subclass(prefix: str, family: Any, plain_class: Any) -> Any:
    """Return the subclass of a module's class that does what `family` does."""
    key = family, plain_class
    if key not in _subclasses:
        name = f"{prefix}{plain_class.__name__}"
        # torch.fx takes layers of this module for one call, whoever's class they are of.
        of_torch = next(base.__module__ for base in plain_class.__mro__ if base.__module__.startswith("torch.nn."))
        members = {"plain_class": plain_class, "__module__": of_torch, "__qualname__": name}
        _subclasses.setdefault(key, type(name, (family, plain_class), members))
    return _subclasses[key]


def pack_module(module: Any, family: type[PackedLayer], *, casts: bool) -> None:
    """Make this module compute with a packed op. It stays as it was where that fails."""
    plain_class = type(module)
    module.__class__ = packed_class(family, plain_class)
    module.__dict__["_ipex_casts"] = casts
    try:
        module.pack()
    except BaseException:
        module.__class__ = plain_class
        for name in ("_ipex_casts", "_ipex_context", "_ipex_dtype"):
            module.__dict__.pop(name, None)
        raise


class OneInput(PackedLayer):
    """A packed layer that takes one tensor, and whose op gives one."""

    def _take_the_short_way(self) -> None:
        own = self.__dict__["_parameters"]
        is_lent = any(p.source.is_lent for p in own.values() if isinstance(p, PackedParameter))
        if self.__dict__.get("_ipex_context") is None or is_lent:
            return
        parameters = {name: own[name] for name in self.parameters_to_pack() if own.get(name) is not None}
        self.__dict__["_compiled_call_impl"] = _C.LayerCall(
            self, f"ipex::{self.op}", self.bound_arguments(), self._ipex_dtype, parameters
        )

    def forward_of_class(self, *inputs: Any) -> Any:
        """Compute as the module's own class does, in the dtype of the weight, as `run`."""
        own, given = self.__dict__["_parameters"]["weight"].dtype, getattr(inputs[0], "dtype", None)
        is_cast = self._ipex_casts and isinstance(inputs[0], Tensor) and inputs[0].is_floating_point() and given != own
        if not is_cast or torch.is_autocast_enabled("cpu"):
            return super().forward_of_class(*inputs)
        return super().forward_of_class(inputs[0].to(own), *inputs[1:]).to(given)

    def compute(self, input: Tensor) -> Tensor:
        """Call the packed op where it computes what the class would."""
        if torch.compiler.is_compiling():
            if self.is_packed_in_graph(input):
                return self.run(input)
            graph_break()
        self._settle()
        if is_tracing() or not isinstance(input, Tensor) or not self._is_packed_now():
            return self.forward_of_class(input)  # type: ignore[no-any-return]
        return self.run(input)

    def run(self, input: Tensor) -> Tensor:
        """Compute in the dtype of the weight. The result gets the dtype that the call is to have."""
        dtype = self._ipex_dtype
        if torch.is_autocast_enabled("cpu"):
            wanted = torch.get_autocast_dtype("cpu")
            with torch.autocast("cpu", enabled=False):
                return self.call_op(input.to(dtype)).to(wanted)  # type: ignore[no-any-return]
        given = input.dtype
        if given == dtype or not (self._ipex_casts and given.is_floating_point):
            return self.call_op(input)  # type: ignore[no-any-return]
        return self.call_op(input.to(dtype)).to(given)  # type: ignore[no-any-return]


def unpack_module(module: Any) -> None:
    """Make a packed layer what it was, and those that share a parameter with it: these stay tied."""
    own = module.__dict__["_parameters"].values()
    tied = {layer for p in own if isinstance(p, PackedParameter) for layer in p.source.layers()}
    plain = module._as_plain()  # one parameter for all of them
    for layer in {module, *tied}:
        layer.unpack()
        layer.__class__ = type(layer).plain_class
        for name in ("_ipex_casts", "_ipex_context", "_ipex_dtype"):
            layer.__dict__.pop(name, None)
    del plain
