"""Cases as hypothesis draws them: a model as text, how it becomes TorchScript, and the calls that are made to it."""

from __future__ import annotations

import functools
from typing import NamedTuple

from hypothesis import strategies as st

# These fill the table of operations.
from fuzz import (  # noqa: F401
    aliases,
    attention,
    blocks,
    by_schema,
    by_sizes,
    convolutions,
    elementwise,
    factors,
    lists,
    products,
    reshaping,
    state,
)
from fuzz.operations import step
from fuzz.program import Choices, Input, Program
from fuzz.tensors import CONTENTS, LAYOUTS, TensorSpec
from ipex import _C

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


class Options(NamedTuple):
    """What the optimiser may be told and that changes no result."""

    disable: tuple[str, ...] = ()  # passes
    shuffle: int = 0  # above 0: the number from which an order of passes inside of each phase is drawn
    verify: bool = False  # whether the graph is checked after each pass


class Call(NamedTuple):
    """One call of the model. A number among the arguments repeats an earlier argument."""

    arguments: tuple[TensorSpec | int, ...]
    mode: str = "no_grad"
    threads: int = 1
    method: str = "forward"
    overwrites: bool = False  # whether the caller then writes to what was returned


class Case(NamedTuple):
    """All that is needed to run it, and to print it."""

    source: str
    how: str
    saved: bool
    calls: tuple[Call, ...]
    dtype: str = ""  # what jit_optimize is given as dtype=
    is_stateful: bool = False  # whether a call depends on earlier ones
    options: Options = Options()


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
    while (program.states and choose.chance(60)) or choose.chance(3):
        if len(program.methods) == len(state.NAMES):
            break
        state.exported(program, program.inputs[0].value)
    result = returned(program)
    for method in (program, *program.methods):
        if choose.chance(12):
            lists.change_lists(method)
        if choose.chance(8):
            aliases.write_between(method)
    source = HEADER + program.text(result)
    cast = choose.weighted([(30, ""), (1, ".double()"), (1, ".bfloat16()")])
    content = choose.weighted(
        [(16, "normal"), (2, "dyadic"), (1, "nan"), (1, "zeros"), (1, "inf"), (1, "channels_last")]
    )
    source += BUILD.format(seed=choose.integer(0, 999), cast=cast, content=content)
    traces = 0 if program.only_script or program.methods else 1
    how = choose.weighted(
        [(5 * traces, "trace"), (5, "script"), (traces, "frozen trace"), (1, "frozen script"), (1, "loaded script")]
    )
    saved, made = choose.chance(25), calls(choose, program)
    special = choose.weighted([(88, ""), (3, "autocast"), (3 * traces, "autocast trace"), (6, "bfloat16")])
    if special.startswith("autocast"):
        made = [call._replace(mode="autocast") for call in made]
        how = special if special == "autocast trace" else how
    elif special:
        # Where a gradient is wanted nothing computes in the dtype.
        made = [call._replace(mode="no_grad" if call.mode == "grad" else call.mode) for call in made]
    dtype = "bfloat16" if special == "bfloat16" and not cast else ""
    return Case(source, how, saved, tuple(made), dtype, program.is_stateful, options(choose))


@functools.cache
def pass_names() -> tuple[str, ...]:
    return tuple(_C.pass_names())


def options(choose: Choices) -> Options:
    """Mostly none."""
    disabled: tuple[str, ...] = ()
    if choose.chance(6):
        percent = choose.pick((0, 5, 25, 60))
        disabled = (choose.pick(pass_names()), *(name for name in pass_names() if choose.chance(percent)))
    return Options(
        tuple(dict.fromkeys(disabled)), choose.integer(1, 999) if choose.chance(15) else 0, choose.chance(10)
    )


def returned(p: Program) -> str:
    """Mostly the last value; at times several, views, or an input; in a list or a dict, too."""
    names = [p.latest().name]
    if p.choose.chance(25):
        names.append(p.choose.pick(p.values).name)
    if p.choose.chance(5):
        names.append(f"{p.choose.pick(p.values).name}.detach()")
    if p.choose.chance(4):
        names.append(p.inputs[0].value.name)
    names += [value.name for value in p.kept[:3]]
    form = p.choose.weighted([(16, "tuple"), (1, "list"), (1, "list that grew"), (1, "dict"), (1, "dict that grew")])
    if form == "list":
        return f"[{', '.join(names)}]"
    if form == "dict":
        return f"{{{', '.join(f'{key!r}: {name}' for key, name in zip('abcdefg', names))}}}"
    if form == "tuple":
        return ", ".join(names)
    result = p.fresh("r")
    if form == "list that grew":
        p.line(f"{result} = [{names[0]}]")
        for name in names[1:]:
            p.line(f"{result}.append({name})")
    else:
        p.line(f"{result} = {{'a': {names[0]}}}")
        for key, name in zip("bcdefg", names[1:]):
            p.line(f"{result}[{key!r}] = {name}")
    return result


def calls(choose: Choices, program: Program) -> list[Call]:
    """The first call three times, since TorchScript compiles anew at the second; then others."""
    modes = [(7, "no_grad"), (2, "inference"), (2, "grad")]
    if program.is_stateful:
        modes = modes[:1]  # a state that wants a gradient, or comes from inference mode, is taken by no other call
    first = call(choose, program.inputs, modes, same=True)
    made = [first, first, first]
    for _ in range(choose.integer(0, 4)):
        made.append(call(choose, program.inputs, modes, same=choose.chance(40)))
    for method in program.methods:
        other = call(choose, method.inputs, modes, same=choose.chance(80))._replace(method=method.name)
        for _ in range(choose.integer(1, 3)):
            made.insert(choose.integer(1, len(made)), other)
    if choose.chance(60 if program.kept or program.is_stateful else 8):
        made = [c._replace(overwrites=c.mode != "grad" and choose.chance(80)) for c in made]
    return made


def call(choose: Choices, inputs: list[Input], modes: list[tuple[int, str]], same: bool) -> Call:
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
    return Call(tuple(arguments), choose.weighted(modes), choose.weighted([(4, 1), (1, 2)]))
