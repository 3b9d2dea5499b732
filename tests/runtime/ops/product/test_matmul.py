import itertools
import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ipex
from low_precision import is_native
from support import assert_round_trip, assert_same, check_against_eager, fallback_reasons, packed_post_ops


class Product(nn.Module):
    """A product of two inputs, and what follows."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.function(a, b)


FACTORS = {
    "matrices": (torch.randn(5, 8), torch.randn(8, 6)),
    "batch": (torch.randn(3, 5, 8), torch.randn(3, 8, 6)),
    "heads": (torch.randn(2, 3, 5, 8), torch.randn(2, 3, 8, 6)),
    "transposed": (torch.randn(2, 5, 3, 8).transpose(1, 2), torch.randn(2, 6, 3, 8).permute(0, 2, 3, 1)),
    "one row": (torch.randn(3, 1, 8), torch.randn(3, 8, 6)),
    "one column": (torch.randn(3, 5, 8), torch.randn(3, 8, 1)),
    "strided": (torch.randn(3, 5, 16)[..., ::2], torch.randn(3, 8, 12)[..., ::2]),
    "halves": (torch.randn(2, 4, 7, 5)[:, 2:], torch.randn(2, 4, 7, 5)[:, :2].transpose(-1, -2)),
    "spread": (torch.randn(1, 5, 8).expand(3, 5, 8), torch.randn(3, 8, 6)),
    "serves for all": (torch.randn(2, 3, 5, 8), torch.randn(3, 8, 6)),
    "serves for all images": (torch.randn(2, 4, 3, 5, 8), torch.randn(3, 6, 8).mT),
    "serves for all pieces": (torch.randn(2, 4, 4, 5, 8)[:, :, 1:], torch.randn(3, 8, 6)),
    "serves for a batch": (torch.randn(3, 5, 8), torch.randn(1, 8, 6)),
    "serves for one": (torch.randn(1, 1, 5, 8), torch.randn(1, 8, 6)),
}


@pytest.mark.parametrize("name", FACTORS)
def test_matches_eager(tmp_path, name):
    a, b = FACTORS[name]
    optimized = check_against_eager(Product(torch.matmul), a, b)
    assert fallback_reasons(optimized) == []
    assert_round_trip(optimized, tmp_path, a, b)


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_factors_in_every_order_in_memory(rank):
    sizes = (2, 3, 4, 5, 6)[-rank:]
    model = Product(torch.matmul).eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, (torch.randn(sizes), torch.randn(*sizes[:-1], 6).mT)))
    for order in itertools.permutations(range(rank)):
        back = [order.index(i) for i in range(rank)]
        a = torch.randn([sizes[i] for i in order]).permute(back)
        assert a.shape == sizes
        for b in (a.mT, a.mT.contiguous()):
            assert_same(optimized(a, b), model(a, b))
    assert fallback_reasons(optimized) == []


@pytest.mark.parametrize("name", FACTORS)
def test_post_ops(name):
    a, b = FACTORS[name]
    optimized = check_against_eager(Product(lambda a, b: torch.relu((a @ b) / 8 + 1)), a, b)
    assert packed_post_ops(optimized) == [["div_number(8)", "add_number(1)", "relu"]]
    assert fallback_reasons(optimized) == []


WINDOWS = torch.randn(4, 600, 40).as_strided((4, 2, 500, 40), (24000, 4000, 40, 1))
LARGE_WITH_GAPS = {
    "rows": (torch.randn(2, 3, 256, 100)[..., :90], torch.randn(2, 3, 90, 16)),
    "columns": (torch.randn(2, 3, 256, 100)[..., :90].mT, torch.randn(2, 3, 256, 16)),
    "the second": (torch.randn(3, 16, 256), torch.randn(3, 256, 200)[..., 1:]),
    "batches far apart": (torch.randn(6, 256, 90)[::2], torch.randn(3, 90, 16)),
}
COPIED = {
    "windows": (WINDOWS, torch.randn(4, 2, 40, 16)),
    "used often": (torch.randn(2, 256, 300)[..., 1:], torch.randn(2, 299, 130)),
}


@pytest.mark.parametrize("name", LARGE_WITH_GAPS)
def test_large_factors_with_gaps_are_not_copied(name):
    a, b = LARGE_WITH_GAPS[name]
    optimized = check_against_eager(Product(torch.matmul), a, b)
    assert all("lies with gaps" in reason for reason in fallback_reasons(optimized))
    assert fallback_reasons(optimized)
    with_operand = check_against_eager(Product(lambda a, b: (a @ b) + a[..., :1] * b[..., :1, :]), a, b)
    assert fallback_reasons(with_operand) == []


@pytest.mark.parametrize("name", COPIED)
def test_other_factors_with_gaps_are(name):
    a, b = COPIED[name]
    assert fallback_reasons(check_against_eager(Product(torch.matmul), a, b)) == []


def test_dimensions_of_one_element_leave_the_order_free():
    a, b = torch.randn(1, 1, 3, 17, 40), torch.randn(1, 1, 40, 3, 64).transpose(2, 3)
    optimized = check_against_eager(Product(torch.matmul), a, b)
    assert fallback_reasons(optimized) == []
    with torch.profiler.profile() as profile:
        optimized(a, b)
    copies = ("aten::copy_", "ipex::copy_pieces", "ipex::copy_transposed")
    assert not [event.name for event in profile.events() if event.name in copies]


OTHERS = {
    "vector": (torch.randn(8), torch.randn(8)),
    "matrix and vector": (torch.randn(5, 8), torch.randn(8)),
    "batch and matrix": (torch.randn(3, 5, 8), torch.randn(8, 6)),
    "broadcast batches": (torch.randn(2, 1, 5, 8), torch.randn(3, 8, 6)),
    "float64": (torch.randn(5, 8).double(), torch.randn(8, 6).double()),
    "bfloat16": (torch.randn(5, 8).bfloat16(), torch.randn(8, 6).bfloat16()),
    "integers": (torch.randint(9, (5, 8)), torch.randint(9, (8, 6))),
    "nothing": (torch.randn(0, 5, 8), torch.randn(0, 8, 6)),
    "an empty sum": (torch.randn(3, 5, 0), torch.randn(3, 0, 6)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_aten_computes(name):
    a, b = OTHERS[name]
    optimized = check_against_eager(Product(lambda a, b: torch.abs(a @ b) * 2), a, b)
    is_left = name != "bfloat16" or not is_native(torch.bfloat16)
    assert bool(fallback_reasons(optimized)) == is_left


def test_a_factor_that_serves_for_all_beside_an_operand():
    model = Product(lambda a, b: (a @ b) + b[:, :1])
    optimized = check_against_eager(model, torch.randn(2, 3, 5, 8), torch.randn(3, 8, 6))
    assert fallback_reasons(optimized) == ["the factors differ in rank or in their leading dimensions"]


def heads_in_tokens(tokens: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(1, tokens, 3, 2, width).permute(2, 0, 3, 1, 4).unbind(0)


@pytest.mark.parametrize("which", ["rows", "columns"])
@pytest.mark.parametrize(("width", "is_left"), [(16, True), (64, True), (65, False)])
def test_heads_in_tokens_are_multiplied_as_they_lie(which, width, is_left):
    q, k, _ = heads_in_tokens(100, width)
    factors = (q, torch.randn(1, 2, width, width)) if which == "rows" else (k.mT.contiguous(), q)
    optimized = check_against_eager(Product(lambda a, b: torch.relu(a @ b)), *factors)
    left = ["a factor lies with gaps, which aten reads as it lies"]
    assert fallback_reasons(optimized) == (left if is_left else [])


def test_heads_in_tokens_are_copied_where_aten_would_or_an_operand_is_added():
    q, k, _ = heads_in_tokens(100, 16)
    several = torch.randn(2, 100, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
    for a, b in ((q, k.mT), (several[0], torch.randn(2, 2, 16, 16))):
        assert fallback_reasons(check_against_eager(Product(torch.matmul), a, b)) == []
    added = Product(lambda a, b: (a @ b) + a)
    assert fallback_reasons(check_against_eager(added, q, torch.randn(1, 2, 16, 16))) == []


def test_operands_of_every_shape():
    model = Product(lambda a, b: (a @ b) + b[..., :1, :])
    a, b = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 8, 6)
    check_against_eager(model, a, b)
    check_against_eager(model, a[0, 0], b[0, 0])
    check_against_eager(model, a[:1, :1], b[:1, :1])


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (1, 0.5), (2, 1), (0, 1)])
def test_baddbmm(beta, alpha):
    model = Product(lambda a, b: torch.baddbmm(b[:, :1, :], a, b, beta=beta, alpha=alpha))
    check_against_eager(model, torch.randn(3, 5, 8), torch.randn(3, 8, 6))


class Widened(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.baddbmm(torch.ones(1, 2, 3), a, b)


def test_what_baddbmm_adds_does_not_widen_the_product():
    model = Widened().eval()
    optimized = ipex.jit_optimize(torch.jit.script(model))
    a, b = torch.randn(1, 1, 3), torch.randn(1, 3, 3)
    for compute in (model, optimized):
        with pytest.raises(
            RuntimeError, match=r"\(1\) must match the existing size \(2\)|match the broadcast shape \[1, 2, 3\]"
        ):
            compute(a, b)


def test_factors_that_do_not_fit_raise_as_in_eager():
    optimized = ipex.jit_optimize(torch.jit.trace(Product(torch.matmul).eval(), FACTORS["matrices"]))
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        optimized(torch.randn(5, 8), torch.randn(7, 6))


def test_gradients_reach_both_factors():
    model = Product(lambda a, b: torch.relu(a @ b)).eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, FACTORS["batch"]))
    ours = [t.clone().requires_grad_() for t in FACTORS["batch"]]
    eager = [t.clone().requires_grad_() for t in FACTORS["batch"]]
    optimized(*ours).sum().backward()
    model(*eager).sum().backward()
    for a, b in zip(ours, eager):
        assert_same(a.grad, b.grad)


class RootInPlace(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.matmul(a, b).sqrt_()


def test_in_place_integers_are_refused_as_eager_does():
    model = RootInPlace().eval()
    optimized = check_against_eager(model, torch.rand(5, 8), torch.rand(8, 6))
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        optimized(torch.ones(5, 8, dtype=torch.int64), torch.ones(8, 6, dtype=torch.int64))


def scores(length: int, heads: int = 4) -> tuple[Tensor, Tensor]:
    """The factors of one token's scores against so many keys."""
    return torch.randn(1, heads, 1, 16), torch.randn(1, heads, 16, length)


