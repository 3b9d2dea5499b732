"""Tables of results, in Markdown."""

from __future__ import annotations

from collections.abc import Callable

from .backends import OURS
from .backends.backend import BF32_TOLERANCE, FP32_TOLERANCE
from .results import Cell, Measurement, Results
from .statistics import BEHIND, best_peers, geometric_mean, ratio, spread

Show = Callable[[Cell, Measurement], str]


def tables(results: Results) -> str:
    """Return all of them."""
    parts = [
        "# Benchmark\n\n" + about(results),
        "## Against the best peer\n\n" + against_best_peer(results),
        "## Time of a call, in ms\n\nThe median of the rounds.\n\n" + grid(results, _milliseconds),
        "## Time of each backend, divided by that of ipex\n\nThe median of the ratios of each round, "
        "and the quartiles. Above 1, ipex is faster.\n\n" + grid(results, _ratio),
        "## Fastest call, in ms\n\nOf all rounds: what else the machine did shows least here.\n\n"
        + grid(results, _fastest),
        "## Speed of ipex\n\n" + speed(results),
        "## Until the first result, in seconds\n\nPreparing (tracing, exporting, compiling) + the first call after it. "
        "Backends that go through the same exported file find it made by the first.\n\n" + grid(results, _first),
        "## Warm-up after the first call, in seconds\n\n" + grid(results, _warm_up),
        "## Loading a saved model, in ms\n\nLoading + the first call, in a new process after its imports.\n\n"
        + grid(results, _load, _only_loaded(results)),
        "## Most memory, in MB\n\nOf the process, beyond its imports: loading and serving a saved model (*) "
        "where there is a saved form, else preparing and serving.\n\n" + grid(results, _memory, _only_loaded(results)),
        "## Largest difference from eager\n\nRelative to the largest element of the output. "
        f"Up to {FP32_TOLERANCE:.0e} passes, in BF32 up to {BF32_TOLERANCE:.0e}.\n\n" + grid(results, _difference),
        "## Not timed, and other trouble\n\n" + trouble(results),
    ]
    return "\n\n".join(parts) + "\n"


def about(results: Results) -> str:
    """The machine, the versions, how it was measured."""
    of = results.machine
    first = f"{of.get('cpu', '?')}, {of.get('cores', '?')} cores, {of.get('instructions', '?')}"
    versions = ", ".join(f"{k} {v}" for k, v in of.items() if k not in ("cpu", "cores", "instructions"))
    peaks = ", ".join(f"{value / 1e9:.0f} GFLOP/s with {threads} threads" for threads, value in results.peak.items())
    settings = results.settings
    return (
        f"- {first}; float32 matrix products reach {peaks}\n- {versions}\n"
        f"- each backend in a process of its own, one at a time, in turn for {settings.get('rounds')} rounds of "
        f"{settings.get('seconds', 0) / settings.get('rounds', 1):.2g} s; every result checked against eager\n"
        f"- took {settings.get('minutes', 0):.0f} minutes; the load average before was "
        f"{settings.get('load_average_before', 0):.1f}"
    )


