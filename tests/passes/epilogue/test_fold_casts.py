import pytest
import torch
from torch import Tensor, nn

import ipex
from anchored import After, trace
from ir import CONSTANTS, WEIGHT, packed
from low_precision import both_dtypes, check_16_bit
from support import assert_rewrites, assert_round_trip, assert_same, assert_unchanged, graph_ir, kinds

# %y is computed from %x by a convolution with a bfloat16 weight.
PACKED = (
    *(line.replace(WEIGHT, WEIGHT.replace("Float", "BFloat16")) for line in CONSTANTS),
    "%bfloat16 : int = prim::Constant[value=15]()",
    "%float16 : int = prim::Constant[value=5]()",
    "%float32 : int = prim::Constant[value=6]()",
    *packed("x", "y", "0"),
)
TWOS = "%twos : int[] = prim::Constant[value=[2, 2]]()"


def cast(source: str, result: str, dtype: str, copy: str = "false") -> str:
    return f"%{result} : Tensor = aten::to(%{source}, %{dtype}, %false, %{copy}, %none)"


def test_fires_on_a_pair():
    casts = cast("y", "wide", "float32"), cast("wide", "n", "bfloat16")
    rewritten = assert_rewrites(
        "fold_casts", graph_ir("%x : Tensor", *PACKED, *casts, *packed("n", "z", "1"), returns="%z")
    )
    assert rewritten.count("aten::to") == 0
    assert [d.reason for d in rewritten.report] == ["removed, with the cast to float32 that it undoes"]


def test_fires_through_what_moves_or_chooses():
    ir = graph_ir(
        "%x : Tensor",
        *PACKED,
        TWOS,
        cast("y", "wide", "float32"),
        "%r : Tensor = aten::relu(%wide)",
        "%p : Float(*, *, *, *) = aten::max_pool2d(%r, %twos, %twos, %zeros, %ones, %false)",
        "%t : Tensor = aten::transpose(%p, %zero, %one)",
        cast("t", "z", "bfloat16"),
        returns="%z",
    )
    rewritten = assert_rewrites("fold_casts", ir)
    assert rewritten.count("aten::to") == 0
    assert "Float(*" not in rewritten.graph  # it is no longer that


def test_fires_on_concatenations():
    ir = graph_ir(
        "%x : Tensor",
        *PACKED,
        *packed("x", "y1", "1"),
        cast("y", "wide", "float32"),
        cast("y1", "wide1", "float32"),
        "%list : Tensor[] = prim::ListConstruct(%wide, %wide1)",
        "%c : Tensor = aten::cat(%list, %one)",
        cast("c", "z", "bfloat16"),
        returns="%z",
    )
    assert assert_rewrites("fold_casts", ir).count("aten::to") == 0


def test_keeps_the_float32_value_for_its_other_readers():
    ir = graph_ir(
        "%x : Tensor",
        *PACKED,
        cast("y", "wide", "float32"),
        cast("wide", "n", "bfloat16"),
        *packed("n", "z", "1"),
        "%s : Tensor = aten::softmax(%wide, %one, %none)",
        returns="%z, %s",
    )
    assert assert_rewrites("fold_casts", ir).count("aten::to") == 1


def test_fires_where_an_op_in_between_has_other_readers():
    ir = graph_ir(
        "%x : Tensor",
        *PACKED,
        TWOS,
        cast("y", "wide", "float32"),
        "%p : Tensor = aten::max_pool2d(%wide, %twos, %twos, %zeros, %ones, %false)",
        cast("p", "n", "bfloat16"),
        *packed("n", "z", "1"),
        cast("p", "n2", "bfloat16"),
        *packed("n2", "z2", "2"),
        "%s : Tensor = aten::exp(%p)",
        returns="%z, %z2, %s",
    )
    rewritten = assert_rewrites("fold_casts", ir)
    assert rewritten.count("aten::to") == 0
    assert rewritten.count("ipex::restore_precision") == 1  # for exp


def test_a_cast_to_the_dtype_that_is_there():
    ir = graph_ir("%x : Tensor", *PACKED, cast("x", "a", "float16"), cast("a", "b", "float16"), returns="%b")
    rewritten = assert_rewrites("fold_casts", ir)
    assert rewritten.count("aten::to") == 1
    assert [d.reason for d in rewritten.report] == ["removed: its input has that dtype"]


