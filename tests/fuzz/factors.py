"""Operands of several dtypes: whole numbers that wrap, half ones that overflow, numbers without dimensions."""

from __future__ import annotations

from fuzz.elementwise import operand_shapes
from fuzz.operations import follower
from fuzz.program import Program, Value
from fuzz.trying import metas, result

# Half of them large: products leave the range of the dtype.
OPERANDS = (
    ("float16", "torch.randn({s}) * 300"),
    ("float16", "torch.randn({s})"),
    ("bfloat16", "torch.randn({s})"),
    ("float64", "torch.randn({s})"),
    ("int32", "torch.randint(-100000, 100000, {s})"),
    ("int64", "torch.randint(-9, 9, {s})"),
    ("int16", "torch.randint(-300, 300, {s})"),
    ("int8", "torch.randint(-100, 100, {s})"),
    ("uint8", "torch.randint(0, 200, {s})"),
    ("bool", "torch.randn({s}) > 0"),
    ("float32", "torch.randn({s})"),
)
# Groups are drawn with the same chance.
EXPRESSIONS = (
    (
        "torch.addcmul({v}, {a}, {b})",
        "torch.addcmul({v}, {a}, {b}, value={s})",
        "{v}.clone().addcmul_({a}, {b}, value={s})",
        "torch.addcdiv({v}, {a}, {b}.abs() + 1, value={s})",
        "torch.lerp({v}, {v} * {a}, {s})",
    ),
    ("{v} + {a} * {b}", "{a} * {b} + {v}", "{v} - {a} * {b} * {s}", "({a} * {b}).sum(-1, keepdim=True) + {v}"),
    ("{v} * {a} * {b}", "{a} * {b} * {v}", "{a} * ({v} * {b})", "{a}.float() * {b}", "F.relu({a} * {b}) * {v}"),
    ("{v} * ({a} + {b})", "({a} + {b}) * {s} + {v}", "torch.add({v}, {a}, alpha=2) * {b}", "({a} + {b}) / {v}"),
    (
        "({a} * {b}).to(torch.float32) + {v}",
        "{v} + ({a} * {b}).relu()",
        "torch.sigmoid({a} * {b} + {v})",
        "F.relu({a} * {b}) * {v}.to({a}.dtype)",
    ),
    (
        "torch.where({v} > 0, {a}, {b}) + {v}",
        "torch.where({v} > 0, {a} * {b}, {v})",
        "torch.maximum({v}, {a}) * {b}",
        "({v} > {a}).float() * {b}",
    ),
    ("{v}.mul({a}).add({b})", "{v}.clone().mul_({a}).add_({b})", "{v}.clone().add_({a} * {b})"),
)
NUMBERS = ("2", "0.5", "-1", "1.0", "3")


@follower(12)
def factors(p: Program, v: Value) -> Value | None:
    """Two operands beside the value, each of a dtype and shape of its own."""
    if v.dtype not in ("float32", "float64", "float16", "bfloat16"):
        return None
    drawn = []
    for _ in range(2):
        if drawn and p.choose.chance(20):
            drawn.append(drawn[0])
            continue
        dtype, text = p.choose.pick(OPERANDS)
        shape = p.choose.pick(((), v.shape, *operand_shapes(v)))
        buffer = p.buffer(f"({text.format(s=list(shape))}).to(torch.{dtype})")
        drawn.append(Value(buffer, shape, dtype))
        if p.choose.chance(15) and v.shape:
            # Computed, and not a constant.
            name = f"({v.name}[..., :1] * 100).to(torch.{dtype})"
            drawn[-1] = p.let(name, (*v.shape[:-1], 1), dtype)
    a, b = drawn
    text = p.choose.pick(p.choose.pick(EXPRESSIONS)).format(v=v.name, a=a.name, b=b.name, s=p.choose.pick(NUMBERS))
    found = result(text, metas([v, a, b]))
    if found is None:
        return None
    p.let(text, *found)
    if found[1] not in ("float32", "float64") and p.choose.chance(70):
        p.let(f"{p.latest().name}.float()", found[0])
    return p.latest()
