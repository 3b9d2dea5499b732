"""Tensors that hang on sizes alone, which an optimiser may keep from call to call, and who then writes them."""

from __future__ import annotations

import math

from fuzz.operations import other
from fuzz.program import Program, Value
from fuzz.trying import metas, result

TABLES = (
    "(torch.arange({v}.size({d})) * 0.1).cos()",
    "torch.arange({v}.size({d})).float() * 0.5 + 1",
    "torch.ones({v}.size({d}), {v}.size({d})).tril().mul(2.0)",
    "torch.arange({v}.size({d}), dtype=torch.float32).unsqueeze(1) * torch.arange(3).float()",
    "torch.zeros({v}.shape).add(0.5)",
    "(torch.arange({v}.size({d}))[:, None] > torch.arange({v}.size({d}))[None]).float()",
    "torch.full([{v}.size({d})], 0.5).cumsum(0)",
    "torch.linspace(0, 1, {v}.size({d})).sin().pow(2)",
)
# What may be the same memory yet.
HELD = (
    *("{t}", "{t}.view(-1)", "{t}.t()", "{t}.unsqueeze(0)", "{t}.float()", "{t}.type_as({v})", "{t}.contiguous()"),
    *("torch.atleast_1d({t})", "{t}.expand(2, {s})", "torch.ops.aten.broadcast_tensors([{t}, {t}])[0]"),
)
PLACES = (
    ("{l} = [{t}]", "{l}[0]"),
    ("{l} = [{v}.relu()]\n{l}.append({t})", "{l}[-1]"),
    ("{l} = {{'a': {t}}}", "{l}['a']"),
    ("{l} = {{'b': {v}.relu()}}\n{l}['a'] = {t}", "{l}['a']"),
    ("{l} = ({t}, {v})", "{l}[0]"),
    ("self.{l} = {t}", "self.{l}"),
)


@other(4)
def table_of_sizes(p: Program, v: Value) -> Value | None:
    """Made of sizes; put somewhere, overwritten, returned, or only read."""
    if not v.shape or 0 in v.shape or math.prod(v.shape) > 2000:
        return None
    d = p.choose.integer(0, len(v.shape) - 1)
    text = p.choose.pick(TABLES).format(v=v.name, d=d)
    shape = result(text, metas([v]))
    if shape is None:
        return None
    table = p.let(text, *shape)
    if p.choose.chance(50):
        put, get = p.choose.pick(PLACES)
        name = p.fresh("st" if put.startswith("self") else "l")
        if put.startswith("self"):
            p.owner.inits.append(f"self.{name} = torch.zeros(1)")
            p.root.only_script = p.root.is_stateful = True
        p.lines(put.format(l=name, t=table.name, v=v.name))
        table = p.let(get.format(l=name), table.shape)
    if p.choose.chance(30):
        held = p.choose.pick(HELD).replace("{s}", ", ".join(["-1"] * len(table.shape)))
        found = result(held.format(t=table.name, v=v.name), metas([v, table]))
        if found is not None:
            table = p.let(held.format(t=table.name, v=v.name), *found)
    kind = p.choose.pick(("returned", "written", "read"))
    if kind == "written" and "expand" not in p.body[-1]:
        p.line(p.choose.pick(("{t}.add_(1)", "{t}.mul_(0.5)", "{t}[0] = 0.5", "{t} += {t}")).format(t=table.name))
    elif kind == "returned":
        p.keep(table)
    return p.let(f"{v.name} + {table.name}.sum()", v.shape, v.dtype)


CONSTANTS = ("{c} * 2", "{c}.exp()", "{c} + {c}", "{c}.t().contiguous() * 0.5", "torch.cat([{c}, {c}])", "{c}.relu()")
# What is the constant itself where nothing is to be done.
THE_SAME = (
    *("({c}).type_as({v})", "torch.atleast_1d({c})", "torch.atleast_2d({c})", "({c}).to({v}.dtype)", "({c}).float()"),
    *("torch.einsum('...i->...i', {c})", "torch.einsum('ij->ij', {c})", "torch.einsum('ij->ji', {c})"),
    *("({c}).sum_to_size(({c}).size())", "torch.dequantize({c})", "({c}).reshape(({c}).size())", "({c}).detach()"),
    *("({c}).contiguous()", "({c}).expand_as({c})"),
)
WRITES = (
    *("{m}.add_(1)", "{m}.add_({v}.sum())", "{m} += 0.5", "{m}.mul_(2)", "{m}.fill_({v}.sum())", "{m}[0] = 0.5"),
    "{m}.add_({v}.mean(0))",
)


@other(3)
def constant_that_is_written(p: Program, v: Value) -> Value | None:
    """Computed of weights alone, so that an optimiser may do it once; then written, or given to the caller."""
    if not v.shape or 0 in v.shape or v.dtype != "float32":
        return None
    shape = p.choose.pick((v.shape[-1:], v.shape[-2:], v.shape))
    weight = Value(p.parameter(shape) if p.choose.chance(40) else p.buffer(f"torch.randn({list(shape)})"), shape)
    computed = f"({p.choose.pick(CONSTANTS).format(c=weight.name)})"
    text = p.choose.pick(THE_SAME).format(c=computed, v=v.name)
    found = result(text.replace("torch.dequantize", ""), metas([v, weight]))
    if found is None:
        return None
    made = p.let(text, *found)
    if p.choose.chance(70):
        p.line(p.choose.pick(WRITES).format(m=made.name, v=v.name))
    p.keep(made)
    return p.let(f"{v.name} + {made.name}.sum()", v.shape)
