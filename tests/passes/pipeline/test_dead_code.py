import torch
from torch import Tensor, nn

from support import check_against_eager, kinds


class Noted(nn.Module):
    """Calls an op for what it does beside its result, and one for its result alone; nobody reads either."""

    def forward(self, x: Tensor) -> Tensor:
        torch.ops.ipex_test_dead_code.note(x)
        torch.neg(x)
        return torch.tanh(x)


def test_an_op_that_may_do_more_than_its_schema_says_stays():
    called = []
    library = torch.library.Library("ipex_test_dead_code", "DEF")
    library.define("note(Tensor x) -> Tensor", alias_analysis="CONSERVATIVE")
    library.impl("note", lambda x: called.append(1) or x.clone(), "CPU")
    optimized = check_against_eager(Noted(), torch.randn(2, 3))
    assert (kinds(optimized)["ipex_test_dead_code::note"], kinds(optimized)["aten::neg"]) == (1, 0)
    called.clear()
    optimized(torch.randn(2, 3))
    assert called == [1]