NOT_FOLDED = {
    "the first dtype is not known": (cast("x", "wide", "float32"), cast("wide", "z", "bfloat16")),
    "it was another 16-bit one": (cast("y", "wide", "float32"), cast("wide", "z", "float16")),
    "it rounds": (cast("x", "wide", "float32"), cast("wide", "v", "bfloat16"), cast("v", "z", "float32")),
    "the op in between computes": (
        cast("y", "wide", "float32"),
        "%e : Tensor = aten::exp(%wide)",
        cast("e", "z", "bfloat16"),
    ),
    "it copies": (cast("y", "wide", "float32"), cast("wide", "z", "bfloat16", copy="true")),
    "its input may have gaps": (
        cast("x", "v", "bfloat16"),
        cast("v", "wide", "float32"),
        cast("wide", "z", "bfloat16"),
    ),
    "the list has another reader": (
        cast("y", "wide", "float32"),
        "%list : Tensor[] = prim::ListConstruct(%wide)",
        "%z1 : Tensor = aten::cat(%list, %one)",
        cast("z1", "z", "bfloat16"),
        "%n : int = aten::len(%list)",
    ),
}


@pytest.mark.parametrize("name", NOT_FOLDED)
def test_leaves_alone(name):
    returns = "%z, %n" if name == "the list has another reader" else "%z"
    ir = graph_ir("%x : Tensor", *PACKED, *NOT_FOLDED[name], returns=returns)
    assert_unchanged("fold_casts", ir, reason=None)


def test_declines_where_something_is_overwritten():
    ir = graph_ir(
        "%x : Tensor",
        *PACKED,
        cast("y", "wide", "float32"),
        cast("wide", "z", "bfloat16"),
        "%v : Tensor = aten::add_(%y, %x, %one)",
        returns="%z, %v",
    )
    assert_unchanged("fold_casts", ir, reason="something is overwritten")


def test_declines_where_the_value_and_its_copy_are_returned():
    ir = graph_ir("%x : Tensor", *PACKED, cast("y", "wide", "float32"), cast("wide", "z", "bfloat16"), returns="%y, %z")
    assert_unchanged("fold_casts", ir, reason=None)


class Mixed(nn.Module):
    """Casts as models have them: float32 for a while, the same cast twice, a cast of a cast."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(4, 8, 3), nn.Conv2d(8, 4, 1), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        dtype = self.first.weight.dtype
        y = torch.max_pool2d(self.first(x.to(dtype)).float(), 2)
        a, b = self.second(y.to(dtype)), self.second(y.to(dtype).to(dtype))
        y = torch.softmax(a.float(), 1) + b.float().relu()
        return self.third(y.to(dtype).permute(0, 2, 3, 1)).float()


@both_dtypes
def test_matches_eager_in_a_mixed_graph(tmp_path, dtype):
    model, x = Mixed().eval().to(dtype), torch.randn(2, 4, 9, 9)
    optimized = ipex.jit_optimize(trace(model, x))
    with torch.no_grad():
        assert_same(optimized(x), model(x), tolerance=4 * torch.finfo(dtype).eps)
    assert kinds(optimized)["ipex::convolution_run"] == 3
    # In, to softmax, the sum's other term, to the linear, and out.
    assert kinds(optimized)["aten::to"] == 5
    assert_round_trip(optimized, tmp_path, x)


@both_dtypes
def test_the_callers_tensors_are_not_shared(dtype):
    """A cast to the dtype that is there gives eager the tensor itself; others give it a copy."""
    for function in (lambda f, x: f(x).float().to(dtype), lambda f, x: x.float().to(dtype), lambda f, x: x.to(dtype)):
        linear, x = nn.Linear(4, 4).eval().to(dtype), torch.randn(3, 4).to(dtype)
        model = After(linear, function)
        optimized = ipex.jit_optimize(trace(model, x))
        with torch.no_grad():
            assert (optimized(x).data_ptr() == x.data_ptr()) == (model(x).data_ptr() == x.data_ptr())


@both_dtypes
def test_special_values_stay(dtype):
    model = After(nn.Identity(), lambda f, x: torch.max_pool1d(x.to(dtype).float(), 1).to(dtype))
    x = torch.tensor([[[float("nan"), float("inf"), -float("inf"), -0.0, 1e-30, 3.0]]])
    with torch.no_grad():
        assert_same(ipex.jit_optimize(trace(model, x))(x), model(x), tolerance=0)


@both_dtypes
def test_a_16_bit_model_with_its_own_casts(dtype):
    check_16_bit(
        After(nn.Linear(6, 6), lambda f, x: f(f(x).float().relu().to(x.dtype)).float().exp().to(x.dtype)),
        torch.randn(5, 6),
        dtype,
    )
