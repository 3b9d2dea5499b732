"""The table of what a program may do next. The files beside this one put their rows into it."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.program import Program, Value

# Writes statements that use the value, and returns their result; None, with nothing written, where it does not apply.
Operation = Callable[[Program, Value], Value | None]

CHANNELS = (4, 1, 2, 3, 5, 8, 16, 17, 32, 33)  # of results: some fit vectors, some don't

ANCHORS: list[tuple[int, Operation]] = []  # what may be packed
FOLLOWERS: list[tuple[int, Operation]] = []  # what may be fused into an anchor or folded into its weights
OTHERS: list[tuple[int, Operation]] = []  # what stands between
BY_SCHEMA: list[tuple[int, Operation]] = []  # any op that the passes know, in any of its forms


def anchor(weight: int) -> Callable[[Operation], Operation]:
    return _row(ANCHORS, weight)


def follower(weight: int) -> Callable[[Operation], Operation]:
    return _row(FOLLOWERS, weight)


def other(weight: int) -> Callable[[Operation], Operation]:
    return _row(OTHERS, weight)


def by_schema(weight: int) -> Callable[[Operation], Operation]:
    return _row(BY_SCHEMA, weight)


def _row(table: list[tuple[int, Operation]], weight: int) -> Callable[[Operation], Operation]:
    def add(operation: Operation) -> Operation:
        table.append((weight, operation))
        return operation

    return add


def step(program: Program) -> None:
    """One more operation, or an anchor and a chain of what may be fused into it."""
    kind = program.choose.weighted([(20, "follower"), (50, "chain"), (30, "other"), (25, "by schema")])
    if kind == "chain":
        if apply_one(program, ANCHORS, program.current()):
            while program.choose.chance(60):
                apply_one(program, FOLLOWERS, program.latest())
    else:
        table = {"follower": FOLLOWERS, "other": OTHERS, "by schema": BY_SCHEMA}[kind]
        apply_one(program, table, program.current())


def apply_one(program: Program, table: list[tuple[int, Operation]], value: Value) -> bool:
    return any(program.choose.weighted(table)(program, value) is not None for _ in range(4))
