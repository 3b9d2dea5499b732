"""Linears, matrix products, recurrent layers, embeddings: what ipex may pack besides convolutions."""

from __future__ import annotations

import math

from fuzz.operations import CHANNELS, anchor
from fuzz.program import Program, Shape, Value


@anchor(24)
def linear(p: Program, v: Value) -> Value | None:
    if not v.shape or v.dtype != "float32":
        return None
    features = v.shape[-1]
    is_square = p.choose.chance(35) and features <= 512  # in float64, the judge takes minutes for what is wider
    out = features if is_square else p.choose.pick(CHANNELS)
    shape, bias = (*v.shape[:-1], out), p.choose.chance(60)
    if p.choose.chance(20):
        return p.let(f"{p.member('m', f'nn.Linear({features}, {out}, bias={bias})')}({v.name})", shape)
    if len(v.shape) == 2 and p.choose.chance(15):
        weight = p.parameter((features, out), features)
        options = ["torch.addmm({b}, {v}, {w})", "torch.addmm({b}, {v}, {w}, beta=2, alpha=0.5)", "{b} + {v} @ {w}"]
        biases = p.parameter(p.choose.pick(((out,), (1, out), (v.shape[0], out), (1,))))
        return p.let(p.choose.pick(options).format(b=biases, v=v.name, w=weight), shape)
    if p.choose.chance(8):
        weight = p.parameter((features, out), features)
        return p.let(f"F.linear({v.name}, {weight}.t(){', ' + p.parameter((out,)) if bias else ''})", shape)
    weight = p.parameter((out, features), features)
    return p.let(f"F.linear({v.name}, {weight}{', ' + p.parameter((out,)) if bias else ''})", shape)


@anchor(3)
def query_key_value(p: Program, v: Value) -> Value | None:
    """Several linears that read the same value."""
    if not v.shape or v.dtype != "float32":
        return None
    features, out = v.shape[-1], p.choose.pick((4, 8, 1, 16))
    bias = p.choose.chance(70)
    made = []
    for _ in range(p.choose.pick((3, 2, 4))):
        width = out if p.choose.chance(85) else p.choose.pick(CHANNELS)
        biases = f", {p.parameter((width,))}" if bias != p.choose.chance(10) else ""
        made.append(
            p.let(f"F.linear({v.name}, {p.parameter((width, features), features)}{biases})", (*v.shape[:-1], width))
        )
    alike = [m for m in made if m.shape == made[0].shape]
    joined = p.choose.pick((" + ", " * ", " - ")).join(m.name for m in alike)
    return p.let(joined, made[0].shape) if p.choose.chance(50) else made[-1]


@anchor(4)
def linears_over_channels(p: Program, v: Value) -> Value | None:
    """As blocks of ConvNeXt's kind end: the channels last for the linears, then back, a scale and the residual."""
    rank = len(v.shape)
    if rank not in (3, 4, 5) or v.dtype != "float32":
        return None
    channels, spatial = v.shape[1], range(2, rank)
    wide = p.choose.pick(CHANNELS)
    weights = [p.parameter((wide, channels), channels), p.parameter((channels, wide), wide)]
    y = p.fresh("v")
    p.line(f"{y} = F.linear({v.name}.permute({', '.join(map(str, (0, *spatial, 1)))}), {weights[0]})")
    p.line(f"{y} = F.linear({p.choose.pick(('F.gelu({})', 'torch.relu({})', '{}')).format(y)}, {weights[1]})")
    p.line(f"{y} = {y}.permute({', '.join(map(str, (0, rank - 1, *range(1, rank - 1))))})")
    if p.choose.chance(60):
        scale = p.parameter(p.choose.pick(((channels,) + (1,) * (rank - 2), (1, channels) + (1,) * (rank - 2))))
        p.line(f"{y} = {p.choose.pick(('{y} * {s}', '{s} * {y}', '{y} / {s}')).format(y=y, s=scale)}")
    sums = ("{v} + {y}", "{y} + {v}", "{y} - {v}", "{v} - {y}", "{y} * {v}", "{y}.add_({v})", "{y}.sub_({v})", "{y}")
    return p.let(p.choose.pick(sums).format(y=y, v=v.name), v.shape)


@anchor(2)
def normalized_rows(p: Program, v: Value) -> Value | None:
    """A linear and a batch_norm of its flattened rows."""
    if len(v.shape) not in (3, 4) or v.dtype != "float32":
        return None
    features, out = v.shape[-1], p.choose.pick(CHANNELS)
    y = p.let(f"F.linear({v.name}, {p.parameter((out, features), features)})", (*v.shape[:-1], out))
    norm = p.member("m", f"nn.BatchNorm1d({(*v.shape[2:-1], out)[0]})")
    return p.let(f"{norm}({y.name}.flatten(0, 1)).reshape_as({y.name})", y.shape)


