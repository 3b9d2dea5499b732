"""What moves elements around, takes views, pools or normalises: what stands between anchors."""

from __future__ import annotations

import math

from fuzz.operations import other
from fuzz.program import Program, Value


@other(10)
def view(p: Program, v: Value) -> Value | None:
    rank, s, n = len(v.shape), v.shape, v.name
    if not rank:
        return p.let(f"{n}.unsqueeze(0)", (1,), v.dtype)
    options = [
        (f"{n}.flatten({1 if rank > 1 else 0})", (s[0], math.prod(s[1:])) if rank > 1 else s),
        (f"{n}.contiguous()", s),
        (f"{n}.clone()", s),
        (f"{n}[..., : {max(1, s[-1] // 2)}]", (*s[:-1], max(1, s[-1] // 2))),
        (f"{n}[..., ::2]", (*s[:-1], (s[-1] + 1) // 2)),
        (f"{n}.flip(-1)", s),
    ]
    if rank > 1:
        swapped = (*s[:-2], s[-1], s[-2])
        options += [
            (f"{n}.transpose(-1, -2)", swapped),
            (f"{n}.transpose(-1, -2).contiguous()", swapped),
            (f"{n}.swapaxes(-1, -2)", swapped),
            (f"{n}.reshape({n}.size(0), -1)", (s[0], math.prod(s[1:]))),
            (f"{n}.permute({', '.join(map(str, (0, *range(2, rank), 1)))})", (s[0], *s[2:], s[1])),
            (f"{n}.select(1, 0)", (s[0], *s[2:])),
            (f"{n}.narrow(1, 0, 1)", (s[0], 1, *s[2:])),
            (f"torch.roll({n}, (2, -1), (1, -1))", s),
            (f"{n}.mean(-1)", s[:-1]),
            (f"{n}.sum(1, keepdim=True)", (s[0], 1, *s[2:])),
        ]
    if rank < 5:
        options += [(f"{n}.unsqueeze(1)", (s[0], 1, *s[1:])), (f"{n}.unsqueeze(-1)", (*s, 1))]
    if rank == 4:
        options += [
            (f"{n}.contiguous(memory_format=torch.channels_last)", s),
            (f"{n}.flatten(2).transpose(1, 2)", (s[0], s[2] * s[3], s[1])),
            (f"F.pad({n}, (1, 0, 2, 1))", (s[0], s[1], s[2] + 3, s[3] + 1)),
            (f"F.pad({n}, (0, 0, 0, -{n}.size(2) % {s[2]}))", s),
        ]
        if s[1] % 2 == 0:
            shuffle = (
                f"{n}.view({n}.size(0), 2, {s[1] // 2}, {n}.size(2), {n}.size(3)).transpose(1, 2).reshape({n}.shape)"
            )
            spelled = f"{shuffle.split('.reshape')[0]}.contiguous().view({n}.shape)"
            options += [(shuffle, s), (spelled, s), (spelled, s), (f"F.channel_shuffle({n}, 2)", s)]
        if s[1] % 4 == 0:
            options.append((f"F.pixel_shuffle({n}, 2)", (s[0], s[1] // 4, s[2] * 2, s[3] * 2)))
    text, shape = p.choose.pick(options)
    return p.let(text, shape, v.dtype)


@other(3)
def update(p: Program, v: Value) -> Value | None:
    """A piece that is taken, updated and assigned."""
    if len(v.shape) < 2 or v.dtype != "float32":
        return None
    whole = p.fresh("u")
    p.line(f"{whole} = {p.choose.pick((f'{v.name} * 2', f'{v.name}.clone()', f'F.relu({v.name})'))}")
    piece = p.choose.pick(("[..., 1:]", "[:, :1]", "[0]", "[..., 0]", "[:, ::2, ...]"))
    operand = p.choose.pick(("1.5", f"{whole}{piece}.flip(0)", f"{v.name}{piece}"))
    p.line(f"{whole}{piece} {p.choose.pick(('+=', '*=', '-='))} {operand}")
    return p.let(whole, v.shape)


@other(3)
def windows(p: Program, v: Value) -> Value | None:
    """Rows that are put together as windows of an image, cut anew by its sizes, and added to something turned."""
    if len(v.shape) != 3 or v.dtype != "float32" or v.shape[1] % 4:
        return None
    batch, rows, width = v.shape
    image, n = p.fresh("w"), v.name
    order = f".permute(0, 4, 1, 3, 2).reshape(-1, {width}, {rows // 2}, 2)"
    p.line(f"{image} = {n}.view({n}.size(0), 2, 2, {rows // 4}, {width}){order}")
    if p.choose.chance(50):
        p.line(f"{image} = {image}.transpose(2, 3).tanh() + {image}[:, :, :, :1].transpose(2, 3)")
    rest = f".reshape({image}.size(0), {image}.size(1), -1).transpose(1, 2)"
    return p.let(f"{image}{rest}", (batch, rows, width))


@other(4)
def moved_rows(p: Program, v: Value) -> Value | None:
    """Windows that are cut, shifted and put together, beside norms."""
    if len(v.shape) != 4 or v.dtype != "float32" or not all(v.shape) or v.shape[1] % 2 or v.shape[2] % 2:
        return None
    _, height, width, channels = v.shape
    rows, columns, n = height // 2, width // 2, v.name
    weight, bias = p.parameter((channels,)), p.parameter((channels,))
    norm = f"[{channels}], {weight}, {bias}"
    x, residual = p.fresh("r"), p.choose.pick(p.like(v)).name
    p.line(f"{x} = F.layer_norm({p.choose.pick((n, f'{n} + {residual}', f'{residual} * 2 + {n}'))}, {norm})")
    padding = p.choose.pick(("", f"{x} = F.pad({x}, (0, 0, 0, 2, 2, 0))"))
    if padding:
        p.line(padding)
        rows, columns = rows + 1, columns + 1
    shift = p.choose.pick(("", ".roll((-1, 1), (1, 2))"))
    sizes = p.choose.pick((f"-1, {rows}, 2, {columns}, 2", f"{x}.size(0), {x}.size(1) // 2, 2, {x}.size(2) // 2, 2"))
    order = ".permute(0, 1, 3, 2, 4, 5)"
    p.line(f"{x} = {x}{shift}.reshape({sizes}, {channels}){order}.reshape(-1, 4, {channels})")
    p.line(f"{x} = {p.choose.pick((f'{x}.tanh()', f'{x} @ {x}.transpose(-1, -2) @ {x}', x))}")
    image = f".view(-1, {rows}, {columns}, 2, 2, {channels}){order}.reshape(-1, {2 * rows}, {2 * columns}, {channels})"
    back = p.choose.pick(("", ".roll((1, -1), (1, 2))"))
    p.line(f"{x} = {x}{image}{back}[:, :{height}, :{width}, :]")
    end = p.choose.pick((f"F.layer_norm({n} + {x}, {norm})", f"{n} + F.layer_norm({x}, {norm})", f"{n} + {x}"))
    return p.let(end, v.shape)


@other(6)
def pool(p: Program, v: Value) -> Value | None:
    d = {3: 1, 4: 2, 5: 3}.get(len(v.shape))
    if d is None or v.dtype != "float32":
        return None
    space = v.shape[-d:]
    if p.choose.chance(30):
        size = p.choose.pick((1, 2, 3))
        kind = p.choose.pick(("avg", "max"))
        return p.let(f"F.adaptive_{kind}_pool{d}d({v.name}, {size})", (*v.shape[:-d], *[size] * d))
    kind, kernel, stride = p.choose.pick(("max", "avg")), p.choose.pick((2, 3, 1)), p.choose.pick((2, 1, 3))
    padding, ceil = p.choose.integer(0, kernel // 2), p.choose.chance(30)
    result = []
    for length in space:
        count = length + 2 * padding - kernel
        if count < 0:
            return None
        out = (-(-count // stride) if ceil else count // stride) + 1
        result.append(out - (ceil and (out - 1) * stride >= length + padding))
    extra = ", count_include_pad=False" if kind == "avg" and p.choose.chance(30) else ""
    call = f"F.{kind}_pool{d}d({v.name}, {kernel}, {stride}, {padding}, ceil_mode={ceil}{extra})"
    return p.let(call, (*v.shape[:-d], *result))


@other(3)
def columns_of_windows(p: Program, v: Value) -> Value | None:
    """Columns of windows, which may overlap; side by side they may be put together again."""
    if len(v.shape) not in (3, 4) or v.dtype != "float32" or math.prod(v.shape) == 0:
        return None
    lead, (channels, height, width) = v.shape[:-3], v.shape[-3:]
    side_by_side = p.choose.chance(50)
    kernel = p.choose.pick((1, 2)), p.choose.pick((2, 3, 1))
    dilation = (1, 1) if side_by_side else (p.choose.pick((1, 2)), p.choose.pick((1, 3)))
    padding = (0, 0) if side_by_side else (p.choose.integer(0, 2), p.choose.integer(0, 1))
    stride = kernel if side_by_side else (p.choose.pick((1, 2)), p.choose.pick((1, 2)))
    counts = [
        (n + 2 * e - d * (k - 1) - 1) // s + 1
        for n, k, d, e, s in zip((height, width), kernel, dilation, padding, stride)
    ]
    if min(counts) < 1 or channels * math.prod(kernel) * math.prod(counts) > 2000:
        return None
    taps, columns = math.prod(kernel), math.prod(counts)
    cut = p.let(
        f"F.unfold({v.name}, {kernel}, {dilation}, {padding}, {stride})", (*lead, channels * taps, columns), v.dtype
    )
    if p.choose.chance(40):
        return p.let(f"{cut.name}.transpose(-1, -2).contiguous()", (*lead, columns, channels * taps), v.dtype)
    if p.choose.chance(40):
        return p.let(f"{cut.name}.unflatten(-2, ({channels}, {taps}))", (*lead, channels, taps, columns), v.dtype)
    size = (counts[0] * kernel[0], counts[1] * kernel[1]) if side_by_side else (height, width)
    put = f"F.fold({cut.name}, {size}, {kernel}, {dilation}, {padding}, {stride})"
    return p.let(put, (*lead, channels, *size), v.dtype)


@other(2)
def steps(p: Program, v: Value) -> Value | None:
    """A recurrence that is written down: each index of a dimension is selected."""
    if len(v.shape) < 2 or v.dtype != "float32" or not 4 <= v.shape[1] <= 8 or p.choose.chance(30):
        return None
    count = v.shape[1]
    state = p.let(f"{v.name}.select(1, 0)", (v.shape[0], *v.shape[2:]), v.dtype)
    states = [state.name]
    for i in range(1, count):
        index = p.choose.pick((i, i - count))
        body = p.choose.pick(("{s} * 0.5 + {x}", "torch.tanh({s}) * {x}", "torch.maximum({s}, {x})"))
        state = p.let(body.format(s=state.name, x=f"{v.name}.select(1, {index})"), state.shape, v.dtype)
        states.append(state.name)
    return p.let(f"torch.stack([{', '.join(states)}], 1)", v.shape, v.dtype) if p.choose.chance(60) else state


@other(4)
def upsample(p: Program, v: Value) -> Value | None:
    if len(v.shape) != 4 or v.dtype != "float32" or math.prod(v.shape) > 1500:
        return None
    how = p.choose.pick(("mode='nearest'", "mode='bilinear'", "mode='bilinear', align_corners=True", "mode='bicubic'"))
    if p.choose.chance(50):
        size = (p.choose.integer(1, 9), p.choose.integer(1, 40))
        return p.let(f"F.interpolate({v.name}, size={size}, {how})", (*v.shape[:2], *size))
    shape = (*v.shape[:2], v.shape[2] * 2, v.shape[3] * 2)
    return p.let(f"F.interpolate({v.name}, scale_factor=2.0, {how})", shape)


@other(3)
def computed_filter(p: Program, v: Value) -> Value | None:
    """A depthwise convolution whose weight is a part of an image."""
    if len(v.shape) != 4 or v.dtype != "float32" or math.prod(v.shape) == 0:
        return None
    channels, (down, across) = v.shape[1], (min(3, side) for side in v.shape[2:])
    weight = f"torch.tanh({v.name}[:1, :, :{down}, :{across}].transpose(0, 1))"
    result = (v.shape[2] + 3 - down, v.shape[3] + 3 - across)
    return p.let(f"F.conv2d({v.name}, {weight}, padding=1, groups={channels})", (*v.shape[:2], *result))


@other(3)
def rotary(p: Program, v: Value) -> Value | None:
    if len(v.shape) < 2 or v.shape[-1] < 2 or v.dtype != "float32":
        return None
    width = v.shape[-1]
    turned = 2 * (p.choose.integer(1, width // 2) if width % 2 or p.choose.chance(40) else width // 2)
    x, half = f"{v.name}[..., :{turned}]" if turned < width else v.name, turned // 2
    exchanged = p.choose.pick(
        (
            f"torch.cat((-{x}[..., {half}:], {x}[..., :{half}]), dim=-1)",
            f"torch.cat((-{x}.chunk(2, -1)[1], {x}.chunk(2, -1)[0]), dim=-1)",
            f"torch.stack((-{x}[..., 1::2], {x}[..., ::2]), dim=-1).flatten(-2)",
            f"torch.stack((-{x}[..., 1::2], {x}[..., ::2]), dim=-1).reshape({x}.shape)",
        )
    )
    y = f"{x} * torch.sigmoid({x}) + {exchanged} * torch.tanh({x})"
    if turned == width and len(v.shape) > 2 and v.shape[1] > 1 and p.choose.chance(40):
        # The first rows are left as they are.
        kept = p.choose.integer(0, v.shape[1] - 1)
        y = f"({y.replace(v.name, f'{v.name}[:, {kept}:]')}){p.choose.pick(('', '.float()'))}"
        return p.let(f"torch.cat(({v.name}[:, :{kept}], {y}), dim=1)", v.shape)
    return p.let(y if turned == width else f"torch.cat(({y}, {v.name}[..., {turned}:]), dim=-1)", v.shape)


@other(6)
def join(p: Program, v: Value) -> Value | None:
    if not v.shape:
        return None
    dimension = p.choose.integer(0, len(v.shape) - 1) if p.choose.chance(30) else min(1, len(v.shape) - 1)
    fits = [o for o in p.values if len(o.shape) == len(v.shape) and o.dtype == v.dtype]
    fits = [o for o in fits if all(a == b or i == dimension for i, (a, b) in enumerate(zip(o.shape, v.shape)))]
    parts = [v, p.choose.pick(fits)]
    if p.choose.chance(30):
        parts.append(p.choose.pick(fits))
    shape = list(v.shape)
    shape[dimension] = sum(o.shape[dimension] for o in parts)
    return p.let(f"torch.cat([{', '.join(o.name for o in parts)}], {dimension})", shape, v.dtype)


@other(3)
def dense_join(p: Program, v: Value) -> Value | None:
    """A concatenation that only a batch_norm with relu reads."""
    if len(v.shape) != 4 or v.dtype != "float32":
        return None
    fits = [o for o in p.values if len(o.shape) == 4 and o.dtype == v.dtype]
    fits = [o for o in fits if (o.shape[0], *o.shape[2:]) == (v.shape[0], *v.shape[2:])]
    parts = [v, *(p.choose.pick(fits) for _ in range(p.choose.integer(1, 2)))]
    shape = (v.shape[0], sum(o.shape[1] for o in parts), *v.shape[2:])
    norm = p.member("m", f"nn.BatchNorm2d({shape[1]})")
    return p.let(f"F.relu({norm}(torch.cat([{', '.join(o.name for o in parts)}], 1)))", shape)


@other(4)
def split(p: Program, v: Value) -> Value | None:
    """Views of one tensor, of which some may later be written."""
    rank = len(v.shape)
    dimension = 1 if rank > 1 and p.choose.chance(60) else rank - 1
    if not rank or v.shape[dimension] % 2:
        return None
    half = v.shape[dimension] // 2
    text = p.choose.pick((f"{v.name}.chunk(2, {dimension})", f"torch.split({v.name}, {half}, {dimension})"))
    shape = tuple(half if i == dimension else s for i, s in enumerate(v.shape))
    first, second = Value(p.fresh("v"), shape, v.dtype), Value(p.fresh("v"), shape, v.dtype)
    p.line(f"{first.name}, {second.name} = {text}")
    p.values += [first, second]
    return second


@other(2)
def put_together(p: Program, v: Value) -> Value | None:
    """Two pieces that are copied into new memory, as the keys of some attention are."""
    if not v.shape or v.shape[-1] < 2:
        return None
    cut, made = v.shape[-1] // 2, Value(p.fresh("v"), v.shape, v.dtype)
    p.line(f"{made.name} = {v.name}.new_empty({v.name}.size())")
    p.line(f"{made.name}[..., :{cut}] = {v.name}[..., :{cut}]")
    p.line(f"{made.name}[..., {cut}:] = {v.name}[..., {cut}:] * 2")
    p.values.append(made)
    return made


@other(6)
def normalize(p: Program, v: Value) -> Value | None:
    if not v.shape or v.dtype != "float32":
        return None
    n, width = v.name, v.shape[-1]
    kind = p.choose.pick(
        ("layer_norm", "spelled", "rms_norm", "softmax", "log_softmax", "add_layer_norm", "layer_norm_2", "group_norm")
    )
    if kind == "rms_norm":
        scale = p.choose.pick(
            (
                "torch.rsqrt({n}.pow(2).mean(-1, keepdim=True) + 1e-6)",
                "torch.rsqrt(({n} * {n}).mean(-1, keepdim=True) + 1e-5)",
            )
        )
        text = p.choose.pick(("{w} * ({n} * {r})", "{n} * {r} * {w}")).format(
            w=p.parameter((width,)), n=n, r=scale.format(n=n)
        )
        return p.let(text, v.shape)
    if kind == "spelled":
        variance = f"{n}.var(-1, unbiased=False, keepdim=True)"
        return p.let(f"({n} - {n}.mean(-1, keepdim=True)) * torch.rsqrt({variance} + 1e-5)", v.shape)
    if kind.endswith("softmax"):
        dimension = p.choose.pick((-1, 0, len(v.shape) - 1))
        return p.let(f"F.{kind}({n}, {dimension})", v.shape)
    if kind == "group_norm":
        return normalize_groups(p, v)
    text = f"{n} + {p.choose.pick(p.like(v)).name}" if kind == "add_layer_norm" else n
    over = list(v.shape[-2:]) if kind == "layer_norm_2" and len(v.shape) > 1 else [width]
    affine = p.choose.pick((f", {p.parameter(over)}, {p.parameter(over)}", "", f", {p.parameter(over)}"))
    return p.let(f"F.layer_norm({text}, {over}{affine})", v.shape)


def normalize_groups(p: Program, v: Value) -> Value | None:
    """group_norm or instance_norm, of any rank that they take."""
    if len(v.shape) < 3 or 0 in v.shape:
        return None
    channels, pixels = v.shape[1], math.prod(v.shape[2:])
    affine = p.choose.pick((f"{p.parameter((channels,))}, {p.parameter((channels,))}", "None, None"))
    if p.choose.chance(40) and pixels > 1:
        return p.let(f"F.instance_norm({v.name}, None, None, {affine})", v.shape)
    groups = p.choose.pick([g for g in range(1, channels + 1) if channels % g == 0])
    return p.let(f"F.group_norm({v.name}, {groups}, {affine})", v.shape)


@other(1)
def cast(p: Program, v: Value) -> Value | None:
    if v.dtype != "float32":
        return p.let(f"{v.name}.float()", v.shape)
    dtype = p.choose.pick(("float64", "bfloat16", "int32", "float16"))
    return p.let(f"{v.name}.to(torch.{dtype})", v.shape, dtype)
