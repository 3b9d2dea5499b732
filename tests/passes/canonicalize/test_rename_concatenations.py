import pytest
import torch
from torch import nn

from support import assert_rewrites, check_against_eager, graph_ir, kinds

NAME = "rename_concatenations"


@pytest.mark.parametrize("name", ["concat", "concatenate"])
def test_fires(name):
    line = f"%y : Tensor = aten::{name}(%x, %d)"
    result = assert_rewrites(NAME, graph_ir("%x : Tensor[], %d : int", line, returns="%y"))
    assert result.count("aten::cat") == 1
    assert result.count(f"aten::{name}") == 0


class Pyramid(nn.Module):
    """Two branches of an image that are joined and go on as one, as in a detector's neck."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), nn.Conv2d(8, 4, 3)

    def forward(self, x):
        return self.third(torch.concat([self.first(x), self.second(x)], dim=1))


def test_convolutions_around_it_stay_channels_last():
    optimized = check_against_eager(Pyramid(), torch.randn(2, 3, 12, 13))
    assert kinds(optimized)["ipex::to_channels_last"] == 1
    assert kinds(optimized)["ipex::restore_layout"] == 1
