import copy
import threading

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

CONSTANTS = (
    "%none : NoneType = prim::Constant()",
    "%zero : int = prim::Constant[value=0]()",
    "%one : int = prim::Constant[value=1]()",
    "%false : bool = prim::Constant[value=0]()",
)
SIZE = ("%n : int = aten::size(%x, %one)",)
TABLE = (
    "%positions : Tensor = aten::arange(%n, %none, %none, %none, %false)",
    "%table : Tensor = aten::exp(%positions)",
)


def graph(*lines: str, returns: str = "%y") -> str:
    return graph_ir("%x : Tensor", *CONSTANTS, *lines, returns=returns)


def test_fires():
    result = assert_rewrites("compute_once_per_shape", graph(*SIZE, *TABLE, "%y : Tensor = aten::mul(%x, %table)"))
    assert (result.count("ipex::recall"), result.count("ipex::remember"), result.count("prim::If")) == (1, 1, 1)
    assert [d.reason for d in result.report] == ["2 ops once per shape"]


def test_sizes_of_one_tensor_are_one_group():
    lines = (
        "%positions : Tensor = aten::arange(%n, %none, %none, %none, %false)",
        "%h : Tensor = aten::relu(%x)",
        "%b : int = aten::size(%x, %zero)",
        "%m : int = aten::add(%b, %n)",
        "%more : Tensor = aten::arange(%m, %none, %none, %none, %false)",
        "%table : Tensor = aten::outer(%more, %positions)",
        "%y : Tensor = aten::mul(%h, %table)",
    )
    result = assert_rewrites("compute_once_per_shape", graph(*SIZE, *lines))
    assert [d.reason for d in result.report] == ["3 ops once per shape"]


def test_a_later_size_is_a_later_group():
    lines = (
        "%h : Tensor = aten::matmul(%x, %table)",
        "%m : int = aten::size(%h, %zero)",
        "%more : Tensor = aten::arange(%m, %none, %none, %none, %false)",
        "%other : Tensor = aten::outer(%more, %table)",
        "%y : Tensor = aten::mul(%h, %other)",
    )
    result = assert_rewrites("compute_once_per_shape", graph(*SIZE, *TABLE, *lines))
    assert [d.reason for d in result.report] == ["2 ops once per shape"] * 2


@pytest.mark.parametrize(
    "lines",
    [
        (*SIZE, TABLE[0], "%y : Tensor = aten::mul(%x, %positions)"),
        (*SIZE, TABLE[0], "%y : Tensor = aten::exp(%positions)"),
        (*SIZE, *TABLE, "%y : Tensor = aten::unsqueeze(%table, %zero)"),
        (*SIZE, *TABLE, "%changed : Tensor = aten::relu_(%table)", "%y : Tensor = aten::mul(%x, %changed)"),
        (*SIZE, *TABLE, "%changed : Tensor = aten::exp_(%table)", "%y : Tensor = aten::mul(%x, %changed)"),
        (
            "%sizes : int[] = prim::ListConstruct(%one)",
            "%table : Tensor = aten::rand(%sizes, %none, %none, %none, %none)",
            "%noise : Tensor = aten::exp(%table)",
            "%y : Tensor = aten::mul(%x, %noise)",
        ),
        ("%table : Tensor = aten::exp(%x)", "%other : Tensor = aten::exp(%table)", "%y : Tensor = aten::exp(%other)"),
    ],
    ids=["a single op", "returned", "a view is returned", "overwritten", "overwritten by exp", "random", "of data"],
)
def test_declines(lines):
    assert_unchanged("compute_once_per_shape", graph(*lines), reason=None)


def test_a_value_that_can_not_be_copied_out_of_our_memory_is_not_kept():
    memo = torch.ops.ipex.shape_memo_prepack()
    with ipex.use_allocator():
        table = torch.arange(24.0).reshape(4, 6)
    for values, is_kept in (([table], True), ([table, table[:, ::2]], False)):
        torch.ops.ipex.remember(memo, [4 if is_kept else 5], values)
        found = torch.ops.ipex.recall(memo, [4 if is_kept else 5])
        assert [torch.equal(*pair) for pair in zip(found, values)] == ([True] if is_kept else [])


