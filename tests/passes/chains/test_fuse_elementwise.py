import pytest
import torch
import torch.nn.functional as F
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
    told,
)

NAME = "fuse_elementwise"
INPUTS = "%x : Tensor, %g : Tensor, %r : Tensor"
ONE = "%one : int = prim::Constant[value=1]()"
SCALE = ("%half : float = prim::Constant[value=0.5]()", "%f : Tensor = aten::mul(%x, %half)")  # floating from here on
GATE = ("%s : Tensor = aten::sigmoid(%f)", "%m : Tensor = aten::mul(%g, %s)")
SUM = "%y : Tensor = aten::add(%m, %r, %one)"
ALONE = "no elementwise op stands before it"
BRANCH = """%b : bool = aten::is_floating_point(%x)
%t : Tensor = prim::If(%b)
  block0():
    -> (%r)
  block1():
    -> (%g)"""


def graph(*lines: str, returns: str = "%y") -> str:
    return graph_ir(INPUTS, ONE, *SCALE, *lines, returns=returns)


def test_fires():
    result = assert_rewrites(NAME, graph(*GATE, SUM))
    assert '["mul_number(0.5) 0", "sigmoid 3", "mul 1 4", "add 5 2"]' in result.graph
    assert result.count("ipex::elementwise") == 1
    assert not any(result.count(f"aten::{op}") for op in ("mul", "sigmoid", "add"))


def test_a_value_that_others_read_is_a_result_too():
    result = assert_rewrites(NAME, graph(*GATE, SUM, returns="%y, %m"))
    assert '["mul_number(0.5) 0", "sigmoid 3", "mul 1 4", "add 5 2"]' in result.graph
    assert "int[] = prim::Constant[value=[5, 6]]" in result.graph
    assert result.count("ipex::elementwise") == result.count("prim::ListUnpack") == 1
    assert result.count("aten::add") == 0


def test_readers_of_one_value_are_one_op():
    lines = ("%s : Tensor = aten::exp(%f)", "%y : Tensor = aten::mul(%s, %g)", "%z : Tensor = aten::mul(%s, %r)")
    result = assert_rewrites(NAME, graph(*lines, returns="%z, %y"))
    assert '["mul_number(0.5) 0", "exp 3", "mul 4 1", "mul 4 2"]' in result.graph
    assert "int[] = prim::Constant[value=[5, 6]]" in result.graph


def test_what_others_make_of_a_result_follows_the_op():
    lines = ("%m : Tensor = aten::mul(%f, %g)", "%t : Tensor = aten::t(%m)", "%y : Tensor = aten::add(%m, %r, %one)")
    result = assert_rewrites(NAME, graph(*lines, returns="%y, %t"))
    assert '["mul_number(0.5) 0", "mul 3 1", "add 4 2"]' in result.graph
    assert result.graph.index("ipex::elementwise") < result.graph.index("aten::t(")


@pytest.mark.parametrize(
    "between",
    [
        "%t : Tensor = aten::cumsum(%m, %one, %none)",  # stands between the two, and can't stand behind them
        "%t : Tensor = aten::relu_(%r)",  # what was read before is another value now
        "%t : Tensor = aten::bernoulli(%g, %none)",  # draws numbers, in order
        BRANCH,  # may take long
    ],
)
def test_a_result_stays_before_what(between):
    lines = (
        "%none : NoneType = prim::Constant()",
        "%m : Tensor = aten::mul(%f, %g)",
        *between.splitlines(),
        "%y : Tensor = aten::add(%m, %t, %one)",
    )
    result = assert_rewrites(NAME, graph(*lines, returns="%y, %m"))
    assert '["mul_number(0.5) 0", "mul 2 1"]' in result.graph
    assert result.count("aten::add") == 1
    assert result.count("prim::ListUnpack") == 0


