import pytest
import torch
from torch import Tensor, nn

import ipex
from ir import PACKED, packed
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_unchanged,
    check_against_eager,
    fallback_reasons,
    graph_ir,
    kinds,
)


@pytest.mark.parametrize(
    ("spelling", "post_op"),
    [
        ("aten::add(%y, %other, %one)", "add"),
        ("aten::add_(%y, %other, %one)", "add_"),
        ("aten::add(%other, %y, %one)", "radd"),
    ],
)
def test_fires_after_conv2d(spelling, post_op):
    ir = graph_ir("%x : Tensor, %other : Tensor", *PACKED, f"%z : Tensor = {spelling}", returns="%z")
    result = assert_rewrites("fuse_add", ir)
    assert result.count("aten::add") == result.count("aten::add_") == 0
    assert f'value=["{post_op}"]' in result.graph


def test_waits_for_the_residual():
    ir = graph_ir(
        "%x : Tensor",
        *PACKED,
        "%other : Tensor = aten::neg(%x)",
        "%z : Tensor = aten::add(%y, %other, %one)",
        returns="%z",
    )
    graph = assert_rewrites("fuse_add", ir).graph
    assert graph.index("aten::neg") < graph.index("ipex::convolution_run")


@pytest.mark.parametrize(("op", "post_op"), [("add", "add_scaled(2)"), ("add_", "add_scaled_(2)")])
def test_alpha_is_kept(op, post_op):
    two = "%two : int = prim::Constant[value=2]()"
    ir = graph_ir("%x : Tensor, %o : Tensor", *PACKED, two, f"%z : Tensor = aten::{op}(%y, %o, %two)", returns="%z")
    assert f'value=["{post_op}"]' in assert_rewrites("fuse_add", ir).graph


def test_declines_alpha_on_the_result_itself():
    two = "%two : int = prim::Constant[value=2]()"
    ir = graph_ir("%x : Tensor, %o : Tensor", *PACKED, two, "%z : Tensor = aten::add(%o, %y, %two)", returns="%z")
    assert_unchanged("fuse_add", ir, reason="alpha is not 1")


def test_leaves_a_number_to_fuse_number():
    ir = graph_ir("%x : Tensor", *PACKED, "%z : Tensor = aten::add(%y, %one, %one)", returns="%z")
    assert_unchanged("fuse_add", ir, reason=None)


def test_declines_second_reader():
    ir = graph_ir("%x : Tensor, %o : Tensor", *PACKED, "%z : Tensor = aten::add(%y, %o, %one)", returns="%y, %z")
    assert_unchanged("fuse_add", ir, reason="another reader")


def test_declines_itself_as_residual():
    ir = graph_ir("%x : Tensor", *PACKED, "%z : Tensor = aten::add(%y, %y, %one)", returns="%z")
    assert_unchanged("fuse_add", ir, reason="another reader")


def test_leaves_an_overwritten_residual_alone():
    ir = graph_ir("%x : Tensor, %o : Tensor", *PACKED, "%z : Tensor = aten::add_(%o, %y, %one)", returns="%z")
    assert_unchanged("fuse_add", ir, reason=None)


def test_declines_when_the_input_is_overwritten_in_between():
    ir = graph_ir(
        "%x : Tensor, %o : Tensor",
        *PACKED,
        "%x2 : Tensor = aten::neg_(%x)",
        "%z : Tensor = aten::add(%y, %x2, %one)",
        returns="%z",
    )
    assert_unchanged("fuse_add", ir, reason="something is overwritten in between")


def test_two_residuals_in_the_order_of_the_graph():
    ir = graph_ir(
        "%x : Tensor, %a : Tensor, %b : Tensor",
        *PACKED,
        "%z1 : Tensor = aten::add(%y, %a, %one)",
        "%z2 : Tensor = aten::add(%b, %z1, %one)",
        returns="%z2",
    )
    result = assert_rewrites("fuse_add", ir)
    assert 'value=["add", "radd"]' in result.graph
    assert "prim::ListConstruct(%a, %b)" in result.graph


def test_two_packed_ops_added_to_each_other():
    ir = graph_ir(
        "%x : Tensor", *PACKED, *packed("x", "y2", "2"), "%z : Tensor = aten::add(%y, %y2, %one)", returns="%z"
    )
    result = assert_rewrites("fuse_add", ir)
    assert result.count("aten::add") == 0
    assert result.count("ipex::convolution_run") == 2