def test_a_length_that_grows_with_every_call_makes_no_primitives():
    model = Product(lambda a, b: torch.relu(torch.matmul(a, b) * 0.25)).eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, scores(3)))
    for length in range(3, 60):
        a, b = scores(length)
        assert_same(optimized(a, b), model(a, b))
    assert optimized.packed_0.cached_primitives() <= 4
    assert fallback_reasons(optimized) == ["small factors whose sizes change from call to call"]


def test_a_size_that_comes_again_gets_a_primitive():
    model = Product(torch.matmul).eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, scores(3)))
    for length in range(3, 20):
        optimized(*scores(length))
    before = optimized.packed_0.cached_primitives()
    for _ in range(3):
        for length in (70, 80):
            a, b = scores(length)
            assert_same(optimized(a, b), model(a, b))
    assert optimized.packed_0.cached_primitives() == before + 2


def test_large_products_always_get_a_primitive():
    model = Product(torch.matmul).eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, (torch.randn(300, 300), torch.randn(300, 200))))
    for columns in range(200, 208):
        a, b = torch.randn(300, 300), torch.randn(300, columns)
        assert_same(optimized(a, b), model(a, b))
    assert optimized.packed_0.cached_primitives() == 8
    assert fallback_reasons(optimized) == []


def in_order(sizes: tuple[int, ...], order: tuple[int, ...], lonely: int) -> Tensor:
    """A tensor whose dimensions lie in memory in this order, `lonely` being the stride of those with one element."""
    dense = torch.randn([sizes[i] for i in order]).permute([order.index(i) for i in range(len(sizes))])
    strides = [lonely if size == 1 else stride for size, stride in zip(sizes, dense.stride())]
    return dense.as_strided(sizes, strides)


