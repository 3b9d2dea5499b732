import pytest
import torch
from torch import nn

from ir import CONSTANTS
from support import assert_rewrites, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "remove_in_place_activations"
FRESH = graph_ir("%x : Tensor", "%y : Tensor = aten::neg(%x)", "%z : Tensor = aten::relu_(%y)", returns="%z")


def test_fires_on_a_fresh_value():
    result = assert_rewrites(NAME, FRESH)
    assert result.count("aten::relu") == 1
    assert result.count("aten::relu_") == 0


def test_declines_a_graph_input():
    ir = graph_ir("%x : Tensor", "%z : Tensor = aten::relu_(%x)", returns="%z")
    assert_unchanged(NAME, ir, reason="may be read elsewhere")


def test_declines_a_write_to_a_tensor_that_may_not_be_fresh():
    ir = graph_ir(
        "%x : Tensor",
        *CONSTANTS,
        '%e : str = prim::Constant[value="ij->ij"]()',
        "%l : Tensor[] = prim::ListConstruct(%x)",
        "%y : Tensor = aten::einsum(%e, %l, %none)",
        "%z : Tensor = aten::relu_(%y)",
        returns="%z",
    )
    assert_unchanged(NAME, ir, reason="may be read elsewhere")


def test_declines_a_view():
    ir = graph_ir(
        "%x : Tensor",
        *CONSTANTS,
        "%y : Tensor = aten::neg(%x)",
        "%v : Tensor = aten::select(%y, %zero, %zero)",
        "%z : Tensor = aten::relu_(%v)",
        returns="%y",
    )
    assert_unchanged(NAME, ir, reason="may be read elsewhere")


def test_declines_a_tensor_that_was_given_other_strides():
    ir = graph_ir(
        "%x : Tensor",
        *CONSTANTS,
        "%y : Tensor = aten::neg(%x)",
        "%t : Tensor = aten::t_(%y)",
        "%z : Tensor = aten::relu_(%y)",
        returns="%z",
    )
    assert_unchanged(NAME, ir, reason="changes its shape in place")


def test_leaves_what_may_be_integers():
    """Which sigmoid_ refuses, and of which sigmoid would make floats."""
    assert_unchanged(NAME, FRESH.replace("relu_", "sigmoid_"), reason=None)


@pytest.mark.parametrize("factors", ["%x, %w", "%w, %x"])
def test_fires_on_a_product_with_what_is_floating(factors):
    """Both factors of a product are of one dtype."""
    weight = "Float(2, 3, 3, strides=[9, 3, 1], requires_grad=0, device=cpu)"
    ir = graph_ir(
        "%x : Tensor",
        f"%w : {weight} = prim::Constant[value=<Tensor>]()",
        f"%y : Tensor = aten::bmm({factors})",
        "%z : Tensor = aten::sigmoid_(%y)",
        returns="%z",
    )
    assert assert_rewrites(NAME, ir).count("aten::sigmoid") == 1


class ReadsAfterwards(nn.Module):
    """The name of the overwritten value is read again, after the write."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        torch.relu_(y)
        return y * 2


def test_later_readers_see_the_activation():
    optimized = check_against_eager(ReadsAfterwards(), torch.randn(1, 3, 8, 8), script=True)
    assert not {"aten::relu", "aten::relu_"} & kinds(optimized).keys()


class WritesInALoop(nn.Module):
    """Each round reads what the one before has overwritten."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, total = x * 2, torch.zeros_like(x)
        for _ in range(x.size(0)):
            total = total + y
            y.relu_()
        return total


class WritesInABranch(nn.Module):
    """Who reads it behind the branch, reads what one side has overwritten."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if x.size(0) > 2:
            y.relu_()
        return y + 1


@pytest.mark.parametrize("model", [WritesInALoop, WritesInABranch])
def test_a_write_in_a_block_is_seen_outside_of_it(model):
    check_against_eager(model(), torch.randn(3, 4), script=True, also=(torch.randn(2, 4),))


ALIASES = {
    "dropout": lambda x: torch.dropout(x, 0.5, False),
    "type_as": lambda x: x.type_as(x),
    "atleast_3d": torch.atleast_3d,
    "sum_to_size": lambda x: x.sum_to_size([2, 3, 8, 8]),
}


class OverwritesItsInput(nn.Module):
    """relu_ on what may be the input itself, though the op's schema doesn't say so."""

    def __init__(self, alias: str) -> None:
        super().__init__()
        self.conv, self.alias = nn.Conv2d(3, 4, 3), ALIASES[alias]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(self.alias(x).relu_())


@pytest.mark.parametrize("alias", ALIASES)
def test_a_write_that_alias_analysis_does_not_see(alias):
    check_against_eager(OverwritesItsInput(alias), torch.randn(2, 3, 8, 8))