@pytest.mark.parametrize(("readers", "left"), [("grxg", 0), ("grxgr", 5)])
def test_gives_no_more_than_four_results(readers, left):
    lines = ["%s : Tensor = aten::exp(%f)"]
    lines += [f"%y{i} : Tensor = aten::mul(%s, %{other})" for i, other in enumerate(readers)]
    result = assert_rewrites(NAME, graph(*lines, returns=", ".join(f"%y{i}" for i in range(len(readers)))))
    assert result.count("ipex::elementwise") == 1
    assert result.count("aten::mul") == left


class Cell(nn.Module):
    """What recurrent models hand on from step to step: several values, by way of shared ones."""

    def forward(
        self, key: Tensor, value: Tensor, top: Tensor, total: Tensor, share: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        results = []
        for step in range(3):
            k, v = key[:, step] * 0.5, value[:, step]
            peak = torch.maximum(top - 0.1, k)
            old, new = torch.exp(top - 0.1 - peak), torch.exp(k - peak)
            total, share, top = old * total + new * v, old * share + new, peak
            results.append(total / share)
        return torch.stack(results, 1), total, share, top


@pytest.mark.parametrize("script", [False, True])
def test_cells_match_eager(tmp_path, script):
    def inputs(*shape: int) -> tuple[Tensor, ...]:
        batch, _, wide = shape
        return torch.randn(shape), torch.randn(shape), *(torch.rand(batch, wide) for _ in range(3))

    given = inputs(2, 3, 8)
    optimized = check_against_eager(Cell(), *given, script=script)
    if not script:  # there the loop is unrolled
        assert kinds(optimized)["ipex::elementwise"] <= 4
    assert_round_trip(optimized, tmp_path, *given)
    for dtype in (torch.bfloat16, torch.float64):
        other = [x.to(dtype) for x in inputs(4, 5, 3)]
        for got, expected in zip(optimized(*other), Cell()(*other)):
            assert_same(got, expected, 8 * torch.finfo(dtype).eps)


def test_some_of_several_results_are_8_bit_numbers():
    numbers = ("%none : NoneType = prim::Constant()", "%q : Tensor = ipex::quantize(%m, %half, %one, %none)")
    result = assert_rewrites(NAME, graph(*GATE, SUM, *numbers, returns="%y, %q"))
    assert result.count("prim::ListUnpack") == 1
    carried = assert_rewrites("carry_bytes", result.graph)
    assert carried.count("ipex::quantize") == 0
    assert told(carried, "ipex::elementwise")[0]["rounded"] == [0.5, 1, 0, 0]


def test_readers_within_the_group_are_no_others():
    lines = ("%t : Tensor = aten::tanh(%f)", "%p : Tensor = aten::mul(%t, %t)", "%y : Tensor = aten::sub(%p, %t, %one)")
    assert '["mul_number(0.5) 0", "tanh 1", "mul 2 2", "sub 3 2"]' in assert_rewrites(NAME, graph(*lines)).graph


def test_ends_where_something_is_overwritten():
    # What stands before the write reads %g as it was.
    write = "%w : Tensor = aten::relu_(%g)"
    before, after = graph(*GATE, write, SUM), graph(write, *GATE, SUM)
    assert '"mul 1 3"]' in assert_rewrites(NAME, before).graph
    assert assert_rewrites(NAME, before).count("aten::add") == 1
    assert '["sigmoid 0", "mul 1 3", "add 4 2"]' in assert_rewrites(NAME, after).graph


def test_declines_an_op_alone():
    assert_unchanged(NAME, graph_ir(INPUTS, *SCALE, returns="%f"), reason=ALONE)


def test_leaves_an_op_alone_whose_sum_is_computed_elsewhere():
    constants = ("%no : bool = prim::Constant[value=0]()", "%none : NoneType = prim::Constant()")
    computed = ("%n : int = aten::size(%x, %one)", "%dims : int[] = prim::ListConstruct(%n)")
    known = "%dims : int[] = prim::Constant[value=[1]]()"
    total = "%y : Tensor = aten::sum(%f, %dims, %no, %none)"
    assert_unchanged(NAME, graph(*constants, *computed, total), reason=ALONE)
    assert assert_rewrites(NAME, graph(*constants, known, total)).count("ipex::elementwise") == 1


def test_leaves_a_function_of_what_is_spread_and_reshaped():
    lines = ("%u : Tensor = aten::unsqueeze(%f, %one)", "%v : Tensor = aten::relu(%u)")
    shape = ("%shape : int[] = prim::ListConstruct(%one)", "%y : Tensor = aten::reshape(%v, %shape)")
    assert_unchanged(NAME, graph(*lines, *shape), reason=ALONE)


def test_takes_a_gate_alone():
    sides = "%sides : int[] = prim::Constant[value=[2, 3]]()"
    true = ("%true : bool = prim::Constant[value=1]()", "%none : NoneType = prim::Constant()")
    pixel = "%p : Tensor = aten::mean(%f, %sides, %true, %none)"
    lines = (*SCALE, sides, *true, pixel)
    gated, squared = "%y : Tensor = aten::mul(%f, %p)", "%y : Tensor = aten::mul(%p, %p)"
    assert '["mul 0 1"]' in assert_rewrites(NAME, graph_ir(INPUTS, *lines, gated, returns="%f, %y")).graph
    assert_unchanged(NAME, graph_ir(INPUTS, *lines, squared, returns="%f, %y"), reason=ALONE)


def expanded(of: str = "%f", as_: str = "%f", keepdim: int = 1, dtype: str = "None") -> tuple[str, ...]:
    kind = "NoneType = prim::Constant()" if dtype == "None" else "int = prim::Constant[value=7]()"
    return (
        "%last : int[] = prim::Constant[value=[-1]]()",
        f"%keepdim : bool = prim::Constant[value={keepdim}]()",
        f"%dtype : {kind}",
        f"%n : Tensor = aten::linalg_vector_norm({of}, %half, %last, %keepdim, %dtype)",
        "%c : Tensor = aten::clamp_min(%n, %half)",
        f"%e : Tensor = aten::expand_as(%c, {as_})",
        "%y : Tensor = aten::div(%f, %e)",
    )


def test_reads_a_norm_that_is_expanded_as_it_is_before():
    result = assert_rewrites(NAME, graph(*expanded()))
    assert result.count("aten::expand_as") == 0
    assert result.count("ipex::elementwise") == 1
    assert '"div 1 2"]' in result.graph


@pytest.mark.parametrize("other", [{"of": "%g"}, {"as_": "%r"}, {"keepdim": 0}, {"dtype": "float64"}])
def test_reads_what_else_is_expanded_where_it_is(other):
    lines = (*expanded(**other), "%z : Tensor = aten::relu(%y)")
    assert assert_rewrites(NAME, graph(*lines, returns="%z")).count("aten::expand_as") == 1


def test_an_expanded_number_promotes():
    """As a tensor without dimensions it would not."""

    class Scaled(nn.Module):
        def forward(self, x):
            y = x * 0.5
            return F.relu(y / x.double().sum().expand_as(y))

    check_against_eager(Scaled(), torch.randn(3, 4))


def test_what_can_not_be_expanded_is_refused():
    class Ratio(nn.Module):
        def forward(self, x, n):
            y = x * 0.5
            return F.relu(y / n.expand_as(y))

    optimized = check_against_eager(Ratio(), torch.randn(3, 4), torch.rand(3, 1) + 1)
    with pytest.raises(RuntimeError, match="expanded size"):
        optimized(torch.randn(1, 4), torch.rand(3, 1))


@pytest.mark.parametrize("dim", [-1, 1, (2, 3)])
def test_normalized_rows_match_eager(dim):
    class Normalize(nn.Module):
        def forward(self, x):
            y = x * 0.5
            return F.normalize(y, dim=dim), F.normalize(y.transpose(1, 3), dim=dim, eps=2.0)

    x = torch.randn(2, 5, 6, 7)
    x[0, 0] = 0.0
    also = (x.to(memory_format=torch.channels_last), x * torch.inf, x[:, :, ::2])
    optimized = check_against_eager(Normalize(), x, also=also)
    assert kinds(optimized)["aten::expand_as"] == kinds(optimized)["aten::div"] == 0


def test_leaves_what_may_be_integers():
    lines = ("%a : Tensor = aten::add(%x, %g, %one)", "%y : Tensor = aten::mul(%a, %r)")
    assert_unchanged(NAME, graph_ir(INPUTS, ONE, *lines, returns="%y"), reason=None)


def test_leaves_numbers_that_are_not_known():
    lines = ("%a : Tensor = aten::add(%f, %n, %one)", "%y : Tensor = aten::mul(%a, %n)")
    assert_unchanged(NAME, graph_ir(INPUTS + ", %n : float", ONE, *SCALE, *lines, returns="%y"), reason=ALONE)


def test_goes_on_after_as_many_steps_as_fit():
    lines = [f"%v{i + 1} : Tensor = aten::tanh(%v{i})" for i in range(70)]
    ir = graph_ir("%v : Tensor", SCALE[0], "%v0 : Tensor = aten::mul(%v, %half)", *lines, returns="%v70")
    assert assert_rewrites(NAME, ir).count("ipex::elementwise") == 3


ZERO = "%zero : int = prim::Constant[value=0]()"
LARGE = "%large : float = prim::Constant[value=-1e9]()"
CHOICE = (
    ZERO,
    "%c : Tensor = aten::gt(%f, %zero)",
    "%d : Tensor = aten::le(%f, %r)",
    "%e : Tensor = aten::__and__(%c, %d)",
    "%n : Tensor = aten::bitwise_not(%e)",
    "%y : Tensor = aten::where(%n, %f, %r)",
)


def test_comparisons_choose_within_a_group():
    result = assert_rewrites(NAME, graph(*CHOICE))
    steps = '["mul_number(0.5) 0", "gt_number(0) 2", "le 2 1", "bitwise_and 3 4", "bitwise_not 5", "where 6 2 1"]'
    assert steps in result.graph
    assert not any(result.count(f"aten::{op}") for op in ("gt", "le", "__and__", "bitwise_not", "where"))


def test_bools_that_others_read_stay_what_they_are():
    result = assert_rewrites(NAME, graph(*CHOICE, returns="%y, %e"))
    assert '["bitwise_not 0", "where 3 1 2"]' in result.graph
    assert result.count("aten::gt") == result.count("aten::le") == result.count("aten::__and__") == 1


def test_a_group_does_not_end_in_bools():
    assert_unchanged(NAME, graph(*CHOICE[:-1], returns="%n, %f"), reason="others read its bools")


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("aten::where(%g, %f, %r)", "where 0 1 2"),
        ("aten::where(%g, %f, %large)", "where_or_number(-1e+09) 0 1"),
        ("aten::where(%g, %large, %f)", "where_number_or(-1e+09) 0 1"),
        ("aten::masked_fill(%f, %g, %large)", "masked_fill(-1e+09) 0 1"),
        ("ipex::masked_fill_like(%f, %g, %large)", "masked_fill_(-1e+09) 0 1"),
    ],
)
def test_takes_a_choice_alone(line, step):
    draw = ("%none : NoneType = prim::Constant()", "%d : Tensor = aten::bernoulli(%r, %none)")  # shares nothing past it
    result = assert_rewrites(NAME, graph(LARGE, *draw, f"%y : Tensor = {line}", returns="%f, %y, %d"))
    assert f'["{step}"]' in result.graph


