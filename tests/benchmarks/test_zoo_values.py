import torch
from torch import Tensor, nn

from benchmarks.zoo.values import Reference


class Difference(nn.Module):
    """One number, next to which what it is made of is large. Eager has every digit of it by chance."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([1024.0, -1023.0]))

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return ((self.weights * x).sum(),)


def test_a_difference_may_be_off_by_the_roundings_of_its_parts():
    model, x = Difference(), torch.ones(2)
    torch.manual_seed(0)
    with torch.no_grad():
        reference = Reference(model, (x,), model(x))
        assert reference.judge([torch.tensor(1 + 1e-4)]).status == "ok"
        assert reference.judge([torch.tensor(1 + 1e-2)]).status == "wrong values"
