"""A small model, built statement by statement as the text of an nn.Module.

The text is what is run, so that scripting, tracing and a human who looks at a failure all see the same program. Shapes
are followed while it is written, without torch: they say which ops apply next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")
Shape = tuple[int, ...]


class Choices:
    """Numbers from a string of bytes. What is listed first is simplest: zeros, as after the end, give small programs.

    One string, and not one draw of hypothesis for each choice: it would make two thirds of its programs from parts of
    earlier ones.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._next = 0

    def integer(self, low: int, high: int) -> int:
        if low == high:
            return low
        width = 1 if high - low < 128 else 2
        drawn = int.from_bytes(self._data[self._next : self._next + width], "little")
        self._next += width
        return low + drawn % (high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.integer(0, 99) >= 100 - percent

    def weighted(self, options: Sequence[tuple[int, T]]) -> T:
        drawn = self.integer(0, sum(weight for weight, _ in options) - 1)
        for weight, option in options:
            drawn -= weight
            if drawn < 0:
                return option
        raise AssertionError("unreachable")


class Value(NamedTuple):
    """A tensor of the program: its name, and its shape in the first call."""

    name: str
    shape: Shape
    dtype: str = "float32"


class Input(NamedTuple):
    """An argument of forward. `batch` says whether the first dimension may differ from call to call, `space` how many
    of the last ones may."""

    value: Value
    batch: bool
    space: int
    high: int = 0


def broadcast(a: Shape, b: Shape) -> Shape | None:
    """The common shape of two operands, None when there is none."""
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b)
    result = []
    for x, y in pairs:
        if x != y and 1 not in (x, y):
            return None
        result.append(y if x == 1 else x)
    return tuple(result)


class Program:
    """The statements of one method (of the model, or of a block inside it), and what they need.

    A method that is given an `owner` is a further one of that program's class: it has the attributes of the other.
    """

    def __init__(
        self, choose: Choices, name: str = "Model", parent: Program | None = None, owner: Program | None = None
    ) -> None:
        self.choose = choose
        self.name = name
        self.owner: Program = owner or self
        self.root: Program = parent.root if parent else owner.root if owner else self
        self.inputs: list[Input] = []
        self.values: list[Value] = []
        self.inits: list[str] = owner.inits if owner else []
        self.body: list[str] = []
        self.definitions: list[str] = []  # of the root: functions and submodules that stand before the model
        self.states: list[Value] = []  # of the owner: attributes that some method writes
        self.methods: list[Program] = []  # of the owner: what is exported beside forward
        self.only_script = False  # of the root: a trace can't say what it does
        self.is_stateful = False  # of the root: a call depends on earlier ones
        self.kept: list[Value] = []  # what the caller has to see
        self.indent = 2
        self._count = 0

    def fresh(self, prefix: str) -> str:
        self.root._count += 1
        return f"{prefix}{self.root._count}"

    def line(self, text: str) -> None:
        self.body.append("    " * self.indent + text)

    def lines(self, text: str) -> None:
        for line in text.split("\n"):
            self.line(line)

    def mark(self) -> tuple[list[Input], list[Value], list[str], list[str]]:
        """How far the program is, for `reset`."""
        return list(self.inputs), list(self.values), list(self.inits), list(self.body)

    def reset(self, mark: tuple[list[Input], list[Value], list[str], list[str]]) -> None:
        """Take back what was written since."""
        for mine, part in zip((self.inputs, self.values, self.inits, self.body), mark):
            mine[:] = part  # type: ignore[index]

    def let(self, expression: str, shape: Sequence[int], dtype: str = "float32") -> Value:
        value = Value(self.fresh("v"), tuple(shape), dtype)
        self.line(f"{value.name} = {expression}")
        self.values.append(value)
        return value

    def member(self, prefix: str, expression: str) -> str:
        """Something made in __init__."""
        name = f"self.{self.fresh(prefix)}"
        self.inits.append(f"{name} = {expression}")
        return name

    def parameter(self, shape: Sequence[int], fan_in: int = 1) -> str:
        scale = f" / {fan_in**0.5:.3g}" if fan_in > 1 else ""
        return self.member("w", f"nn.Parameter(torch.randn({list(shape)}){scale})")

    def buffer(self, expression: str) -> str:
        name = self.fresh("b")
        self.inits.append(f"self.register_buffer('{name}', {expression})")
        return f"self.{name}"

    def add_input(
        self, name: str, shape: Shape, batch: bool, space: int, dtype: str = "float32", high: int = 0
    ) -> Value:
        value = Value(name, shape, dtype)
        self.inputs.append(Input(value, batch, space, high))
        if not high:
            self.values.append(value)
        return value

    def keep(self, value: Value) -> None:
        """Let the caller see it, too."""
        if self is self.root and self.indent == 2:
            self.kept.append(value)

    def latest(self) -> Value:
        return self.values[-1]

    def current(self) -> Value:
        """Mostly what was just computed, at times something earlier, which then has two readers."""
        return self.choose.pick(self.values) if self.choose.chance(12) else self.values[-1]

    def like(self, value: Value) -> list[Value]:
        """All values of the same shape and dtype, the value itself among them."""
        alike = [v for v in self.values if v.shape == value.shape and v.dtype == value.dtype]
        return alike if value in alike else [value, *alike]

    def method(self, name: str) -> list[str]:
        """The lines of the method, whose last statement returns."""
        arguments = "".join(f", {i.value.name}: Tensor" for i in self.inputs)
        return [f"    def {name}(self{arguments}):", *self.body]

    def text(self, returned: str) -> str:
        """The class."""
        self.line(f"return {returned}")
        lines = [
            f"class {self.name}(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {line}" for line in self.inits),
            "",
            *self.method("forward"),
        ]
        for method in self.methods:
            lines += ["", "    @torch.jit.export", *method.method(method.name)]
        return "\n".join([*self.definitions, *lines]) + "\n"