@anchor(12)
def matrix_product(p: Program, v: Value) -> Value | None:
    if len(v.shape) < 2 or v.dtype != "float32":
        return None
    *batch, rows, inner = v.shape
    out = p.choose.pick((4, 1, 3, 8))
    kind = p.choose.pick(("matmul_weight", "scores", "bmm_weight", "baddbmm", "einsum", "vector"))
    if kind == "matmul_weight":
        return p.let(f"torch.matmul({v.name}, {p.parameter((inner, out), inner)})", (*batch, rows, out))
    if kind == "scores":
        product = p.choose.pick(
            ("torch.matmul({a}, {b}.transpose(-1, -2))", "{a} @ {b}.transpose(-2, -1)", "{a}.matmul({b}.mT)")
        )
        return p.let(product.format(a=v.name, b=p.choose.pick(p.like(v)).name), (*batch, rows, rows))
    if kind == "vector":
        return p.let(f"torch.matmul({v.name}, {p.parameter((inner,), inner)})", (*batch, rows))
    if kind == "einsum":
        letters = "abcd"[: len(batch)]
        other = p.choose.pick(p.like(v))
        text = p.choose.pick(
            (
                (f"{letters}ij,{letters}kj->{letters}ik", other.name, (*batch, rows, rows)),
                (f"{letters}ij,jk->{letters}ik", p.parameter((inner, out), inner), (*batch, rows, out)),
                (f"{letters}ij,kj->{letters}ki", p.parameter((out, inner), inner), (*batch, out, rows)),
                (f"{letters}ij,{letters}ik->{letters}jk", other.name, (*batch, inner, inner)),
            )
        )
        if len(batch) > 3:
            return None
        if len(batch) > 1 and p.choose.chance(30):  # a table of relative positions
            shared = p.choose.pick(letters)
            table = p.parameter((batch[letters.index(shared)], out, inner), inner)
            text = (f"{letters}ij,{shared}kj->{letters}ik", table, (*batch, rows, out))
        product = p.let(f"torch.einsum('{text[0]}', {v.name}, {text[1]})", text[2])
        if p.choose.chance(20):
            p.line(f"{product.name} += 0.5")
        return product
    if len(v.shape) != 3:
        return None
    if kind == "bmm_weight":
        weight = p.parameter((1, inner, out), inner)
        return p.let(f"torch.bmm({v.name}, {weight}.expand({v.name}.size(0), {inner}, {out}))", (*batch, rows, out))
    weight = p.parameter((1, inner, out), inner)
    added = p.parameter(p.choose.pick(((1, rows, out), (1, 1, out), (out,))))
    scales = p.choose.pick(("", ", beta=0.5", ", alpha=2.0"))
    second = f"{weight}.expand({v.name}.size(0), {inner}, {out})"
    return p.let(f"torch.baddbmm({added}, {v.name}, {second}{scales})", (*batch, rows, out))


@anchor(8)
def recurrent(p: Program, v: Value) -> Value | None:
    if len(v.shape) not in (2, 3) or v.dtype != "float32" or math.prod(v.shape) > 600:
        return None
    kind = p.choose.pick(("LSTM", "GRU"))
    hidden, layers = p.choose.pick((4, 1, 3, 8)), p.choose.pick((1, 1, 2))
    both, first = p.choose.chance(30), p.choose.chance(50)
    projected = p.choose.integer(1, hidden - 1) if kind == "LSTM" and hidden > 1 and p.choose.chance(15) else 0
    options = f"{v.shape[-1]}, {hidden}, num_layers={layers}, batch_first={first}, bidirectional={both}"
    if p.choose.chance(20):
        options += ", bias=False"
    layer = p.member("m", f"nn.{kind}({options}{f', proj_size={projected}' if projected else ''})")
    output: Shape = (*v.shape[:-1], (projected or hidden) * (1 + both))
    name = p.fresh("s")
    made = Value(p.fresh("v"), output)
    p.line(f"{made.name}, {name} = {layer}({v.name})")
    p.values.append(made)
    batch = () if len(v.shape) == 2 else (v.shape[0 if first else 1],)
    if p.choose.chance(25):
        state = f"{name}[0]" if kind == "LSTM" else name
        return p.let(state, (layers * (1 + both), *batch, projected or hidden))
    return made


@anchor(1)
def embedding_bag(p: Program, v: Value) -> Value | None:
    if p is not p.root or any(i.high for i in p.inputs):
        return None
    rows, width, bag = p.choose.pick((7, 20)), p.choose.pick((4, 8, 16)), p.choose.integer(1, 4)
    batch = v.shape[0] if v.shape else 1
    index = p.add_input("index", (batch, bag), True, 0, "int64", high=rows)
    mode = p.choose.pick(("sum", "mean", "max"))
    table = p.parameter((rows, width))
    weights = ""
    if mode == "sum" and p.choose.chance(30):
        weights = f", per_sample_weights=torch.ones_like({index.name}, dtype=torch.float32) * 0.5"
    return p.let(f"F.embedding_bag({index.name}, {table}, mode='{mode}'{weights})", (batch, width))
