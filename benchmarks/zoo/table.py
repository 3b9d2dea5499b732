"""The page about the zoo, in Markdown."""

from __future__ import annotations

from collections import Counter

from ipex.bench import machine
from ipex.bench.statistics import geometric_mean

from .row import Row

LEAST_RATIO = 0.97
MOST_CONVERSIONS = 0.02
WORST = 10

TEXT = """\
# The zoo

Real models with random weights: architectures of timm and torchvision and small configurations of transformers, up to
90 M parameters, one input each. `{command}` wrote this page, on {machine}.

- *Ratio* is the time of frozen TorchScript over that of ipex, the median of pairs taken in turn. Above 1, ipex is
  faster.
- *Conversions* is the share of `copy_`, `clone`, `contiguous` and ipex's changes of layout in the time of all ops.
- *Left in aten* is the share of all other ops of aten, and the three that take longest.
- Values, dtypes, shapes and strides are compared with eager's, and the inputs must stay as they were. Errors are
  relative to the largest element. One above 1e-5 passes if ours is at most four times eager's against float64, or,
  for a model that float64 refuses, four times what roundings of its weights make of eager's result.

{summary}

{bad}## The slowest against frozen TorchScript

{worst}

## All models

{all}

## Left out

{left_out}
"""


def page(rows: list[Row], command: str) -> str:
    """Write the page."""
    described = machine.describe()
    return TEXT.format(
        command=command,
        machine=f"{described['cpu']}, torch {described['torch']}, threads: {threads(rows)}",
        summary=summary(rows),
        bad=bad(rows),
        worst=details(slowest_first(rows)[:WORST]),
        all=details(sorted((row for row in rows if row.status == "ok"), key=lambda row: row.name)),
        left_out=left_out(rows),
    )


def threads(rows: list[Row]) -> str:
    """Return the numbers of threads."""
    return ", ".join(map(str, sorted({row.threads for row in rows})))


def slowest_first(rows: list[Row]) -> list[Row]:
    """Return the rows with times, by ratio."""
    return sorted((row for row in rows if row.ratio), key=lambda row: row.ratio or 0)


def summary(rows: list[Row]) -> str:
    """Return one line per library, and one for all."""
    libraries = sorted({row.library for row in rows})
    groups = {library: [row for row in rows if row.library == library] for library in libraries} | {"**all**": rows}
    peers = sorted({peer for row in rows for peer in row.peers})
    header = ["", "models", "wrong or failed", "ratio", "least", f"under {LEAST_RATIO}", "most conversions"]
    lines = []
    for title, group in groups.items():
        ratios = [row.ratio for row in group if row.ratio]
        conversions = [row.conversions for row in group if row.conversions is not None]
        lines.append(
            [
                title,
                str(sum(row.status != "left out" for row in group)),
                str(sum(row.is_bad for row in group)),
                mean(ratios),
                f"{min(ratios):.2f}" if ratios else "",
                str(sum(ratio < LEAST_RATIO for ratio in ratios)),
                percent(max(conversions, default=None)),
                *(mean([found for row in group if (found := row.peers.get(peer))]) for peer in peers),
            ]
        )
    return table([*header, *(f"{peer} / ipex" for peer in peers)], lines)


def bad(rows: list[Row]) -> str:
    """Return what is wrong, under a heading of its own, or nothing."""
    lines = [[row.name, row.status, number(row.difference), row.note] for row in rows if row.is_bad]
    return f"## Wrong or failed\n\n{table(['model', 'what', 'difference', 'note'], lines)}\n\n" if lines else ""


def details(rows: list[Row]) -> str:
    """Return one line per model."""
    peers = sorted({peer for row in rows for peer in row.peers})
    lines = [
        [
            row.name,
            f"{(row.parameters or 0) / 1e6:.1f}",
            milliseconds(row.frozen_seconds),
            milliseconds(row.ipex_seconds),
            f"{row.ratio:.2f}" if row.ratio else "",
            percent(row.conversions),
            percent(row.in_aten),
            ", ".join(f"`{op.removeprefix('aten::')}` {share:.0%}" for op, share in row.leftovers),
            number(row.difference),
            f"{row.optimise_seconds:.1f}" if row.optimise_seconds is not None else "",
            *(f"{found:.2f}" if (found := row.peers.get(peer)) else "" for peer in peers),
        ]
        for row in rows
    ]
    header = ["model", "M parameters", "frozen, ms", "ipex, ms", "ratio", "conversions", "left in aten", "of which"]
    return table([*header, "difference", "optimised in, s", *(f"{peer} / ipex" for peer in peers)], lines)


def left_out(rows: list[Row]) -> str:
    """Return how many models are left out, and why."""
    reasons = Counter((row.library, row.note[:80]) for row in rows if row.status == "left out")
    lines = [[library, str(count), note] for (library, note), count in reasons.most_common()]
    return table(["library", "models", "why"], lines)


def table(header: list[str], lines: list[list[str]]) -> str:
    """Lay out a Markdown table."""
    rule = ["---"] * len(header)
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in [header, rule, *lines]
    )


def mean(ratios: list[float]) -> str:
    """Return the geometric mean."""
    return f"{geometric_mean(ratios):.2f}" if ratios else ""


def milliseconds(seconds: float | None) -> str:
    """Return three digits or so."""
    return "" if seconds is None else f"{1e3 * seconds:.3g}"


def percent(share: float | None) -> str:
    """Return a share in percent."""
    return "" if share is None else f"{100 * share:.1f} %"


def number(value: float | None) -> str:
    """Return one digit: how large it is."""
    return "" if value is None else f"{value:.0e}"
