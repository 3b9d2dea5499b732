"""Arguments for an op that is drawn by its schema: by type, and by name where a type says too little.

An argument is its text in the program and, so that the op can be tried, its value: tensors are on the meta device,
which has shapes and dtypes alone.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from fuzz.elementwise import operand
from fuzz.program import Program, Shape, Value
from fuzz.spellings import ALPHAS, NUMBERS


class Drawn(NamedTuple):
    text: str
    value: Any


def meta(shape: Shape, dtype: str) -> torch.Tensor:
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")


def constant(text: str, **names: Any) -> Drawn:
    return Drawn(text, eval(text, {"torch": torch, **names}))


STRINGS = {
    "approximate": ("'tanh'", "'none'"),
    "rounding_mode": ("'floor'", "'trunc'", "None"),
    "mode": ("'constant'", "'reflect'", "'replicate'", "'circular'"),
    "padding": ("'same'", "'valid'"),
    "equation": ("'...i,...i->...i'", "'...i->...'", "'...ij,...kj->...ik'", "'...ij,...jk->...ik'"),
}
DTYPES = ("torch.float32", "torch.float64", "torch.bfloat16", "torch.int64")
MEMORY_FORMATS = ("torch.contiguous_format", "torch.channels_last", "torch.preserve_format")
FLOATS = {"eps": ("1e-5", "0.1"), "p": ("0.5",), "dropout": ("0.0",), "dropout_p": ("0.0",), "scale": ("None", "0.5")}
# What would make results random is left out.
NEVER = ("train", "training", "non_blocking", "sparse", "implicit", "pin_memory", "device", "layout", "generator")


class Arguments:
    """Draws what one call of an op gets. `v` is its first tensor."""

    def __init__(self, p: Program, v: Value, op: str) -> None:
        self.p, self.v, self.op = p, v, op
        self.rank, self.shape = len(v.shape), v.shape
        self.space = next((int(d) for d in "123" if f"{d}d" in op), max(1, self.rank - 2))
        self.channels = v.shape[1] if self.rank > 1 else math.prod(v.shape[:1])
        self.last = v.shape[-1] if v.shape else 1
        self.inner = p.choose.pick((4, 3, 8, 1))  # the dimension that a product makes

    def draw(self, argument: Any) -> Drawn | None:
        """What this argument gets, None where nothing fits."""
        kind, name = str(argument.type).removeprefix("Optional[").rstrip("]"), argument.name
        pick = self.p.choose.pick
        if str(argument.type).startswith("Optional") and self.p.choose.chance(30):
            return constant("None")
        if kind == "Tensor":
            return self.tensor(name)
        if kind == "List[Tensor":
            return self.tensors()
        if kind == "List[int":
            return self.sizes(name)
        if kind == "List[float":
            return constant(str([2.0] * self.space))
        if name in ("dtype", "out_dtype"):
            return constant(pick(DTYPES))
        if name == "memory_format":
            return constant(pick(MEMORY_FORMATS))
        if kind == "bool":
            return constant(pick(("True", "False")))
        if kind == "str":
            return constant(pick(STRINGS[name])) if name in STRINGS else None
        if self.op == "elu_" and name.endswith("scale"):
            return constant("1.5")  # with a negative one eager's gradient is wrong: it asks the result for the sign
        if kind == "number":
            return constant(pick(ALPHAS if name in ("alpha", "beta", "value") else NUMBERS))
        if kind == "float":
            return constant(pick(FLOATS.get(name, NUMBERS)))
        if kind == "int":
            return self.integer(name)
        return None

    def integer(self, name: str) -> Drawn:
        if name.startswith(("dim", "axis")) or name in ("start_dim", "end_dim"):
            return constant(str(self.p.choose.pick((0, -1, 1, -2, self.rank - 1, -self.rank))))
        table = {"groups": (1, self.channels), "num_groups": (1, self.channels), "decimals": (0, 1, 2), "step": (1, 2)}
        return constant(str(self.p.choose.pick(table.get(name, (1, 0, 2, -1, 3)))))

    def sizes(self, name: str) -> Drawn:
        shape, pick, n = self.shape, self.p.choose.pick, self.v.name
        options: tuple[Any, ...]
        if name in ("kernel_size", "stride", "padding", "dilation", "output_padding", "output_size"):
            if self.op == "as_strided_":
                return constant(str([math.prod(shape[i + 1 :]) for i in range(self.rank)]))
            of_name = {"kernel_size": (2, 1, 3), "stride": (1, 2), "output_size": (1, 2, 3), "padding": (0, 1)}
            option = pick(of_name.get(name, (0,) if name == "output_padding" else (1, 2)))
            return constant(str([option] * self.space))
        if self.op.startswith("resize"):  # never larger: new memory holds anything
            options = (f"[{n}.numel()]", f"[1, {n}.numel()]", f"[{n}.numel() // 2]", "[0]")
            return constant(pick(options), **{n: meta(shape, self.v.dtype)})
        backwards = list(reversed(range(self.rank)))
        options = {
            "normalized_shape": ([self.last], list(shape[-2:])),
            "dims": (backwards, [*backwards[1:], *backwards[:1]], list(range(self.rank))),
            "dim": ([-1], [0], [0, -1], []),
            "pad": ([1, 0], [0, 0], [1, 2, 0, 1], [-1, 1]),
            "split_size": ([1, max(0, shape[0] - 1)],) if shape else ([],),
            "split_sizes": ([1, max(0, shape[0] - 1)],) if shape else ([],),
        }.get(name, (list(shape), [-1], [*shape[:1], -1], [shape[i] for i in backwards], [1, *shape]))
        return constant(str(pick(options)))

    def tensor(self, name: str) -> Drawn | None:
        shape = self._wanted_shape(name)
        if name in ("mask", "condition", "attn_mask"):
            return self._buffer(f"torch.randn({list(self.shape)}) > 0", self.shape, "bool")
        if name in ("indices", "index", "offsets"):
            return self._buffer(f"torch.randint(0, {max(1, self.shape[0] if self.shape else 1)}, [3])", (3,), "int64")
        if shape is not None:
            alike = [v for v in self.p.values if v.shape == shape and v.dtype == "float32"]
            if alike and self.p.choose.chance(50):
                return Drawn(self.p.choose.pick(alike).name, meta(shape, "float32"))
            if name == "running_var":
                return self._buffer(f"torch.rand({list(shape)}) + 0.5", shape, "float32")
            return Drawn(self.p.parameter(shape, math.prod(shape[1:])), meta(shape, "float32"))
        second = operand(self.p, self.v)
        return None if second is None else Drawn(second[0], meta(second[1], second[2]))

    def tensors(self) -> Drawn:
        """A list: the value, others like it, fresh ones."""
        names = [self.v.name]
        for _ in range(self.p.choose.integer(1, 2)):
            like = self.p.choose.pick(self.p.like(self.v)).name
            names.append(self.p.choose.pick((like, f"{like}.clone()", f"({like} * 0.5)")))
        return Drawn(f"[{', '.join(names)}]", [meta(self.shape, self.v.dtype) for _ in names])

    def _buffer(self, text: str, shape: Shape, dtype: str) -> Drawn:
        return Drawn(self.p.buffer(text), meta(shape, dtype))

    def _wanted_shape(self, name: str) -> Shape | None:
        """Of weights and of factors; None where any shape that broadcasts will do."""
        s, n, op = self.shape, self.inner, self.op
        if op.startswith(("addmm", "addbmm", "baddbmm")) and self.rank >= 2:
            first, second = (*s[:-1], n), (*s[:-2], n, s[-1])
            found = {"mat1": first, "batch1": first, "mat2": second, "batch2": second}.get(name)
            if found:
                return found
        if name == "mat2" or (op == "matmul" and name == "other" and self.rank):
            return (*s[:-2], self.last, n) if self.rank > 2 and self.p.choose.chance(50) else (self.last, n)
        if name == "vec":
            return (self.last,)
        if op == "linear":
            return {"weight": (n, self.last), "bias": (n,)}.get(name)
        if op.startswith(("conv", "_conv")):
            kernel = (self.p.choose.pick((1, 3)),) * self.space
            into = (self.channels, n) if "transpose" in op else (n, self.channels)
            return {"weight": (*into, *kernel), "bias": (n,)}.get(name)
        if op in ("layer_norm", "rms_norm") and name in ("weight", "bias"):
            return (self.last,)
        if name in ("running_mean", "running_var", "weight", "bias"):
            return (1,) if op == "prelu" and self.p.choose.chance(40) else (self.channels,)
        return None
