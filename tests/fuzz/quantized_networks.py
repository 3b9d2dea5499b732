"""Random small networks for tests of quantisation, as lists of nodes.

A node is an op, the numbers of the values it reads (0 is the input), and arguments. A list, and not text as in
program.py: the same nodes are computed by the model that is quantised and by its reference (quantized_reference.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuzz.program import Choices, Shape, broadcast

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 1.5),
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.25),
    "gelu": F.gelu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "elu": F.elu,
    "relu_": lambda x: F.relu(x, inplace=True),
}
EXACT_ACTIVATIONS = ("relu", "hardtanh", "relu6", "leaky_relu", "relu_")
MOVES = ("view", "transpose", "flatten", "slice", "strided", "channels_last", "chunk", "unsqueeze")
DEEPEST = 288  # inputs of an output: so many products of bytes add up exactly in float32


class Node(NamedTuple):
    op: str
    inputs: tuple[int, ...]
    arguments: tuple[Any, ...] = ()


class Plan(NamedTuple):
    """A network before it has weights. `shapes` are those of all values, the input's first."""

    nodes: tuple[Node, ...]
    returned: tuple[int, ...]
    shapes: tuple[Shape, ...]
    seed: int
    is_exact: bool  # weights and biases are such that sums are exact, if scales are powers of two