@pytest.mark.parametrize(
    "line", ["aten::where(%g, %x, %r)", "aten::masked_fill(%x, %g, %zero)", "aten::where(%g, %x, %zero)"]
)
def test_leaves_choices_among_what_may_be_integers(line):
    assert_unchanged(NAME, graph_ir(INPUTS, ZERO, f"%y : Tensor = {line}", returns="%y"), reason=None)


def test_leaves_logic_of_what_may_be_integers():
    lines = ("%b : Tensor = aten::__and__(%x, %g)", "%y : Tensor = aten::where(%b, %f, %r)")
    result = assert_rewrites(NAME, graph(*lines))
    assert result.count("aten::__and__") == 1
    assert '["mul_number(0.5) 0", "where 1 3 2"]' in result.graph


def test_leaves_a_number_that_is_not_known():
    line = "%y : Tensor = aten::masked_fill(%f, %g, %n)"
    assert_unchanged(NAME, graph_ir(INPUTS + ", %n : float", *SCALE, line, returns="%f, %y"), reason=ALONE)


class Choices(nn.Module):
    """An activation of two branches, masks of several kinds, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 8)
        self.register_buffer("bound", torch.tensor(-1e-6))

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        y = self.linear(x)
        smooth = torch.where(y > 0, y * y * 0.8 + 0.5 * y, (torch.expm1(torch.min(y, self.bound)) - y) * 0.3)
        hidden = smooth.masked_fill(mask.unsqueeze(-1), float("-inf"))
        both = torch.where((y >= 0.5) & ~(x[..., :1] < 0) | mask.unsqueeze(-1), y, self.bound * 2)
        y = y * 2
        y.masked_fill_(mask.unsqueeze(-1), 7.0)
        error = (smooth - y).abs()
        return hidden, both, y, torch.where(error < 1, 0.5 * error**2, error - 0.5)


@pytest.mark.parametrize("script", [False, True])
def test_choices_match_eager(tmp_path, script):
    x, mask = torch.randn(3, 5, 6), torch.rand(3, 5) > 0.5
    x[0, 0] = torch.nan
    optimized = check_against_eager(Choices(), x, mask, script=script)
    found = kinds(optimized)
    taken = ("where", "masked_fill", "masked_fill_", "gt", "ge", "expm1", "__or__")
    assert not any(found[f"aten::{op}"] for op in taken)
    assert_round_trip(optimized, tmp_path, x, mask)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_choices_of_other_dtypes(dtype):
    model, (x, mask) = Choices().to(dtype).eval(), (torch.randn(3, 5, 6, dtype=dtype), torch.rand(3, 5) > 0.5)
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, (x, mask)))
        assert kinds(optimized)["ipex::elementwise"] >= 2
        assert_same(optimized(x, mask), model(x, mask), 4 * torch.finfo(dtype).eps)


def test_a_number_of_another_dtype_promotes():
    class Model(nn.Module):
        def forward(self, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
            y = torch.tanh(x)
            return torch.where(y > 0, y, other), torch.where(y > other, other, y)

    x, two = torch.randn(4, 5), torch.tensor(2.0)
    model = Model().eval()
    optimized = ipex.jit_optimize(torch.jit.script(model))
    for given in (x, x[0, 0]):
        for other in (two, two.double(), two.long(), torch.randn(4, 1).double()):
            assert_same(optimized(given, other), model(given, other))


class Blocks(nn.Module):
    """Chains between packed ops, with what models put there."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.gamma, self.linear = nn.Parameter(torch.randn(8, 1, 1)), nn.Linear(12, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.first(x)
        gate = torch.sigmoid(y.mean((2, 3), keepdim=True) * 2 - 1)
        z = y + self.gamma * (y * gate)
        z = self.second(z) * torch.tanh(F.softplus(y))
        a, b = self.linear(x.flatten(2)[..., :12]).chunk(2, -1)
        return (z - y) / (1 + z.abs()), F.gelu(a * 1.5) * torch.exp(-b.square())


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script):
    x = torch.randn(2, 3, 6, 8)
    also = (x[:, :, ::2], x.contiguous(memory_format=torch.channels_last), x[:1])
    optimized = check_against_eager(Blocks(), x, script=script, also=also)
    found = kinds(optimized)
    assert found["ipex::elementwise"] == 4
    assert not any(found[f"aten::{op}"] for op in ("mul", "add", "sub", "div", "abs", "exp", "sigmoid"))
    assert_round_trip(optimized, tmp_path, x)


