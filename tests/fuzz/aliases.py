"""Memory that has several names: views before writes, in lists, dicts and attributes, and who reads it when."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import torch

from fuzz.operations import other
from fuzz.program import Program, Value
from fuzz.trying import evaluate, meta, name_of, result

BASES = ("{v} * 0.5", "{v}.clone()", "F.relu({v})", "{v} + 1", "{v}", "F.linear({v}, {w})", "F.linear({v}, {w}, {b})")
RESHAPES = (
    *("{v}.view({v}.size(0), -1)", "{v}.view(-1)", "{v}.reshape(-1)", "{v}.flatten()", "{v}.view_as({v})"),
    *("{v}.unsqueeze(0)", "{v}.unsqueeze(-1)", "{v}.squeeze(0)", "{v}.squeeze()", "{v}.unflatten(-1, (1, -1))"),
    *("{v}[None]", "{v}.view(-1, {v}.size(-1))", "{v}.flatten(0, 1)"),
)
VIEWS = (
    *("{v}.transpose(0, -1)", "{v}.t()", "{v}.mT", "{v}.movedim(0, -1)", "{v}.permute(1, 0)", "{v}.permute(1, 2, 0)"),
    *("{v}.select(0, 0)", "{v}[..., 0]", "{v}[..., 1:]", "{v}[:, ::2]", "{v}.narrow(-1, 0, 1)", "{v}[0]"),
    *("{v}.detach()", "torch.ops.aten.alias({v})", "{v}.diagonal(0, -1, -2)", "{v}.swapaxes(0, -1)"),
    *("{v}.as_strided([{v}.size(0)], [1])", "{v}.expand_as({v})", "torch.ravel({v})"),
)
# What gives a view of its operand, or the operand itself, and whose schema does not tell.
UNTOLD = (
    *("torch.einsum('ij->ji', {v})", "torch.einsum('ij->ij', {v})", "torch.einsum('...->...', {v})"),
    *("torch.einsum('ii->i', {v})", "torch.einsum('ijk->kij', {v})", "torch.einsum('...ij->...ji', {v})"),
    *("torch.atleast_1d({v})", "torch.atleast_2d({v})", "torch.atleast_3d({v})", "{v}.sum_to_size({v}.size())"),
    *("{v}.type_as({v})", "{v}.to({v}.dtype)", "{v}.float()", "{v}.contiguous()", "{v}.to(torch.float32)"),
    *("F.dropout({v}, 0.5, False)", "{v}.conj()", "torch.positive({v})", "torch.dequantize({v})", "torch.real({v})"),
    "torch.ops.aten.broadcast_tensors([{v}, {v}])[0]",
)
# Elements that lie in one place: nobody writes these, but pieces of them.
SPREAD = (
    "{v}.unsqueeze(0).expand(2, {all})",
    "{v}.unsqueeze(1).expand(-1, 2, {rest})",
    "{v}.unsqueeze(-1).expand({all}, 2)",
    *("{v}.unfold(-1, 2, 1)", "{v}.unfold(0, 2, 1)", "{v}.unfold(1, 2, 1)", "{v}.unfold(-1, {v}.size(-1), 1)"),
)
PIECES = ("{v}.unbind({d})", "{v}.split(1, {d})", "{v}.chunk(2, {d})", "torch.tensor_split({v}, 2, {d})")
PIECE = ("{v}.select({d}, {i})", "{v}.narrow({d}, {i}, 1)")
# Where a tensor is put, and how it is read there.
PLACES = (
    ("{l} = [{v}]", "{l}[0]"),
    ("{l} = [{v} * 2]\n{l}.append({v})", "{l}[-1]"),
    ("{l} = [{v} * 2]\n{l}[0] = {v}", "{l}[0]"),
    ("{l} = [{v}, {v} * 2]", "{l}.pop(0)"),
    ("{l} = {{'a': {v}}}", "{l}['a']"),
    ("{l} = {{'a': {v} * 2}}\n{l}['a'] = {v}", "{l}['a']"),
    ("{l} = {{'a': {v} * 2}}\n{l}['b'] = {v}", "{l}['b']"),
    ("{l} = {{1: {v}, 2: {v} * 2}}", "{l}.pop(1)"),
    ("{l} = {{'a': {v}}}\n{l}.update({{'b': {v} * 2}})", "{l}['a']"),
    ("{l} = {{'a': {v}}}", "list({l}.values())[0]"),
    ("{l} = ({v} * 2, {v})", "{l}[1]"),
    ("self.{l} = {v}", "self.{l}"),
)
# What is put in the place later, so that who reads it then has something else.
INTO_PLACES = {"{l}[0]": "{l}[0] = {o}", "{l}['a']": "{l}['a'] = {o}", "self.{l}": "self.{l} = {o}"}
WRITES_OF_ONE = ("{v}.add_(1)", "{v}.mul_(0.5)", "{v} += 0.25", "{v}.relu_()", "{v}.zero_()", "{v}.fill_(0.3)")
ACTIVATIONS = ("{v}.relu_()", "F.relu({v}, inplace=True)", "F.silu({v}, inplace=True)", "{v}.tanh_()", "F.elu_({v})")
WRITES = (
    *WRITES_OF_ONE,
    *("torch.add({v}, 1, out={v})", "{v}.sub_({v})", "{v}.copy_(torch.ones_like({v}))", "{v}[...] = 0.7"),
    *("{v}.clamp_(min=0.1)", "{v}[..., :1] = 0.5", "{v}[0] += 1"),
)
# Groups are drawn with the same chance.
READERS = (
    ("F.relu({v})", "torch.tanh({v})", "F.gelu({v})", "torch.sigmoid({v})", "{v}.relu()", "F.silu({v})"),
    ("{v} * 2", "{v} * {v}", "torch.sigmoid({v}) * 2 + 1", "{v}.clone()", "{v}.contiguous()"),
    (
        "F.softmax({v}, -1)",
        "{v}.sum(-1)",
        "F.linear({v}, {w})",
        "F.relu(F.linear({v}, {w}))",
        "torch.cat([{v}, {v}], -1)",
    ),
    ("{v}.t().reshape(-1)", "{v}.transpose(0, -1).reshape(-1)", "{v}.flatten().tanh()", "{v}.permute(1, 0).relu()"),
    (
        "F.relu({v}.unsqueeze(0)).squeeze(0)",
        "{v}.view({v}.size(0), -1).relu()",
        "{v}.unsqueeze(0).flatten(0, 1).relu()",
    ),
)


STATEMENT = re.compile(r" {8}(?!else:)\S")  # of a method itself, not of a block
ASSIGNMENT = re.compile(r" {8}(v\d+) = ")


class Name(NamedTuple):
    """A tensor of the program, and one on the meta device that lies in memory as it does."""

    text: str
    like: torch.Tensor


def lies_apart(tensor: torch.Tensor) -> bool:
    """Whether no two elements are one number in memory, as far as strides tell at once."""
    reach = 0
    for stride, length in sorted(zip(tensor.stride(), tensor.shape)):
        if length > 1 and stride <= reach:
            return False
        reach += stride * max(0, length - 1)
    return True


class Memory:
    """One memory and its names."""

    def __init__(self, p: Program, base: Value) -> None:
        self.p = p
        self.names = [Name(base.name, meta(base.shape, base.dtype))]

    def pick(self) -> Name:
        """Mostly the latest."""
        return self.p.choose.pick(self.names) if self.p.choose.chance(40) else self.names[-1]

    def call(self, text: str, given: Name) -> None:
        """Another name, where the op takes the tensor."""
        every = ["-1"] * given.like.dim()
        text = text.replace("{all}", ", ".join(every)).replace("{rest}", ", ".join(every[1:]))
        # The meta device has no dequantize.
        found = evaluate(text.replace("torch.dequantize", "").format(v="v"), {"v": given.like})
        if isinstance(found, torch.Tensor):
            self.add(text.format(v=given.text), found)

    def add(self, text: str, like: torch.Tensor) -> None:
        name = self.p.fresh("v")
        self.p.line(f"{name} = {text}")
        self.names.append(Name(name, like))

    def view(self) -> None:
        self.call(self.p.choose.pick(self.p.choose.pick((VIEWS, RESHAPES))), self.pick())

    def untold(self) -> None:
        self.call(self.p.choose.pick(UNTOLD), self.pick())

    def reshape(self) -> None:
        """Several times in a row."""
        for _ in range(self.p.choose.integer(2, 3)):
            self.call(self.p.choose.pick(RESHAPES), self.names[-1])

    def pieces(self) -> None:
        """Pieces of it, mostly of what lies in one place several times."""
        if self.p.choose.chance(70):
            self.call(self.p.choose.pick(SPREAD), self.pick())
        whole = self.names[-1]
        if not whole.like.dim():
            return
        d = self.p.choose.integer(0, whole.like.dim() - 1)
        if self.p.choose.chance(30):
            for i in (0, -1):
                self.call(self.p.choose.pick(PIECE).replace("{d}", str(d)).replace("{i}", str(i)), whole)
            return
        text = self.p.choose.pick(PIECES).replace("{d}", str(d))
        found = evaluate(text.format(v="v"), {"v": whole.like})
        if found:
            pieces = self.p.fresh("t")
            self.p.line(f"{pieces} = {text.format(v=whole.text)}")
            for i in (0, -1):
                self.add(f"{pieces}[{i}]", found[i])

    def place(self) -> None:
        """Put into something, and read there, where that may hold something else by then."""
        p, given = self.p, self.pick()
        put, read = p.choose.pick(PLACES)
        name = attribute(p, given) if put.startswith("self.") else p.fresh("d")
        p.lines(put.format(l=name, v=given.text))
        if p.choose.chance(30):
            self.write()
        change = INTO_PLACES.get(read)
        if change and p.choose.chance(25):
            first, second = p.fresh("v"), f"{given.text} * 3"
            p.line(f"{first} = {read.format(l=name)}")
            p.line(change.format(l=name, o=second))
            self.names.append(Name(first, given.like))
            return
        self.add(read.format(l=name), given.like)

    def write(self) -> None:
        free = [name for name in self.names if lies_apart(name.like)]
        if not free:
            return
        target = self.p.choose.pick((free[0], free[-1], self.p.choose.pick(free)))
        several = self.p.choose.pick((WRITES, ACTIVATIONS))
        text = self.p.choose.pick(several if target.like.dim() else WRITES_OF_ONE)
        self.p.line(text.format(v=target.text))

    def read(self) -> Value | None:
        name = self.pick()
        template = self.p.choose.pick(self.p.choose.pick(READERS))
        width = name.like.shape[-1] if name.like.dim() else 1
        weight = meta((3, width), "float32")
        found = result(template.format(v="v", w="w"), {"v": name.like, "w": weight})
        if found is None or math.prod(found[0]) > 5000:
            return None
        text = template.format(v=name.text, w=self.p.parameter((3, width), width) if "{w}" in template else "")
        return self.p.let(text, *found)


def attribute(p: Program, given: Name) -> str:
    """An attribute that holds any tensor."""
    name = p.fresh("st")
    p.owner.inits.append(f"self.{name} = torch.zeros(1, dtype=torch.{name_of(given.like.dtype)})")
    p.root.only_script = p.root.is_stateful = True  # a trace does not set attributes
    return name


@other(24)
def shared_memory(p: Program, v: Value) -> Value | None:
    """A value gets other names; one is written, and others are read before and after."""
    if v.dtype != "float32" or not v.shape or 0 in v.shape or math.prod(v.shape) > 2000:
        return None
    template = p.choose.pick(BASES)
    width = v.shape[-1]
    weight = p.parameter((width, width), width) if "{w}" in template else ""
    bias = p.parameter((width,)) if "{b}" in template else ""
    memory = Memory(p, p.let(template.format(v=v.name, w=weight, b=bias), v.shape))
    for _ in range(p.choose.integer(1, 3)):
        p.choose.weighted(
            [(3, memory.view), (2, memory.reshape), (4, memory.untold), (3, memory.pieces), (3, memory.place)]
        )()
    made = [memory.read()] if p.choose.chance(25) else []
    memory.write()
    if p.choose.chance(20):
        memory.view()
        memory.write()
    made.append(memory.read() or memory.read())
    for name in memory.names[1:]:
        if lies_apart(name.like) and p.choose.chance(40):
            p.values.insert(0, Value(name.text, tuple(name.like.shape), name_of(name.like.dtype)))
    read = [m for m in made if m is not None]
    if len(read) > 1 or (read and p.choose.chance(50)):
        p.keep(read[0])
    return read[-1] if read else p.latest()


def write_between(p: Program) -> None:
    """Let a method write to what it has, somewhere between its statements."""
    for _ in range(p.choose.integer(1, 2)):
        between = [i for i, line in enumerate(p.body) if STATEMENT.match(line)]
        place = p.choose.pick([*between, len(p.body)])
        before = [ASSIGNMENT.match(line) for line in p.body[:place]]
        names = [found[1] for found in before if found] or [p.inputs[0].value.name]
        target = p.choose.pick(names) if p.choose.chance(60) else names[-1]
        p.body.insert(place, f"        {p.choose.pick(WRITES_OF_ONE).format(v=target)}")
