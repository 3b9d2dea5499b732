"""Models that are calibrated, with tables of embeddings in rows of 8-bit numbers: Recipe(embeddings=True)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex.quantization import Recipe, convert, prepare
from support import assert_round_trip, assert_same, kinds

BAG, WORDS = "ipex::embedding_bag_in_int8", "ipex::embedding_in_int8"


class Recommender(nn.Module):
    """As DLRM: bags of clicks and numbers of a user, then linears."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.clicks, self.words = nn.EmbeddingBag(90000, 48, mode=mode), nn.Embedding(700, 48)
        self.numbers, self.wide, self.last = nn.Linear(13, 48), nn.Linear(144, 64), nn.Linear(64, 8)

    def forward(self, x: Tensor, clicks: Tensor, offsets: Tensor, word: Tensor) -> Tensor:
        parts = [torch.relu(self.numbers(x)), self.clicks(clicks, offsets), self.words(word)]
        return self.last(torch.relu(self.wide(torch.cat(parts, 1))))


def inputs() -> tuple[Tensor, ...]:
    """Of five users; the third has clicked nothing."""
    offsets = torch.tensor([0, 7, 20, 20, 31])
    return torch.randn(5, 13), torch.randint(0, 90000, (40,)), offsets, torch.randint(0, 700, (5,))


def test_calibration_reads_the_tables_as_they_are():
    model, given = Recommender("sum").eval(), inputs()
    prepared = prepare(model, given, Recipe(embeddings=True, forced=True))
    with torch.no_grad():
        assert_same(prepared(*given), model(*given))


def calibrated(mode: str, recipe: Recipe) -> tuple[nn.Module, tuple[Tensor, ...], torch.jit.ScriptModule]:
    torch.manual_seed(1)
    model, given = Recommender(mode).eval(), inputs()
    prepared = prepare(model, given, recipe)
    for _ in range(3):
        prepared(*inputs())
    prepared(*given)
    return model, given, convert(prepared)


def in_rows_of_bytes(table: nn.Embedding | nn.EmbeddingBag) -> None:
    """Round a table as the recipe does: each row has a scale and a smallest number."""
    weight = table.weight.data
    least = weight.amin(1, keepdim=True)
    scale = (weight.amax(1, keepdim=True) - least) / 255
    table.weight.data = ((weight - least) / scale).round() * scale + least


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_and_words_beside_layers_in_int8(mode, tmp_path):
    model, given, module = calibrated(mode, Recipe("min_max", embeddings=True, forced=True))
    found = kinds(module)
    assert (found[BAG], found[WORDS], found["ipex::embedding_bag"], found["ipex::look_up"]) == (1, 1, 0, 0)
    assert found["ipex::quantized_linear_run"] == 3
    with torch.no_grad():
        expected = model(*given)
        assert 1e-4 < (module(*given) - expected).norm() / expected.norm() < 0.05
    assert_round_trip(module, tmp_path, *given)


class Tables(nn.Module):
    """With results in which nothing else is rounded."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.clicks, self.words = nn.EmbeddingBag(90000, 48, mode=mode), nn.Embedding(700, 48)
        self.linear = nn.Linear(13, 8)

    def forward(self, x: Tensor, clicks: Tensor, offsets: Tensor, word: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.linear(x), self.clicks(clicks, offsets), self.words(word)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_sums_are_those_of_the_rounded_rows(mode):
    model, given = Tables(mode).eval(), inputs()
    prepared = prepare(model, given, Recipe("min_max", embeddings=True, forced=True))
    prepared(*given)
    module = convert(prepared)
    assert (kinds(module)[BAG], kinds(module)[WORDS]) == (1, 1)
    for table in (model.clicks, model.words):
        in_rows_of_bytes(table)
    with torch.no_grad():
        for actual, expected in zip(module(*given)[1:], model(*given)[1:]):
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_bags_alone_are_nothing_to_calibrate():
    model = nn.EmbeddingBag(90000, 48, mode="sum").eval()
    with pytest.raises(ValueError, match="to quantise, got none"):
        convert(prepare(model, torch.randint(0, 90000, (4, 6)), Recipe(embeddings=True)))


def test_tables_stay_without_being_asked_for_and_where_the_recipe_says_so():
    for recipe in (Recipe(forced=True), Recipe(forced=True, embeddings=True, float_layers=["clicks", "words"])):
        module = calibrated("sum", recipe)[2]
        assert (kinds(module)[BAG], kinds(module)[WORDS]) == (0, 0)


def test_explain_says_what_became_of_each_table():
    module = calibrated("sum", Recipe(forced=True, embeddings=True))[2]
    about = {
        d.node.split(" in ")[1].split(" ")[0]: d.reason
        for d in ipex.explain(module)
        if d.pass_name == "quantize_embeddings"
    }
    assert about == {"clicks": "its rows are int8", "words": "its rows are int8"}
