"""Questions about a graph have one answer each, in passes/ir: no pass answers one by a rule of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PASSES = Path(__file__).parents[3] / "passes"

# What a rule of one's own looks like, and who may ask so: facts, and those who edit what they have made themselves.
QUESTIONS = {
    "what is in a list": (r"== c10::prim::ListConstruct", set()),
    "may an op run later": (r"owningBlock\(\)[^;]*written_between", set()),
    "what does a schema say of sharing": (r"alias_info\(\)", set()),
    "what keeps a value after the call": (r"prim::SetAttr\b(?!\")", {"autocast_regions.cpp", "frontend.cpp"}),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_is_asked_of_the_facts(question):
    rule, may_ask = QUESTIONS[question]
    own = {
        str(source.relative_to(PASSES))
        for source in PASSES.rglob("*.cpp")
        if source.parent.name != "ir" and re.search(rule, source.read_text())
    }
    assert own <= may_ask
