import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_round_trip, assert_same, check_against_eager, kinds

NAME = "share_embedding_weight"


class Tied(nn.Module):
    """A language model that is all head: words are read from the weight that scores them."""

    def __init__(self, words: int = 70, width: int = 24) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.score = nn.Linear(width, words)
        self.score.weight = self.words.weight

    def forward(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        y = self.words(indices)
        return self.score(torch.sin(y)), y


def constants(module: torch.jit.ScriptModule) -> list[Tensor]:
    found = [node.t("value") for node in module.graph.findAllNodes("prim::Constant") if node.kindOf("value") == "t"]
    return [tensor for tensor in found if tensor.dim() == 2]


@pytest.mark.parametrize("script", [False, True])
@pytest.mark.parametrize("width", [1, 24, 130])
def test_the_weight_is_there_once(tmp_path, script, width):
    indices = torch.randint(0, 70, (3, 5))
    also = (indices[0], indices.int(), indices[:0], indices.t(), indices[1:2, 2:3])
    optimized = check_against_eager(Tied(70, width), indices, script=script, also=also)
    assert kinds(optimized)["ipex::embedding"] == 1
    assert not kinds(optimized)["ipex::look_up"]
    assert not constants(optimized)
    assert_round_trip(optimized, tmp_path, indices)


def test_rows_are_read_exactly():
    model, indices = Tied(1000, 64).eval(), torch.randperm(1000)
    assert torch.equal(ipex.jit_optimize(model, indices)(indices)[1], model.words.weight[indices])


class TwoReaders(Tied):
    """As an encoder and a decoder that share their words. The linear comes between the two."""

    def forward(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        y = self.score(torch.sin(self.words(indices)))
        return y, self.words(indices.flip(0))


def test_several_embeddings_read_one_weight(tmp_path):
    indices = torch.randint(0, 70, (5,))
    optimized = check_against_eager(TwoReaders(), indices)
    assert kinds(optimized)["ipex::embedding"] == 2
    assert_round_trip(optimized, tmp_path, indices)


@pytest.mark.parametrize("index", [-1, 70])
def test_an_index_out_of_range_raises(index):
    optimized = ipex.jit_optimize(Tied().eval(), torch.tensor([1]))
    with pytest.raises(Exception, match="index out of range in self"):
        optimized(torch.tensor([0, index]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes(dtype):
    model, indices = Tied().eval().to(dtype), torch.randint(0, 70, (4,))
    optimized = ipex.jit_optimize(model, indices)
    for _ in range(2):
        assert_same(optimized(indices)[1], model(indices)[1])


class Untied(nn.Module):
    """Another weight of the same shape, and one that a constant has been folded into."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.score = nn.Embedding(9, 9), nn.Linear(9, 9)
        self.scaled = nn.Linear(9, 9)
        self.scaled.weight = self.words.weight

    def forward(self, indices: Tensor) -> Tensor:
        y = self.words(indices)
        return self.score(torch.sin(y)) + self.scaled(torch.cos(y)) * 2.0


def test_another_weight_stays_apart():
    optimized = check_against_eager(Untied(), torch.randint(0, 9, (4,)))
    assert kinds(optimized)["ipex::look_up"] == 1


class Bits(Untied):
    """The words are the bits of the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bits", self.score.weight.detach().view(torch.int32))

    def forward(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        words = nn.functional.embedding(indices, self.bits)
        return words, self.score(torch.sin(words.float()))


def test_another_dtype_of_the_same_memory_stays_apart():
    optimized = check_against_eager(Bits(), torch.randint(0, 9, (4,)))
    assert kinds(optimized)["ipex::look_up"] == 1


class InChain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 9)
        self.first, self.second = nn.Linear(9, 9), nn.Linear(9, 9)
        self.second.weight = self.words.weight

    def forward(self, indices: Tensor) -> Tensor:
        return self.second(self.first(torch.sin(self.words(indices))))


def test_declines_a_weight_in_a_chain():
    optimized = check_against_eager(InChain(), torch.randint(0, 9, (4,)))
    reasons = [d.reason for d in ipex.explain(optimized) if d.pass_name == NAME]
    assert reasons == ["the linear with its weight is in a chain"]


class InBranch(nn.Module):
    """The words are read in a branch, and scored outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.tied = Tied()

    def forward(self, indices: Tensor) -> Tensor:
        y = torch.ones(indices.size(0), 24)
        if indices.size(0) > 2:
            y = self.tied.words(indices)
        return self.tied.score(torch.sin(y))


def test_declines_another_block():
    indices = torch.randint(0, 70, (4,))
    optimized = check_against_eager(InBranch(), indices, script=True, also=(indices[:1],))
    assert kinds(optimized)["ipex::look_up"] == 1
