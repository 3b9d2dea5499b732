"""Activations and arithmetic with a second operand, in every spelling: what ipex may fuse into an anchor."""

from __future__ import annotations

from fuzz.operations import follower
from fuzz.program import Program, Shape, Value, broadcast
from fuzz.spellings import ACTIVATIONS, ALPHAS, AUGMENTED, BINARY, MODULES, NOTHING, NUMBERS, SCALAR


@follower(30)
def activation(p: Program, v: Value) -> Value | None:
    if v.dtype != "float32":
        return None
    kind = p.choose.weighted([(17, "function"), (1, "module"), (1, "prelu"), (1, "bounds")])
    if kind == "module":
        return p.let(f"{p.member('m', p.choose.pick(MODULES))}({v.name})", v.shape)
    if kind == "prelu":
        slopes = p.parameter((v.shape[1],) if len(v.shape) > 1 and p.choose.chance(60) else (1,))
        return p.let(f"F.prelu({v.name}, {slopes})", v.shape)
    if kind == "bounds":
        low, high = p.buffer("torch.tensor(-0.5)"), p.buffer("torch.tensor(0.5)")
        template = p.choose.pick(("torch.clamp({v}, {l}, {h})", "{v}.clamp(min={l})", "torch.clamp({v}, max={h})"))
        return p.let(template.format(v=v.name, l=low, h=high), v.shape)
    return p.let(p.choose.pick(p.choose.pick(ACTIVATIONS)).format(v=v.name), v.shape)


def operand_shapes(v: Value) -> list[Shape]:
    """Shapes that broadcast with the value: first those of a bias or a scale, then others."""
    rank = len(v.shape)
    shapes: list[Shape] = [(), (1,), v.shape[-1:] if rank else ()]
    for channel in {1, rank - 3, rank - 2} & set(range(rank)):
        alone = (1,) * channel + (v.shape[channel],) + (1,) * (rank - channel - 1)
        shapes += [alone, alone[channel:]]
    return [*shapes, v.shape[1:], (1, *v.shape[1:]), (*v.shape[:-1], 1), (1, *v.shape), v.shape]


def operand(p: Program, v: Value) -> tuple[str, Shape, str] | None:
    """A second operand: its text, shape and dtype."""
    kind = p.choose.weighted(
        [
            (8, "same"),
            (5, "constant"),
            (2, "derived"),
            (2, "broadcast"),
            (2, "input"),
            (2, "other dtype"),
            (1, "scalar tensor"),
        ]
    )
    if kind == "constant":
        shape = p.choose.pick(operand_shapes(v))
        return p.parameter(shape) if p.choose.chance(60) else p.buffer(f"torch.randn({list(shape)})"), shape, "float32"
    if kind == "same":
        return p.choose.pick(p.like(v)).name, v.shape, v.dtype
    if kind == "derived" and len(v.shape) == 4 and v.dtype == "float32" and p.choose.chance(30):
        template = p.choose.pick(
            (
                "torch.linalg.vector_norm({v}, dim=(2, 3), keepdim=True)",
                "{v}.norm(p=2, dim=(-2, -1), keepdim=True)",
                "{v}.mean((2, 3)).view({v}.size(0), -1, 1, 1)",
            )
        )
        return template.format(v=v.name), (*v.shape[:2], 1, 1), v.dtype
    if kind == "derived" and v.shape:
        options = (
            (f"{v.name}.mean(-1, keepdim=True)", (*v.shape[:-1], 1)),
            (f"torch.linalg.vector_norm({v.name}, dim=0, keepdim=True)", (1, *v.shape[1:])),
            (f"{v.name}.var(-1, keepdim=True)", (*v.shape[:-1], 1)),
            (f"{v.name}.std(0, unbiased=False)", v.shape[1:]),
            (f"{v.name}.max(-1, keepdim=True)[0]", (*v.shape[:-1], 1)),
            (f"{v.name}.amax(0)", v.shape[1:]),
            (f"{v.name}[..., :1]", (*v.shape[:-1], 1)),
            (f"{v.name}.select(0, 0)", v.shape[1:]),
            (f"{v.name}.flip(-1)", v.shape),
            (f"{v.name}.clone()", v.shape),
        )
        return (*p.choose.pick(options), v.dtype)
    if kind == "broadcast":
        others = [o for o in p.values if o.shape != v.shape and broadcast(o.shape, v.shape) is not None]
        if others:
            chosen = p.choose.pick(others)
            return chosen.name, chosen.shape, chosen.dtype
    if kind == "input" and p is p.root and len(p.inputs) < 4 and p.indent == 2:
        shape = v.shape if p.choose.chance(60) else p.choose.pick(operand_shapes(v))
        batch = len(shape) == len(v.shape) > 0 and shape[0] == v.shape[0]
        added = p.add_input(p.fresh("x"), shape, batch, 0)
        p.values.insert(0, p.values.pop())  # an operand: what was computed stays the latest
        return added.name, shape, "float32"
    if kind == "other dtype":
        shape, dtype = (
            p.choose.pick(operand_shapes(v)),
            p.choose.pick(("float64", "int32", "bool", "bfloat16", "int64")),
        )
        return p.buffer(f"torch.randn({list(shape)}).mul(2).to(torch.{dtype})"), shape, dtype
    if kind == "scalar tensor":
        dtype = p.choose.pick(("float32", "float64", "int64", "float16"))
        return (
            p.choose.pick((f"torch.tensor(2, dtype=torch.{dtype})", p.buffer(f"torch.tensor(1.5).to(torch.{dtype})"))),
            (),
            dtype,
        )
    return None


