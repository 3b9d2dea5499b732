import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ipex.bench.reference import count_operations, largest_difference

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("actual", "expected", "difference"),
    [
        ([[1.0, 2.0]], [[1.0, 2.0]], 0),
        ([[1.0, 4.0]], [[1.5, 4.0]], 0.125),
        ([[1.0], [7.0]], [[1.0], [10.0]], 0.3),
        ([[NAN, INF, 1.0]], [[NAN, INF, 1.0]], 0),
        ([[0.0, 1.0]], [[NAN, 1.0]], INF),
        ([[NAN, 1.0]], [[0.0, 1.0]], INF),
        ([[-INF]], [[INF]], INF),
        ([[1.0]], [[1.0, 1.0]], INF),
        ([[1.0]], [[1.0], [1.0]], INF),
        ([[0.5]], [[0.0]], 1),
        ([[0.0]], [[0.0]], 0),
        ([[]], [[]], 0),
    ],
)
def test_largest_difference(actual, expected, difference):
    found = largest_difference([torch.tensor(x) for x in actual], [torch.tensor(x) for x in expected])
    assert found == pytest.approx(difference)


class Attention(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize(
    ("model", "shape", "operations"),
    [
        (nn.Linear(5, 7), (3, 5), 2 * 3 * 5 * 7),
        (nn.Conv2d(2, 4, 3), (1, 2, 6, 6), 2 * 4 * 16 * 2 * 9),
        (nn.LSTM(6, 5), (7, 2, 6), 2 * 7 * 2 * 4 * 5 * (6 + 5)),
        (Attention(), (1, 2, 4, 8), 2 * 2 * 2 * 4 * 4 * 8),
    ],
)
def test_operations_that_hide_are_counted(model, shape, operations):
    x = torch.randn(shape)
    with torch.no_grad():
        assert count_operations(model, (x,)) == operations
