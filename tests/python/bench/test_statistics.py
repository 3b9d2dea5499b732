import pytest

from ipex.bench.results import Cell, Measurement, Results, read_results
from ipex.bench.statistics import Spread, best_peer, best_peers, geometric_mean, ratio, spread


def times(backend: str, *seconds: float, is_peer: bool = True, status: str = "ok") -> Measurement:
    own = {"round_seconds": list(seconds), "fastest_seconds": min(seconds, default=None)}
    return Measurement(backend, backend, is_peer, 1e-4, status=status, **own)


def cell(*measurements: Measurement) -> Cell:
    return Cell("m", "m", 1, 1, 1e9, list(measurements))


def test_spread():
    assert spread([5, 1, 2, 4, 3]) == Spread(3, 2, 4)
    assert spread([7]) == Spread(7, 7, 7)


def test_ratios_are_of_pairs():
    # The machine became ten times as slow in the second round: for both.
    assert ratio(times("eager", 2, 20, 3), times("ipex", 1, 10, 2)) == Spread(2, 1.75, 2)


def test_best_peer_is_the_fastest_that_counts():
    found = best_peer(
        cell(
            times("ipex", 1, 1),
            times("eager", 3, 3),
            times("other", 2, 2),
            times("restless", 1.5, 9),
            times("wrong", 0.1, 0.1, status="wrong"),
            times("ipex_bf32", 0.2, 0.2, is_peer=False),
        )
    )
    assert (found.peer.backend, found.ratio.median, found.fastest) == ("other", 2, 1.5)


@pytest.mark.parametrize(
    "measurements",
    [
        (times("eager", 1),),
        (times("ipex", 1),),
        (times("ipex", 1, status="wrong"), times("eager", 1)),
        (times("ipex"), times("eager")),
    ],
)
def test_nothing_to_compare(measurements):
    assert best_peer(cell(*measurements)) is None
    assert best_peers(Results({}, {}, {}, [cell(*measurements)])) == []


def test_geometric_mean():
    assert geometric_mean([0.5, 2, 8]) == pytest.approx(2)


def test_results_survive_json(tmp_path):
    results = Results({"cpu": "some"}, {"rounds": 2}, {"1": 1e10}, [cell(times("ipex", 1, 2), times("eager", 3, 4))])
    results.write(tmp_path / "results.json")
    assert read_results(tmp_path / "results.json") == results
