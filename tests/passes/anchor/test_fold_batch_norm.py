import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from ir import CONSTANTS, PACKED, packed
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

STATISTICS = (
    "%gamma : Float(8, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
    "%eps : float = prim::Constant[value=9.9999999999999995e-06]()",
    "%momentum : float = prim::Constant[value=0.10000000000000001]()",
)


def batch_norm(of: str, training: str = "%false", mean: str = "%gamma") -> str:
    arguments = f"%{of}, %gamma, %gamma, {mean}, %gamma, {training}, %momentum, %eps, %true"
    return f"%z : Tensor = aten::batch_norm({arguments})"


def test_fires_after_conv2d():
    ir = graph_ir("%x : Tensor", *PACKED, *STATISTICS, batch_norm("y"), returns="%z")
    result = assert_rewrites("fold_batch_norm", ir)
    assert result.count("aten::batch_norm") == 0
    assert result.count("ipex::convolution_run") == 1


def test_declines_second_reader():
    ir = graph_ir("%x : Tensor", *PACKED, *STATISTICS, batch_norm("y"), returns="%y, %z")
    assert_unchanged("fold_batch_norm", ir, reason="another reader")


def test_declines_training_mode():
    ir = graph_ir("%x : Tensor", *PACKED, *STATISTICS, batch_norm("y", training="%true"), returns="%z")
    assert_unchanged("fold_batch_norm", ir, reason="not in eval mode")


def test_declines_a_mode_that_is_computed():
    ir = graph_ir("%x : Tensor, %b : bool", *PACKED, *STATISTICS, batch_norm("y", training="%b"), returns="%z")
    assert_unchanged("fold_batch_norm", ir, reason="not in eval mode")


@pytest.mark.filterwarnings("ignore")
def test_declines_statistics_that_give_no_number():
    """Of a variance below zero."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    model[1].running_var[2] = -1
    x = torch.randn(1, 3, 6, 6)
    optimized = ipex.jit_optimize(model, x)
    assert "ipex::batch_norm" in kinds(optimized)
    torch.testing.assert_close(optimized(x), model(x), equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_declines_a_scale_beyond_float32():
    """The weight would be in range, times the scale: eager's is not, and nobody could divide by it."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, eps=1e-20)).eval()
    nn.init.constant_(model[0].weight, 1e-30)
    nn.init.constant_(model[1].weight, 1e30)
    nn.init.zeros_(model[1].running_var)
    x = torch.rand(1, 3, 6, 6)
    optimized = ipex.jit_optimize(model, x)
    assert kinds(optimized)["ipex::batch_norm"] == 1
    assert torch.equal(optimized(x).isfinite(), model(x).isfinite())


def test_declines_computed_statistics():
    ir = graph_ir("%x : Tensor, %m : Tensor", *PACKED, *STATISTICS, batch_norm("y", mean="%m"), returns="%z")
    assert_unchanged("fold_batch_norm", ir, reason="running_mean is not a constant")


def test_declines_without_a_packed_op():
    ir = graph_ir("%x : Tensor", *CONSTANTS, *STATISTICS, batch_norm("x"), returns="%z")
    assert_unchanged("fold_batch_norm", ir, reason="does not come from a packed op")


def test_declines_after_a_post_op():
    ir = graph_ir("%x : Tensor", *PACKED, *STATISTICS, batch_norm("y"), returns="%z")
    ir = ir.replace("annotate(List[str], [])", '["relu"]')
    assert_unchanged("fold_batch_norm", ir, reason="comes in between")


def test_folds_one_of_two_in_a_row():
    second = batch_norm("z").replace("%z : ", "%n : ")
    ir = graph_ir("%x : Tensor", *PACKED, *STATISTICS, batch_norm("y"), second, returns="%n")
    result = assert_rewrites("fold_batch_norm", ir)
    assert result.count("aten::batch_norm") == 1
    assert "a batch_norm is folded already" in [d.reason for d in result.report]


def test_folds_into_the_right_one_of_two():
    ir = graph_ir("%x : Tensor", *PACKED, *packed("x", "y2", "2"), *STATISTICS, batch_norm("y2"), returns="%y, %z")
    assert assert_rewrites("fold_batch_norm", ir).count("ipex::convolution_run") == 2


def lively(norm: nn.modules.batchnorm._BatchNorm) -> nn.Module:
    width = norm.num_features
    norm.running_mean, norm.running_var = torch.randn(width), torch.rand(width) + 0.5
    if norm.affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return norm


def test_a_refused_dtype_is_refused_in_every_rank():
    model = nn.Sequential(nn.Linear(6, 6), lively(nn.BatchNorm1d(6))).eval().bfloat16()
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, torch.randn(4, 6).bfloat16()))
        for x in (torch.randn(4, 6), torch.randn(2, 6, 6)):
            for module in (model, optimized):
                with pytest.raises(RuntimeError, match="dtype|scalar type"):
                    module(x)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
