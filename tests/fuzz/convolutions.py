"""Convolutions and transposed ones, of every rank and spelling."""

from __future__ import annotations

import math

from fuzz.operations import CHANNELS, anchor
from fuzz.program import Program, Value


def conv_rank(p: Program, v: Value) -> tuple[int, bool] | None:
    """How many spatial dimensions a convolution of this value has, and whether it has a batch."""
    options = [(d, batched) for batched in (True, False) for d in (1, 2, 3) if len(v.shape) == d + 1 + batched]
    if not options or v.dtype != "float32":
        return None
    return options[0] if len(options) == 1 or not p.choose.chance(15) else options[1]


def per_dimension(p: Program, d: int, options: tuple[int, ...]) -> list[int]:
    first = p.choose.pick(options)
    return [first] * d if not p.choose.chance(25) else [p.choose.pick(options) for _ in range(d)]


def argument(values: list[int]) -> str:
    """One number where all are equal, as people write it."""
    return str(values[0]) if len(set(values)) == 1 else str(tuple(values))


def groups_of(p: Program, channels: int) -> int:
    divisors = [1, *(g for g in (2, 3, 4) if channels % g == 0 and g < channels)]
    if channels == 0:
        return 1
    return p.choose.weighted([(6, 1), (2, p.choose.pick(divisors)), (2, channels)])


