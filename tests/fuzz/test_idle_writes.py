from __future__ import annotations

import pytest
import torch

from fuzz.idle_writes import remove_idle_writes

WRITES = """
graph(%x : Tensor):
  %one : int = prim::Constant[value=1]()
  %y : Tensor = aten::mul(%x, %x)
  %z : Tensor = aten::sub_(%y, %x, %one)
  %pieces : Tensor[] = aten::split(%y, %one, %one)
  %a : Tensor, %b : Tensor = prim::ListUnpack(%pieces)
  %t : Tensor = aten::sub_(%a, %b, %one)
  %w : Tensor = aten::relu(%x)
  %v : Tensor = aten::sub_(%w, %x, %one)
  %u : Tensor = aten::neg_(%x)
  return (RESULT)
"""


@pytest.mark.parametrize(
    ("result", "left"),
    [("%one", ["neg_"]), ("%w", ["sub_", "neg_"]), ("%y", ["sub_", "sub_", "neg_"]), ("%b", ["sub_", "sub_", "neg_"])],
)
def test_what_a_result_or_an_input_may_hold_stays(result, left):
    graph = torch._C.parse_ir(WRITES.replace("RESULT", result))
    remove_idle_writes(graph)
    kinds = [node.kind().removeprefix("aten::") for node in graph.nodes()]
    assert [kind for kind in kinds if kind.endswith("_")] == left