class Network(nn.Module):
    """What a plan computes."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        torch.manual_seed(plan.seed)
        self.layers = nn.ModuleDict()
        for index, node in enumerate(plan.nodes, 1):
            made = _module(node, plan.is_exact)
            if made is not None:
                self.layers[f"m{index}"] = made
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> Any:
        values = [x]
        for index, node in enumerate(self.plan.nodes, 1):
            values.append(self.compute(index, node, [values[i] for i in node.inputs]))
        results = tuple(values[i] for i in self.plan.returned)
        return results if len(results) > 1 else results[0]

    def compute(self, index: int, node: Node, inputs: list[Tensor]) -> Tensor:
        name = f"m{index}"
        return self.layers[name](inputs[0]) if name in self.layers else plain(node, inputs)


def plain(node: Node, inputs: Sequence[Tensor]) -> Tensor:
    """What a node without weights computes."""
    x, a = inputs[0], node.arguments
    if node.op in ACTIVATIONS:
        return ACTIVATIONS[node.op](x)
    if node.op == "add":
        return x + inputs[1]
    if node.op == "add_":
        return x.add_(inputs[1])
    if node.op == "mul":
        return x * inputs[1]
    if node.op == "cat":
        return torch.cat(list(inputs), a[0])
    if node.op == "max_pool":
        return F.max_pool2d(x, a[0], a[1], a[2])
    if node.op == "avg_pool":
        return F.avg_pool2d(x, a[0])
    if node.op == "mean":
        return x.mean(a[0], keepdim=a[1])
    if node.op == "pad":
        return F.pad(x, a[0])
    if node.op == "zero_part":
        x[..., :1] = 0
        return x
    if node.op == "softmax":
        return x.softmax(-1)
    if node.op == "matmul":
        return x @ inputs[1].transpose(-1, -2)
    if node.op == "attention":
        heads = attention_heads(node, inputs)
        return merged_heads(attended(*heads, a[0], a[2]))
    if node.op == "view":
        return x.reshape(x.shape[0], *a[0])
    if node.op == "transpose":
        return x.transpose(a[0], a[1])
    if node.op == "flatten":
        return x.flatten(1)
    if node.op == "slice":
        return x.narrow(a[0], a[1], a[2])
    if node.op == "strided":
        return x[..., ::2]
    if node.op == "channels_last":
        return x.contiguous(memory_format=torch.channels_last)
    if node.op == "chunk":
        return x.chunk(2, a[0])[a[1]]
    if node.op == "unsqueeze":
        return x.unsqueeze(1)
    raise AssertionError(node.op)


def attention_heads(node: Node, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Query, key and value as [batch, heads, length, width]: three values, or the thirds of one."""
    rows = inputs if len(inputs) == 3 else inputs[0].chunk(3, -1)
    count = node.arguments[1]
    return tuple(r.view(*r.shape[:2], count, r.shape[2] // count).transpose(1, 2) for r in rows)


def merged_heads(y: Tensor) -> Tensor:
    return y.transpose(1, 2).flatten(2)


def attention_scores(q: Tensor, k: Tensor, is_causal: bool) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if not is_causal:
        return scores
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(hidden, -math.inf)


def attended(q: Tensor, k: Tensor, v: Tensor, form: str, is_causal: bool) -> Tensor:
    if form == "whole":
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    return attention_scores(q, k, is_causal).softmax(-1) @ v


def _module(node: Node, is_exact: bool) -> nn.Module | None:
    if node.op == "norm":
        return _stirred(nn.LayerNorm(node.arguments[0]))
    if node.op == "linear":
        inputs, outputs, bias = node.arguments
        made: nn.Module = nn.Linear(inputs, outputs, bias)
        return _exact(made) if is_exact else made
    if node.op == "convolution":
        rank, transposed, has_norm, arguments = node.arguments
        kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{rank}d")
        made = kind(**dict(arguments))
        made = _exact(made) if is_exact else made
        return nn.Sequential(made, _stirred(getattr(nn, f"BatchNorm{rank}d")(made.out_channels))) if has_norm else made
    return None


def _stirred(norm: nn.Module) -> nn.Module:
    for tensor in (norm.weight, getattr(norm, "running_var", None)):
        if tensor is not None:
            tensor.data.uniform_(0.5, 1.5)
    for tensor in (norm.bias, getattr(norm, "running_mean", None)):
        if tensor is not None:
            tensor.data.normal_(0, 0.3)
    return norm


def _exact(layer: nn.Module) -> nn.Module:
    """Weights of 8-bit numbers with scales that are powers of two, which quantising finds again."""
    weight = layer.weight
    numbers = torch.randint(-127, 128, weight.shape).float()
    outputs = 1 if getattr(layer, "transposed", False) else 0
    rest = tuple(d for d in range(weight.dim()) if d != outputs)
    first = [slice(None) if d == outputs else 0 for d in range(weight.dim())]
    numbers[tuple(first)] = 127.0
    exponents = (
        torch.randint(7, 10, (weight.shape[outputs],)) + round(math.log2(math.prod(weight.shape[d] for d in rest))) // 2
    )
    shape = [-1 if d == outputs else 1 for d in range(weight.dim())]
    layer.weight.data = numbers * (2.0 ** -exponents.float()).view(shape)
    if layer.bias is not None:
        layer.bias.data = torch.randint(-64, 65, layer.bias.shape).float() / 64
    return layer


class Drawing:
    """Draws a plan."""

    def __init__(self, choose: Choices, ranks: Sequence[int] = (2,), wide: bool = False, attends: bool = False) -> None:
        self.choose, self.ranks, self.wide, self.attends = choose, ranks, wide, attends
        self.is_exact = not (wide or attends) and choose.chance(30)
        self.nodes: list[Node] = []
        self.shapes: list[Shape] = [self._input_shape()]

    def plan(self) -> Plan:
        self._layer()
        if self.attends:
            self._attention()
        while len(self.nodes) < 12 and self.choose.chance(82):
            self._step()
        if not self.choose.chance(30):
            self._layer()
        returned = [len(self.nodes)]
        if self.nodes and self.choose.chance(20):
            returned.append(self.choose.integer(1, len(self.nodes)))
        return Plan(
            tuple(self.nodes),
            tuple(dict.fromkeys(returned)),
            tuple(self.shapes),
            self.choose.integer(0, 9999),
            self.is_exact,
        )

    def _input_shape(self) -> Shape:
        pick = self.choose.pick
        if self.wide:
            return pick(((3, 128), (2, 5, 128), (1, 160), (2, 3, 192), (2, 17, 160), (70, 256)))
        if self.attends:
            return pick(((2, 6, 8), (1, 5, 32), (1, 9, 16), (1, 18, 12)))
        rank = pick(self.ranks)
        if rank == 2 and self.choose.chance(35):
            return pick(((2, 6, 8), (3, 16), (1, 5, 32), (2, 2, 7, 12)))
        space = {
            1: pick(((9,), (12,), (5,))),
            2: pick(((6, 6), (7, 5), (9, 8), (4, 1))),
            3: pick(((4, 5, 5), (3, 6, 4))),
        }
        return (pick((2, 1, 3)), pick((3, 4, 8, 16, 1)), *space[rank])

    def _add(self, op: str, inputs: Sequence[int], shape: Sequence[int], *arguments: Any) -> None:
        self.nodes.append(Node(op, tuple(inputs), arguments))
        self.shapes.append(tuple(shape))

    def _step(self) -> None:
        kinds = [
            (10, self._layer),
            (7, self._activation),
            (6, self._sum),
            (3, self._cat),
            (4, self._pool),
            (3, self._move),
            (1, self._norm),
            (1, self._write),
            (1, self._pad),
            (1, self._product),
            (2, self._attention),
        ]
        self.choose.weighted(kinds)()

    def _current(self) -> int:
        return self.choose.integer(0, len(self.nodes)) if self.choose.chance(25) else len(self.nodes)

    def _layer(self) -> None:
        v = self._current()
        shape = self.shapes[v]
        if (
            len(shape) - 2 in (1, 2, 3)
            and len(shape) - 2 in self.ranks
            and not self.wide
            and not self.choose.chance(20)
        ):
            return self._convolution(v, shape)
        if shape[-1] > (4096 if self.wide else DEEPEST):
            return None
        widths = (128, 160, 256, 130) if self.wide else (8, 4, 16, 3, 32, 1, shape[-1])
        out = self.choose.pick(widths)
        return self._add("linear", [v], (*shape[:-1], out), shape[-1], out, self.choose.chance(70))

    def _convolution(self, v: int, shape: Shape) -> None:
        choose, rank = self.choose, len(shape) - 2
        channels, space = shape[1], shape[2:]
        is_transposed = rank in self.ranks and 1 in self.ranks and choose.chance(30)

        def each(options: Sequence[int]) -> tuple[int, ...]:
            first = choose.pick(options)
            return tuple(choose.pick(options) for _ in range(rank)) if choose.chance(20) else (first,) * rank

        kernel, stride, dilation = each((3, 1, 2, 5)), each((1, 1, 1, 2)), each((1, 1, 1, 2))
        groups = choose.weighted(
            [(6, 1), (1, choose.pick([g for g in (1, 2, 3, 4) if channels % g == 0])), (2, channels)]
        )
        out = groups * choose.pick((1, 2)) if groups > 1 else choose.pick((8, 4, 16, 3, 1, 32, channels))
        padding = each((1, 0, 2))
        if choose.chance(40):
            stride, padding = (1,) * rank, tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilation))
        if is_transposed:
            extra = tuple(choose.integer(0, max(s, d) - 1) for s, d in zip(stride, dilation))
            result = tuple(
                (n - 1) * s - 2 * p + d * (k - 1) + e + 1
                for n, s, p, d, k, e in zip(space, stride, padding, dilation, kernel, extra)
            )
        else:
            result = tuple(
                (n + 2 * p - d * (k - 1) - 1) // s + 1
                for n, p, d, k, s in zip(space, padding, dilation, kernel, stride)
            )
        if min(result) < 1 or math.prod(result) > 400 or math.prod(kernel) * channels // groups > DEEPEST:
            return
        arguments = {
            "in_channels": channels,
            "out_channels": out,
            "kernel_size": kernel,
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "bias": choose.chance(60),
        }
        if is_transposed:
            arguments["output_padding"] = extra
        has_norm = not self.is_exact and not is_transposed and choose.chance(20)
        self._add("convolution", [v], (shape[0], out, *result), rank, is_transposed, has_norm, tuple(arguments.items()))

    def _activation(self) -> None:
        v = self._current()
        names = EXACT_ACTIVATIONS if self.is_exact else tuple(ACTIVATIONS)
        name = self.choose.pick(names)
        if name == "relu_" and v == 0:
            name = "relu"
        self._add(name, [v], self.shapes[v])

    def _sum(self) -> None:
        v = self._current()
        for other in self._others(v):
            shape = broadcast(self.shapes[v], self.shapes[other])
            if shape is None or len(shape) > 5 or shape[0] != self.shapes[0][0]:
                continue
            if shape == self.shapes[v] and v != 0 and self.choose.chance(10):
                return self._add("add_", [v, other], shape)
            op = "mul" if not self.is_exact and self.choose.chance(15) else "add"
            pair = [v, other] if self.choose.chance(50) else [other, v]
            return self._add(op, pair, shape)

    def _others(self, v: int) -> list[int]:
        """Earlier values; those of the same shape first."""
        others = list(range(len(self.nodes) + 1))
        return sorted(others, key=lambda i: (self.shapes[i] != self.shapes[v], i == v, self.choose.integer(0, 9)))

    def _cat(self) -> None:
        v = self._current()
        shape = self.shapes[v]
        if len(shape) < 2:
            return
        d = self.choose.pick((1, len(shape) - 1))
        fits = [
            i
            for i in range(len(self.nodes) + 1)
            if len(self.shapes[i]) == len(shape)
            and all(a == b for j, (a, b) in enumerate(zip(self.shapes[i], shape)) if j != d)
        ]
        parts = [v, *(self.choose.pick(fits) for _ in range(self.choose.pick((1, 1, 2))))]
        total = sum(self.shapes[i][d] for i in parts)
        if total <= 64:
            self._add("cat", parts, (*shape[:d], total, *shape[d + 1 :]), d)

    def _pool(self) -> None:
        v = self._current()
        shape = self.shapes[v]
        kind = self.choose.pick(("max_pool", "max_pool", "avg_pool", "mean"))
        if kind == "mean" or len(shape) != 4:
            if len(shape) > 2:
                keep = self.choose.chance(40)
                dims = (2, 3) if len(shape) == 4 else (1,)
                kept = tuple(1 if i in dims else n for i, n in enumerate(shape) if keep or i not in dims)
                self._add("mean", [v], kept, dims, keep)
            return
        size, stride, padding = self.choose.pick(((2, 2, 0), (3, 2, 1), (3, 1, 1)))
        if kind == "avg_pool":
            size, stride, padding = 2, 2, 0
        result = tuple((n + 2 * padding - size) // stride + 1 for n in shape[2:])
        if min(result) < 1:
            return
        self._add(kind, [v], (*shape[:2], *result), *((size, stride, padding) if kind == "max_pool" else (size,)))

    def _move(self) -> None:
        v = self._current()
        shape, op = self.shapes[v], self.choose.pick(MOVES)
        if op == "view" and len(shape) > 2 and shape[-1] % 2 == 0:
            self._add(op, [v], (*shape[:-1], 2, shape[-1] // 2), (*shape[1:-1], 2, shape[-1] // 2)) if len(
                shape
            ) < 4 else None
        elif op == "transpose" and len(shape) > 2:
            a, b = self.choose.pick(((1, len(shape) - 1), (1, 2)))
            swapped = list(shape)
            swapped[a], swapped[b] = swapped[b], swapped[a]
            self._add(op, [v], swapped, a, b)
        elif op == "flatten" and len(shape) > 2:
            self._add(op, [v], (shape[0], math.prod(shape[1:])))
        elif op == "slice" and shape[-1] > 2:
            d = self.choose.pick((1, len(shape) - 1))
            if shape[d] > 2:
                self._add(op, [v], (*shape[:d], shape[d] - 2, *shape[d + 1 :]), d, 1, shape[d] - 2)
        elif op == "strided":
            self._add(op, [v], (*shape[:-1], (shape[-1] + 1) // 2))
        elif op == "channels_last" and len(shape) == 4:
            self._add(op, [v], shape)
        elif op == "chunk" and shape[1] % 2 == 0:
            self._add(op, [v], (shape[0], shape[1] // 2, *shape[2:]), 1, self.choose.integer(0, 1))
        elif op == "unsqueeze" and len(shape) < 4:
            self._add(op, [v], (shape[0], 1, *shape[1:]))

    def _norm(self) -> None:
        v = self._current()
        if not self.is_exact and self.shapes[v][-1] > 3:
            self._add("norm", [v], self.shapes[v], self.shapes[v][-1])

    def _write(self) -> None:
        v = self._current()
        if v != 0:
            self._add("zero_part", [v], self.shapes[v])

    def _pad(self) -> None:
        v = self._current()
        if len(self.shapes[v]) == 4 and self.shapes[v][3] < 12:
            *shape, h, w = self.shapes[v]
            self._add("pad", [v], (*shape, h + 1, w + 2), (1, 1, 0, 1))

    def _product(self) -> None:
        """The products of attention: scores, and softmax."""
        v = self._current()
        if self.is_exact or len(self.shapes[v]) not in (3, 4):
            return
        alike = [i for i in range(len(self.shapes)) if self.shapes[i] == self.shapes[v]]
        other = self.choose.pick(alike)
        rows = self.shapes[v][-2]
        self._add("matmul", [v, other], (*self.shapes[v][:-1], rows))
        if self.choose.chance(60):
            self._add("softmax", [len(self.nodes)], self.shapes[-1])

    def _attention(self) -> None:
        """Of what one or three linears make. One in a network, so that the reference knows which it is."""
        v, choose = self._current(), self.choose
        shape = self.shapes[v]
        is_there = any(node.op == "attention" for node in self.nodes)
        if is_there or self.is_exact or len(shape) != 3 or shape[-1] > DEEPEST:
            return
        heads, width = choose.pick((2, 1, 3)), choose.pick((8, 4, 16, 5))
        is_one = choose.chance(40)
        for _ in range(1 if is_one else 3):
            out = heads * width * (3 if is_one else 1)
            self._add("linear", [v], (*shape[:-1], out), shape[-1], out, choose.chance(70))
        made = range(len(self.nodes) + 1 - (1 if is_one else 3), len(self.nodes) + 1)
        arguments = choose.pick(("steps", "whole")), heads, choose.chance(30)
        self._add("attention", made, (*shape[:-1], heads * width), *arguments)