class Residual(nn.Module):
    """An anchor, and a residual added in one of the spellings."""

    def __init__(self, anchor: nn.Module, spelling: str) -> None:
        super().__init__()
        self.anchor, self.spelling = anchor, spelling

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        y = self.anchor(x)
        if self.spelling == "add":
            return torch.relu(y + other)
        if self.spelling == "radd":
            return torch.relu(other + y)
        y += other
        return torch.relu_(y)


CASES = [(nn.Conv2d(3, 4, 3, padding=1), (2, 3, 8, 8), (2, 4, 8, 8)), (nn.Linear(6, 5), (7, 6), (7, 5))]
ADD = {"aten::add", "aten::add_"}


@pytest.mark.parametrize("spelling", ["add", "radd", "add_"])
@pytest.mark.parametrize(("anchor", "x_shape", "other_shape"), CASES)
def test_matches_eager(tmp_path, anchor, x_shape, other_shape, spelling):
    x, other = torch.randn(x_shape), torch.randn(other_shape)
    optimized = check_against_eager(Residual(anchor, spelling), x, other)
    assert not ADD & kinds(optimized).keys()
    assert fallback_reasons(optimized) == []
    assert_round_trip(optimized, tmp_path, x, other)


@pytest.mark.parametrize("spelling", ["add", "radd", "add_"])
@pytest.mark.parametrize(
    "make_other",
    [
        lambda: torch.randn(4, 1, 1),
        lambda: torch.randn(1),
        lambda: torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last),
        lambda: torch.randn(2, 8, 8, 4).permute(0, 3, 1, 2)[:, :, ::1],
        lambda: torch.randn(4, 8, 8, 2).permute(3, 0, 1, 2),
        lambda: torch.randn(2, 4, 8, 16)[..., ::2],
        lambda: torch.randn(2, 4, 8, 8, dtype=torch.float64),
        lambda: torch.randint(9, (2, 4, 8, 8)),
        lambda: torch.randn(2, 4, 8, 8, dtype=torch.bfloat16),
    ],
)
def test_residuals_of_other_shapes_layouts_and_dtypes(make_other, spelling):
    other = make_other()
    check_against_eager(Residual(CASES[0][0], spelling), torch.randn(2, 3, 8, 8), other)


@pytest.mark.parametrize("spelling", ["add", "radd"])
def test_a_residual_that_makes_the_result_larger(spelling):
    check_against_eager(Residual(CASES[0][0], spelling), torch.randn(1, 3, 8, 8), torch.randn(5, 4, 8, 8))


class Aliased(nn.Module):
    """Residuals that somebody else needs: the input itself, one that is returned, one with a live view."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = torch.sigmoid(x)
        view = a[:, 1:3]
        return self.conv(x) + x, self.conv(a) + a, view * 2 + a[:, :2]


def test_no_residual_is_overwritten():
    check_against_eager(Aliased(), torch.randn(2, 4, 6, 6))


class Alpha(nn.Module):
    """alpha other than 1."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(self.conv(x), x, alpha=2)


def test_alpha_is_honoured():
    check_against_eager(Alpha(), torch.randn(2, 4, 6, 6))


class WritesThroughAnAlias(nn.Module):
    """The convolution has to read x before t, which is x, is overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        t = x.type_as(y)
        t.add_(1)
        return y + t


def test_a_packed_op_does_not_move_across_a_write():
    check_against_eager(WritesThroughAnAlias(), torch.randn(2, 4, 6, 6))


class ManyAdditions(nn.Module):
    """More post-ops than oneDNN takes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        for _ in range(40):
            y = torch.relu(y + x)
        return y


def test_more_post_ops_than_onednn_takes():
    x = torch.randn(2, 4)
    assert kinds(check_against_eager(ManyAdditions(), x))["ipex::elementwise"] > 0  # the rest
    left = ipex.jit_optimize(torch.jit.trace(ManyAdditions().eval(), x), disable=["fuse_elementwise"])
    assert kinds(left)["aten::relu"] > 0
    reasons = [d.reason for d in ipex.explain(left).declined]
    assert "the packed op holds no more post-ops" in reasons
