"""Texts that begin alike: a later one takes over what an earlier one has read, and has the same words as alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

from ipex import llm
from ipex.llm._cache import RoomyLayer
from ipex.llm._prefixes import BLOCK, Prefixes
from ipex.llm._texts import Texts, Wanted
from llm.families import make, quiet, words  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore")
START = words(1, 3 * BLOCK, seed=1)[0].tolist()  # longer than the windows of the models


def alone(model: Any, prompt: list[int], count: int) -> list[int]:
    found = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False)
    return found[0, len(prompt) :].tolist()


def watched(texts: Texts) -> list[int]:
    """How many words each call of the model reads, from now on."""
    counts: list[int] = []
    logits = texts._logits

    def watching(cache: Any, given: list[list[int]], own: Any) -> Any:
        counts.append(len(given[0]))
        return logits(cache, given, own)

    texts._logits = watching  # type: ignore[method-assign]
    return counts


@pytest.mark.parametrize("codes", [None, torch.int8], ids=["floats", "int8"])
@pytest.mark.parametrize(
    "family", ["Llama", "Mistral", "Qwen3", "Qwen3Moe", "Gemma2", "Gemma3", "GPT2", "Bloom", "DeepseekV2"]
)
def test_words_are_those_of_each_text_alone(family, codes):
    """With windows, experts, biases for distances, soft caps, and a compressed cache among them."""
    model = make(family)
    optimized = llm.optimize(model, kv_cache_dtype=codes)
    texts = Texts(optimized)
    counts = watched(texts)
    for end in ([5, 7, 9], [5, 7, 11, 12], [13]):
        assert list(texts.begin(Wanted(START + end, 12))) == alone(optimized if codes else model, START + end, 12)
    assert [count for count in counts if count > 1] == [3 * BLOCK + 3, 4]  # and the one word of the third
    texts.close(10)


def test_the_answer_is_taken_over_too():
    """As by the next question of a chat. The answer lies in a row beside another, with words before it that pad."""
    model = make("Llama", max_position_embeddings=400)
    texts = Texts(llm.optimize(model))
    long = texts.begin(Wanted(words(1, 90, seed=2)[0].tolist(), 200))
    next(iter(long))
    first = texts.begin(Wanted(START, 2 * BLOCK))
    said = [*START, *first, 5, 7]
    second = texts.begin(Wanted(said, 8))
    assert list(second) == alone(model, said, 8)
    assert second.shared == 4 * BLOCK  # of the last block the last word was never in the cache
    long.leave()
    texts.close(10)


def test_a_text_that_runs_gives_its_prompt():
    model = make("Llama", max_position_embeddings=400)
    texts = Texts(llm.optimize(model))
    running = texts.begin(Wanted([*START, 5], 300))
    next(iter(running))
    second = texts.begin(Wanted([*START, 7], 8))
    said = list(second)
    assert (second.shared, running.left > 0) == (3 * BLOCK, True)
    assert said == alone(model, [*START, 7], 8)
    running.leave()
    texts.close(10)


def test_one_word_is_always_read():
    """It is the one whose logits are wanted."""
    model = make("Llama")
    texts = Texts(llm.optimize(model))
    for shared in (0, 2 * BLOCK):
        text = texts.begin(Wanted(START, 6))
        assert list(text) == alone(model, START, 6)
        assert text.shared == shared
    texts.close(10)


def test_nothing_is_kept_without_memory_for_it():
    texts = Texts(llm.optimize(make("Llama")), prefix_cache_mib=0)
    assert texts.why_not_shared == "--prefix-cache-mib is 0"
    for _ in range(2):
        text = texts.begin(Wanted(START, 6))
        assert len(list(text)) == 6
        assert text.shared == 0
    assert texts._prefixes.bytes == 0
    texts.close(10)


def test_layers_that_cannot_be_cut_are_not_shared(monkeypatch):
    model = llm.optimize(make("Llama"))
    monkeypatch.setattr(RoomyLayer, "is_croppable", False)
    texts = Texts(model)
    assert texts.why_not_shared == "its keys and values can't be cut where two texts part"
    for _ in range(2):
        text = texts.begin(Wanted(START, 6))
        assert len(list(text)) == 6
        assert text.shared == 0
    texts.close(10)


# -- what is kept

BYTES = 2 * (8 + 4) * 4 * BLOCK  # of a block in two layers


def layers_of(numbers: list[int], rows: int = 1) -> list[RoomyLayer]:
    """Layers whose keys and values say which word they are of; in the last row, with others before them."""
    layers = [RoomyLayer(), RoomyLayer()]
    for scale, layer in enumerate(layers, 1):
        words = torch.tensor([7.0] * (rows - 1) + [float(number) for number in numbers])
        of_all = scale * words.view(1, 1, -1, 1).expand(rows, 2, -1, 1)
        layer.update(of_all.expand(-1, -1, -1, 4), -of_all.expand(-1, -1, -1, 2))
    return layers


def taken(prefixes: Prefixes, numbers: list[int]) -> int:
    """How many words of a text are taken over; they are the right ones."""
    layers = [RoomyLayer(), RoomyLayer()]
    for layer in layers:
        layer.allocate(1, (2, 4, 2), torch.float32)
    count = prefixes.take([*numbers, 0], layers)
    for found, expected in zip(layers, layers_of(numbers)):
        assert found.length == count
        if count:
            assert torch.equal(found.keys, expected.keys[:, :, :count])
            assert torch.equal(found.values, expected.values[:, :, :count])
    return count


def text(blocks: str) -> list[int]:
    """A text of blocks of words, each block with a letter."""
    return [100 * ord(letter) + place for letter in blocks for place in range(BLOCK)]


def keep(prefixes: Prefixes, blocks: str) -> None:
    prefixes.keep(text(blocks), layers_of(text(blocks), rows=3), row=2)


def test_texts_share_up_to_where_they_part():
    prefixes = Prefixes(100 * BYTES)
    keep(prefixes, "abc")
    keep(prefixes, "abd")
    assert prefixes.bytes == 4 * BYTES  # a and b once
    for one, blocks in {"abc": 3, "abd": 3, "abe": 2, "ac": 1, "b": 0, "abcd": 3}.items():
        assert taken(prefixes, text(one)) == blocks * BLOCK
    assert taken(prefixes, text("abc")[:-1]) == 2 * BLOCK


def test_the_end_of_what_was_used_least_recently_goes_first():
    prefixes = Prefixes(4 * BYTES)
    keep(prefixes, "abc")
    keep(prefixes, "x")
    assert prefixes.bytes == 4 * BYTES
    keep(prefixes, "y")
    assert [taken(prefixes, text(one)) // BLOCK for one in ("abc", "x", "y")] == [2, 1, 1]
    assert taken(prefixes, text("ab")) == 2 * BLOCK  # used again
    keep(prefixes, "z")
    assert [taken(prefixes, text(one)) // BLOCK for one in ("x", "ab", "y", "z")] == [0, 2, 1, 1]
    assert prefixes.bytes == 4 * BYTES


def test_a_text_that_grows_sends_others_away_and_not_its_own_start():
    prefixes = Prefixes(4 * BYTES)
    keep(prefixes, "ab")
    keep(prefixes, "xy")
    keep(prefixes, "abcd")
    assert [taken(prefixes, text(one)) // BLOCK for one in ("abcd", "xy")] == [4, 0]


def test_a_text_longer_than_the_memory_keeps_its_start():
    prefixes = Prefixes(3 * BYTES)
    keep(prefixes, "x")
    keep(prefixes, "abcde")
    assert prefixes.bytes == 3 * BYTES
    assert [taken(prefixes, text(one)) // BLOCK for one in ("abcde", "x")] == [3, 0]
    keep(prefixes, "abcfg")
    assert taken(prefixes, text("abcfg")) == 3 * BLOCK