def promoted(a: Value, shape: Shape, dtype: str) -> str:
    """The dtype of a result, as far as this list of dtypes goes."""
    if dtype == a.dtype or (not shape and a.shape):
        return a.dtype
    order = ("bool", "int32", "int64", "bfloat16", "float32", "float64")
    if dtype not in order or a.dtype not in order:
        return a.dtype
    return max(a.dtype, dtype, key=order.index)


@follower(30)
def arithmetic(p: Program, v: Value) -> Value | None:
    if v.dtype not in ("float32", "float64"):
        return None
    if p.choose.chance(25):
        text = p.choose.pick(SCALAR).format(a=v.name, b=p.choose.pick(NUMBERS), s=p.choose.pick(ALPHAS))
        return p.let(text, v.shape, v.dtype)
    second = operand(p, v)
    if second is None:
        return None
    name, shape, dtype = second
    result = broadcast(v.shape, shape)
    if result is None:
        return None
    if result == v.shape and p.choose.chance(12):
        p.line(f"{v.name} {p.choose.pick(AUGMENTED)} {name}")
        return v
    template = p.choose.pick(BINARY)
    # Mostly well formed: what eager refuses ends the program.
    writes = "{b}" if template.startswith("{b}.") and "_(" in template else "{a}" if "_(" in template else ""
    target = {"{a}": v.shape, "{b}": shape}.get(writes)
    if (target is not None and target != result) or (
        writes == "{b}" and (dtype != v.dtype or not name.startswith(("v", "x")))
    ):
        template = "{a} + {b}"
    if any(f in template for f in ("addcmul", "lerp", "clamp")) and dtype != v.dtype:
        template = "{b} * {a}"
    text = template.format(a=v.name, b=name, s=p.choose.pick(ALPHAS))
    return p.let(text, result, v.dtype if writes else promoted(v, shape, dtype))


@follower(6)
def several_results(p: Program, v: Value) -> Value | None:
    """What several steps read, and others read too: as in a cell of a recurrent model."""
    if v.dtype != "float32":
        return None
    other = p.choose.pick(p.like(v)).name
    gates = ("torch.sigmoid({v})", "torch.exp(-{v}.abs())", "torch.maximum({v}, {o})", "{v} * 0.5 + {o}")
    gate = p.let(p.choose.pick(gates).format(v=v.name, o=other), v.shape)
    made = [gate]
    for template in ("{g} * {o}", "{o} - {g} * {v}", "torch.where({g} > 0.5, {g}, {v})", "{m} / (1 + {g} * {g})"):
        if p.choose.chance(60):
            text = template.format(v=v.name, o=other, g=gate.name, m=p.choose.pick(made).name)
            made.append(p.let(text, v.shape))
        if p.choose.chance(15):
            other_reader = p.choose.pick(("{m}.relu_()", "{m}.clone()", "{m}.view_as({m})"))
            made.append(p.let(other_reader.format(m=p.choose.pick(made).name), v.shape))
    return made[-1]