@pytest.mark.parametrize("batch", [(1, 3), (3, 1), (1, 1), (2, 3), (3, 2), (2, 2), (1, 12)])
@pytest.mark.parametrize("matrix", [(4, 2, 5), (1, 8, 5), (4, 8, 1), (1, 1, 1), (5, 64, 12)])
def test_strides_of_single_elements_say_nothing(batch, matrix):
    context = torch.ops.ipex.matmul_prepack([], None)
    rows, depth, columns = matrix
    for order in itertools.permutations(range(4)):
        for lonely in (1, 4, 64, 768, 100000):
            a = in_order((*batch, rows, depth), order, lonely)
            for batch_of_b in (batch, (1, batch[1])):
                b = in_order((*batch_of_b, depth, columns), order, lonely)
                assert_same(torch.ops.ipex.matmul_run(a, context, [], True, b), torch.matmul(a, b), 2e-5)


@pytest.mark.parametrize("batch", [(2, 1), (1, 2), (1, 1), (3,), (1,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("matrix", [(4, 1, 4), (4, 8, 5), (1, 8, 5), (4, 8, 1), (1, 1, 1), (16, 3, 16)])
def test_operands_beside_single_elements(batch, matrix):
    rows, depth, columns = matrix
    a, b = torch.randn(*batch, rows, depth), torch.randn(*batch, depth, columns)
    for name, apply in {"add": torch.add, "mul": torch.mul, "div": torch.div}.items():
        context = torch.ops.ipex.matmul_prepack([name], None)
        for sizes in ((columns,), (1,), (rows, columns), (*batch, rows, columns)):
            operand = torch.rand(sizes) + 0.5
            actual = torch.ops.ipex.matmul_run(a, context, [operand], True, b)
            assert_same(actual, apply(torch.matmul(a, b), operand), 2e-5)


@pytest.mark.parametrize("batch", [(2, 2, 1), (2, 1, 3), (1, 2, 2), (1, 1, 1), (2, 3, 2), (2, 1, 1, 3)])
@pytest.mark.parametrize("matrix", [(1, 3, 1), (4, 2, 5), (6, 12, 6), (4, 8, 1)])
def test_more_dimensions_than_batches_and_heads(batch, matrix):
    context = torch.ops.ipex.matmul_prepack([], None)
    rows, depth, columns = matrix
    rank = len(batch) + 2
    for order in random.Random(0).sample(list(itertools.permutations(range(rank))), 40):
        for lonely in (1, 3, 100000):
            a = in_order((*batch, rows, depth), order, lonely)
            b = in_order((*batch, depth, columns), order, lonely)
            assert_same(torch.ops.ipex.matmul_run(a, context, [], True, b), torch.matmul(a, b), 2e-5)
