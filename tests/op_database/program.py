"""A sample of an op as a small model, written as the text of an nn.Module: the op between packed ops.

The first tensor comes out of a linear or a convolution. What the op computes is returned, read by another packed op or
a relu, or both. Other tensors are arguments, constants or results of packed ops. Weights are 0.5 times the identity:
the sample keeps what the op needs (positive numbers, invertible matrices), and sums are exact.
"""

from __future__ import annotations

import copy
import linecache
import math
import random
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from op_database import database
from op_database.cases import Case

LARGEST = 600  # dimension that a packed op may have
HEADER = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
"""


class NoCase(Exception):
    """There is nothing to compare: the reason."""


class Program(NamedTuple):
    """The text, what it reads beside torch, and what the model is called with."""

    source: str
    names: dict[str, Any]
    arguments: tuple[Tensor, ...]

    def build(self) -> nn.Module:
        linecache.cache["<op>"] = (len(self.source), None, self.source.splitlines(True), "<op>")  # for TorchScript
        namespace = dict(self.names, __name__="op_case", halved=halved, tensors=tensors_of)
        exec(compile(self.source, "<op>", "exec"), namespace)
        return namespace["Model"]().eval().requires_grad_(False)  # type: ignore[no-any-return]


def halved(layer: nn.Module) -> nn.Module:
    """A linear or convolution of single pixels that multiplies by 0.5."""
    with torch.no_grad():
        weight = layer.weight.zero_()
        weight.view(weight.shape[0], -1).fill_diagonal_(0.5)
    return layer


def tensors_of(result: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def program(case: Case) -> Program:
    writes = case.variant.startswith("in place")
    found = database.samples(case.op, getattr(torch, case.dtype), case.seed, writes)
    if not found:
        raise NoCase("the database has no sample that eager takes")
    return _Writer(case, copy.deepcopy(found[case.sample % len(found)])).program()


class _Writer:
    def __init__(self, case: Case, sample: Any) -> None:
        self.case, self.sample = case, sample
        self.choose = random.Random(str(case))
        self.inits: list[str] = []
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.arguments: list[Tensor] = []
        self.seen: dict[int, str] = {}
        self.viewed: dict[str, str] = {}  # what a view is of
        # An op that is handed Python objects or has no name can't be scripted.
        self.is_textual = True

    def program(self) -> Program:
        function = database.entries()[self.case.op].op
        writes, gives_out = self.case.variant.startswith("in place"), self.case.variant.startswith("out=")
        if writes:
            function = database.in_place(self.case.op)
            if not tensors_of(self.sample.input):
                raise NoCase("no tensor to write")
        expected = self._try(function)
        if not tensors_of(expected):
            raise NoCase("no tensor among the results")
        name = database.spelling(self.case.op, function)
        if name is None:
            name, self.names["OP"], self.is_textual = "OP", function, False
        self.others = ("constant", "argument", "value")[self.case.sample % 3]
        first = self._first(writes)
        rest = [self._literal(value) for value in self.sample.args]
        rest += [f"{key}={self._literal(value)}" for key, value in self.sample.kwargs.items()]
        if gives_out:
            outs = [self._out(t) for t in tensors_of(expected)]
            if not isinstance(expected, (Tensor, tuple, list)):
                raise NoCase("out= of neither a tensor nor a tuple")
            rest.append(f"out={outs[0] if isinstance(expected, Tensor) else '(' + ', '.join(outs) + ',)'}")
        call = f"{name}({', '.join([first, *rest])})"
        results = self._given_out(call, outs, expected) if gives_out else self._call(call, expected)
        if writes:
            results = self._written(results)
        self._return(results)
        if self.case.variant == "scripted" and not self.is_textual:
            raise NoCase("not textual")
        arguments = "".join(f", a{i}" for i in range(len(self.arguments)))
        source = HEADER + "".join(f"        {line}\n" for line in self.inits)
        source += f"\n    def forward(self{arguments}):\n" + "".join(f"        {line}\n" for line in self.lines)
        return Program(source, self.names, tuple(self.arguments))

    def _try(self, function: Any) -> Any:
        sample = copy.deepcopy(self.sample)
        with torch.no_grad():
            return function(sample.input, *sample.args, **sample.kwargs)

    def _first(self, writes: bool) -> str:
        """What the op reads first, and writes if it is in place."""
        tensors = tensors_of(self.sample.input)
        if not tensors:
            return self._literal(self.sample.input)
        if self.case.variant == "in place on an argument":
            for tensor in tensors:
                name = self._argument(tensor)
                self.lines.append(f"before_{name} = {self._packed(name, tensor)}")
        elif self.case.variant == "in place on a view":
            for tensor in tensors:
                self._view(self._value(tensor), tensor)
        else:
            for tensor in tensors:
                self._value(tensor)
        return self._literal(self.sample.input)

    def _view(self, value: str, tensor: Tensor) -> None:
        """Let the op have a view of the value, or of the argument that it comes from."""
        views = ["{v}.view_as({v})", "{v}.unsqueeze(0).squeeze(0)"]
        if tensor.dim():
            views += ["{v}[:]", "{v}.transpose(0, -1).transpose(0, -1)", "{v}.permute({dims}).permute({dims})"]
        if self.choose.random() < 0.5:
            value = f"a{value[1:]}"
        dims = ", ".join(str(d) for d in reversed(range(tensor.dim())))
        self.lines.append(f"w{value} = {self.choose.choice(views).format(v=value, dims=dims)}")
        self.seen[id(tensor)], self.viewed[f"w{value}"] = f"w{value}", value

    def _argument(self, tensor: Tensor) -> str:
        if id(tensor) not in self.seen:
            self.arguments.append(tensor)
            self.seen[id(tensor)] = f"a{len(self.arguments) - 1}"
        return self.seen[id(tensor)]

    def _value(self, tensor: Tensor) -> str:
        """The result of a packed op, where the tensor can be one."""
        name = self._argument(tensor)
        if name.startswith("a") and (packed := self._packed(name, tensor)) != name:
            self.lines.append(f"v{name[1:]} = {packed}")
            self.seen[id(tensor)] = f"v{name[1:]}"
        return self.seen[id(tensor)]

    def _constant(self, tensor: Tensor) -> str:
        if id(tensor) not in self.seen:
            name = f"c{len(self.names)}"
            self.names[name] = tensor
            self.inits.append(f"self.register_buffer('{name}', {name})")
            self.seen[id(tensor)] = f"self.{name}"
        return self.seen[id(tensor)]

    def _packed(self, name: str, tensor: Tensor) -> str:
        """A packed op that reads this, as text; the name itself where none can."""
        if not (tensor.dtype.is_floating_point and tensor.numel() > 0) or tensor.layout != torch.strided:
            return name
        rank, shape = tensor.dim(), tensor.shape
        if rank == 0:
            return f"{self._layer('nn.Linear(1, 1, bias=False)', tensor)}({name}.reshape(1)).reshape(())"
        if rank in (3, 4, 5) and shape[1] < 64 and self.choose.random() < (0.8 if rank == 4 else 0.4):
            return f"{self._layer(f'nn.Conv{rank - 2}d({shape[1]}, {shape[1]}, 1, bias=False)', tensor)}({name})"
        if shape[-1] > LARGEST:
            return name
        bias = ", bias=False" if self.choose.random() < 0.7 else ""
        return f"{self._layer(f'nn.Linear({shape[-1]}, {shape[-1]}{bias})', tensor)}({name})"

    def _layer(self, text: str, tensor: Tensor) -> str:
        name = f"m{len(self.inits)}"
        dtype = "" if tensor.dtype == torch.float32 else f".to({tensor.dtype})"
        zeroed = "" if "bias=False" in text else f"; self.{name}.bias.data.zero_()"
        self.inits.append(f"self.{name} = halved({text}){dtype}{zeroed}")
        return f"self.{name}"

    def _literal(self, value: Any) -> str:
        if isinstance(value, Tensor):
            if id(value) in self.seen:
                return self.seen[id(value)]
            return {"argument": self._argument, "constant": self._constant, "value": self._value}[self.others](value)
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        if value is None or value is Ellipsis or type(value) in (bool, int, float, str, complex):
            return repr(value)
        if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
            return str(value)
        if type(value) is torch.Size or type(value) is list:
            return f"[{', '.join(self._literal(v) for v in value)}]"
        if type(value) is tuple:
            return f"({''.join(self._literal(v) + ', ' for v in value)})"
        if isinstance(value, torch.device):
            return f"torch.device('{value}')"
        name = f"o{len(self.names)}"
        self.names[name], self.is_textual = value, False
        return name

    def _out(self, like: Tensor) -> str:
        name, shape = f"out{len(self.arguments)}_{len(self.lines)}", list(like.shape)
        if like.layout != torch.strided:
            raise NoCase("out= of a sparse tensor")
        given = torch.full(shape, 7, dtype=like.dtype)
        text = {
            "out=": f"torch.full({shape}, 7, dtype={like.dtype})",
            "out= a view": f"torch.full({shape}, 7, dtype={like.dtype})",
            "out= empty": f"torch.empty([0], dtype={like.dtype})",
        }.get(self.case.variant)
        if text is None:
            text = self._argument(given)
            if self.case.variant == "out= an argument":
                self.names[f"keep{text}"] = given  # its id must stay its own
                return text
            text = self._packed(text, given)
        self.lines.append(f"{name} = {text}")
        # The tracer reads the op's result in place of what out= was given, but not where it was given a view.
        return f"{name}[...]" if self.case.variant == "out= a view" else name

    def _call(self, text: str, expected: Any) -> dict[str, Tensor]:
        found = tensors_of(expected)
        names = [f"r{i}" for i in range(len(found))]
        if isinstance(expected, Tensor):
            self.lines.append(f"r0 = {text}")
        elif isinstance(expected, (tuple, list)) and len(found) == len(expected):
            self.lines.append(f"({', '.join(names)},) = {text}")
        else:
            self.lines.append(f"({', '.join(names)},) = tensors({text})")
            self.is_textual = False
        return dict(zip(names, found))

    def _given_out(self, call: str, outs: list[str], expected: Any) -> dict[str, Tensor]:
        """What out= was given is read; at times the result too, which is the same."""
        results = {out.removesuffix("[...]"): like for out, like in zip(outs, tensors_of(expected))}
        if isinstance(expected, Tensor) and self.choose.random() < 0.3:
            return results | self._call(call, expected)
        self.lines.append(call)
        return results

    def _written(self, results: dict[str, Tensor]) -> dict[str, Tensor]:
        """What was written, read again."""
        found = dict(results) if self.choose.random() < 0.3 else {}
        for tensor in tensors_of(self.sample.input):
            name = self.seen[id(tensor)]
            found[name] = tensor
            if name in self.viewed:
                found[self.viewed[name]] = tensor
            if self.case.variant == "in place on an argument":
                found[f"before_{name}"] = tensor
        return found or results

    def _return(self, results: dict[str, Tensor]) -> None:
        """Results as they are, read by another op, or both."""
        returned: list[str] = []
        for name, tensor in results.items():
            kind = self.choose.choice(("both", "reader", "itself"))
            reader = self._packed(name, tensor) if self.choose.random() < 0.7 else name
            if reader == name:
                reader = f"torch.relu({name})" if tensor.dtype.is_floating_point else f"{name} == {name}"
            if tensor.layout != torch.strided or tensor.is_complex() or kind == "itself":
                returned.append(name)
            elif kind == "reader":
                returned.append(reader)
            else:
                returned += [name, reader]
        self.lines.append(f"return {', '.join(returned)}")