def test_conv2d_matches_eager(tmp_path, bias, affine, groups):
    conv = nn.Conv2d(4, 8, 3, bias=bias, groups=groups)
    model = nn.Sequential(conv, lively(nn.BatchNorm2d(8, affine=affine)), nn.ReLU())
    x = torch.randn(2, 4, 9, 9)
    optimized = check_against_eager(model, x)
    assert kinds(optimized)["aten::batch_norm"] == 0
    assert_round_trip(optimized, tmp_path, x)


@pytest.mark.parametrize("groups", [1, 4])
def test_conv_transpose2d_matches_eager(groups):
    model = nn.Sequential(nn.ConvTranspose2d(4, 8, 3, groups=groups), lively(nn.BatchNorm2d(8)))
    assert kinds(check_against_eager(model, torch.randn(2, 4, 9, 9)))["ipex::batch_norm"] == 0


def test_linear_matches_eager(tmp_path):
    model = nn.Sequential(nn.Linear(6, 5), lively(nn.BatchNorm1d(5)), nn.ReLU())
    x = torch.randn(7, 6)
    optimized = check_against_eager(model, x)
    assert kinds(optimized)["aten::batch_norm"] == 0
    assert_round_trip(optimized, tmp_path, x)


def test_a_vanishing_channel():
    norm = lively(nn.BatchNorm2d(8))
    with torch.no_grad():
        norm.weight[3] = 0
    check_against_eager(nn.Sequential(nn.Conv2d(4, 8, 1), norm), torch.randn(2, 4, 5, 5))


@pytest.mark.parametrize(
    ("anchor", "norm", "x", "other"),
    [
        (nn.Linear(6, 5), nn.BatchNorm1d(5), torch.randn(7, 6), torch.randn(7, 5, 6)),
        (nn.Linear(6, 5), nn.BatchNorm2d(5), torch.randn(2, 5, 3, 6), torch.randn(1, 5, 2, 6)),
    ],
)
def test_another_rank_is_another_batch_norm(anchor, norm, x, other):
    """For [N, L, C] the channels of batch_norm are L: what was folded along C has to be undone."""
    check_against_eager(nn.Sequential(anchor, lively(norm), nn.ReLU()), x, also=(other,))


class Functional(nn.Module):
    """batch_norm that asks nobody for the rank of its input."""

    def __init__(self, anchor: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.anchor, self.norm = anchor, norm

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm
        return F.batch_norm(self.anchor(x), n.running_mean, n.running_var, n.weight, n.bias, eps=n.eps)


@pytest.mark.parametrize("scale", [0.0, 1e-30])
@pytest.mark.parametrize(
    ("anchor", "norm", "x", "other"),
    [
        (nn.Linear(6, 5), nn.BatchNorm1d(5), torch.randn(7, 6), torch.randn(7, 5, 6)),
        (nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5), torch.randn(7, 6), torch.randn(7, 5, 6)),
        (nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5), torch.randn(2, 3, 6, 6), torch.randn(3, 5, 4)),
        (nn.Conv1d(3, 5, 3, padding=1), nn.BatchNorm1d(5), torch.randn(2, 3, 6), torch.randn(3, 5)),
    ],
)
def test_a_channel_that_vanishes_is_there_in_another_rank(anchor, norm, x, other, scale, tmp_path):
    """What was folded can't be divided out again: the packed op keeps what was there."""
    with torch.no_grad():
        lively(norm).weight[3] = scale
    also = (other,) if anchor(other).dim() != 2 or anchor(other).size(1) == 5 else ()
    optimized = check_against_eager(Functional(anchor, norm), x, also=also)
    assert kinds(optimized)["ipex::batch_norm"] == 0
    loaded = assert_round_trip(optimized, tmp_path, x)
    with torch.no_grad():
        torch.testing.assert_close(loaded(other), optimized(other), rtol=0, atol=0)


@pytest.mark.parametrize("groups", [1, 8])
def test_a_channel_of_a_transposed_convolution_that_vanishes(groups):
    norm = lively(nn.BatchNorm1d(16))
    with torch.no_grad():
        norm.weight[12] = 0  # there are fewer channels of the input
    model = Functional(nn.ConvTranspose1d(8, 16, 3, groups=groups), norm)
    optimized = check_against_eager(model, torch.randn(2, 8, 9))
    assert kinds(optimized)["ipex::batch_norm"] == 1


class Second(nn.Module):
    """The value before batch_norm is returned too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), lively(nn.BatchNorm2d(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        return y, self.norm(y)


def test_a_second_reader_keeps_its_value():
    check_against_eager(Second(), torch.randn(1, 3, 8, 8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_declines_where_the_weight_would_overflow(dtype):
    """Folded, it would be infinite in its dtype; eager multiplies what is small by what is large."""
    model = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4)).to(dtype).eval()
    largest = torch.finfo(dtype).max
    nn.init.constant_(model[0].weight, largest / 100)
    nn.init.constant_(model[1].weight, 500)
    x = torch.full((1, 4, 2, 2), 1e-5 if dtype == torch.float16 else 1e-9, dtype=dtype)
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, x, check_trace=False))
        assert torch.isfinite(optimized(x)).all()
        assert torch.equal(optimized(x).isfinite(), model(x).isfinite())
    assert kinds(optimized)["ipex::batch_norm"] == 1
