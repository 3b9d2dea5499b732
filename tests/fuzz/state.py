"""Attributes that a model writes: from call to call, from method to method, in memory that others share.

They are named `st1`, `st2` .., and compared after each call where the optimised module has them still.
"""

from __future__ import annotations

import math

from fuzz.operations import other, step
from fuzz.program import Program, Shape, Value, broadcast
from fuzz.trying import evaluate, meta

WRITES = (
    *(
        "{s}.add_(1)",
        "{s}.mul_(0.5)",
        "{s}.copy_({e})",
        "{s}.add_({e})",
        "{s} += {e}",
        "{s}.fill_(0.5)",
        "{s}[...] = 0.25",
    ),
    *("torch.add({s}, 1, out={s})", "{s}.view(-1).add_(0.5)", "{s}.detach().mul_(2)"),
)
SETS = ("{s} = {e}", "{s} = {s} + 1", "{s} = {s} * 0.5 + {e}", "{s} = torch.relu({s} - 0.1)", "{s} = {s}.clone()")
READS = (
    *("{v} + {s}", "{v} * {s}", "{s} * {v}", "torch.relu({v} - {s})", "{v}.add({s}, alpha=2)", "{v} + {s}.clone()"),
    *(
        "torch.maximum({v}, {s})",
        "{v} + {s}.sum()",
        "torch.where({s} > 0.3, {v}, 0.5 * {v})",
        "{v}.masked_fill({s} > 0.3, -1.0)",
    ),
)
# Who has the memory that a state is a view of, with the shape of the whole for that of the state.
PARTNERS = (
    ("{o} = nn.Parameter(torch.randn({shape}))", "{o}.detach()", "buffer"),
    ("{o} = torch.randn({shape})", "{o}", "buffer"),
    ("{o} = nn.Linear({columns}, {rows})", "{o}.weight.detach()", "weight"),
    ("{o} = nn.BatchNorm1d({columns})", "{o}.running_mean", "norm"),
    ("{o} = nn.Linear({rows}, {columns})", "{o}.bias.detach()", "bias"),
    ("{o} = Holder{k}(torch.randn({shape}))", "{o}.held", "holder"),
)
HOLDER = """\
class Holder{k}(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.register_buffer('held', held)

    def forward(self, x: Tensor):
        {write}
        return x + self.held[0]


"""


def plain(p: Program, shape: Shape) -> Value:
    """A state of its own memory: a buffer, or a plain attribute."""
    name = p.root.fresh("st")
    text = p.choose.pick((f"torch.randn({list(shape)})", f"torch.zeros({list(shape)})", f"torch.ones({list(shape)})"))
    if p.choose.chance(30):
        p.owner.inits.append(f"self.{name} = {text}")
    else:
        p.owner.inits.append(f"self.register_buffer('{name}', {text})")
    return Value(f"self.{name}", shape)


def state(p: Program, v: Value) -> Value:
    """A state that fits the value: mostly one that there is."""
    there = [s for s in p.owner.states if broadcast(s.shape, v.shape) == v.shape]
    if there and p.choose.chance(75):
        return p.choose.pick(there)
    shape = p.choose.pick((v.shape[-1:], (), (1,), v.shape[1:], v.shape))
    made = plain(p, shape)
    p.owner.states.append(made)
    p.root.is_stateful = True
    return made


def write(p: Program, v: Value, s: Value) -> None:
    """Give the state another value: in its memory, or in place of it."""
    e = p.choose.pick(("{v}.sum()", "{v}.mean()", "{v}.amax()")).format(v=v.name)
    over = len(v.shape) - len(s.shape)
    if s.shape == v.shape and p.choose.chance(60):
        e = p.choose.pick((v.name, f"{v.name} * 0.5", f"{v.name}.clone()"))
    elif over > 0 and s.shape == v.shape[over:] and p.choose.chance(60):
        e = f"{v.name}.mean({list(range(over))})"
    sets = p.choose.chance(45)
    p.root.only_script |= sets  # a trace does not set attributes
    text = p.choose.pick(SETS if sets else WRITES)
    p.line(text.format(s=s.name, e=e))


def read(p: Program, v: Value, s: Value) -> Value:
    return p.let(p.choose.pick(READS).format(v=v.name, s=s.name), v.shape)


def fits(p: Program, v: Value) -> bool:
    return v.dtype == "float32" and 0 not in v.shape and math.prod(v.shape) <= 2000


