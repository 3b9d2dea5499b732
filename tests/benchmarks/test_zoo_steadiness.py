import pytest
import torch
from torch import Tensor, nn

from benchmarks.zoo.steadiness import why_unsteady


class Steep(nn.Module):
    """Jumps where a number moves by a rounding."""

    def __init__(self, weight: float, on_inputs: bool) -> None:
        super().__init__()
        self.weight, self.on_inputs = nn.Parameter(torch.full((64,), weight)), on_inputs

    def forward(self, x: Tensor) -> tuple[Tensor]:
        seen = x if self.on_inputs else self.weight
        return (torch.where(seen > 1, 1.0, 0.0) + self.weight,)


@pytest.mark.parametrize(
    ("model", "said"),
    [(Steep(1.0, False), "chaotic: weights"), (Steep(0.5, True), "chaotic: inputs"), (Steep(2.0, False), None)],
    ids=["in weights", "in inputs", "steady"],
)
def test_changes_by_a_rounding(model, said):
    with torch.no_grad():
        why = why_unsteady(model, (torch.ones(64),))
    assert said in why if said else why is None


def test_what_overflows_is_of_no_use():
    with torch.no_grad():
        assert why_unsteady(Steep(float("inf"), False), (torch.ones(64),)) == "overflows"