RANDOM = {
    "randperm": lambda n: torch.randperm(n).float() + 1,
    "randint": lambda n: torch.randint(0, 1000, (n,)).float() + 1,
    "randn": lambda n: torch.randn(n).exp(),
    "bernoulli": lambda n: torch.bernoulli(torch.full((n,), 0.5)).exp(),
    "multinomial": lambda n: torch.multinomial(torch.ones(n), n).float(),
    "normal": lambda n: torch.normal(0.0, 1.0, (n,)).exp(),
    "like": lambda n: torch.rand_like(torch.ones(n)).exp(),
    "dropout": lambda n: nn.functional.dropout(torch.ones(n), 0.5, True).exp(),
    "in place": lambda n: torch.zeros(n).uniform_().exp(),
    "in place, exponential": lambda n: torch.zeros(n).exponential_().exp(),
}


@pytest.mark.filterwarnings("ignore:.*ops in training mode:UserWarning")
@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_drawn_anew(name):
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + RANDOM[name](x.size(0))

    x = torch.zeros(64)
    optimized = ipex.jit_optimize(torch.jit.trace(Noise().eval(), x, check_trace=False))
    with torch.no_grad():
        assert not torch.equal(optimized(x), optimized(x))


def test_an_op_of_nothing():
    library = torch.library.Library("compute_once_per_shape_test", "DEF")
    library.define("ping() -> ()")
    library.impl("ping", lambda: None, "CompositeExplicitAutograd")
    lines = ("compute_once_per_shape_test::ping()", *SIZE, *TABLE, "%y : Tensor = aten::mul(%x, %table)")
    assert_unchanged("compute_once_per_shape", graph(*lines), reason="memory is overwritten that others may share")


def test_declines_where_shared_memory_is_overwritten():
    lines = (*SIZE, *TABLE, "%h : Tensor = aten::relu_(%x)", "%y : Tensor = aten::mul(%h, %table)")
    assert_unchanged("compute_once_per_shape", graph(*lines), reason="memory is overwritten that others may share")


class LendsItsMemory(nn.Module):
    """What is written to lies in the memory of a table."""

    def forward(self, x: Tensor) -> Tensor:
        table = torch.arange(x.size(1)).float() * 0.5
        other = torch.empty(0)
        other.set_(table)
        other.add_(1)
        return x + table + 0 * other


def test_a_table_whose_memory_another_tensor_has():
    check_against_eager(LendsItsMemory(), torch.randn(2, 5), script=True)


