import pytest
import torch
from torch import Tensor, nn

import ipex
from support import (
    assert_rewrites,
    assert_round_trip,
    assert_same,
    assert_unchanged,
    check_against_eager,
    graph_ir,
    kinds,
)

NAME = "rewrite_einsum"


def einsum(equation: str, *before: str, factors: str = "%a, %b", after: tuple[str, ...] = ()) -> str:
    """An einsum whose strides nobody sees."""
    return graph_ir(
        "%a : Tensor, %b : Tensor, %dims : int[]",
        "%none : NoneType = prim::Constant()",
        "%no : bool = prim::Constant[value=0]()",
        "%half : float = prim::Constant[value=0.5]()",
        f'%eq : str = prim::Constant[value="{equation}"]()',
        *before,
        f"%l : Tensor[] = prim::ListConstruct({factors})",
        "%e : Tensor = aten::einsum(%eq, %l, %none)",
        *(after or ("%y : Tensor = aten::sum(%e, %dims, %no, %none)",)),
        returns="%y",
    )


@pytest.mark.parametrize(
    ("equation", "views"),
    [
        ("bqd,bkd->bqk", {}),
        ("bid, bjd -> bij", {}),
        ("bid,bjd->bji", {}),  # the factors change places
        ("bhqk,bkhd->bqhd", {"aten::transpose": 1}),
        ("...qhd,...khd->...hqk", {}),
        ("...hqk,...khd->...qhd", {"aten::transpose": 1}),
        ("qbd,kbd->qbk", {"aten::transpose": 1}),
        ("abcqd,abckd->qabck", {"aten::permute": 1}),
        ("qd,kd->qk", {}),
        ("...qd,kd->...qk", {}),
        ("bhwc,hkc->bhwk", {}),  # the table serves for each b
        ("hkc,bhwc->bhwk", {}),
        ("bythwc,hkc->bythwk", {}),
        ("bhwc,hkc->hbwk", {"aten::transpose": 1}),
    ],
)
def test_fires(equation, views):
    result = assert_rewrites(NAME, einsum(equation))
    assert result.count("aten::einsum") == 0
    assert result.count("aten::matmul") == 1
    assert result.count("ipex::einsum_operand") == 2
    for view in ("aten::transpose", "aten::permute"):
        assert result.count(view) == views.get(view, 0)


@pytest.mark.parametrize(
    ("equation", "reason"),
    [
        ("bqd,bkd", "not a product of two batches of matrices"),
        ("bqd,bqd->bq", "not a product of two batches"),
        ("bqd,bkd->bk", "not a product of two batches"),
        ("bqd,bkd->qk", "not a product of two batches"),  # sums over two
        ("bqcd,bkcd->bqk", "not a product of two batches"),
        ("bpqd,bkd->bpqk", "not a product of two batches"),  # two dimensions of its own, which aten reads as one
        ("bhwc,wkc->bhwk", "not a product of two batches"),
        ("bwc,kc->bwk", "not a product of two batches"),
        ("bhwc,hklc->bhwkl", "not a product of two batches"),
        ("...bhwc,hkc->...bhwk", "not a product of two batches"),
        ("bqd,bk->bqk", "not a product of two batches"),
        ("bqq,bkq->bqk", "not a product of two batches"),
        ("bqd,bkd->bqqk", "not a product of two batches"),
        ("b...qd,b...kd->b...qk", "not a product of two batches"),
        ("...qd,...kd->qk", "not a product of two batches"),
        ("...qhd,...khd->...khq", None),
        ("...qhgd,...khgd->...qkhg", "in another order"),
    ],
)
def test_declines(equation, reason):
    if reason is None:
        assert assert_rewrites(NAME, einsum(equation)).count("aten::transpose") == 1
    else:
        assert_unchanged(NAME, einsum(equation), reason)


def test_declines_other_factors():
    assert_unchanged(NAME, einsum("bqd->bd", factors="%a"), reason="not a product of two")
    assert_unchanged(NAME, einsum("bqd,bkd,bqk->b", factors="%a, %b, %a"), reason="not a product of two")


@pytest.mark.parametrize("factors", ["%a", "%a, %b, %a"])
def test_declines_factors_that_the_equation_has_not(factors):
    assert_unchanged(NAME, einsum("bqd,bkd->bqk", factors=factors), reason="not a product of two")


def test_declines_where_strides_are_seen():
    text = einsum("bqd,bkd->bqk", after=("%y : Tensor = aten::relu(%e)",))
    assert_unchanged(NAME, text, reason="the strides of a result depend on it")


SUM_IN_PLACE = "%s : Tensor = aten::add_(%e, %a, %one)"


def test_a_product_that_is_added_to_in_place_is_memory_of_its_own():
    one = "%one : int = prim::Constant[value=1]()"
    after = (SUM_IN_PLACE, "%y : Tensor = aten::sum(%s, %dims, %no, %none)")
    assert assert_rewrites(NAME, einsum("bqd,bkd->bqk", one, after=after)).count("aten::matmul") == 1
    again = (SUM_IN_PLACE, "%y : Tensor = aten::add(%s, %e, %one)")
    assert_unchanged(NAME, einsum("bqd,bkd->bqk", one, after=again), "strides of a result")


