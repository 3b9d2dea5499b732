import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from low_precision import assert_no_worse
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "fuse_cached_attention"
INPUTS = "%q : Tensor, %a : Tensor, %k : Tensor, %b : Tensor, %v : Tensor"
CONSTANTS = (
    "%none : NoneType = prim::Constant()",
    "%zero : float = prim::Constant[value=0.]()",
    "%no : bool = prim::Constant[value=0]()",
    "%dim : int = prim::Constant[value=-2]()",
    "%other : int = prim::Constant[value=2]()",
)
JOINS = (
    "%la : Tensor[] = prim::ListConstruct(%a, %k)",
    "%keys : Tensor = ipex::cat(%la, %dim)",
    "%lb : Tensor[] = prim::ListConstruct(%b, %v)",
    "%values : Tensor = ipex::cat(%lb, %dim)",
)
ATTENDS = "%y : Tensor = ipex::scaled_dot_product_attention(%q, %keys, %values, %none, %zero, %no, %none, %no)"


def graph(*lines: str, returns: str = "%y, %keys, %values") -> str:
    return graph_ir(INPUTS, *CONSTANTS, *lines, returns=returns)


def test_fires():
    result = assert_rewrites(NAME, graph(*JOINS, ATTENDS))
    assert result.count("ipex::cached_attention") == 1
    assert result.count("ipex::cat") == 0


@pytest.mark.parametrize("dim", [0, 1, 2, -2, 3])
@torch.no_grad()
def test_keys_that_are_joined_elsewhere(dim):
    """Beside each other lie words; what else is joined is as the ops themselves have it."""
    q, a, k = torch.randn(2, 4, 1, 8), torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8)
    if dim == 0:
        a, k = a[:1], k[:1]
    elif dim == 1:
        a, k = a[:, :2], k[:, :2]
    elif dim == 3:
        a, k = a[..., :4], k[..., :4]
    keys = torch.cat([a, k], dim)
    y, joined_keys, joined_values = torch.ops.ipex.cached_attention(
        q, a, k, a, k, dim, None, 0.0, False, None, False, None
    )
    assert torch.equal(joined_keys, keys)
    assert torch.equal(joined_values, keys)
    torch.testing.assert_close(y, F.scaled_dot_product_attention(q, keys, keys))


@pytest.mark.parametrize("heads", [1, 2])
@torch.no_grad()
def test_heads_that_serve_several_of_the_query(heads):
    """One head alone is channels-last too, if its stride says so, and eager joins what is."""
    q, a, k = torch.randn(2, 4, 1, 8), torch.randn(2, heads, 5, 8), torch.randn(2, heads, 2, 8)
    for x, z in ((a, k), (t.to(memory_format=torch.channels_last) for t in (a, k))):
        keys = torch.cat([x, z], 2)
        y, joined_keys, joined_values = torch.ops.ipex.cached_attention(
            q, x, z, x, z, 2, None, 0.0, False, None, True, None
        )
        torch.testing.assert_close(y, F.scaled_dot_product_attention(q, keys, keys, enable_gqa=True))
        for joined in (joined_keys, joined_values):
            assert torch.equal(joined, keys)
            assert joined.stride() == keys.stride()


def test_declines_where_keys_are_read_before():
    early = "%t : Tensor = aten::tanh(%keys)"
    assert_unchanged(NAME, graph(*JOINS, early, ATTENDS, returns="%y, %t"), reason="has a reader before")


def test_declines_where_they_are_queries_too():
    attends = ATTENDS.replace("(%q,", "(%keys,")
    assert_unchanged(NAME, graph(*JOINS, attends), reason="has a reader before")


def test_declines_where_something_is_overwritten():
    write = "%w : Tensor = aten::relu_(%a)"
    assert_unchanged(NAME, graph(*JOINS, write, ATTENDS), reason="overwritten")


def test_leaves_other_dimensions_alone():
    joins = (*JOINS[:3], JOINS[3].replace("%dim", "%other"))
    assert_unchanged(NAME, graph(*joins, ATTENDS), reason=None)


def test_leaves_joins_of_other_than_two_parts_alone():
    for parts in ("%a, %k, %k", "%a"):
        joins = (JOINS[0].replace("%a, %k", parts), *JOINS[1:])
        assert_unchanged(NAME, graph(*joins, ATTENDS), reason=None)


class Step(nn.Module):
    """A layer of a model that keeps keys and values from step to step."""

    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor, past_key: Tensor, past_value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        k, v = torch.cat((past_key, k), -2), torch.cat((past_value, v), -2)
        y = F.scaled_dot_product_attention(q, k, v, mask)
        return self.out(y.transpose(1, 2).flatten(2)), k, v


def inputs(batch: int, past: int, new: int, heads: int = 4) -> tuple[Tensor, ...]:
    x = torch.randn(batch, new, 32)
    caches = [torch.randn(batch, heads, past, 32 // heads) for _ in range(2)]
    return x, *caches, torch.randn(new, past + new)


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script):
    first = inputs(2, 9, 1)
    x, key, value, mask = first
    not_finite = (x, key, value.index_fill(2, torch.tensor(3), float("nan")), mask)
    apart = (x, key.transpose(1, 2).contiguous().transpose(1, 2), value, mask)
    prompt = inputs(1, 70, 130)
    nothing = inputs(2, 0, 3)
    also = (inputs(1, 1, 1), not_finite, apart, prompt, nothing)
    optimized = check_against_eager(Step(), *first, script=script, also=also)
    assert kinds(optimized)["ipex::cached_attention"] == 1
    assert_round_trip(optimized, tmp_path, *first)


def test_autocast_gradients_and_other_dtypes():
    model, given = Step().eval(), inputs(2, 9, 1)
    optimized = ipex.jit_optimize(torch.jit.trace(model, given))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for ours, theirs in zip(optimized(*given), model(*given)):
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
    leaves = [[t.clone().requires_grad_() for t in given] for _ in range(2)]
    for module, own in zip((model, optimized), leaves):
        sum((y * y).sum() for y in module(*own)).backward()
    for ours, theirs in zip(leaves[1], leaves[0]):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_computes_in_bfloat16():
    model, given = Step().eval(), inputs(2, 9, 1)
    optimized = ipex.jit_optimize(torch.jit.trace(model, given), dtype=torch.bfloat16)
    with torch.no_grad():
        for ours, theirs in zip(optimized(*given), model(*given)):
            torch.testing.assert_close(ours, theirs, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("new", [1, 5])
def test_a_model_of_16_bits(dtype, new):
    """Joined by the thread that reads them, as in float32."""
    model = Step().eval().to(dtype)
    given = tuple(t.to(dtype) for t in inputs(2, 9, new))
    optimized = ipex.jit_optimize(torch.jit.trace(model, given))
    assert kinds(optimized)["ipex::cached_attention"] == 1
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(*(t.double() for t in given))
        for ours, stock, true in zip(optimized(*given), model(*given), exact):
            assert (ours.dtype, ours.stride()) == (stock.dtype, stock.stride())
            assert_no_worse(ours, stock, true, dtype)


def test_can_be_switched_off():
    optimized = ipex.jit_optimize(torch.jit.trace(Step().eval(), inputs(2, 9, 1)), disable=[NAME])
    assert kinds(optimized)["ipex::cat"] == 2
