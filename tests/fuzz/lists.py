"""Lists that change: they hold something else first, and what is wanted by the time they are read."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Sequence

from fuzz.operations import other
from fuzz.program import Program, Value
from fuzz.trying import meta, metas, result

# How `[{all}]` comes about. `{other}` stands where something is put later, or is put where nobody looks any more.
WAYS = (
    "{l} = [{head}, {other}]\n{l}[-1] = {last}",
    "{l} = [{other}, {rest}]\n{l}[0] = {first}",
    "{l} = [{head}]\n{l}.append({last})",
    "{l} = [{rest}]\n{l}.insert(0, {first})",
    "{l} = [{head}]\n{l} += [{last}]",
    "{l} = [{head}]\n{l}.extend([{last}])",
    "{l} = [{all}, {other}]\n{l}.pop()",
    "{l} = [{other}, {all}]\ndel {l}[0]",
    "{l} = [{backwards}]\n{l}.reverse()",
    "{l} = [{other}, {rest}]\n{l}.clear()\n{l}.extend([{all}])",
    # in another block
    "{l} = [{head}, {other}]\nif {yes}:\n    {l}[-1] = {last}",
    "{l} = [{head}]\nif {yes}:\n    {l}.append({last})",
    "{l} = [{other}, {rest}]\nfor {i} in range(2):\n    {l}[0] = {first}",
    "{l} = [{head}]\nfor {i} in range(1):\n    {l}.append({last})",
    # under another name, or in a copy
    "{l} = [{other}, {rest}]\n{m} = {l}\n{m}[0] = {first}",
    "{m} = [{head}]\n{l} = {m}\n{m}.append({last})",
    "{l} = [{all}]\n{m} = {l}.copy()\n{m}[0] = {other}",
    "{m} = [{all}]\n{l} = {m}.copy()\n{m}[-1] = {other}",
    "{m} = [{all}]\n{l} = {m}[:]\n{m}.clear()",
)
# What becomes of a list that was read.
AFTERWARDS = ("", "{l}[0] = {other}", "{l}.append({other})", "{l}.clear()", "{l}[-1] = {other}")


def listed(p: Program, elements: Sequence[str | int], other: str, percent: int = 20) -> str:
    """The elements as a list: mostly written down as it is, else by one of the ways."""
    texts = [str(element) for element in elements]
    if len(texts) < 2 or not p.choose.chance(percent):
        return f"[{', '.join(texts)}]"
    name = p.fresh("n")
    parts = {
        "all": ", ".join(texts),
        "head": ", ".join(texts[:-1]),
        "rest": ", ".join(texts[1:]),
        "backwards": ", ".join(reversed(texts)),
        "first": texts[0],
        "last": texts[-1],
    }
    yes = f"{p.inputs[0].value.name}.numel() >= 0"
    way = p.choose.pick(WAYS)
    if "{m}" in way:
        parts["m"] = p.fresh("n")
    if "{i}" in way:
        parts["i"] = p.fresh("_i")
    p.lines(way.format(l=name, other=other, yes=yes, **parts))
    return name


def sizes(p: Program, elements: Sequence[str | int], percent: int = 20) -> str:
    """Sizes as a list."""
    return listed(p, elements, "7", percent)


def afterwards(p: Program, name: str, other: str) -> None:
    """What becomes of a list that was read, where it has a name."""
    change = p.choose.pick(AFTERWARDS)
    if change and not name.startswith("["):
        p.line(change.format(l=name, other=other))


# Ops that are given numbers in a list, and what these may be for a shape.
OF_NUMBERS = (
    ("{v}.view({l})", lambda s: (s[0], -1)),
    ("{v}.reshape({l})", lambda s: (*s[1:], s[0])),
    ("{v}.view({l})", lambda s: (s[0], 1, *s[1:])),
    ("{v}.permute({l})", lambda s: tuple(reversed(range(len(s))))),
    ("{v}.permute({l})", lambda s: (*range(1, len(s)), 0)),
    ("F.pad({v}, {l})", lambda s: (1, 0, 2, 1)),
    ("F.pad({v}, {l}, value=0.5)", lambda s: (1, 2)),
    ("F.pad({v}, {l}, mode='replicate')", lambda s: (1, 0, 2, 1)),
    ("torch.roll({v}, {l}, (0, 1))", lambda s: (2, -1)),
    ("torch.roll({v}, (1, 2), {l})", lambda s: (0, -1)),
    ("{v}.flip({l})", lambda s: (0, -1)),
    ("{v}.sum({l})", lambda s: (0, -1)),
    ("{v}.mean({l}, keepdim=True)", lambda s: (-1, 0)),
    ("({v} * {v}).sum({l})", lambda s: (0, 1)),
    ("{v}.amax({l})", lambda s: (1, -1)),
    ("{v}.unsqueeze(0).expand({l})", lambda s: (2, *[-1] * len(s))),
    ("{v}.repeat({l})", lambda s: (2, *[1] * (len(s) - 1))),
    ("{v}.new_ones({l}) * {v}", lambda s: s),
    ("torch.zeros({l}) + {v}", lambda s: s),
    ("torch.cat({v}.split({l}, -1)[::-1], -1)", lambda s: (1, s[-1] - 1)),
    ("{v}.unflatten(-1, {l})", lambda s: (1, s[-1])),
    ("F.layer_norm({v}, {l})", lambda s: s[-2:]),
    ("F.adaptive_avg_pool2d({v}, {l})", lambda s: (2, 3)),
    ("F.avg_pool2d({v}, {l})", lambda s: (2, 1)),
    ("F.max_pool2d({v}, {l}, {l})", lambda s: (1, 2)),
    ("F.interpolate({v}, {l})", lambda s: (5, 7)),
)


@other(6)
def list_of_numbers(p: Program, v: Value) -> Value | None:
    if not v.shape or 0 in v.shape:
        return None
    text, numbers = p.choose.pick(OF_NUMBERS)
    wanted = numbers(v.shape)
    found = result(text.format(v=v.name, l=list(wanted)), metas([v]))
    if found is None:
        return None
    name = sizes(p, [f"{v.name}.size(0)" if n == v.shape[0] and p.choose.chance(30) else n for n in wanted], 80)
    made = p.let(text.format(v=v.name, l=name), *found)
    afterwards(p, name, "9")
    return made


# What reads a list of tensors.
OF_TENSORS = (
    "torch.cat({l}, {d})",
    "torch.stack({l}, {d})",
    "torch.cat({l}, {d}).to(torch.float32)",
    "torch.cat({l}, -1).float().relu()",
    "torch.stack({l}).sum(0)",
    "torch.hstack({l})",
    "torch.vstack({l})",
    "torch.einsum('...i,...i->...', {l})",
    "torch.einsum('...i,...j->...ij', {l})",
    "torch._foreach_mul({l}, 2.0)[0]",
    "torch.ops.aten.broadcast_tensors({l})[-1] * 2",
    "{l}[0] + {l}[-1]",
    "{l}[-1].relu()",
)
CASTS = {"double": "float64", "bfloat16": "bfloat16"}
MADE = ("{v}.float()", "{v}.double()", "{v} * 2", "{v}.clone()", "torch.sigmoid({v})", "{v}.to(torch.bfloat16)", "{v}")


@other(6)
def list_of_tensors(p: Program, v: Value) -> Value | None:
    """Values, weights and what is made of another dtype, joined."""
    if not v.shape or v.dtype != "float32" or math.prod(v.shape) > 2000:
        return None
    elements, given = [], []
    for _ in range(p.choose.integer(2, 3)):
        kind, text = p.choose.pick(("like", "made", "made", "weight")), p.choose.pick(p.like(v)).name
        if kind == "weight":
            text = p.parameter(v.shape)
        elif kind == "made":
            text = p.choose.pick(MADE).format(v=text)
        elements.append(text)
        given.append(meta(v.shape, next((d for t, d in CASTS.items() if t in text), v.dtype)))
    reader = p.choose.pick(OF_TENSORS).replace("{d}", p.choose.pick(("0", "-1")))
    found = result(reader.format(l="l"), {"l": given})
    if found is None:
        return None
    name = listed(p, elements, p.choose.pick((f"torch.tanh({v.name})", p.parameter(v.shape))), 80)
    made = p.let(reader.format(l=name), *found)
    afterwards(p, name, v.name)
    return made


WEIGHT = re.compile(r"^(self\.w\d+) = ", re.M)
JOINS = ("cat", "stack", "hstack", "vstack", "einsum")


class _Literals(ast.NodeTransformer):
    """Lists that a statement's calls are given, as lists that change before it."""

    def __init__(self, p: Program) -> None:
        self.p = p

    def visit_Call(self, call: ast.Call) -> ast.Call:
        self.generic_visit(call)
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in ("view", "reshape", "permute", "expand") and len(call.args) > 1:
            call.args = [self.changed(call.args, "7")]
        elif name == "einsum" and len(call.args) > 2:
            call.args = [call.args[0], self.changed(call.args[1:], self.tensor(call.args[1]))]
        elif name in JOINS and call.args and isinstance(call.args[0], (ast.List, ast.Tuple)):
            call.args[0] = self.changed(call.args[0].elts, self.tensor(call.args[0].elts[0]))
        elif name not in JOINS:
            call.args = [self.changed(a.elts, "7") if _is_of_numbers(a) else a for a in call.args]  # type: ignore[attr-defined]
        return call

    def tensor(self, like: ast.expr) -> str:
        """What the list holds meanwhile: something computed, or a weight."""
        weights = WEIGHT.findall("\n".join(self.p.inits)) if self.p.owner is self.p.root else []
        return self.p.choose.pick((f"({ast.unparse(like)}) * 3", *weights))

    def changed(self, elements: list[ast.expr], other: str) -> ast.expr:
        return ast.parse(listed(self.p, [ast.unparse(e) for e in elements], other, 60), mode="eval").body


def _is_of_numbers(argument: ast.expr) -> bool:
    def is_number(element: ast.expr) -> bool:
        if isinstance(element, ast.UnaryOp):
            return is_number(element.operand)
        if isinstance(element, ast.BinOp):
            return is_number(element.left) and is_number(element.right)
        is_size = isinstance(element, ast.Call) and ast.unparse(element.func).endswith(".size")
        return is_size or (isinstance(element, ast.Constant) and type(element.value) is int)

    return isinstance(argument, (ast.List, ast.Tuple)) and all(map(is_number, argument.elts))


def change_lists(p: Program) -> None:
    """Let lists that are written down in a method's statements change first."""
    before, indent = list(p.body), p.indent
    p.body.clear()
    for line in before:
        p.indent = (len(line) - len(line.lstrip())) // 4
        statement = line.strip()
        if not statement.endswith(":"):
            statement = ast.unparse(_Literals(p).visit(ast.parse(statement)))
        p.line(statement)
    p.indent = indent