class AddedInPlace(nn.Module):
    """Scores as those of LongT5, in blocks."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        scores = torch.einsum("...qhd,...khd->...hqk", q, k)
        scores += bias
        return torch.einsum("...hqk,...khd->...qhd", scores.float().softmax(-1), v).sum(2)


def test_products_that_are_added_to_match_eager(tmp_path):
    inputs = [torch.randn(2, 3, 8, 4, 16) for _ in range(3)] + [torch.randn(1, 1, 4, 8, 8)]
    optimized = check_against_eager(AddedInPlace(), *inputs)
    assert kinds(optimized)["ipex::attention"] == 1
    assert_round_trip(optimized, tmp_path, *inputs)


class OfOneFactor(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        turned = torch.einsum("qd->dq", x)
        turned += 1
        return turned.sum(0), x.sum(0)


def test_an_einsum_of_one_factor_is_a_view_of_it():
    x = torch.randn(3, 5)
    optimized = ipex.jit_optimize(torch.jit.trace(OfOneFactor().eval(), x.clone()))
    ours, eager = x.clone(), x.clone()
    assert_same(optimized(ours), OfOneFactor()(eager))
    assert torch.equal(ours, x + 1)


def test_a_number_is_multiplied_behind_the_view():
    scaled = "%s : Tensor = aten::mul(%b, %half)"
    result = assert_rewrites(NAME, einsum("bqhd,bkhd->bhqk", scaled, factors="%a, %s"))
    assert result.graph.index("ipex::einsum_operand") < result.graph.index("aten::mul")
    write = "%w : Tensor = aten::relu_(%b)"
    result = assert_rewrites(NAME, einsum("bqhd,bkhd->bhqk", scaled, write, factors="%a, %s"))
    assert result.graph.index("aten::mul") < result.graph.index("ipex::einsum_operand")


class BatchLast(nn.Module):
    """Dots before one factor alone, and a batch that comes after its rows."""

    def __init__(self, equation: str) -> None:
        super().__init__()
        self.equation = equation

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.einsum(self.equation, a, b).cumsum(-1).sum((0, -1))


@pytest.mark.parametrize("more", [(True, False), (False, True), (True, True)])
def test_dots_before_either_factor(more):
    a, b = ("...bqd" if more[0] else "bqd"), ("...bkd" if more[1] else "bkd")
    factors = [torch.randn(*[2] * has_more, 3, rows, 8) for has_more, rows in zip(more, (5, 4))]
    optimized = check_against_eager(BatchLast(f"{a},{b}->...qbk"), *factors)
    assert kinds(optimized)["aten::einsum"] == 0


def positions(*between: str, second: str = "bhwc,wkc->bhwk", results: str = "%y, %z") -> str:
    return graph_ir(
        "%a : Tensor, %h : Tensor, %w : Tensor, %dims : int[]",
        "%none : NoneType = prim::Constant()",
        "%no : bool = prim::Constant[value=0]()",
        '%rows : str = prim::Constant[value="bhwc,hkc->bhwk"]()',
        f'%columns : str = prim::Constant[value="{second}"]()',
        "%f : Tensor[] = prim::ListConstruct(%a, %h)",
        "%e : Tensor = aten::einsum(%rows, %f, %none)",
        *between,
        "%g : Tensor[] = prim::ListConstruct(%a, %w)",
        "%i : Tensor = aten::einsum(%columns, %g, %none)",
        "%y : Tensor = aten::sum(%e, %dims, %no, %none)",
        "%z : Tensor = aten::sum(%i, %dims, %no, %none)",
        f"%both : (Tensor, Tensor) = prim::TupleConstruct({results})",
        returns="%both",
    )


def test_what_several_read_is_copied_once():
    result = assert_rewrites(NAME, positions())
    assert result.count("aten::contiguous") == 1
    assert result.graph.count("aten::einsum(") == 1
    assert result.count("aten::matmul") == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"between": ("%written : Tensor = aten::relu_(%a)",)},
        {"results": "%y, %i"},  # with aten's strides
    ],
)
def test_what_others_see_or_overwrite_is_not_shared(changes):
    result = assert_rewrites(NAME, positions(*changes.pop("between", ()), **changes))
    assert result.count("aten::contiguous") == 0


class Positions(nn.Module):
    """Relative positions of rows and of columns, of a piece of the heads."""

    def forward(self, x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        heads = x[:, :, 1:]
        image = heads.reshape(*heads.shape[:2], 2, 3, 4, x.size(-1))
        of_rows = torch.einsum("bythwc,hkc->bythwk", image, rows)
        return (of_rows.unsqueeze(-1) + torch.einsum("bythwc,wkc->bythwk", image, columns).unsqueeze(-2)).sum((-1, -2))


def test_tables_serve_for_all_heads(tmp_path):
    x, rows, columns = torch.randn(2, 3, 25, 8), torch.randn(3, 5, 8), torch.randn(4, 5, 8)
    others = ((x[:1], rows, columns), (x, rows[:1], columns), (x, rows[..., :1], columns), (x[:0], rows, columns))
    optimized = check_against_eager(Positions(), x, rows, columns, also=others)
    assert kinds(optimized)["ipex::matmul_run"] == kinds(optimized)["aten::einsum"] == 1
    assert_round_trip(optimized, tmp_path, x, rows, columns)
    with pytest.raises(RuntimeError):
        optimized(x, rows[:2], columns)


class Attention(nn.Module):
    """Rows first, as JAX has them; windows, as MaxViT has them; and with dots."""

    def __init__(self, scores: str, result: str, scales: str = "key") -> None:
        super().__init__()
        self.scores, self.result, self.scales = scores, result, scales
        self.out = nn.Linear(8, 4)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        if self.scales == "key":
            k = k * 0.5
        elif self.scales == "query":
            q = q * 0.5
        weights = (torch.einsum(self.scores, q, k) + mask).softmax(dim=-1)
        return self.out(torch.einsum(self.result, weights, v))


EQUATIONS = [
    ("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", (2, 5, 3, 8)),
    ("bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd", (2, 3, 5, 8)),
    ("...qhd,...khd->...hqk", "...hqk,...khd->...qhd", (2, 5, 3, 8)),
    ("B G H I D, B G H J D -> B G H I J", "B G H I J, B G H J D -> B G H I D", (2, 4, 3, 5, 8)),
    ("bqd,bkd->bqk", "bqk,bkd->bqd", (3, 5, 8)),
]


@pytest.mark.parametrize("scales", ["key", "query", "neither"])
@pytest.mark.parametrize(("scores", "result", "shape"), EQUATIONS)
def test_attention_is_found(tmp_path, scores, result, shape, scales):
    q, k, v, mask = torch.randn(shape), torch.randn(shape), torch.randn(shape), torch.randn(5, 5)
    one = tuple(x[:1] for x in (q, k, v))
    optimized = check_against_eager(Attention(scores, result, scales), q, k, v, mask, also=((*one, mask),))
    found = kinds(optimized)
    assert found["ipex::attention"] == 1
    assert found["aten::einsum"] == found["aten::mul"] == found["ipex::softmax"] == 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        optimized(q, k, v, mask)
    assert not [event.key for event in profile.key_averages() if "in aten" in event.key]
    assert_round_trip(optimized, tmp_path, q, k, v, mask)


@pytest.mark.parametrize(("scores", "result", "shape"), EQUATIONS)
def test_one_element_counts_for_all(scores, result, shape):
    """What einsum does, and matmul does not."""
    q, k, v, mask = torch.randn(shape), torch.randn(shape), torch.randn(shape), torch.randn(5, 5)
    rows = shape.index(5)
    thin, short = k.narrow(-1, 0, 1), v.narrow(rows, 0, 1)
    cases = ((q, thin, v, mask), (q.narrow(-1, 0, 1), k, v, mask), (q, k, short, mask))
    single = (q, k.narrow(rows, 0, 1), v, mask[:, :1])
    check_against_eager(Attention(scores, result), q, k, v, mask, also=(*cases, single, (q[:0], k[:0], v[:0], mask)))


def test_refuses_what_eager_refuses():
    shape = (2, 5, 3, 8)
    inputs = [torch.randn(shape), torch.randn(shape), torch.randn(shape), torch.randn(5, 5)]
    model = Attention("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd").eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, inputs))
    for changed in ({0: torch.randn(5, 3, 8)}, {2: torch.randn(1, *shape)}, {1: torch.randn(2, 5, 3, 7)}):
        others = [changed.get(i, x) for i, x in enumerate(inputs)]
        with pytest.raises(RuntimeError):
            model(*others)
        with torch.no_grad(), pytest.raises(RuntimeError):
            optimized(*others)
    wider = torch.randn(1, 2, 3, 5, 5)  # a mask that gives the weights another dimension
    with pytest.raises(RuntimeError):
        model(*inputs[:3], wider)
    with torch.no_grad(), pytest.raises(RuntimeError, match="expected a factor of 4 dimensions"):
        optimized(*inputs[:3], wider)


class ReadTwice(nn.Module):
    def forward(self, q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.einsum("bqd,bkd->bqk", q, q).softmax(-1)
        return torch.einsum("bqk,bkd->bqd", weights, v).sum(-1), weights.sum(1)


def test_weights_that_others_read_stay():
    optimized = check_against_eager(ReadTwice(), torch.randn(2, 5, 8), torch.randn(2, 5, 8))
    assert kinds(optimized)["ipex::attention"] == 0
    assert kinds(optimized)["ipex::matmul_run"] == 2


def test_can_be_switched_off():
    inputs = (torch.randn(2, 5, 8), torch.randn(2, 5, 8))
    module = torch.jit.trace(ReadTwice().eval(), inputs)
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::einsum"] == 2
