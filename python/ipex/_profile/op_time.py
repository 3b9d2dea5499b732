"""The time of one op of an optimised model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OpTime:
    """One op of the optimised graph in one call.

    `share_of_limit` is the time that this machine needs at least for the op's products and bytes, divided by the time
    that it took. It is more than 1 where what the op reads lies in the caches. `rejected` are the kernels that were
    asked before `kernel`, each with the reason why it does not compute the call: "depthwise: it has few products".
    """

    number: int
    op: str
    module: str
    microseconds: float
    shapes: tuple[tuple[int, ...], ...]
    result: tuple[int, ...] | None
    operations: float | None
    bytes: float | None
    share_of_limit: float | None
    kernel: str
    became: str
    rejected: tuple[str, ...] = ()
