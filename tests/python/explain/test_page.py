"""The page of a report, and where its nodes go."""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch import nn

import ipex
from ipex._explain.layering import HEIGHT, WIDTH, positions
from resnet50 import tiny_resnet
from support import optimized_for


def data_of(text: str) -> dict:
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    return json.loads(data)


def test_the_page_is_one_file_with_both_graphs(tmp_path):
    report = ipex.explain(optimized_for(tiny_resnet(), torch.randn(1, 3, 32, 32)))
    text = report.to_html(tmp_path / "page.html", title="a <b> model")
    assert (tmp_path / "page.html").read_text() == text
    assert "<title>a &lt;b&gt; model</title>" in text
    assert not re.search(r'(src|href)="', text)  # nothing is fetched
    data = data_of(text)
    assert len(data["before"]["nodes"]) == len(report.original)
    assert len(data["after"]["nodes"]) == len(report.final)
    for number, node in enumerate(data["before"]["nodes"]):
        if "twin" in node:
            assert number in data["after"]["nodes"][node["twin"]]["twins"]
    # A chain of convolutions hangs together: all nodes but the first have a source.
    read = {reader for _, reader in data["before"]["edges"]}
    assert len(read) == len(report.original) - 1


def test_names_can_not_end_the_script():
    class Odd(nn.Module):
        def forward(self, x):
            return x + 1

    model = nn.Sequential()
    model.add_module("</script>", Odd())
    text = ipex.explain(optimized_for(model, torch.ones(2))).to_html()
    assert text.count("</script>") == 2


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_nodes_do_not_lie_on_one_another(count):
    edges = [(i // 2, i) for i in range(1, count)] + [(i, i + 7) for i in range(0, count - 7, 3)]
    places = positions(count, edges)
    assert len(set(places)) == len(places) == count
    rows: dict[float, list[float]] = {}
    for x, y in places:
        rows.setdefault(y, []).append(x)
    for xs in rows.values():
        xs.sort()
        assert all(b - a >= WIDTH - 1e-6 for a, b in zip(xs, xs[1:]))
    for source, reader in edges:
        assert places[reader][1] >= places[source][1] + HEIGHT
