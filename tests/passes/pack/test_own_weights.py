import torch
from torch import Tensor, nn

import ipex


class TwoMethods(nn.Module):
    """Both read one table, with an op that has no packed form."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, 0).fmod(self.table)

    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, 1).fmod(self.table)


def tables(method: torch._C.ScriptMethod) -> set[int]:
    constants = (node.output().toIValue() for node in method.graph.findAllNodes("prim::Constant"))
    return {constant.data_ptr() for constant in constants if isinstance(constant, Tensor) and constant.dim() == 2}


def test_methods_share_one_copy_of_what_they_share():
    model = TwoMethods().eval()
    optimized = ipex.jit_optimize(torch.jit.script(model))
    ours = tables(optimized.forward) | tables(optimized.other)
    assert len(ours) == 1
    assert model.table.data_ptr() not in ours
