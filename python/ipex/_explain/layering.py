"""Where the nodes of a graph go on a page: in layers, each below all that it reads."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT = 190, 74  # from one node to the next


def positions(count: int, edges: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    """Return the place of each node. Edges go from a smaller number to a larger one."""
    sources: list[list[int]] = [[] for _ in range(count)]
    for source, reader in edges:
        sources[reader].append(source)
    layer = [0] * count
    for node in range(count):
        layer[node] = max((layer[source] + 1 for source in sources[node]), default=0)
    layers: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node, number in enumerate(layer):
        layers[number].append(node)
    x = [0.0] * count
    for nodes in layers:
        wanted = {node: _mean([x[source] for source in sources[node]]) for node in nodes}
        nodes.sort(key=lambda node: (wanted[node], node))
        _spread(nodes, wanted, x)
    return [(x[node], layer[node] * HEIGHT) for node in range(count)]


def _spread(nodes: list[int], wanted: dict[int, float], x: list[float]) -> None:
    """Put each node of a layer where it wants to be, or as far to the right as it needs room."""
    edge = float("-inf")
    for node in nodes:
        x[node] = edge = max(wanted[node], edge)
        edge += WIDTH
    shift = _mean([wanted[node] - x[node] for node in nodes])
    for node in nodes:
        x[node] += shift


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
