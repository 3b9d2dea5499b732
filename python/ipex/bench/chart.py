"""A picture of the ratios, in SVG: a row per cell, a dot per backend, on a logarithmic scale."""

from __future__ import annotations

import math
from html import escape

from .backends import OURS
from .results import Results
from .statistics import ratio

COLOURS = ("#0b7285", "#868e96", "#e8590c", "#f08c00", "#9c36b5", "#2f9e44", "#c2255c", "#1971c2", "#5f3dc4", "#343a40")
LEFT, WIDTH, ROW, TOP = 330, 620, 18, 64
TICKS = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16)


def svg(results: Results) -> str:
    """Return the picture."""
    backends: dict[str, str] = {
        m.backend: m.title for cell in results.cells for m in cell.measurements if m.backend != OURS and m.counts
    }
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(backends)}
    rows: list[tuple[str, list[tuple[str, float]]]] = []
    for cell in results.cells:
        ours = cell.of(OURS)
        if ours is None or not ours.counts:
            continue
        points = [(m.backend, ratio(m, ours).median) for m in cell.measurements if m is not ours and m.counts]
        rows.append((f"{cell.title}, batch {cell.batch}, {cell.threads} thr.", points))
    values = [value for _, points in rows for _, value in points] + [0.8, 1.5]
    low, high = math.log(min(values) / 1.05), math.log(max(values) * 1.05)

    def x_of(value: float) -> float:
        return LEFT + WIDTH * (math.log(value) - low) / (high - low)

    bottom = TOP + ROW * len(rows)
    parts = [_text(10, 18, "Time of each backend / time of ipex (right of 1: ipex is faster)", "start", 14)]
    for i, (name, title) in enumerate(backends.items()):
        x, y = 10.0 + 240 * (i % 4), bottom + 40 + 18 * (i // 4)
        parts += [_dot(x, y - 4, colours[name], title), _text(x + 9, y, title, "start")]
    for tick in TICKS:
        if low <= math.log(tick) <= high:
            stroke = "#212529" if tick == 1 else "#dee2e6"
            x = x_of(tick)
            parts.append(f'<line x1="{x:.1f}" y1="{TOP - 12}" x2="{x:.1f}" y2="{bottom}" stroke="{stroke}"/>')
            parts.append(_text(x, TOP - 18, f"{tick:g}", "middle"))
    for i, (label, points) in enumerate(rows):
        y = TOP + ROW * i
        parts.append(_text(LEFT - 10, y + 4, label, "end"))
        for name, value in points:
            parts.append(_dot(x_of(value), y, colours[name], f"{label}: {backends[name]} {value:.2f}"))
    height = bottom + 60 + 18 * ((len(backends) + 3) // 4)
    size = f'width="{LEFT + WIDTH + 20}" height="{height}" viewBox="0 0 {LEFT + WIDTH + 20} {height}"'
    background = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', background, *parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, anchor: str, size: int = 11) -> str:
    font = f'font-family="sans-serif" font-size="{size}" fill="#212529"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {font}>{escape(text)}</text>'


def _dot(x: float, y: float, colour: str, title: str) -> str:
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="4.5"'
    return f'<circle {place} fill="{colour}" opacity="0.8"><title>{escape(title)}</title></circle>'