@anchor(50)
def convolution(p: Program, v: Value) -> Value | None:
    rank = conv_rank(p, v)
    if rank is None:
        return None
    d, _batched = rank
    channels, space = v.shape[-d - 1], v.shape[-d:]
    kernel = per_dimension(p, d, (3, 1, 2, 5))
    stride = per_dimension(p, d, (1, 1, 1, 2, 3))
    dilation = per_dimension(p, d, (1, 1, 1, 2))
    padding = per_dimension(p, d, (1, 0, 0, 2))
    groups = groups_of(p, channels)
    out = groups * p.choose.pick((1, 2, 3)) if groups > 1 else p.choose.pick(CHANNELS)
    if all(k == 1 for k in kernel) and p.choose.chance(50):
        out, groups, stride, padding = channels, 1, [1] * d, [0] * d  # keeps the shape: a residual becomes possible
    elif p.choose.chance(30):
        out, stride = channels, [1] * d
        dilation = [1 if k == 2 else x for k, x in zip(kernel, dilation)]
        padding = [x * (k - 1) // 2 for k, x in zip(kernel, dilation)]
    named = p.choose.weighted([(9, None), (1, "'same'"), (1, "'valid'")])
    if named == "'same'":
        stride, total = [1] * d, [x * (k - 1) for k, x in zip(kernel, dilation)]
    elif named == "'valid'":
        total = [0] * d
    else:
        total = [2 * x for x in padding]
    mode = p.choose.weighted([(12, "zeros"), (1, "reflect"), (1, "replicate"), (1, "circular")])
    name = v.name
    if p.choose.chance(6):  # asymmetric padding, spelled out
        name, before, after = p.fresh("v"), p.choose.integer(0, 2), p.choose.integer(0, 2)
        p.line(f"{name} = F.pad({v.name}, ({before}, {after}))")
        space = (*space[:-1], space[-1] + before + after)
    result = tuple((s + t - x * (k - 1) - 1) // q + 1 for s, t, x, k, q in zip(space, total, dilation, kernel, stride))
    if min(result) < 1:
        return None if name == v.name else v
    shape = (*v.shape[: -d - 1], out, *result)
    bias = p.choose.chance(60)
    how = f"{argument(stride)}, {named or argument(padding)}, {argument(dilation)}, {groups}"
    if mode != "zeros" or p.choose.chance(20):
        extra = f", padding_mode='{mode}'" if mode != "zeros" else ""
        layer = f"nn.Conv{d}d({channels}, {out}, {argument(kernel)}, {how}, bias={bias}{extra})"
        return p.let(f"{p.member('m', layer)}({name})", shape)
    weight = p.parameter((out, channels // groups, *kernel), channels // groups * math.prod(kernel))
    if d == 2 and p.choose.chance(8):
        weight += ".contiguous(memory_format=torch.channels_last)"
    biases = p.parameter((out,)) if bias else "None"
    function = p.choose.pick(("F", "torch"))
    return p.let(f"{function}.conv{d}d({name}, {weight}, {biases}, {how})", shape)


@anchor(6)
def weights_of_images(p: Program, v: Value) -> Value | None:
    """A convolution with a weight for each image, a mixture of two, spelled as groups of one image, as in CondConv."""
    if len(v.shape) != 4 or v.dtype != "float32" or 0 in v.shape:
        return None
    channels, *space = v.shape[1:]
    window, stride = p.choose.pick((1, 3)), p.choose.weighted([(4, 1), (1, 2)])
    groups = p.choose.pick((1, channels, groups_of(p, channels)))
    out, depth = groups * p.choose.pick((1, 2, 4)), channels // groups
    batch, image = f"{v.name}.size(0)", p.fresh("v")
    router = f"torch.sigmoid(F.linear({v.name}.mean((2, 3)), {p.parameter((2, channels), channels)}))"
    experts = p.parameter((2, out * depth * window**2), depth * window**2)
    weights = f"({router} @ {experts}).view({batch} * {out}, {depth}, {window}, {window})"
    sizes = f"1, {batch} * {v.name}.size(1), {v.name}.size(2), {v.name}.size(3)"
    how = f"None, {stride}, {window // 2}, 1, {batch} * {groups}"
    # Not a view: of images that lie channels-last eager refuses it, and behind a convolution we don't (loosen_views).
    p.line(f"{image} = F.conv2d({v.name}.reshape({sizes}), {weights}, {how})")
    moved = f"{image}.permute(1, 0, 2, 3)" if p.choose.chance(50) else image
    shape = (v.shape[0], out, *((s - 1) // stride + 1 for s in space))
    return p.let(f"{moved}.reshape({batch}, {out}, {image}.size(2), {image}.size(3))", shape)


@anchor(4)
def tokens_between(p: Program, v: Value) -> Value | None:
    """A convolution's image, to which its own tokens are added after a linear; another convolution reads the sum."""
    if len(v.shape) != 4 or v.dtype != "float32" or 0 in v.shape:
        return None
    out = p.choose.pick((1, 3, 8))
    shape = (v.shape[0], out, *v.shape[2:])
    x = p.let(f"{p.member('m', f'nn.Conv2d({v.shape[1]}, {out}, 3, padding=1)')}({v.name})", shape).name
    tokens = p.choose.pick(("{x}.flatten(2).transpose(1, 2)", "{x}.permute(0, 2, 3, 1).flatten(1, 2)")).format(x=x)
    mixed = f"{p.member('m', f'nn.Linear({out}, {out})')}({tokens})"
    sizes = ", ".join(f"{x}.size({d})" for d in (0, 2, 3, 1))
    image = f"{mixed}.reshape({sizes}).permute(0, 3, 1, 2)"
    scale = p.parameter((out, 1, 1)) if p.choose.chance(50) else ""
    added = f"{scale} * {image}" if scale else image
    total = p.let(p.choose.pick((f"{x} + {added}", f"{x} * ({added})", f"{added} - {x}")), shape)
    return p.let(f"{p.member('m', f'nn.Conv2d({out}, {out}, 1)')}({total.name}) + {total.name}", shape)


@anchor(10)
def branches(p: Program, v: Value) -> Value | None:
    """Convolutions of one image that are added up, with a batch_norm of it and itself, as in RepVGG."""
    rank = conv_rank(p, v)
    if rank is None:
        return None
    d, batched = rank
    channels, space = v.shape[-d - 1], v.shape[-d:]
    groups = groups_of(p, channels)
    keeps = p.choose.chance(70) and channels > 0
    out, stride = (channels, 1) if keeps else (groups * p.choose.pick((1, 2, 4)), p.choose.pick((1, 2)))
    has_norms = batched and p.choose.chance(70)
    # Without infinities, which may meet in eager's sum and not in ours: docs/decisions/convolutions.md.
    v = p.let(f"{v.name}.clamp(-1e4, 1e4)", v.shape)

    def convolved() -> str:
        kernel = p.choose.pick((1, 3, 5))
        dilation = p.choose.weighted([(6, 1), (1, 2)])
        how = f"{kernel}, {stride}, {dilation * (kernel // 2)}, {dilation}, {groups}, bias={p.choose.chance(40)}"
        image = f"{p.member('m', f'nn.Conv{d}d({channels}, {out}, {how})')}({v.name})"
        return f"{p.member('m', f'nn.BatchNorm{d}d({out})')}({image})" if has_norms and p.choose.chance(80) else image

    shape = (*v.shape[: -d - 1], out, *((s - 1) // stride + 1 for s in space))
    total = p.let(convolved(), shape)
    for _ in range(p.choose.integer(1, 3)):
        term = convolved()
        if keeps and p.choose.chance(30):
            term = f"{p.member('m', f'nn.BatchNorm{d}d({out})')}({v.name})" if has_norms else v.name
        sign = p.choose.weighted([(5, "+"), (1, "-")])
        if p.choose.chance(30):
            p.line(f"{total.name} {sign}= {term}")
        else:
            first, second = (total.name, term) if p.choose.chance(80) else (term, total.name)
            total = p.let(f"{first} {sign} {second}", shape)
    return total


@anchor(8)
def gated(p: Program, v: Value) -> Value | None:
    """Channels multiplied by what convolutions make of their averages, as in squeeze and excitation."""
    rank = conv_rank(p, v)
    if rank is None:
        return None
    d, _batched = rank
    channels, space = v.shape[-d - 1], v.shape[-d:]
    pixel = (1,) * d
    over = tuple(range(-d, 0))
    averages = (f"{v.name}.mean({over}, keepdim=True)", f"F.adaptive_avg_pool{d}d({v.name}, 1)")
    x = p.let(p.choose.pick(averages), (*v.shape[: -d - 1], channels, *pixel))
    between = p.choose.pick((1, 2, 6, 17))
    for made in [between] * p.choose.integer(0, 2) + [channels]:
        layer = p.member("m", f"nn.Conv{d}d({x.shape[-d - 1]}, {made}, 1, bias={p.choose.chance(70)})")
        function = p.choose.pick(("torch.relu", "F.silu", "torch.sigmoid", "F.hardsigmoid", "torch.tanh"))
        x = p.let(f"{function}({layer}({x.name}))", (*v.shape[: -d - 1], made, *pixel))
    first, second = (v.name, x.name) if p.choose.chance(80) else (x.name, v.name)
    product = p.let(f"{first} * {second}", v.shape)
    if not p.choose.chance(70):
        return product
    out, stride = p.choose.pick((1, 4, 24, 130)), p.choose.weighted([(4, 1), (1, 2)])
    layer = p.member("m", f"nn.Conv{d}d({channels}, {out}, 1, {stride}, bias={p.choose.chance(70)})")
    return p.let(f"{layer}({product.name})", (*v.shape[: -d - 1], out, *((s - 1) // stride + 1 for s in space)))


@anchor(8)
def transposed_convolution(p: Program, v: Value) -> Value | None:
    rank = conv_rank(p, v)
    if rank is None:
        return None
    d, _batched = rank
    channels, space = v.shape[-d - 1], v.shape[-d:]
    if math.prod(space) > 300:
        return None
    kernel = per_dimension(p, d, (3, 1, 2, 4))
    stride = per_dimension(p, d, (1, 2, 3))
    dilation = per_dimension(p, d, (1, 1, 1, 2))
    padding = per_dimension(p, d, (0, 1, 1, 2))
    extra = per_dimension(p, d, (0, 0, 1, 2))
    extra = [min(e, max(q, x) - 1) for e, q, x in zip(extra, stride, dilation)]
    if d == 3:  # aten leaves the rest unwritten, in bfloat16 with AMX (torch 2.11)
        extra[0] = min(extra[0], padding[0])
    groups = groups_of(p, channels)
    per_group = p.choose.pick((1, 2, 3, 4, 8)) if groups == 1 else p.choose.pick((1, 2))
    result = tuple(
        (s - 1) * q - 2 * w + x * (k - 1) + e + 1
        for s, q, w, x, k, e in zip(space, stride, padding, dilation, kernel, extra)
    )
    if min(result) < 1:
        return None
    shape = (*v.shape[: -d - 1], per_group * groups, *result)
    bias = p.choose.chance(60)
    how = f"{argument(stride)}, {argument(padding)}, {argument(extra)}, {groups}"
    if p.choose.chance(25):
        layer = (
            f"nn.ConvTranspose{d}d({channels}, {per_group * groups}, {argument(kernel)}, {how}, "
            f"bias={bias}, dilation={argument(dilation)})"
        )
        return p.let(f"{p.member('m', layer)}({v.name})", shape)
    weight = p.parameter((channels, per_group, *kernel), channels * math.prod(kernel) // groups)
    biases = p.parameter((per_group * groups,)) if bias else "None"
    return p.let(f"F.conv_transpose{d}d({v.name}, {weight}, {biases}, {how}, {argument(dilation)})", shape)
