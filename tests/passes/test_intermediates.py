import torch
from torch import Tensor, nn

from ipex import _C


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Buffer(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x * self.scale)


def test_what_is_computed_and_no_constants():
    model, x = Scaled(), torch.randn(2, 4)
    module = torch.jit.trace(model, x)
    frozen = torch.jit.freeze(module.eval())  # its tensors are constants
    for given in (module, frozen):
        values = dict(_C.intermediates(given._c, (x,), False))
        computed = [node for node in given.graph.nodes() if node.kind() in ("aten::mul", "aten::relu")]
        assert set(values) == {node.output().debugName() for node in computed}