@other(5)
def state_that_is_written(p: Program, v: Value) -> Value | None:
    """Read, written, or both; at times in a branch."""
    if not fits(p, v):
        return None
    s, made = state(p, v), None
    for what in p.choose.pick(("wr", "rw", "r", "r", "w", "rwr", "wrw")):
        if what == "r":
            made = read(p, made or v, s)
        elif p.choose.chance(15):
            p.line(f"if {v.name}.sum() > 0.3:")
            p.indent += 1
            write(p, v, s)
            p.indent -= 1
        else:
            write(p, v, s)
    if made is None and p.choose.chance(30):
        made = p.let(p.choose.pick((s.name, f"{s.name}.clone()", f"{s.name}.view(-1)")), s.shape)
    return made or v


VIEWS = ("{o}", "{o}", "{o}[0]", "{o}[1:]", "{o}.t()", "{o}.view(-1)", "{o}[..., :1]", "{o}.unsqueeze(0)", "{o}.T[0]")


@other(4)
def storage_that_is_shared(p: Program, v: Value) -> Value | None:
    """Two attributes lie in one memory: two buffers, a weight and a view of it, a cache and its row, a submodule's. One
    is written, and who has the other sees it."""
    if not fits(p, v) or not v.shape or p.owner is not p.root:
        return None
    rows, columns = p.choose.pick((v.shape[-1], 2, 4)), v.shape[-1]
    init, whole, kind = p.choose.pick(PARTNERS)
    shape = {"norm": (columns,), "bias": (columns,)}.get(kind, (rows, columns))
    part = p.choose.pick(VIEWS)
    like = evaluate(part.format(o="o"), {"o": meta(shape, "float32")})
    if like is None:
        return None
    owner, number = p.fresh("self.p"), p.root._count
    if kind == "holder":
        inside = p.choose.pick(("pass", "self.held.add_(1)", "self.held[0] = 0.5", "self.held.mul_(0.5)"))
        p.root.definitions.append(HOLDER.format(k=number, write=inside))
    p.owner.inits.append(init.format(o=owner, shape=list(shape), rows=rows, columns=columns, k=number))
    name = p.fresh("st")
    view = part.format(o=whole.format(o=owner))
    register = f"self.register_buffer('{name}', {view})" if p.choose.chance(70) else f"self.{name} = {view}"
    p.owner.inits.append(register)
    s = Value(f"self.{name}", tuple(like.shape))
    p.root.is_stateful = True
    readers = {
        "buffer": f"{v.name} + {owner}[0]",
        "weight": f"{owner}({v.name})",
        "norm": f"{owner}({v.name}.reshape(-1, {columns})).view_as({v.name})",
        "bias": f"{v.name} + F.relu({owner}.bias)",
        "holder": f"{owner}({v.name})",
    }
    reader = readers[kind]
    if kind == "buffer" and p.choose.chance(50):
        reader = f"F.linear({v.name}, {owner})"
    results = (*v.shape[:-1], rows) if kind == "weight" or reader.startswith("F.linear") else v.shape
    made: Value | None = None
    for what in p.choose.pick(("wr", "rw", "rwr")):
        if what == "r":
            made = p.let(reader, results)
        elif kind == "buffer" and p.choose.chance(40):
            p.line(p.choose.pick(("{o}[0] = 0.5", "{o}.add_(1)", "{o}.mul_(0.5)")).format(o=owner))
            p.keep(p.let(f"{s.name}.clone()", s.shape))
        else:
            p.line(p.choose.pick(WRITES[:3]).format(s=s.name, e="0.5 + 0 * " + s.name))
    if broadcast(s.shape, v.shape) == v.shape:
        p.owner.states.append(s)
    return made


NAMES = ("step", "reset", "peek")


def exported(p: Program, v: Value) -> None:
    """A method beside forward, which may write and read what forward does."""
    method = Program(p.choose, p.choose.pick([n for n in NAMES if n not in [m.name for m in p.methods]]), owner=p)
    x = method.add_input("x", v.shape, p.inputs[0].batch, p.inputs[0].space)
    for what in p.choose.pick(("w", "w", "r", "s", "wr", "sr", "rw")):
        if what == "s":
            step(method)
        elif p.states:
            s = p.choose.pick(p.states)
            if what == "w":
                write(method, x, s)
            elif broadcast(s.shape, x.shape) == x.shape:
                read(method, x, s)
    method.line(f"return {method.latest().name}")
    p.methods.append(method)
