"""Attention, in the spellings that models have."""

from __future__ import annotations

import math

from fuzz.operations import other
from fuzz.program import Program, Value


@other(4)
def attention(p: Program, v: Value) -> Value | None:
    """Scores, scale, mask, softmax, product: spelled out, or in one call."""
    if len(v.shape) not in (3, 4) or v.dtype != "float32" or math.prod(v.shape) > 1500:
        return None
    tokens, width = v.shape[-2:]
    heads = 2 if width % 2 == 0 and len(v.shape) == 3 and p.choose.chance(70) else 0
    names = []
    for _ in range(3):
        text = v.name
        if p.choose.chance(70):
            text = f"F.linear({v.name}, {p.parameter((width, width), width)}, {p.parameter((width,))})"
        if heads:
            text += f".view({v.name}.size(0), {v.name}.size(1), 2, {width // 2}).transpose(1, 2)"
        names.append(p.fresh("q"))
        p.line(f"{names[-1]} = {text}")
    if heads and p.choose.chance(25):
        names = joined_with_the_batch(p, v, tokens, width // 2)
    query, key, value = names
    result = p.fresh("a")
    if p.choose.chance(30):
        bias = p.buffer(f"torch.randn([{tokens}, {tokens}])")
        extra = p.choose.pick(("", ", is_causal=True", f", attn_mask={bias}", ", scale=0.3", "grid"))
        if extra == "grid":
            before = (v.shape[0], 2) if heads else v.shape[:-2]
            extra = f", attn_mask={sum_of_sides(p, query, (*before, tokens, width // (heads or 1)))}"
        p.line(f"{result} = F.scaled_dot_product_attention({query}, {key}, {value}{extra})")
    else:
        before = (v.shape[0], 2) if heads else v.shape[:-2]
        spelled_out(p, result, names, (*before, tokens, tokens), width // 2 if heads else width)
    back = f".transpose(1, 2).reshape({v.name}.shape)" if heads else ""
    return p.let(f"{result}{back}", v.shape)


@other(3)
def attention_over_channels(p: Program, v: Value) -> Value | None:
    """Two heads whose rows are channels, as in XCiT and DaViT."""
    if len(v.shape) != 3 or v.dtype != "float32" or math.prod(v.shape) > 1500 or v.shape[2] % 2 or 0 in v.shape:
        return None
    width = v.shape[2]
    order = p.choose.pick(("2, 0, 3, 4, 1", "2, 0, 3, 1, 4"))  # channels by positions, or turned so by each reader
    turned = "" if order.endswith("1") else ".transpose(-1, -2)"
    names, result = [p.fresh("q") for _ in range(3)], p.fresh("a")
    linear = f"F.linear({v.name}, {p.parameter((3 * width, width), width)})"
    heads = f"{linear}.reshape({v.name}.size(0), {v.name}.size(1), 3, 2, {width // 2}).permute({order})"
    p.line(f"{', '.join(names)} = {heads}.unbind(0)")
    for name in names[:2]:
        p.line(f"{name} = " + (f"F.normalize({name}{turned}, dim=-1)" if p.choose.chance(50) else f"{name}{turned}"))
    p.line(f"{result} = {names[0]} @ {names[1]}.transpose(-2, -1)")
    scale = p.choose.pick(("", f" * {p.parameter((2, 1, 1))}", " * 0.2"))
    p.line(f"{result} = ({result}{scale}).softmax(dim=-1) @ {names[2]}{turned}")
    back = p.choose.pick((".permute(0, 3, 1, 2)", ".transpose(-1, -2).transpose(1, 2)"))
    return p.let(f"{result}{back}.reshape({v.name}.shape)", v.shape)


def joined_with_the_batch(p: Program, v: Value, tokens: int, width: int) -> list[str]:
    """Return two heads of query, key and value that one linear gives, as SAM takes them apart."""
    heads, pieces = p.fresh("q"), [p.fresh("q") for _ in range(3)]
    linear = f"F.linear({v.name}, {p.parameter((6 * width, 2 * width), 2 * width)})"
    p.line(f"{heads} = {linear}.reshape({v.name}.size(0), {tokens}, 3, 2, {width}).permute(2, 0, 3, 1, 4)")
    p.line(f"{', '.join(pieces)} = {heads}.reshape(3, {v.name}.size(0) * 2, {tokens}, {width}).unbind(0)")
    for piece in pieces:
        p.line(f"{piece} = {piece}.view({v.name}.size(0), 2, {tokens}, {width})")
    return pieces


def sum_of_sides(p: Program, query: str, shape: tuple[int, ...]) -> str:
    """Return a mask of keys in a grid, whose height and width add numbers of their own, as SAM has it."""
    *before, tokens, width = shape
    height = next(size for size in (3, 2, 1) if tokens % size == 0)
    rows, columns = (f"F.linear({query}, {p.parameter((count, width), width)})" for count in (height, tokens // height))
    sides = [f"{rows}[..., :, None]", f"{columns}[..., None, :]"]
    if p.choose.chance(30):
        sides.reverse()
    return f"({sides[0]} + {sides[1]}).{p.choose.pick(('view', 'reshape'))}({[*before, tokens, tokens]})"


def spelled_out(p: Program, result: str, names: list[str], shape: tuple[int, ...], width: int) -> None:
    query, key, value = names
    tokens = shape[-1]
    scale = f"{width**0.5:.6g}"
    scores = (
        f"torch.matmul({query}, {key}.transpose(-1, -2)) / {scale}",
        f"({query} / {scale}) @ {key}.transpose(-1, -2)",
        f"torch.matmul({query} * 0.125, {key}.transpose(-2, -1))",
        f"torch.matmul({query}, {key}.transpose(-1, -2)) * 0.125",
        f"torch.einsum('...id,...jd->...ij', {query}, {key} * 0.125)",
        f"torch.einsum('...jd,...id->...ij', {key}, {query})",
    )
    p.line(f"{result} = {p.choose.pick(scores)}")
    if p.choose.chance(30):
        windows = p.buffer(f"torch.randn([{shape[0]}, *{[1] * (len(shape) - 3)}, {tokens}, {tokens}])")
        p.line(f"{result} = {result}.view({[1, *shape]}) + {windows}.unsqueeze(0)")
        p.line(f"{result} = {result}.view({p.choose.pick((list(shape), [-1, *shape[1:]]))})")
    mask = p.choose.pick(("none", "added", "bool", "in place", "grid"))
    if mask == "added":
        p.line(f"{result} = {result} + {p.buffer(f'torch.randn([1, {tokens}]).round() * 1e4')}")
    elif mask == "bool":
        fill = p.choose.pick(("float('-inf')", "-1e9"))
        p.line(f"{result} = {result}.masked_fill({p.buffer(f'torch.randn([{tokens}]) > 0')}, {fill})")
    elif mask == "grid":
        p.line(f"{result} = {result} + {sum_of_sides(p, query, (*shape[:-1], width))}")
    elif mask == "in place":
        p.line(f"{result} += {p.buffer(f'torch.randn([{tokens}, {tokens}])')}")
    p.line(f"{result} = {p.choose.pick((f'F.softmax({result}, dim=-1)', f'{result}.softmax(-1)'))}")
    products = (f"torch.matmul({result}, {value})", f"torch.einsum('...ij,...jd->...id', {result}, {value})")
    p.line(f"{result} = {p.choose.pick(products)}")
