"""Every activation of runtime/packed/post_ops.inc against aten: as a post-op, as a step, and as a node of a graph."""

import re
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import ipex
from elementwise_values import FLOATS, assert_as_exact, special_values
from ipex import _C
from ir import PACKED
from support import assert_rewrites, assert_same, check_against_eager, graph_ir, kinds, packed_post_ops

pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # group_norm looks at its sizes
OPS = torch.ops.ipex
# For numbers without a default.
NUMBERS = (-0.5, 0.75)


class Activation(NamedTuple):
    post_op: str  # with its numbers
    op: str
    arguments: tuple[Any, ...]  # of aten's op, after the tensor
    is_packed: bool
    has_in_place: bool

    def __call__(self, y: Tensor) -> Tensor:
        namespace, name = self.op.split("::")
        function = getattr(getattr(torch.ops, namespace), name)
        schema = getattr(function, function.overloads()[0])._schema
        plain = [a for a, s in zip(self.arguments, schema.arguments[1:]) if not s.kwarg_only]
        named = {s.name: a for a, s in zip(self.arguments, schema.arguments[1:]) if s.kwarg_only}
        return function(y, *plain, **named)


def activation(post_op: str, pattern: str, is_packed: bool) -> Activation:
    op, in_place, arguments = re.fullmatch(r"([\w:]+?)(_\?)?\(%y(?:, (.*))?\)", pattern).groups()
    namespace, name = op.split("::")
    function = getattr(getattr(torch.ops, namespace), name)
    schema = getattr(function, function.overloads()[0])._schema
    numbers = iter(NUMBERS)
    values: list[Any] = []
    for text, argument in zip(arguments.split(", ") if arguments else (), schema.arguments[1:]):
        if text.startswith("%"):
            given = argument.default_value
            values.append(float(next(numbers) if given is None else given))
            post_op = post_op.replace(text, str(values[-1]))
        else:
            values.append(None if text == "None" else text.strip("'"))
    return Activation(post_op, op, tuple(values), is_packed, bool(in_place))


ALL = [activation(*row) for row in _C.activation_patterns()]
PACKED_ONES = [a for a in ALL if a.is_packed]


def name_of(a: Activation) -> str:
    return f"{a.op}{a.arguments}"


def test_the_table_is_read():
    assert {"relu", "gelu_tanh", "softplus(1.0,20.0)", "clamp_max(-0.5)", "rsqrt"} <= {a.post_op for a in ALL}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("a", ALL, ids=name_of)
def test_a_step_has_aten_s_values(a, dtype):
    x = special_values(dtype)
    if "gelu" in a.op:  # see test_each_step
        x = x[~(x.double().abs() > 1e30)]
        tolerance = 1e-6 if dtype == torch.float32 else torch.finfo(dtype).eps
        return assert_same(OPS.elementwise([x], [f"{a.post_op} 0"]), a(x), tolerance)
    assert_as_exact(OPS.elementwise([x], [f"{a.post_op} 0"]), a(x))


class Behind(nn.Module):
    """An activation of what a linear gives: of its input, so that each special value meets it by itself."""

    def __init__(self, a: Activation) -> None:
        super().__init__()
        self.a, self.identity = a, nn.Linear(1, 20)
        nn.init.ones_(self.identity.weight)
        nn.init.zeros_(self.identity.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(self.identity(x))


@pytest.mark.parametrize("a", PACKED_ONES, ids=name_of)
def test_a_post_op_has_aten_s_values(a):
    x = torch.cat([torch.linspace(-12, 12, 301), torch.tensor([torch.nan, torch.inf, -torch.inf, 0, 30, -30])])
    if a.op == "aten::log":
        x = x[~(x.abs() <= 0.2)]  # of a tiny sum that is rounded
    if "gelu" in a.op:
        x = x[~x.isinf()]  # where some CPUs' aten gives NaN
    x = x.unsqueeze(1)
    model = Behind(a).eval()
    optimized = ipex.jit_optimize(torch.jit.trace(model, x, check_trace=False))
    assert packed_post_ops(optimized) == [[a.post_op]]
    assert not [kind for kind in kinds(optimized) if kind.startswith("aten::")]
    with torch.no_grad():
        ours, eager = optimized(x), model(x)
    assert torch.equal(ours.isnan(), eager.isnan())
    torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6, equal_nan=True)


class Apply(nn.Module):
    def __init__(self, a: Activation) -> None:
        super().__init__()
        self.a = a

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


@pytest.mark.parametrize("a", PACKED_ONES, ids=name_of)
def test_a_norm_takes_it(a):
    if a.op.startswith("ipex::"):
        pytest.skip("norms follow canonical form")
    norm = nn.GroupNorm(2, 8)
    nn.init.constant_(norm.bias, 5)  # a logarithm has a value
    optimized = check_against_eager(nn.Sequential(norm, Apply(a)), torch.randn(2, 8, 6, 5))
    assert not [kind for kind in kinds(optimized) if kind.startswith("aten::")]


def constant(value: Any) -> str:
    kind = "NoneType" if value is None else "str" if isinstance(value, str) else "float"
    text = "" if value is None else f'[value="{value}"]' if isinstance(value, str) else f"[value={value}]"
    return f"{kind} = prim::Constant{text}()"


@pytest.mark.parametrize("a", PACKED_ONES, ids=name_of)
def test_fuse_activation_fires(a):
    constants = [f"%a{i} : {constant(value)}" for i, value in enumerate(a.arguments)]
    arguments = ", ".join(["%y", *(f"%a{i}" for i in range(len(a.arguments)))])
    for op in (a.op, a.op + "_") if a.has_in_place else (a.op,):
        ir = graph_ir("%x : Tensor", *PACKED, *constants, f"%z : Tensor = {op}({arguments})", returns="%z")
        result = assert_rewrites("fuse_activation", ir)
        assert result.count(op) == 0
        assert f'value=["{a.post_op}"]' in result.graph
