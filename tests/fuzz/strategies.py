"""Cases as hypothesis draws them: a model as text, how it becomes TorchScript, and the calls that are made to it."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

# These fill the table of operations.
from fuzz import attention, blocks, by_schema, convolutions, elementwise, products, reshaping  # noqa: F401
from fuzz.operations import step
from fuzz.program import Choices, Input, Program
from fuzz.tensors import CONTENTS, LAYOUTS, TensorSpec

HEADER = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


"""

BUILD = """

def build():
    torch.manual_seed({seed})
    return settle(Model(){cast}, '{content}', {seed})
"""

# Shapes of the first input, and how many of their last dimensions are free to differ between calls.
FAMILIES: tuple[tuple[int, tuple[tuple[int, ...], int, bool]], ...] = (
    (12, ((2, 3, 6, 6), 2, True)),
    (5, ((2, 4, 7, 5), 2, True)),
    (4, ((1, 16, 5, 4), 2, True)),
    (2, ((2, 1, 4, 1), 2, True)),
    (2, ((2, 17, 3, 3), 2, True)),
    (1, ((1, 32, 8, 8), 2, True)),
    (2, ((2, 32, 14, 13), 2, True)),  # enough for Winograd's way
    (1, ((2, 72, 14, 13), 2, True)),  # in two groups too, which fill no registers
    (4, ((3, 5, 8), 1, True)),
    (3, ((2, 6, 8), 0, True)),
    (4, ((4, 8), 0, True)),
    (2, ((1, 16), 0, True)),
    (2, ((8,), 0, False)),
    (2, ((3, 5, 6), 2, False)),
    (3, ((2, 2, 3, 4, 5), 3, True)),
    (1, ((2, 3, 8), 0, True)),
)


BYTES = 600  # more than most cases read


class Call(NamedTuple):
    """One call of the model. A number among the arguments repeats an earlier argument."""

    arguments: tuple[TensorSpec | int, ...]
    mode: str = "no_grad"
    threads: int = 1


class Case(NamedTuple):
    """All that is needed to run it, and to print it."""

    source: str
    how: str
    saved: bool
    calls: tuple[Call, ...]
    dtype: str = ""  # what jit_optimize is given as dtype=


def cases() -> st.SearchStrategy[Case]:
    return st.binary(min_size=BYTES, max_size=BYTES).map(case_of)


def case_of(data: bytes) -> Case:
    choose = Choices(data)
    program = Program(choose)
    shape, space, batch = choose.weighted(FAMILIES)
    program.add_input("x", shape, batch, space)
    if choose.chance(15):
        program.add_input("y", shape, batch, space)
    step(program)
    while len(program.body) < 16 and choose.chance(78):
        step(program)
    source = HEADER + program.text(returned(program))
    cast = choose.weighted([(30, ""), (1, ".double()"), (1, ".bfloat16()")])
    content = choose.weighted(
        [(16, "normal"), (2, "dyadic"), (1, "nan"), (1, "zeros"), (1, "inf"), (1, "channels_last")]
    )
    source += BUILD.format(seed=choose.integer(0, 999), cast=cast, content=content)
    how = choose.weighted(
        [(5, "trace"), (5, "script"), (1, "frozen trace"), (1, "frozen script"), (1, "loaded script")]
    )
    saved, made = choose.chance(25), calls(choose, program.inputs)
    special = choose.weighted([(88, ""), (3, "autocast"), (3, "autocast trace"), (6, "bfloat16")])
    if special.startswith("autocast"):
        made = [call._replace(mode="autocast") for call in made]
        how = special if special == "autocast trace" else how
    elif special:
        # Where a gradient is wanted nothing computes in the dtype.
        made = [call._replace(mode="no_grad" if call.mode == "grad" else call.mode) for call in made]
    return Case(source, how, saved, tuple(made), "bfloat16" if special == "bfloat16" and not cast else "")


def returned(p: Program) -> str:
    """Mostly the last value; at times several, views, or an input."""
    names = [p.latest().name]
    if p.choose.chance(25):
        names.append(p.choose.pick(p.values).name)
    if p.choose.chance(5):
        names.append(f"{p.choose.pick(p.values).name}.detach()")
    if p.choose.chance(4):
        names.append(p.inputs[0].value.name)
    return ", ".join(names)


def calls(choose: Choices, inputs: list[Input]) -> list[Call]:
    """The first call three times, since TorchScript compiles anew at the second; then others."""
    first = call(choose, inputs, same=True)
    made = [first, first, first]
    for _ in range(choose.integer(0, 4)):
        made.append(call(choose, inputs, same=choose.chance(40)))
    return made


def call(choose: Choices, inputs: list[Input], same: bool) -> Call:
    batch = None if same else choose.pick((1, 0, 3, 2, 17))
    grow = 0 if same else choose.pick((0, 0, 1, 2, -1))
    arguments: list[TensorSpec | int] = []
    for index, (value, has_batch, space, high) in enumerate(inputs):
        shape = list(value.shape)
        if has_batch and batch is not None:
            shape[0] = batch
        for i in range(len(shape) - space, len(shape)):
            shape[i] = max(1, shape[i] + grow)
        if index and not high and choose.chance(6) and inputs[0].value.shape == value.shape:
            arguments.append(0)
            continue
        content = choose.pick(CONTENTS) if choose.chance(25) else "normal"
        layout = choose.pick(LAYOUTS) if choose.chance(35) else "contiguous"
        dtype = choose.pick(("float64", "bfloat16", "int32", "float16")) if choose.chance(3) else value.dtype
        arguments.append(TensorSpec(tuple(shape), dtype, layout, content, choose.integer(0, 999), high))
    mode = choose.weighted([(7, "no_grad"), (2, "inference"), (2, "grad")])
    return Call(tuple(arguments), mode, choose.weighted([(4, 1), (1, 2)]))