def table(header: list[str], rows: list[list[str]], left: int = 1) -> str:
    """Lay out a table: the first columns to the left, figures to the right."""
    lines = [header, ["---"] * left + ["---:"] * (len(header) - left), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def grid(results: Results, show: Show, cells: list[Cell] | None = None) -> str:
    """A row per cell, a column per backend."""
    cells = results.cells if cells is None else cells
    titles: dict[str, str] = {m.backend: m.title for cell in results.cells for m in cell.measurements}
    rows = []
    for cell in cells:
        found = [cell.of(name) for name in titles]
        shown = [show(cell, m) if m is not None else "" for m in found]
        rows.append([cell.title, str(cell.batch), str(cell.threads), *shown])
    return table(["model", "batch", "threads", *titles.values()], rows)


def against_best_peer(results: Results) -> str:
    """One line per cell, and what they come to."""
    best = best_peers(results)
    if not best:
        return "There is nothing to compare."
    rows = []
    for b in best:
        ours = b.cell.of(OURS)
        assert ours is not None
        times = [f"{1e3 * spread(m.round_seconds).median:.3g}" for m in (b.peer, ours)]
        found = f"**{b.ratio.median:.2f}**" if b.ratio.median < BEHIND else f"{b.ratio.median:.2f}"
        quartiles = f"{b.ratio.low:.2f} to {b.ratio.high:.2f}"
        where = [b.cell.title, b.peer.title, str(b.cell.batch), str(b.cell.threads)]
        rows.append([*where, *times, found, quartiles, f"{b.fastest:.2f}"])
    header = ["model", "best peer", "batch", "threads", "best peer, ms", "ipex, ms", "best peer / ipex", "quartiles"]
    header.append("fastest calls")
    ratios = [b.ratio.median for b in best]
    least = min(best, key=lambda b: b.ratio.median)
    behind = [b for b in best if b.ratio.median < BEHIND]
    summary = [
        f"- geometric mean over {len(best)} cells: {geometric_mean(ratios):.3f}; "
        f"of the fastest calls: {geometric_mean([b.fastest for b in best]):.3f}",
        f"- least: {least.ratio.median:.2f}, {least.cell.title}, batch {least.cell.batch}, "
        f"{least.cell.threads} threads, against {least.peer.title}",
        f"- under {BEHIND}: {len(behind)} of {len(best)} cells" + (", in bold" if behind else ""),
    ]
    return "\n".join(summary) + "\n\n" + table(header, rows, left=2)


def speed(results: Results) -> str:
    """Operations per second, and how that compares with matrix products on this machine."""
    rows = []
    for cell in results.cells:
        ours = cell.of(OURS)
        if ours is None or not ours.counts:
            continue
        reached = cell.operations / spread(ours.round_seconds).median
        peak = results.peak.get(str(cell.threads))
        share = f"{100 * reached / peak:.0f} %" if peak else ""
        rows.append(
            [
                cell.title,
                str(cell.batch),
                str(cell.threads),
                f"{cell.operations / 1e9:.3g}",
                f"{reached / 1e9:.3g}",
                share,
            ]
        )
    header = ["model", "batch", "threads", "GFLOP", "GFLOP/s", "of matrix products"]
    return "GFLOP of matrix products and convolutions, by torch.utils.flop_counter.\n\n" + table(header, rows)


def trouble(results: Results) -> str:
    """What is wrong, failed or missing, and where."""
    where: dict[str, list[str]] = {}
    for cell in results.cells:
        for m in cell.measurements:
            if m.note or not m.counts:
                off = f"off by {m.difference:.2g} " if m.status == "wrong" and m.difference is not None else ""
                status = "" if m.counts else f"{m.status}: "
                what = f"{m.title}: {status}{off}{m.note}".rstrip(": ")
                where.setdefault(what, []).append(f"{cell.title} {cell.batch}/{cell.threads}")
    lines = [*results.left_out, *(f"{what} ({'; '.join(cells)})" for what, cells in where.items())]
    return "\n".join(f"- {line}" for line in lines) or "Nothing."


def _only_loaded(results: Results) -> list[Cell]:
    return [cell for cell in results.cells if any(m.loaded for m in cell.measurements)]


def _state(m: Measurement) -> str:
    return {"ok": "", "wrong": "**wrong**", "not applicable": "-"}.get(m.status, m.status)


def _milliseconds(cell: Cell, m: Measurement) -> str:
    return f"{1e3 * spread(m.round_seconds).median:.3g}" if m.counts else _state(m)


def _fastest(cell: Cell, m: Measurement) -> str:
    return f"{1e3 * m.fastest_seconds:.3g}" if m.counts and m.fastest_seconds else _state(m)


def _ratio(cell: Cell, m: Measurement) -> str:
    ours = cell.of(OURS)
    if not m.counts or ours is None or not ours.counts:
        return _state(m)
    found = ratio(m, ours)
    return f"{found.median:.2f} ({found.low:.2f} to {found.high:.2f})" if m is not ours else "1"


def _first(cell: Cell, m: Measurement) -> str:
    if m.prepare_seconds is None or m.first_call_seconds is None:
        return _state(m)
    return f"{m.prepare_seconds:.2f} + {m.first_call_seconds:.3f}"


def _warm_up(cell: Cell, m: Measurement) -> str:
    return f"{m.warm_up_seconds:.2f}" if m.warm_up_seconds is not None else _state(m)


def _load(cell: Cell, m: Measurement) -> str:
    if m.loaded is None:
        return _state(m)
    return f"{1e3 * (m.loaded['load_seconds'] or 0):.0f} + {1e3 * (m.loaded['first_call_seconds'] or 0):.0f}"


def _memory(cell: Cell, m: Measurement) -> str:
    served = m.loaded["peak_memory_bytes"] if m.loaded else None
    if served is not None:
        return f"{served / 1e6:.0f} *"
    return f"{m.peak_memory_bytes / 1e6:.0f}" if m.peak_memory_bytes is not None else _state(m)


def _difference(cell: Cell, m: Measurement) -> str:
    return f"{m.difference:.1e}" if m.difference is not None else _state(m)