class OnMeta(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(3, 3, device="meta"), torch.tensor(2.0, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x)) * self.scale


def test_a_tensor_whose_value_is_not_there_is_no_number():
    module = torch.jit.trace(OnMeta().eval(), torch.randn(2, 3, device="meta"), check_trace=False)
    assert kinds(ipex.jit_optimize(module))["ipex::elementwise"] == 1


class InBranches(nn.Module):
    """A chain in an if and in a loop, the loop's reading what it gave before."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor, n: int) -> Tensor:
        y = self.linear(x)
        for _ in range(n):
            y = torch.tanh(y * 0.5) + y
        if bool(y.sum() > 0):
            y = torch.exp(y * 0.1) - y
        return y


def test_inside_blocks():
    scripted = torch.jit.script(InBranches().eval())
    optimized = ipex.jit_optimize(scripted)
    assert kinds(optimized)["ipex::elementwise"] == 2
    with torch.no_grad():
        for sign in (1, -1):
            x = sign * torch.rand(4, 6) * 10
            for n in (0, 3):
                assert_same(optimized(x, n), scripted(x, n))


class Overwritten(nn.Module):
    """In-place ops of which some can be told from others."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.linear(x)
        a = y * 2
        b = y.t() * 3
        y.mul_(0.5)
        c = (a + y).tanh_().mul_(a)
        x += 1
        return c.add_(x).sigmoid_(), b