class Positions(nn.Module):
    """Sines of places and a causal mask, as language models make them, and a bias from a table that was learned."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.table = nn.Embedding(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.size(1))
        angles = torch.outer(places.float(), torch.arange(4) + 1.0)
        closed = places[:, None] < places[None, :]
        mask = torch.zeros(closed.shape).masked_fill(closed, float("-inf")).expand(x.size(0), -1, -1)
        h = self.linear(x) * torch.cat([angles.sin(), angles.cos()], -1) + self.table(places.clamp(max=3))
        return (h @ h.transpose(1, 2) + mask).softmax(-1) @ h


def model() -> torch.jit.ScriptModule:
    return ipex.jit_optimize(torch.jit.script(Positions().eval()))


def memo_of(optimized: torch.jit.ScriptModule):
    assert not hasattr(optimized, "memo_1")
    return optimized.memo_0


def test_of_many_shapes():
    shapes = [(2, 5), (1, 5), (2, 5), (2, 7), (3, 9), (2, 1), (1, 6), (2, 5)]
    optimized = check_against_eager(
        Positions(), torch.randn(2, 5, 8), script=True, also=tuple(torch.randn(*shape, 8) for shape in shapes)
    )
    assert kinds(optimized)["ipex::recall"] == 1
    assert memo_of(optimized).shapes() == 4  # the last ones


class Branches(nn.Module):
    """Branches and a loop read what hangs on sizes."""

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.size(0)).float()
        table = places.exp() + 1
        y = x * table[:, None]
        if bool(x.sum() > 0):
            y = y + places.sin()[:, None]
        for _ in range(x.size(1)):
            y = y + table[0] * places[-1]
        return y


def test_read_in_branches():
    x = torch.rand(3, 4)
    optimized = check_against_eager(Branches(), x, script=True, also=(-x, torch.rand(5, 2), -torch.rand(5, 3), x))
    assert kinds(optimized)["ipex::recall"] == 1


def test_traced():
    traced_with = torch.randn(2, 5, 8)
    optimized = check_against_eager(Positions(), traced_with, also=(torch.randn(2, 7, 8), torch.randn(4, 5, 8)))
    # The trace has the mask's sizes read off another mask, which the first group made.
    assert kinds(optimized)["ipex::recall"] == 2


def test_ops_run_once():
    optimized, x = model(), torch.randn(2, 5, 8)
    with torch.no_grad():
        for _ in range(3):
            optimized(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            optimized(x)
    seen = {event.key for event in profile.key_averages()}
    assert "ipex::recall" in seen
    assert not seen & {"aten::arange", "aten::sin", "aten::masked_fill", "aten::lt", "ipex::remember"}


def test_large_values_are_not_kept():
    class Large(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            places = torch.arange(x.size(0))
            return x + torch.outer(places, places).float().sum()

    optimized = check_against_eager(Large(), torch.randn(3), script=True)
    with torch.no_grad():
        optimized(torch.randn(20))
        assert memo_of(optimized).shapes() == 2

    class TooLarge(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            places = torch.arange(x.size(0)).double()
            return x * (places[:, None] * places[None, :])

    optimized = check_against_eager(TooLarge(), torch.randn(3), script=True)
    with torch.no_grad():
        optimized(torch.randn(3000))  # 72 MB
    assert memo_of(optimized).shapes() == 1


def test_results_are_the_callers():
    optimized, x = model(), torch.randn(2, 5, 8)
    with torch.no_grad():
        expected = optimized(x).clone()
        for _ in range(4):
            result = optimized(x)
            assert_same(result, expected, tolerance=0)
            result.fill_(7)


def test_inference_mode_and_gradients_in_turn():
    optimized, x = model(), torch.randn(2, 5, 8, requires_grad=True)
    with torch.inference_mode():
        expected = optimized(x)
    for _ in range(3):
        optimized(x).sum().backward()
        with torch.inference_mode():
            assert_same(optimized(x), expected, tolerance=0)
    eager = x.detach().clone().requires_grad_()
    for _ in range(3):
        eager_model = copy.deepcopy(optimized)
        eager_model(eager).sum().backward()
    assert_same(x.grad, eager.grad)


def test_autocast_keeps_nothing():
    optimized, x = model(), torch.randn(2, 5, 8)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        optimized(x)
    assert memo_of(optimized).shapes() == 0


def test_another_default_dtype():
    class Steps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.linspace(0, 1, x.size(0)).exp()

    script = torch.jit.script(Steps().eval())
    optimized = ipex.jit_optimize(script)
    assert kinds(optimized)["ipex::recall"] == 1
    x = torch.randn(4)
    with torch.no_grad():
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            try:
                for _ in range(3):
                    assert_same(optimized(x), script(x))
            finally:
                torch.set_default_dtype(torch.float32)


def test_from_many_threads():
    optimized = model()
    inputs = [torch.randn(1 + i % 3, 3 + i, 8) for i in range(6)]
    with torch.no_grad():
        expected = [optimized(x) for x in inputs]
    wrong = []

    def serve(first: int) -> None:
        with torch.no_grad():
            for i in range(60):
                at = (first + i) % len(inputs)
                if not torch.equal(optimized(inputs[at]), expected[at]):
                    wrong.append(at)

    threads = [threading.Thread(target=serve, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_saved_and_copied_with_nothing_in_it(tmp_path):
    optimized, x = model(), torch.randn(2, 5, 8)
    with torch.no_grad():
        optimized(x)
    loaded = assert_round_trip(optimized, tmp_path, x)
    assert memo_of(copy.deepcopy(optimized)).shapes() == 0
    assert memo_of(loaded).shapes() == 1


def test_optimised_again():
    optimized, x = model(), torch.randn(2, 5, 8)
    with torch.no_grad():
        assert_same(ipex.jit_optimize(optimized)(x), optimized(x), tolerance=0)


def test_disabled():
    script = torch.jit.script(Positions().eval())
    assert kinds(ipex.jit_optimize(script, disable=["compute_once_per_shape"]))["ipex::recall"] == 0


def test_explained():
    optimized = model()
    [said] = [d.reason for d in ipex.explain(optimized).applied if d.pass_name == "compute_once_per_shape"]
    assert "ops once per shape" in said
    assert "shapes=0" in repr(memo_of(optimized))


class OneOfAList(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        table = torch.arange(x.size(1)).float() * 0.5 + 1
        return x + torch.broadcast_tensors(table, table)[0].sum()


def test_what_is_read_of_a_list_of_tensors_is_computed_in_each_call():
    check_against_eager(OneOfAList(), torch.randn(3, 4), script=True, also=(torch.randn(3, 5),))
