import itertools
import math
import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ipex  # noqa: F401
from elementwise_values import FLOATS, assert_as_exact, special_values
from support import SeenOps, assert_same, fast, own_thread_count, why_aten

OPS = torch.ops.ipex
# Each step with a kernel, as eager computes it.
UNARY = {
    "relu": torch.relu,
    "relu6": F.relu6,
    "leaky_relu(0.2)": lambda y: F.leaky_relu(y, 0.2),
    "leaky_relu(-0.5)": lambda y: F.leaky_relu(y, -0.5),
    "elu(1.0,1.0,1.0)": F.elu,
    "elu(-0.5,1.5,0.5)": lambda y: torch._C._nn.elu(y, -0.5, 1.5, 0.5),
    "selu": F.selu,
    "celu(1.3)": lambda y: F.celu(y, 1.3),
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh(-0.5,2.0)": lambda y: F.hardtanh(y, -0.5, 2.0),
    "clamp(1.0,-1.0)": lambda y: y.clamp(1.0, -1.0),
    "clamp_min(0.1)": lambda y: y.clamp_min(0.1),
    "clamp_max(inf)": lambda y: y.clamp_max(math.inf),
    "softplus(1.0,20.0)": F.softplus,
    "softplus(2.0,1.0)": lambda y: F.softplus(y, 2.0, 1.0),
    "tanh": torch.tanh,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "abs": torch.abs,
    "neg": torch.neg,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "square": torch.square,
    "pow(2)": lambda y: y.pow(2),
    "pow(3)": lambda y: y.pow(3),
    "pow(4)": lambda y: y.pow(4),
    "pow(0.5)": lambda y: y.pow(0.5),
    "pow(-0.5)": lambda y: y.pow(-0.5),
    "pow(-1)": lambda y: y.pow(-1),
    "pow(-2)": lambda y: y.pow(-2),
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "round": torch.round,
    "sign": torch.sign,
    "add_number(-1.5)": lambda y: y - 1.5,
    "rsub_number(2)": lambda y: 2 - y,
    "mul_number(0.125)": lambda y: y * 0.125,
    "div_number(3.0)": lambda y: y / 3.0,
    "div_number(0.0)": lambda y: y / 0.0,
}
BINARY = {
    "add": torch.add,
    "add_": lambda y, other: y.clone().add_(other),
    "add_scaled(-0.5)": lambda y, other: torch.add(y, other, alpha=-0.5),
    "sub": torch.sub,
    "rsub": torch.rsub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}
COMPARISONS = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}
LOGIC = {"and": torch.logical_and, "or": torch.logical_or, "xor": torch.logical_xor}


def assert_exactly(actual: Tensor, expected: Tensor) -> None:
    """The same elements, NaN included, and strides."""
    assert actual.stride() == expected.stride()
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("step", UNARY)
@pytest.mark.parametrize("dtype", FLOATS)
def test_each_step(step, dtype):
    x = special_values(dtype)
    if "gelu" in step:
        x = x[~(x.double().abs() > 1e30)]  # where aten's is NaN with some CPUs and versions of torch, or infinite
    actual, expected = OPS.elementwise([x], [f"{step} 0"]), UNARY[step](x)
    if "gelu" in step:  # aten's own cancels for large negative numbers
        return assert_same(actual, expected, 1e-6 if dtype == torch.float32 else torch.finfo(dtype).eps)
    assert_as_exact(actual, expected)


def test_gelu_is_zero_before_it_is_denormal():
    x = torch.linspace(-60, 60, 100_001)
    y = OPS.elementwise([x], ["gelu 0"])
    assert ((y == 0) | (y.abs() >= torch.finfo(torch.float32).tiny)).all()
    assert (y[x < -13] == 0).all()
    assert (y[x > 13] == x[x > 13]).all()


@pytest.mark.parametrize("step", BINARY)
@pytest.mark.parametrize("dtype", FLOATS)
def test_each_step_of_two(step, dtype):
    values = special_values(dtype)[::37]
    x, y = (v.reshape(-1).clone() for v in torch.meshgrid(values, values, indexing="ij"))
    assert_as_exact(OPS.elementwise([x, y], [f"{step} 0 1"]), BINARY[step](x, y))


EXACT = ("floor", "ceil", "trunc", "round", "sign", "expm1", "log1p")


