import pytest
import torch
from torch import nn

from support import assert_rewrites, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "rename_synonyms"


@pytest.mark.parametrize("name", ["concat", "concatenate"])
def test_fires(name):
    line = f"%y : Tensor = aten::{name}(%x, %d)"
    result = assert_rewrites(NAME, graph_ir("%x : Tensor[], %d : int", line, returns="%y"))
    assert result.count("aten::cat") == 1
    assert result.count(f"aten::{name}") == 0


@pytest.mark.parametrize("name", ["swapaxes", "swapdims"])
def test_fires_for_transposes(name):
    line = f"%y : Tensor = aten::{name}(%x, %d, %e)"
    result = assert_rewrites(NAME, graph_ir("%x : Tensor, %d : int, %e : int", line, returns="%y"))
    assert result.count("aten::transpose") == 1
    assert result.count(f"aten::{name}") == 0


def test_leaves_what_changes_a_tensor_in_place():
    line = "%y : Tensor = aten::swapaxes_(%x, %d, %e)"
    ir = graph_ir("%x : Tensor, %d : int, %e : int", line, returns="%y")
    assert_unchanged(NAME, ir, reason="what it overwrites may be read elsewhere")


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


class Grid(nn.Module):
    """Pixels of a grid, which lie apart, side by side."""

    def forward(self, x):
        return torch.swapaxes(x * 2, -2, -3), torch.swapdims(x, 0, 2)


def test_matches_eager():
    optimized = check_against_eager(Grid(), torch.randn(2, 3, 4, 5), also=(torch.randn(1, 1, 3),))
    assert kinds(optimized)["aten::transpose"] == 2