def test_in_place_ops():
    assert kinds(check_against_eager(Overwritten(), torch.randn(6, 6)))["ipex::elementwise"] >= 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes(dtype):
    class Chain(nn.Module):
        def forward(self, x: Tensor, w: Tensor) -> Tensor:
            return torch.sigmoid(x * 0.5 + w) * x

    x, w = torch.randn(5, 6, dtype=dtype), torch.randn(6, dtype=dtype)
    optimized = ipex.jit_optimize(torch.jit.trace(Chain().eval(), (x, w)))
    assert kinds(optimized)["ipex::elementwise"] == 1
    assert_same(optimized(x, w), Chain()(x, w), torch.finfo(dtype).eps)


def test_can_be_switched_off():
    x, model = torch.randn(2, 3, 6, 8), Blocks().eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, x), disable=[NAME])
    assert kinds(optimized)["ipex::elementwise"] == 0
    with torch.no_grad():
        assert_same(optimized(x), model(x))


@pytest.mark.parametrize("alpha", [0, 2])
def test_subtracts_no_bool(alpha):
    class Model(nn.Module):
        def __init__(self, alpha: int) -> None:
            super().__init__()
            self.alpha = alpha

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return torch.sub(torch.tanh(x), mask, alpha=self.alpha)

    optimized = ipex.jit_optimize(torch.jit.script(Model(alpha).eval()))
    assert kinds(optimized)["ipex::elementwise"] == 1
    x = torch.randn(2, 6)
    torch.testing.assert_close(optimized(x, x), torch.sub(torch.tanh(x), x, alpha=alpha))
    with pytest.raises(RuntimeError, match="bool tensor is not supported"):
        optimized(x, x > 0)


def test_gradients_of_a_model():
    x, model = torch.randn(2, 3, 6, 8, requires_grad=True), Blocks().eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, x))
    for _ in range(3):
        (got,) = torch.autograd.grad(sum(y.sum() for y in optimized(x)), x)
        (expected,) = torch.autograd.grad(sum(y.sum() for y in model(x)), x)
        assert_same(got, expected)


def test_an_op_for_each_reader_of_a_long_chain_stays_quick():
    # So many values have another reader that every group is small, and there are many.
    lines = [f"%v{i + 1} : Tensor = aten::mul(%v{i}, %half)" for i in range(3000)]
    ir = graph_ir("%v0 : Tensor", SCALE[0], *lines, returns=", ".join(f"%v{i}" for i in range(2, 3001, 3)))
    assert assert_rewrites(NAME, ir).count("ipex::elementwise") == 251