@pytest.mark.parametrize("step", EXACT)
def test_zeros_keep_their_sign(step):
    x = torch.tensor([0.0, 0.25, 0.5, 1.5, 2.5, 3.5, 2.0**22 + 0.5, 2.0**23 - 0.5, 2.0**24, 2.0**31])
    x = torch.cat([x, -x])
    actual, expected = OPS.elementwise([x], [f"{step} 0"]), UNARY[step](x)
    assert torch.equal(actual.signbit()[expected == 0], expected.signbit()[expected == 0])
    if step not in ("expm1", "log1p"):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("step", COMPARISONS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_comparisons_choose(step, dtype):
    values = special_values(dtype)[::37]
    x, y = (v.reshape(-1).clone() for v in torch.meshgrid(values, values, indexing="ij"))
    condition = COMPARISONS[step](x, y)
    assert_exactly(OPS.elementwise([x, y], [f"{step} 0 1", "where 2 0 1"]), torch.where(condition, x, y))
    for number in (0.1, 0.0, 1e5, math.inf, -3.0):  # of 16 bits, as in eager, is what is compared with
        condition = COMPARISONS[step](x, number)
        steps = [f"{step}_number({number}) 0", "where 2 1 0"]
        assert_exactly(OPS.elementwise([x, y], steps), torch.where(condition, y, x))
    steps = [f"{step}_number(0.1) 0", f"{step} 0 1", "logical_or 2 3", "where 4 1 0"]
    assert fast(lambda: OPS.elementwise([x, y], steps))


@pytest.mark.parametrize("name", LOGIC)
@pytest.mark.parametrize("kind", ["logical", "bitwise"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_logic_chooses(name, kind, dtype):
    x, y = (torch.randn(3, 700).to(dtype) for _ in range(2))
    mask = torch.rand(700) > 0.5
    steps = ["lt 0 1", f"{kind}_{name} 3 2", f"{kind}_not 4", "where_or_number(0.5) 5 0"]
    expected = torch.where(~LOGIC[name](x < y, mask), x, 0.5)
    assert_exactly(OPS.elementwise([x, y, mask], steps), expected)
    assert fast(lambda: OPS.elementwise([x, y, mask], steps))


CHOICES = {
    "where 2 0 1": lambda x, y, m: torch.where(m, x, y),
    "where_or_number(-2.5) 2 0": lambda x, y, m: torch.where(m, x, -2.5),
    "where_number_or(1e30) 2 0": lambda x, y, m: torch.where(m, 1e30, x),
    "masked_fill(-1e4) 0 2": lambda x, y, m: x.masked_fill(m, -1e4),
    "masked_fill(-inf) 0 2": lambda x, y, m: x.masked_fill(m, -math.inf),
}


@pytest.mark.parametrize("step", CHOICES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_masks_choose(step, dtype):
    choose = random.Random(7)
    for shapes in SHAPES:
        tensors = [torch.randn(shape).to(dtype) for shape in shapes]
        for order in itertools.permutations(tensors):
            x, y, m = (choose.choice(layouts(t)) for t in order)
            m = m > 0
            assert_exactly(OPS.elementwise([x, y, m], [step]), CHOICES[step](x, y, m))
    assert fast(lambda: OPS.elementwise([x, y, m], [step]))


def test_masks_fill_in_place():
    for x in layouts(torch.randn(2, 3, 5, 7))[:3]:
        for m in (torch.rand(5, 7) > 0.5, torch.rand(2, 3, 5, 7) > 0.5, torch.tensor(True)):
            before = x.clone()
            assert_exactly(OPS.elementwise([x, m], ["masked_fill_(2.0) 0 1"]), x.clone().masked_fill_(m, 2.0))
            assert torch.equal(x, before)
    with pytest.raises(RuntimeError, match="broadcast shape"):
        OPS.elementwise([torch.randn(3), torch.rand(2, 3) > 0.5], ["masked_fill_(2.0) 0 1"])


def test_strides_of_choices():
    choose = random.Random(11)
    for _ in range(300):
        shape = [choose.choice((1, 1, 2, 3, 5)) for _ in range(choose.randrange(1, 6))]
        inputs = []
        for _ in range(3):
            own = [1 if choose.random() < 0.2 else size for size in shape][choose.choice((0, 0, 0, 1)) :]
            order = choose.sample(range(len(own)), len(own))
            x = torch.randn([own[d] for d in order]).permute([order.index(d) for d in range(len(own))])
            inputs.append(x[..., :1].expand(own) if own and choose.random() < 0.2 else x)
        x, y, z = inputs
        for step, eager_step in CHOICES.items():
            assert_exactly(OPS.elementwise([x, y, z > 0], [step]), eager_step(x, y, z > 0))
        steps = ["gt 0 2", "lt_number(0.5) 1", "logical_and 3 4", "where 5 0 1"]
        assert_exactly(OPS.elementwise(inputs, steps), torch.where((x > z) & (y < 0.5), x, y))


def test_bools_where_floats_are_wanted():
    x, m = torch.randn(4, 5), torch.rand(4, 5) > 0.5
    several = "a step takes other dtypes"
    assert why(x, m, steps=("mul 0 1", "tanh 2")) == several
    assert_same(OPS.elementwise([x, m], ["mul 0 1", "tanh 2"]), torch.tanh(x * m))
    assert why(x, x, steps=("logical_and 0 1", "where 2 0 1")) == several
    assert_same(OPS.elementwise([x, x], ["logical_and 0 1", "where 2 0 1"]), x)
    assert why(x, m, steps=("where 1 0 1",)) == several
    assert why(x, m, steps=("gt_number(0.5) 0", "bitwise_or 2 1")) == "its result is of bools"
    assert torch.equal(OPS.elementwise([x, m], ["gt_number(0.5) 0", "bitwise_or 2 1"]), (x > 0.5) | m)
    assert why(m, m, steps=("logical_and 0 1",)) == "its inputs are of another dtype"
    for refused in (["bitwise_and 0 1"], ["where 0 0 1"], ["masked_fill(1.0) 0 0"]):
        with pytest.raises(RuntimeError):
            OPS.elementwise([x, m], refused)


def test_numbers_that_a_dtype_has_not():
    m = torch.rand(4, 5) > 0.5
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.randn(4, 5).to(dtype)
        with pytest.raises(RuntimeError, match="overflow"):
            OPS.elementwise([x, m], ["masked_fill(-3.4028234663852886e+38) 0 1"])
        steps = ["where_or_number(-3.4028234663852886e+38) 1 0"]
        assert_exactly(OPS.elementwise([x, m], steps), torch.where(m, x, torch.finfo(torch.float32).min))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_that_are_added_have_the_dtype_of_16_bits(dtype):
    """As in eager, and what scales an addend; a factor stays a float."""
    x, y = torch.randn(2, 512).to(dtype)  # whole vectors: in a rest eager rounds a scaled addend before it adds it
    assert_exactly(OPS.elementwise([x], ["add_number(0.3) 0"]), x + 0.3)
    assert_exactly(OPS.elementwise([x], ["rsub_number(0.3) 0"]), 0.3 - x)
    assert_exactly(OPS.elementwise([x], ["mul_number(0.3) 0"]), x * 0.3)
    assert_exactly(OPS.elementwise([x, y], ["add_scaled(0.3) 0 1"]), torch.add(x, y, alpha=0.3))
    if dtype == torch.float16:
        assert_exactly(OPS.elementwise([x], ["add_number(1000000.0) 0"]), x + 1e6)
        with pytest.raises(RuntimeError, match="overflow"):
            OPS.elementwise([x, y], ["add_scaled(1000000.0) 0 1"])


def is_root_as_power(step: str) -> bool:
    return step in ("pow(0.5)", "pow(-0.5)")


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_step_has_a_kernel(dtype):
    x = torch.rand(5).to(dtype)
    unary = [step for step in UNARY if dtype != torch.float16 or not is_root_as_power(step)]
    steps = [f"{step} 0" for step in unary] + [f"{step} 0 0" for step in BINARY]
    assert fast(lambda: [OPS.elementwise([x], [step]) for step in steps])


CHAIN = ["mul 0 1", "sigmoid 3", "add 2 4", "mul 5 3", "sub 6 0"]


def eager(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    product = x * y
    return (z + torch.sigmoid(product)) * product - x


SHAPES = [
    ((), (), ()),
    ((7,), (), (1,)),
    ((5, 1), (1, 3), (5, 3)),
    ((3, 70, 41), (41,), (70, 1)),
    ((2, 8, 5, 7), (2, 8, 1, 1), (8, 1, 1)),
    ((2, 8, 5, 7), (1, 1, 5, 7), (2, 1, 5, 1)),
    ((2, 3, 2500), (2500,), (3, 1)),  # rows longer than a block, in equal parts
    ((2, 1031), (1031,), (2, 1)),  # that no number of parts divides
    ((40, 50, 3), (3,), (50, 1)),
    ((2, 3, 4, 5, 6), (3, 1, 5, 1), (2, 1, 1, 1, 6)),
    ((1, 64, 40, 40), (1, 64, 40, 40), (1, 64, 40, 40)),
]


def layouts(x: Tensor) -> list[Tensor]:
    """The tensor with other strides."""
    found = [x]
    if x.dim() == 4:
        found.append(x.contiguous(memory_format=torch.channels_last))
    if x.dim() > 1:
        found.append(x.transpose(0, -1).contiguous().transpose(0, -1))
        found.append(torch.cat([x, x], -1)[..., : x.size(-1)])
    return found


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_shapes_and_layouts(shapes, dtype):
    tensors = [torch.randn(shape).to(dtype) for shape in shapes]
    choose = random.Random(3)
    for order in itertools.permutations(tensors):
        for _ in range(6):
            inputs = [choose.choice(layouts(x)) for x in order]
            assert_same(OPS.elementwise(inputs, CHAIN), eager(*inputs), 4 * torch.finfo(dtype).eps)


def test_every_shape_has_a_kernel():
    calls = [[torch.randn(shape) for shape in shapes] for shapes in SHAPES]
    assert fast(lambda: [OPS.elementwise(inputs, CHAIN) for inputs in calls])


def test_strides_of_any_shape():
    choose = random.Random(5)
    for _ in range(300):
        shape = [choose.choice((1, 1, 2, 3, 5)) for _ in range(choose.randrange(1, 6))]
        inputs = []
        for _ in range(3):
            own = [1 if choose.random() < 0.2 else size for size in shape][choose.choice((0, 0, 0, 1)) :]
            order = choose.sample(range(len(own)), len(own))
            x = torch.randn([own[d] for d in order]).permute([order.index(d) for d in range(len(own))])
            inputs.append(x[..., :1].expand(own) if own and choose.random() < 0.1 else x)
        assert_same(OPS.elementwise(inputs, CHAIN), eager(*inputs), 2e-6)


@pytest.mark.parametrize("dim", [0, 1, -2, -3])
def test_a_reader_may_want_each_slice_in_one_piece(dim):
    x, y = torch.randn(3, 4, 5), torch.randn(4, 1)
    made = OPS.elementwise([x, y], ["mul 0 1"], outermost=dim)
    assert torch.equal(made, x * y)
    assert all(made.select(dim, i).is_contiguous() for i in range(x.size(dim)))
    # Eager's own layout where that is not contiguous, and for a dimension that is not there.
    turned = x.transpose(0, 1)
    assert_exactly(OPS.elementwise([turned], ["neg 0"], outermost=dim), -turned)
    assert_exactly(OPS.elementwise([x], ["neg 0"], outermost=3), -x)
    # And along the innermost one, whose elements would be picked one by one.
    assert_exactly(OPS.elementwise([x], ["neg 0"], outermost=-1), -x)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_reader_may_want_the_result_in_one_piece(dtype):
    x, y = torch.randn(3, 4, 5, 6).to(dtype).permute(2, 0, 1, 3), torch.randn(3, 4, 1).to(dtype)
    steps = ["mul 0 1", "relu 2"]
    whole, eager = OPS.elementwise([x, y], steps, in_one_piece=True), OPS.elementwise([x, y], steps)
    assert whole.is_contiguous()
    assert not eager.is_contiguous()
    assert torch.equal(whole, eager)
    # Not where it would pick elements one by one.
    turned = x.transpose(0, 3)
    assert_exactly(OPS.elementwise([turned, y], steps, in_one_piece=True), OPS.elementwise([turned, y], steps))
    number = torch.tensor(2.0, dtype=dtype)
    assert_exactly(OPS.elementwise([number], ["relu 0"], in_one_piece=True), number)
    flat = torch.randn(3, 1).to(dtype)
    assert_exactly(OPS.elementwise([flat], ["relu 0"], in_one_piece=True), flat.relu())


def test_what_is_small_is_computed_as_small():
    # The steps up to the last one are those of a gate; it broadcasts against an image, and is read there twice.
    x, g = torch.randn(2, 8, 5, 7), torch.randn(2, 8, 1, 1)
    steps = ["mul_number(2.0) 1", "sigmoid 2", "mul 0 3", "add 4 3", "tanh 3", "mul 5 6"]
    gate = torch.sigmoid(g * 2)
    for image in layouts(x):
        assert_same(OPS.elementwise([image, g], steps), (image * gate + gate) * torch.tanh(gate), 2e-6)


def test_values_may_be_read_many_times():
    x = torch.randn(3000)
    steps, expected = [], [x]
    for i in range(8):
        steps += [f"add_number({i}.5) 0", f"mul {2 * i + 1} {2 * i}"]
        expected += [x + (i + 0.5), (x + (i + 0.5)) * expected[-1]]
    assert fast(lambda: OPS.elementwise([x], steps))
    assert_same(OPS.elementwise([x], steps), expected[-1])


def several(x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
    """The results of CHAIN but for one."""
    product = x * y
    total = z + torch.sigmoid(product)
    return [product, total, total * product, total * product - x]


NAMED = [3, 5, 6, 7]


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_several_results(shapes, dtype):
    # Some may be smaller than others, or lie otherwise.
    tensors = [torch.randn(shape).to(dtype) for shape in shapes]
    choose = random.Random(4)
    for order in itertools.permutations(tensors):
        inputs = [choose.choice(layouts(x)) for x in order]
        results = OPS.elementwise.several(inputs, CHAIN, NAMED)
        assert fast(lambda inputs=inputs: OPS.elementwise.several(inputs, CHAIN, NAMED))
        for actual, expected in zip(results, several(*inputs), strict=True):
            assert_same(actual, expected, 4 * torch.finfo(dtype).eps)
        assert torch.equal(results[-1], OPS.elementwise(inputs, CHAIN))
        assert torch.equal(results[1], OPS.elementwise(inputs, CHAIN[:3]))


def test_several_results_in_aten():
    inputs = [torch.randn(4, 5, dtype=torch.float64) for _ in range(3)]
    for actual, expected in zip(OPS.elementwise.several(inputs, CHAIN, NAMED), several(*inputs), strict=True):
        assert_same(actual, expected)
    x = torch.randn(6)
    given = OPS.elementwise.several([x], ["gt_number(0) 0", "where 1 0 0", "neg 2"], [1, 3])
    assert torch.equal(given[0], x > 0)
    assert torch.equal(given[1], -x)


def test_several_results_have_gradients():
    inputs = [torch.randn(4, 6, requires_grad=True) for _ in range(3)]
    got = torch.autograd.grad(sum(y.sum() for y in OPS.elementwise.several(inputs, CHAIN, NAMED)), inputs)
    expected = torch.autograd.grad(sum(y.sum() for y in several(*inputs)), inputs)
    for a, e in zip(got, expected):
        assert_same(a, e)


@pytest.mark.parametrize("named", [[2], [8], [5, 4], [4, 4], [-1]])
def test_damaged_numbers_of_results(named):
    with pytest.raises(RuntimeError, match="damaged"):
        OPS.elementwise.several([torch.randn(3)] * 3, CHAIN, named)


def test_threads_make_no_difference():
    x, w = torch.randn(5, 37, 1000), torch.randn(37, 1)
    steps = ["mul 0 1", "gelu 2", "add 3 0"]
    with own_thread_count():
        torch.set_num_threads(1)
        alone = OPS.elementwise([x, w], steps)
        torch.set_num_threads(4)
        assert torch.equal(OPS.elementwise([x, w], steps), alone)


def why(*inputs: Tensor, steps: tuple[str, ...] = ("mul 0 1", "tanh 2")) -> str | None:
    return why_aten(lambda: OPS.elementwise(inputs, steps))


def test_what_is_left_to_aten():
    x = torch.randn(4, 5)
    assert why(x, x.double()) == "its inputs are of several dtypes"
    assert why(x.double(), x.double()) == "its inputs are of another dtype"
    assert why(x.int(), x.int()) == "its inputs are of another dtype"
    assert why(x, x.clone().requires_grad_()) == "an input requires a gradient"
    assert why(x[:0], x[:0]) == "an input is empty, or has many dimensions"
    assert why(x.view(1, 1, 1, 1, 1, 1, 1, 4, 5), x) == "an input is empty, or has many dimensions"
    assert why(x, x, steps=("mul 0 1", "rmul 2 1")) == "no kernel has one of its steps"
    assert why(x.half(), x.half(), steps=("mul 0 1", "pow(0.5) 2")) == "no kernel has one of its steps for float16"
    assert why(x, x, steps=("mul 0 1", "celu(-0.5) 2")) == "no kernel has one of its steps"
    assert why(x, x, steps=("mul 0 1", "add_number(1e300) 2")) == "no kernel has one of its steps"
    assert why(x[0], x, steps=("add_number(1.0) 0", "mul 2 1", "tanh 3")) is None
    with torch.autocast("cpu"):
        assert why(x, x) == "autocast is on"


def test_integers_without_dimensions_are_numbers():
    """As sizes are in a trace."""
    x, n = torch.randn(4, 5), torch.tensor(2**30 + 1)
    for steps in (["div 0 1", "tanh 2"], ["mul 0 1", "add 2 1"], ["div_ 0 1", "exp 2"]):
        values = [x.clone(), n]
        assert why(*values, steps=tuple(steps)) is None
        first = x / n if "div" in steps[0] else x * n
        expected = {"tanh 2": torch.tanh, "add 2 1": lambda y: y + n, "exp 2": torch.exp}[steps[1]](first)
        assert_same(OPS.elementwise(values, steps), expected)
    mask = x[0] > 0
    assert why(x, mask, n, steps=("where 1 2 0",)) is None
    assert_same(OPS.elementwise([x, mask, n], ["where 1 2 0"]), torch.where(mask, n, x))
    assert why(x, mask, n, steps=("where_or_number(2) 1 2",)) == "its inputs are of several dtypes"
    assert torch.equal(OPS.elementwise([x, mask, n], ["where_or_number(2) 1 2"]), torch.where(mask, n, 2))
    # These are computed in integers, or refused.
    assert why(x, n, n, steps=("mul 1 2", "mul 0 3")) == "its inputs are of several dtypes"
    assert_same(OPS.elementwise([x, n, n], ["mul 1 2", "mul 0 3"]), x * (n * n))
    assert why(x, n, steps=("add_number(0.5) 1", "mul 0 2")) == "its inputs are of several dtypes"
    assert why(x, n.view(1)) == "its inputs are of several dtypes"
    assert why(x.bfloat16(), n) == "its inputs are of several dtypes"
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        OPS.elementwise([x, n], ["mul_ 1 0", "mul 0 2"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.complex64, torch.bool])
def test_other_dtypes_are_as_in_eager(dtype):
    x = (torch.randn(4, 5) * 3).to(dtype)
    y = torch.randn(5)
    assert_same(OPS.elementwise([x, y], ["mul 0 1", "sigmoid 2"]), torch.sigmoid(x * y))


def test_gradients():
    x, w = torch.randn(4, 6, requires_grad=True), torch.randn(6, requires_grad=True)
    got = torch.autograd.grad(OPS.elementwise([x, w], ["mul 0 1", "silu 2", "add_ 3 1"]).sum(), [x, w])
    expected = torch.autograd.grad((F.silu(x * w) + w).sum(), [x, w])
    for a, e in zip(got, expected):
        assert_same(a, e)


def test_in_place_steps_leave_the_inputs():
    x = torch.randn(4, 6, dtype=torch.float64)
    before = x.clone()
    assert_same(OPS.elementwise([x, x[0]], ["add_ 0 1", "tanh 2"]), torch.tanh(x + x[0]))
    assert torch.equal(x, before)


def test_errors_are_those_of_eager():
    with pytest.raises(RuntimeError, match="must match the size"):
        OPS.elementwise([torch.randn(3), torch.randn(4)], ["mul 0 1", "tanh 2"])


@pytest.mark.parametrize(
    "step", ["mul 0 9", "mul", "mul 0 x", "leaky_relu 0", "leaky_relu(0.1,2) 0", "mul -1 0", "gate 0"]
)
def test_damaged_steps(step):
    with pytest.raises(RuntimeError, match="damaged|newer ipex"):
        OPS.elementwise([torch.randn(3)], [step])


def test_modes_of_python_see_the_ops():
    x = torch.randn(3)
    with SeenOps() as mode:
        OPS.elementwise([x, x], ["mul 0 1", "tanh 2"])
    assert [op for op in mode.seen if op.startswith("aten")] == ["aten.mul.Tensor", "aten.tanh.default"]


def test_the_least_results_of_a_sigmoid():
    x = torch.linspace(-89.5, -85.0, 181)
    exact = torch.sigmoid(x.double())
    y = OPS.elementwise([x], ["sigmoid 0"])
    assert torch.equal(y == 0, torch.sigmoid(x) == 0)
    off = (y.double() - exact).abs()[y != 0]
    assert (off <= 2e-7 * exact[y != 0] + 2e-45).all()  # or a bit of what is less than normal
