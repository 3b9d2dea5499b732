"""if, loop, functions and submodules: what puts an op into another block, or into two places at once."""

from __future__ import annotations

from fuzz.operations import other, step
from fuzz.program import Program, Value

# Normalised rows add up to nothing but roundings, which no branch may hang on.
CONDITIONS = ("{v}.sum() > 0.3", "{v}.size(0) > 1", "self.flag", "{v}.dim() == 4", "bool(({v} == {v}).all())")


@other(5)
def branch(p: Program, v: Value) -> Value | None:
    if p.indent > 3:
        return None
    condition = p.choose.pick(CONDITIONS)
    if condition == "self.flag" and "self.flag = True" not in p.inits:
        p.inits.append("self.flag = True")
    result = p.let(p.choose.pick((v.name, f"{v.name} + 0.5", f"{v.name}.clone()")), v.shape, v.dtype)
    p.line(f"if {condition.format(v=v.name)}:")
    indented(p, result)
    if p.choose.chance(50):
        p.line("else:")
        indented(p, result)
    if result in p.values:  # an op in place may have given it another shape
        p.values.append(p.values.pop(p.values.index(result)))
    return result


@other(2)
def loop(p: Program, v: Value) -> Value | None:
    if p.indent > 3:
        return None
    result = p.let(p.choose.pick((v.name, f"{v.name} * 1.0")), v.shape, v.dtype)
    p.line(f"for {p.fresh('_i')} in range({p.choose.pick(('2', '3', f'{v.name}.size(0)' if v.shape else '2', '0'))}):")
    indented(p, result)
    return result


def indented(p: Program, result: Value) -> None:
    """Statements of a block, the last of which gives the result its new value."""
    outside = list(p.values)
    p.indent += 1
    step(p)
    while p.choose.chance(40):
        step(p)
    new = [v for v in p.like(result) if v not in outside]
    final = new[-1].name if new else f"torch.relu({result.name})" if result.dtype == "float32" else result.name
    p.line(f"{result.name} = {p.choose.pick((final, f'{result.name} + {final}'))}")
    p.indent -= 1
    p.values = [v for v in p.values if v in outside or v.name in {i.value.name for i in p.inputs}]


@other(4)
def submodule(p: Program, v: Value) -> Value | None:
    """A block of its own, called once or, where the shape allows, twice with the same weights."""
    if p is not p.root or p.indent > 2:
        return None
    inner = Program(p.choose, p.fresh("Block"), p)
    inner.add_input("x", v.shape, False, 0, v.dtype)
    step(inner)
    while p.choose.chance(55):
        step(inner)
    last = inner.latest()
    p.definitions.append(inner.text(last.name) + "\n")
    member = p.member("m", f"{inner.name}()")
    first = p.let(f"{member}({v.name})", last.shape, last.dtype)
    if last.shape == v.shape and last.dtype == v.dtype and p.choose.chance(50):
        return p.let(f"{member}({p.choose.pick((first.name, v.name))})", last.shape, last.dtype)
    return first


@other(2)
def function(p: Program, v: Value) -> Value | None:
    """A module-level function with two arguments of one shape."""
    if v.dtype != "float32" or p is not p.root:
        return None
    name = p.fresh("f")
    body = p.choose.pick(
        (
            "torch.relu(x + y)",
            "torch.sigmoid(x) * y",
            "x.add_(y)",
            "x * 2 - y",
            "F.relu(x, inplace=True) + y",
            "(x + y) + x",
        )
    )
    p.definitions.append(f"def {name}(x: Tensor, y: Tensor) -> Tensor:\n    return {body}\n\n\n")
    return p.let(f"{name}({v.name}, {p.choose.pick(p.like(v)).name})", v.shape)
