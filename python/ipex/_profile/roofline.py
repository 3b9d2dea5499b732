"""A roofline: what each op reaches, by its operations per byte, below what the machine can do."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from .machine import Machine
from .op_time import OpTime

WIDTH, HEIGHT, LEFT, TOP = 720, 420, 70, 40
COLOURS = {"packed": "#1971c2", "kernel": "#0b7285", "left": "#e8590c", "layout": "#9c36b5"}
NAMES = {"packed": "packed ops", "kernel": "kernels of ipex", "left": "aten", "layout": "layout conversions"}


def svg(machine: Machine, ops: Iterable[OpTime]) -> str:
    """Return the plot. Both scales are logarithmic; the area of a dot is the op's time."""
    points = [op for op in ops if op.operations and op.bytes and op.microseconds]
    rates = [op.operations / op.microseconds * 1e6 for op in points if op.operations]
    densities = [op.operations / op.bytes for op in points if op.operations and op.bytes]
    ridge = machine.operations_per_second / machine.bytes_per_second
    low_x, high_x = min([*densities, ridge / 10]) / 2, max([*densities, ridge * 10]) * 2
    low_y, high_y = min([*rates, machine.operations_per_second / 100]) / 2, machine.operations_per_second * 3

    def x_of(value: float) -> float:
        return LEFT + WIDTH * math.log(value / low_x) / math.log(high_x / low_x)

    def y_of(value: float) -> float:
        return TOP + HEIGHT * (1 - math.log(value / low_y) / math.log(high_y / low_y))

    parts = [
        _text(LEFT, 20, f"Roofline, {machine.threads} threads: GFLOP/s reached, by operations per byte", "start", 14)
    ]
    for tick in _powers(low_x, high_x):
        parts.append(_line(x_of(tick), TOP, x_of(tick), TOP + HEIGHT, "#e9ecef"))
        parts.append(_text(x_of(tick), TOP + HEIGHT + 16, f"{tick:g}", "middle"))
    for tick in _powers(low_y, high_y):
        parts.append(_line(LEFT, y_of(tick), LEFT + WIDTH, y_of(tick), "#e9ecef"))
        parts.append(_text(LEFT - 6, y_of(tick) + 4, f"{tick / 1e9:g}", "end"))
    start = max(low_x, low_y / machine.bytes_per_second)
    roof = y_of(machine.operations_per_second)
    parts.append(_line(x_of(start), y_of(start * machine.bytes_per_second), x_of(ridge), roof, "#212529"))
    parts.append(_line(x_of(ridge), roof, LEFT + WIDTH, roof, "#212529"))
    label = f"{machine.operations_per_second / 1e9:.0f} GFLOP/s, {machine.bytes_per_second / 1e9:.0f} GB/s"
    parts.append(_text(LEFT + WIDTH, roof - 6, label, "end"))
    longest = max((op.microseconds for op in points), default=1.0)
    for op, rate, density in zip(points, rates, densities):
        radius = 2.5 + 9 * math.sqrt(op.microseconds / longest)
        title = f"{op.op} {op.module}: {op.microseconds:.0f} us, {rate / 1e9:.1f} GFLOP/s"
        parts.append(
            f'<circle cx="{x_of(density):.1f}" cy="{y_of(max(rate, low_y)):.1f}" r="{radius:.1f}" '
            f'fill="{COLOURS.get(op.became, "#868e96")}" opacity="0.6"><title>{escape(title)}</title></circle>'
        )
    for i, (fate, name) in enumerate(NAMES.items()):
        x = LEFT + 150 * i
        parts.append(f'<circle cx="{x + 5}" cy="{TOP + HEIGHT + 38}" r="5" fill="{COLOURS[fate]}"/>')
        parts.append(_text(x + 15, TOP + HEIGHT + 42, name, "start"))
    size = f'width="{LEFT + WIDTH + 30}" height="{TOP + HEIGHT + 56}"'
    return (
        "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
                '<rect width="100%" height="100%" fill="white"/>',
                *parts,
                "</svg>",
            ]
        )
        + "\n"
    )


def _powers(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str, size: int = 11) -> str:
    font = f'font-family="sans-serif" font-size="{size}" fill="#212529"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {font}>{escape(text)}</text>'
