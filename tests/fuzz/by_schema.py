"""Ops as their schemas have them: every overload, with out=, in place, of lists, changing shapes in place.

A call is tried on the meta device first: that tells the shape and dtype of what comes out, and whether eager takes it.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import torch

from fuzz.arguments import NEVER, Arguments, Drawn, meta
from fuzz.operations import by_schema
from fuzz.program import Program, Value
from fuzz.schemas import METADATA_WRITES, schemas

TRIES = 6
LARGEST = 20000
DTYPES = ("float32", "float64", "bfloat16", "float16", "int32", "int64", "bool")
# Names of results that are whole numbers, by which out= is made.
INDICES = ("indices", "max_values", "min_indices")
VIEWS = ("{v}.detach()", "{v}[..., :1]", "{v}.transpose(0, -1)", "{v}.view_as({v})", "{v}.chunk(2, -1)[0]")
VIEWS_OF_SHAPE = ("{v}.detach()", "{v}.view_as({v})")


@functools.cache
def _by_name() -> list[list[torch.FunctionSchema]]:
    """Forms of one op have a name of their own, so that each is drawn as often as any other."""
    groups = itertools.groupby(schemas(), lambda schema: (schema.name, any(a.is_out for a in schema.arguments)))
    return [list(group) for _, group in groups]


@by_schema(10)
def any_op(p: Program, v: Value) -> Value | None:
    schema = p.choose.pick(p.choose.pick(_by_name()))
    return _tried(p, v, schema)


@by_schema(2)
def metadata_write(p: Program, v: Value) -> Value | None:
    named = [schema for schema in schemas() if schema.name.removeprefix("aten::") in METADATA_WRITES]
    return _tried(p, v, p.choose.pick(named))


@by_schema(4)
def given_out(p: Program, v: Value) -> Value | None:
    return _tried(p, v, p.choose.pick([schema for schema in schemas() if any(a.is_out for a in schema.arguments)]))


def _tried(p: Program, v: Value, schema: torch.FunctionSchema) -> Value | None:
    before = p.mark()
    for _ in range(TRIES):
        result = _Call(p, v, schema).write()
        if result is not None:
            return result
        p.reset(before)
    return None


class _Call:
    def __init__(self, p: Program, v: Value, schema: torch.FunctionSchema) -> None:
        self.p, self.schema = p, schema
        self.op = schema.name.removeprefix("aten::")
        self.writes = [a for a in schema.arguments if a.alias_info and a.alias_info.is_write and not a.is_out]
        self.target = v
        self.v = self._written(v) if self.writes else v
        self.arguments = Arguments(p, self.v, self.op)

    def write(self) -> Value | None:
        drawn = self._drawn()
        if drawn is None:
            return None
        positional, named, outs = drawn
        given = {name: meta((0,), dtype) for name, dtype in outs.items()}
        results = self._try([d.value for d in positional], {**{k: d.value for k, d in named.items()}, **given})
        if results is None:
            return None
        made = {name: self._out(meta_out) for name, meta_out in given.items()}
        texts = [d.text for d in positional] + [f"{k}={d.text}" for k, d in named.items()]
        texts += [f"{name}={value.name}" for name, value in made.items()]
        text = f"torch.ops.aten.{self.op}({', '.join(texts)})"
        found = self._results(text, results)
        if self.writes:
            return self._after_write(positional, found)
        if made:
            self.p.values += made.values()
        return self.p.latest() if made or found else None

    def _drawn(self) -> tuple[list[Drawn], dict[str, Drawn], dict[str, str]] | None:
        """Arguments by position, by name, and the dtypes of those that are out=."""
        positional: list[Drawn] = []
        named: dict[str, Drawn] = {}
        outs: dict[str, str] = {}
        has_first = False
        for argument in self.schema.arguments:
            if argument.is_out:
                outs[argument.name] = "int64" if argument.name in INDICES else self.v.dtype
                continue
            if argument.has_default_value() and (argument.name in NEVER or not self.p.choose.chance(35)):
                continue
            is_first = not has_first and str(argument.type) == "Tensor" and argument.name != "condition"
            has_first |= is_first
            made = Drawn(self.v.name, meta(self.v.shape, self.v.dtype)) if is_first else self._made(argument)
            if made is None:
                return None
            if argument.has_default_value() or argument.kwarg_only:
                named[argument.name] = made
            else:
                positional.append(made)
        return positional, named, outs

    def _made(self, argument: Any) -> Drawn | None:
        if argument.name in NEVER:
            return Drawn("False", False) if str(argument.type) == "bool" else None
        return self.arguments.draw(argument)

    def _try(self, positional: list[Any], named: dict[str, Any]) -> list[torch.Tensor] | None:
        """What comes out, on the meta device; None where the op refuses or gives what programs can't go on with."""
        function = getattr(getattr(torch.ops.aten, self.op), self.schema.overload_name or "default")
        try:
            with torch.no_grad():
                result = function(*positional, **named)
        except Exception:
            return None
        results = [result] if isinstance(result, torch.Tensor) else result or []
        if not isinstance(results, (list, tuple)):
            return None
        tensors = [*results, *(t for t in [*positional, *named.values()] if isinstance(t, torch.Tensor))]
        for tensor in tensors:
            usable = isinstance(tensor, torch.Tensor) and str(tensor.dtype).removeprefix("torch.") in DTYPES
            if not usable or tensor.numel() > LARGEST:
                return None
        self.is_one, self.written = isinstance(result, torch.Tensor), positional[0] if positional else None
        return list(results)

    def _results(self, text: str, results: list[torch.Tensor]) -> list[Value]:
        if not results:
            self.p.line(text)
            return []
        if self.is_one:
            return [self.p.let(text, results[0].shape, _dtype(results[0]))]
        name = self.p.fresh("t")
        self.p.line(f"{name} = {text}")
        return [self.p.let(f"{name}[{i}]", t.shape, _dtype(t)) for i, t in enumerate(results[:3])]

    def _written(self, v: Value) -> Value:
        """What an op in place writes: the value, an input, a fresh copy, a view."""
        p = self.p
        kind = p.choose.weighted([(5, "value"), (2, "input"), (3, "copy"), (3, "view")])
        if self.op in METADATA_WRITES and p.indent > 2 and kind in ("value", "input"):
            kind = "view"  # after an if nobody would know the shape
        if kind == "value":
            return v
        if kind == "input":
            values = {value.name: value for value in p.values}
            return values.get(p.inputs[0].value.name, v)
        if kind == "copy" or not v.shape:
            return p.let(p.choose.pick((f"{v.name}.clone()", f"{v.name} * 0.5")), v.shape, v.dtype)
        template = p.choose.pick(VIEWS_OF_SHAPE if self.op in METADATA_WRITES else VIEWS)
        name = p.fresh("t")
        text = template.format(v=v.name)
        shape = eval(text, {v.name: meta(v.shape, v.dtype)}).shape
        p.line(f"{name} = {text}")
        return Value(name, tuple(shape), v.dtype)

    def _after_write(self, positional: list[Drawn], found: list[Value]) -> Value:
        """Go on with what was written, or with what it is a view of."""
        p, written = self.p, self.written
        if isinstance(written, torch.Tensor):
            # Its shape may be another one now.
            new = Value(self.v.name, tuple(written.shape), self.v.dtype)
            p.values = [new if value.name == new.name else value for value in p.values]
            if new not in p.values:
                p.values.append(new)
        if found and p.choose.chance(50):
            return found[-1]
        target = next((value for value in p.values if value.name == self.target.name), p.latest())
        p.values.append(p.values.pop(p.values.index(target)))
        return target

    def _out(self, like: torch.Tensor) -> Value:
        """The tensor that an op is to write: fresh, empty, one that is there already, a piece of one."""
        p, shape, dtype = self.p, tuple(like.shape), _dtype(like)
        alike = [v for v in p.values if v.shape == shape and v.dtype == dtype]
        kind = p.choose.weighted([(4, "zeros"), (2, "empty"), (3, "value"), (1, "piece"), (1, "transposed")])
        if kind == "value" and alike:
            chosen = p.choose.pick(alike)
            return chosen if p.choose.chance(50) else self._named(f"{chosen.name}.clone()", shape, dtype)
        if kind == "piece" and shape:
            pieces = f"torch.zeros({[*shape[:-1], 2 * shape[-1]]}, dtype=torch.{dtype}).chunk(2, -1)[1]"
            return self._named(pieces, shape, dtype)
        if kind == "transposed" and len(shape) > 1:
            text = f"torch.zeros({[*shape[:-2], shape[-1], shape[-2]]}, dtype=torch.{dtype}).transpose(-1, -2)"
            return self._named(text, shape, dtype)
        size = [0] if kind == "empty" and math.prod(shape) else list(shape)
        return self._named(f"torch.zeros({size}, dtype=torch.{dtype})", shape, dtype)

    def _named(self, text: str, shape: tuple[int, ...], dtype: str) -> Value:
        name = self.p.fresh("o")
        self.p.line(f"{name} = {text}")
        return Value(name, shape, dtype)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
