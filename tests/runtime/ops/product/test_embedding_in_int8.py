"""Tables of 8-bit rows: each gives the numbers that its row stands for, and bags reduce these."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_same, kinds, own_thread_count

pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")

MODES = ("sum", "mean", "max")
CODE = {"sum": 0, "mean": 1, "max": 2}


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ops.ipex.round_rows(weight)


def numbers(weight: Tensor) -> Tensor:
    """What the codes of this table stand for, in plain tensors."""
    low, high = weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    scale = high / 255 - low / 255
    codes = torch.where(scale > 0, (weight.double() - low) / scale, 0).round().clamp(0, 255)
    return codes.float() * scale + low


def bag(
    table: tuple[Tensor, Tensor],
    indices: Tensor,
    offsets: Tensor,
    mode: str,
    weights: Tensor | None = None,
    **more: Any,
) -> Tensor:
    last, padding = more.get("include_last_offset", False), more.get("padding_idx")
    return torch.ops.ipex.embedding_bag_in_int8(*table, indices, offsets, CODE[mode], weights, last, padding)


@pytest.mark.parametrize("width", [1, 3, 16, 31, 100, 128, 300])
def test_rows_are_what_they_stand_for(width):
    weight = torch.randn(50, width) * torch.logspace(-3, 3, 50)[:, None]
    weight[3], weight[4] = 0, 1.5
    table, indices = rounded(weight), torch.randint(0, 50, (7, 9))
    assert [(t.dtype, t.shape) for t in table] == [(torch.uint8, (50, width)), (torch.float32, (50, 2))]
    y = torch.ops.ipex.embedding_in_int8(*table, indices)
    assert_same(y, numbers(weight)[indices], tolerance=1e-6)
    assert (torch.ops.ipex.embedding_in_int8(*table, torch.tensor([3, 4])) == torch.tensor([[0], [1.5]])).all()
    # No further from the row than half a step.
    step = (weight.amax(1) - weight.amin(1)) / 255
    error = (torch.ops.ipex.embedding_in_int8(*table, torch.arange(50)) - weight).abs().amax(1)
    assert (error <= 0.5001 * step + 1e-6 * weight.abs().amax(1)).all()


def test_rows_of_extreme_numbers():
    largest = torch.finfo(torch.float32).max
    weight = torch.tensor([[largest, -largest, 0], [1e-40, 2e-40, 3e-40], [-5, -5, -5]])
    y = torch.ops.ipex.embedding_in_int8(*rounded(weight), torch.arange(3))
    assert y.isfinite().all()
    assert_same(y[2], weight[2], tolerance=0)
    assert_same(y[0] / largest, weight[0] / largest, tolerance=0.01)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [1, 5, 16, 100, 128, 300])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_bags_reduce_rows(mode, width, dtype):
    weight, indices = torch.randn(50, width), torch.randint(0, 50, (40,), dtype=dtype)
    offsets = torch.tensor([0, 3, 3, 4, 20, 39, 40], dtype=dtype)  # empty bags in between and at the end
    expected = F.embedding_bag(indices, numbers(weight), offsets, mode=mode)
    assert_same(bag(rounded(weight), indices, offsets, mode), expected, tolerance=2e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("more", [{"include_last_offset": True}, {"padding_idx": 3}])
def test_arguments(mode, more):
    weight, indices = torch.randn(50, 33), torch.tensor([3, 1, 3, 2, 3, 3, 4])
    offsets = torch.tensor([0, 2, 4, 7 if "include_last_offset" in more else 6])
    expected = F.embedding_bag(indices, numbers(weight), offsets, mode=mode, **more)
    assert_same(bag(rounded(weight), indices, offsets, mode, **more), expected, tolerance=2e-6)


def test_weights_of_samples():
    weight, indices, each = torch.randn(50, 100), torch.randint(0, 50, (30,)), torch.randn(30)
    offsets = torch.tensor([0, 10, 10])
    expected = F.embedding_bag(indices, numbers(weight), offsets, mode="sum", per_sample_weights=each)
    assert_same(bag(rounded(weight), indices, offsets, "sum", each), expected, tolerance=5e-6)


def test_what_aten_computes():
    """Gaps, index tensors of two dtypes, gradients of the weights of samples, a padding counted from the end."""
    weight, each = torch.randn(50, 20), torch.randn(12)
    table, apart, offsets = rounded(weight), torch.randint(0, 50, (24,))[::2], torch.tensor([0, 5])
    expected = F.embedding_bag(apart, numbers(weight), offsets, mode="mean")
    assert_same(bag(table, apart, offsets, "mean"), expected, tolerance=2e-6)
    assert_same(bag(table, apart.int(), offsets, "mean"), expected, tolerance=2e-6)
    apart[3] = 47
    expected = F.embedding_bag(apart, numbers(weight), offsets, mode="sum", padding_idx=47)
    assert_same(bag(table, apart, offsets, "sum", padding_idx=-3), expected, tolerance=2e-6)
    with torch.enable_grad():
        each.requires_grad_()
        bag(table, apart, offsets, "sum", each).sum().backward()
    assert_same(each.grad, numbers(weight)[apart].sum(1), tolerance=1e-5)


def test_indices_beyond_the_table():
    table = rounded(torch.randn(50, 20))
    for wrong in (-1, 50):
        with pytest.raises(IndexError, match="index out of range in self"):
            torch.ops.ipex.embedding_in_int8(*table, torch.tensor([0, wrong]))
        with pytest.raises(IndexError, match="index out of range in self"):
            bag(table, torch.tensor([0, wrong]), torch.tensor([0]), "sum")
    codes, ranges = table
    for damaged in ((codes.float(), ranges), (codes, ranges[:49]), (codes, ranges[:, :1]), (codes[:, ::2], ranges)):
        with pytest.raises(RuntimeError, match="expected codes and ranges as ipex::round_rows makes them"):
            torch.ops.ipex.embedding_in_int8(*damaged, torch.tensor([0]))


def test_nothing_to_look_up():
    table, nothing = rounded(torch.randn(50, 20)), torch.empty(0, dtype=torch.int64)
    assert torch.ops.ipex.embedding_in_int8(*table, nothing.view(3, 0)).shape == (3, 0, 20)
    assert bag(table, nothing, torch.zeros(3, dtype=torch.int64), "mean").tolist() == torch.zeros(3, 20).tolist()


@pytest.mark.parametrize("mode", MODES)
def test_threads_change_no_bit(mode):
    table, indices = rounded(torch.randn(500, 130)), torch.randint(0, 500, (9000,))
    offsets = torch.arange(0, 9000, 7)
    with own_thread_count():
        results = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append((bag(table, indices, offsets, mode), torch.ops.ipex.embedding_in_int8(*table, indices)))
    assert all(torch.equal(a, b) for other in results for a, b in zip(results[0], other))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.full((3, 3), float("inf")), "finite"),
        (torch.randn(0, 3), "non-empty"),
        (torch.randn(3, 3).half(), "float32"),
    ],
)
def test_what_can_not_be_rounded(weight, message):
    with pytest.raises(RuntimeError, match=message):
        rounded(weight)


class Words(nn.Module):
    """Two tables, and a linear that has the weight of one."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.small = nn.Embedding(600, 48, padding_idx=0), nn.Embedding(10, 48)
        self.bags, self.sums = nn.EmbeddingBag(800, 48, mode="mean"), nn.EmbeddingBag(800, 48, mode="sum")
        self.head = nn.Linear(48, 600, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        y = self.words(x) + self.small(x % 10) + (self.bags(x) + self.sums(x)).unsqueeze(1)
        return self.head(y)


@pytest.mark.parametrize("quantize", [ipex.quantization.dynamic, ipex.quantization.weight_only])
def test_from_the_front_door(tmp_path, quantize):
    model, x = Words().eval(), torch.randint(0, 600, (4, 7))
    quantized = quantize(model, x, embeddings=True)
    found = kinds(quantized)
    assert (found["ipex::embedding_in_int8"], found["ipex::embedding_bag_in_int8"], found["ipex::look_up"]) == (
        1,
        1,
        1,
    )
    error = (quantized(x) - model(x)).norm() / model(x).norm()
    assert 1e-4 < error < 0.02
    about = {
        d.node.split(" in ")[1].split(" ")[0]: d.reason
        for d in ipex.explain(quantized)
        if d.pass_name == "quantize_embeddings"
    }
    assert about == {
        "words": "its rows are int8",
        "bags": "its rows are int8",
        "small": "its table of [10, 48] is too small to gain",
        "sums": "its table of [800, 48] is too small to gain",
    }
    quantized.save(tmp_path / "model.pt")
    assert torch.equal(ipex.load(tmp_path / "model.pt")(x), quantized(x))
    assert (tmp_path / "model.pt").stat().st_size < 48 * (1400 + 4 * 800) + 80_000 + 4 * 48 * 600
    # Only where it is asked for.
    assert kinds(quantize(model, x))["ipex::look_up"] == 2


def test_layers_that_stay():
    model, x = Words().eval(), torch.randint(0, 600, (4, 7))
    found = kinds(ipex.quantization.weight_only(model, x, embeddings=True, float_layers=["words", "bags"]))
    assert (found["ipex::embedding_in_int8"], found["ipex::embedding_bag_in_int8"]) == (0, 0)
    with pytest.raises(
        ValueError, match="expected paths of modules with linears, or embeddings in float_layers, got 'x'"
    ):
        ipex.quantization.weight_only(model, x, embeddings=True, float_layers=["x"])


def test_a_table_that_is_overwritten():
    model, x = nn.Embedding(600, 48, max_norm=1.0).eval(), torch.randint(0, 600, (4, 7))
    traced = torch.jit.trace(model, x)
    quantized = ipex.quantization.weight_only(traced, embeddings=True)
    assert kinds(quantized)["ipex::embedding_in_int8"] == 0
    assert_same(quantized(x), model(x))
