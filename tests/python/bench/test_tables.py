import xml.etree.ElementTree as ET

from ipex.bench import chart, markdown
from ipex.bench.results import Cell, Measurement, Results


def results() -> Results:
    def times(backend, *seconds, **also):
        own = {"round_seconds": list(seconds), "fastest_seconds": min(seconds, default=None), **also}
        return Measurement(backend, f"<{backend}>", backend == "eager", 1e-4, **own)

    cells = [
        Cell("a", "A", 1, 1, 2e9, [times("ipex", 0.1, 0.1, difference=1e-6), times("eager", 0.2, 0.2)]),
        Cell("a", "A", 8, 1, 2e9, [times("ipex", 0.2, 0.2), times("eager", 0.1, 0.1)]),
        Cell("b", "B", 1, 1, 2e9, [times("ipex", status="failed", note="why"), times("eager", 0.1, 0.1)]),
    ]
    return Results({"cpu": "some CPU"}, {"rounds": 2, "seconds": 1}, {"1": 40e9}, cells)


def test_against_best_peer():
    text = markdown.against_best_peer(results())
    assert "geometric mean over 2 cells: 1.000; of the fastest calls: 1.000" in text
    assert "least: 0.50, A, batch 8, 1 threads, against <eager>" in text
    assert "under 0.97: 1 of 2 cells, in bold" in text
    assert "| A | <eager> | 1 | 1 | 200 | 100 | 2.00 | 2.00 to 2.00 | 2.00 |" in text
    assert "| A | <eager> | 8 | 1 | 100 | 200 | **0.50** | 0.50 to 0.50 | 0.50 |" in text


def test_speed():
    assert "| A | 1 | 1 | 2 | 20 | 50 % |" in markdown.speed(results())


def test_trouble():
    assert markdown.trouble(results()) == "- <ipex>: failed: why (B 1/1)"


def test_every_table_has_as_many_cells_as_its_header():
    for block in markdown.tables(results()).split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1


def test_nothing_measured():
    nothing = Results({}, {}, {})
    assert "There is nothing to compare." in markdown.tables(nothing)
    ET.fromstring(chart.svg(nothing))


def test_chart_has_a_dot_for_each_ratio_and_each_backend():
    root = ET.fromstring(chart.svg(results()))
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["<eager>", "A, batch 1, 1 thr.: <eager> 2.00", "A, batch 8, 1 thr.: <eager> 0.50"]