@follower(9)
def batch_norm(p: Program, v: Value) -> Value | None:
    d = {2: 1, 3: 1, 4: 2, 5: 3}.get(len(v.shape))
    if d is None or v.dtype != "float32":
        return None
    options = p.choose.pick(("", ", affine=False", ", eps=0.1", ", momentum=None"))
    return p.let(f"{p.member('m', f'nn.BatchNorm{d}d({v.shape[1]}{options})')}({v.name})", v.shape)


@follower(3)
def affine_batch_norm(p: Program, v: Value) -> Value | None:
    """batch_norm as a function, with statistics that are plain tensors."""
    if len(v.shape) < 2 or v.dtype != "float32":
        return None
    c = [v.shape[1]]
    mean, variance = p.buffer(f"torch.randn({c})"), p.buffer(f"torch.rand({c}) + 0.5")
    kind = p.choose.integer(0, 2)
    scale = ", ".join([p.parameter(c)] * kind + ["None"] * (2 - kind))
    return p.let(f"F.batch_norm({v.name}, {mean}, {variance}, {scale})", v.shape)


@follower(3)
def drop(p: Program, v: Value) -> Value | None:
    template = p.choose.pick(NOTHING)
    return p.let(template.format(v=v.name), v.shape, "float32" if "float" in template else v.dtype)


@follower(2)
def second_reader(p: Program, v: Value) -> Value | None:
    """A value is read before and after something is written into its memory."""
    if v.dtype != "float32" or not v.shape:
        return None
    view = p.choose.pick(
        ("{v}.detach()", "{v}[..., :1]", "{v}.view_as({v})", "{v}.transpose(0, -1)", "{v}.select(0, 0)", "{v}")
    )
    writing = p.choose.pick(
        ("{n}.add_(1)", "{n}.relu_()", "{n}.mul_(0.5)", "{n}.zero_()", "{n} += 0.25", "{n}.copy_(torch.ones_like({n}))")
    )
    name = p.fresh("t")
    p.line(f"{name} = {view.format(v=v.name)}")
    p.line(writing.format(n=name))
    return v


@follower(6)
def sum_of_terms(p: Program, v: Value) -> Value | None:
    """What is computed element by element and summed at once: weighted means, products of all pairs of rows."""
    if not v.shape or v.dtype != "float32":
        return None
    terms, shape, rank = f"{v.name} * {v.name}", v.shape, len(v.shape)
    if rank > 1 and p.choose.chance(30):
        terms, shape = f"{v.name}.unsqueeze(-2) * {v.name}.unsqueeze(-3)", (*v.shape[:-1], *v.shape[-2:])
    elif p.choose.chance(60):
        weights = p.choose.pick([s for s in operand_shapes(v) if broadcast(s, v.shape) == v.shape])
        factor = p.choose.pick((p.parameter(weights), f"torch.sigmoid({p.parameter(weights)})"))
        terms = p.choose.pick((f"{v.name} * {factor}", f"({v.name} - {factor}).abs()"))
    rank = len(shape)
    several = [tuple(range(1, rank)) or (0,), tuple(range(0, rank, 2))]
    dims = p.choose.pick([(-1,), (0,), (rank // 2,), *several])
    keepdim = p.choose.chance(50)
    summed = {d % rank for d in dims}
    kept = tuple(1 if d in summed else s for d, s in enumerate(shape) if keepdim or d not in summed)
    how = p.choose.weighted([(8, ""), (1, ", dtype=torch.float32")])
    return p.let(f"({terms}).{p.choose.pick(('sum', 'mean'))}({dims}, {keepdim}{how})", kept)
