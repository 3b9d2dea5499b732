import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex.llm._codes import linear_of, rounded
from ir import linear
from ir import linear_graph as graph
from support import assert_rewrites, assert_round_trip, assert_same, assert_unchanged, check_against_eager, kinds


def test_fires_on_three_of_one_input():
    ir = graph(*linear("x", "a", 4, 5), *linear("x", "b", 4, 6), *linear("x", "c", 4, 5), returns="%a, %b, %c")
    result = assert_rewrites("join_linears", ir)
    assert (result.count("ipex::joined_linears_run"), result.count("ipex::linear_run")) == (1, 0)
    assert [(d.node.split()[0], d.reason) for d in result.report] == [
        ("ipex::linear_run", "3 linears of one input in one call")
    ]


def test_readers_in_between():
    between = "%n : Tensor = aten::tanh(%a)"
    ir = graph(*linear("x", "a", 4, 5), between, *linear("x", "b", 4, 6), returns="%n, %b")
    assert_rewrites("join_linears", ir)


def test_codes_and_floats_apart():
    """Layers of codes are joined among themselves, and packed once."""

    class Four(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(32, 16), nn.Linear(32, 24)
            self.c, self.d = (linear_of(rounded(torch.randn(n, 32), "int8", 32, True), None) for n in (16, 8))

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return self.a(x), self.b(x), self.c(x), self.d(x)

    x = torch.randn(3, 32)
    optimized = ipex.jit_optimize(torch.jit.trace(Four().eval(), x))
    assert kinds(optimized)["ipex::joined_linears_run"] == 2
    assert not any("prepack" in kind for kind in kinds(optimized))


def test_each_input_by_itself():
    lines = (*linear("x", "a", 4, 5), *linear("x", "b", 4, 6), *linear("other", "c", 4, 5), *linear("other", "d", 4, 6))
    result = assert_rewrites("join_linears", graph(*lines, returns="%a, %b, %c, %d"))
    assert (result.count("ipex::joined_linears_run"), result.count("ipex::linear_run")) == (2, 0)


@pytest.mark.parametrize(
    "second",
    [
        linear("other", "b", 4, 5),
        linear("x", "b", 4, 5, operand="%other"),
        linear("x", "b", 4, 5, dtype="BFloat16"),
        ("%n : Tensor[] = prim::ListConstruct()", "%b : Tensor = ipex::linear_run(%x, %pa, %n, %true)"),
    ],
    ids=["another input", "an operand", "16 bits", "one context for both"],
)
def test_declines(second):
    assert_unchanged("join_linears", graph(*linear("x", "a", 4, 5), *second, returns="%a, %b"), reason=None)


@pytest.mark.parametrize(
    "between",
    [
        ("%n : Tensor = aten::relu_(%x)",),
        linear("other", "n", 4, 5),
        ("%n : Tensor = ipex::scaled_dot_product_attention(%a, %a, %a, %none, %zero, %false, %none, %false)",),
    ],
    ids=["overwritten", "another packed op", "attention"],
)
def test_declines_what_is_far_apart(between):
    zero = "%zero : float = prim::Constant[value=0.]()"
    ir = graph(zero, *linear("x", "a", 4, 5), *between, *linear("x", "b", 4, 6), returns="%a, %b, %n")
    assert_unchanged("join_linears", ir, reason=None)


class Projections(nn.Module):
    """Query, key and value, of which a branch reads one more."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.more = (nn.Linear(6, width) for width in (8, 8, 5, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key = self.query(x).relu(), self.key(x)
        value = self.value(x) * 2
        if x.size(0) > 1:
            value = torch.cat([value, self.more(x)], -1)
        return query, key, value


def test_inside_of_a_model():
    optimized = check_against_eager(
        Projections().eval(), torch.randn(2, 6), script=True, also=(torch.randn(1, 6), torch.randn(2, 3, 6))
    )
    assert kinds(optimized)["ipex::joined_linears_run"] == 1
    # The fourth is in a branch, which is not always taken.
    assert kinds(optimized)["ipex::linear_run"] == 1


def test_the_report_names_them():
    report = ipex.explain(ipex.jit_optimize(torch.jit.script(Projections().eval())))
    assert [d.reason for d in report.applied if d.pass_name == "join_linears"] == ["3 linears of one input in one call"]


def test_survives_save_and_load(tmp_path):
    optimized = check_against_eager(Projections().eval(), torch.randn(1, 6), script=True)
    loaded = assert_round_trip(optimized, tmp_path, torch.randn(3, 6))
    assert kinds(loaded)["ipex::joined_linears_run"] == 1


def test_optimised_again():
    x = torch.randn(1, 6)
    optimized = ipex.jit_optimize(torch.jit.script(Projections().eval()))
    with torch.no_grad():
        assert_same(ipex.jit_optimize(optimized)(x), optimized(x), tolerance=0)


def test_disabled():
    traced = torch.jit.script(Projections().eval())
    assert kinds(ipex.jit_optimize(traced, disable=["join_linears"]))["ipex::linear_run"] == 4


class Attention(nn.Module):
    """Of several heads, with the key's projection smaller than the query's."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(32, width) for width in (32, 16, 16, 32))

    def forward(self, x: Tensor) -> Tensor:
        def heads(t: Tensor) -> Tensor:
            return t.unflatten(-1, (-1, 8)).transpose(1, 2)

        query, key, value = (heads(layer(x)) for layer in (self.query, self.key, self.value))
        key, value = (t.repeat_interleave(2, dim=1) for t in (key, value))
        result = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.out(result.transpose(1, 2).flatten(2))


def test_attention():
    optimized = check_against_eager(Attention().eval(), torch.randn(2, 5, 32))
    assert kinds(optimized)["ipex::joined_linears_run"] == 1
