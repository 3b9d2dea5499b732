import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ipex  # noqa: F401
from support import assert_same, fast, own_thread_count, why_aten

OPS = torch.ops.ipex
EPS = 1e-5
LAYOUTS = [torch.contiguous_format, torch.channels_last, torch.channels_last_3d]
Parameters = tuple[Tensor | None, Tensor | None]


def affine(channels: int, dtype: torch.dtype = torch.float32) -> Parameters:
    return torch.randn(channels).to(dtype), torch.randn(channels).to(dtype)


def ours(x: Tensor, groups: int, p: Parameters = (None, None), post_ops: tuple[str, ...] = ()) -> Tensor:
    return OPS.group_norm(x, groups, *p, EPS, list(post_ops))


def eager(x: Tensor, groups: int, p: Parameters = (None, None)) -> Tensor:
    """Eager's strides; the values that it gives for a contiguous input, which are the better ones."""
    laid_out = F.group_norm(x, groups, *p, EPS)
    return laid_out.copy_(F.group_norm(x.contiguous(), groups, *p, EPS))


def test_rows_of_samples_may_keep_their_layout():
    """As speech models have them: a channel for each group, and the samples of all channels side by side."""
    rows = torch.randn(2, 70, 24).transpose(1, 2)
    p = affine(24)
    for groups in (24, 3):
        y = OPS.group_norm(rows, groups, *p, EPS, ["relu"], False)
        assert y.stride() == rows.stride()
        assert_same(y.contiguous(), eager(rows, groups, p).relu())
        assert ours(rows, groups, p).is_contiguous()
        assert OPS.group_norm(rows.contiguous(), groups, *p, EPS, [], False).is_contiguous()
    image = rows.unsqueeze(3).contiguous(memory_format=torch.channels_last)
    assert_same(OPS.group_norm(image, 3, *p, EPS, [], False), eager(image, 3, p))


def images(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """An image in every layout that it can have."""
    x = torch.randn(shape).to(dtype)
    return [x.contiguous(memory_format=layout) for layout in LAYOUTS[:1] + LAYOUTS[x.dim() - 3 : x.dim() - 2]]


@pytest.mark.parametrize(
    ("shape", "groups"),
    [
        ((2, 6), 3),
        ((3, 8, 7), 2),
        ((2, 33, 5, 4), 11),
        ((2, 12, 3, 5), 1),
        ((1, 64, 40, 37), 32),  # several pieces
        ((2, 700, 9, 2), 2),  # more channels than one pass of the kernel takes
        ((1, 256, 3, 3), 256),
        ((2, 8, 3, 4, 5), 4),
        ((5, 4, 1, 1), 2),
        ((2, 1, 6, 6), 1),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_matches_eager(shape, groups, dtype):
    tolerance = 1e-5 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    for x in images(shape, dtype):
        for p in ((None, None), affine(shape[1], dtype), affine(shape[1]), (affine(shape[1])[0], None)):
            assert_same(ours(x, groups, p), eager(x, groups, p), tolerance)
        assert fast(lambda x=x: ours(x, groups, affine(shape[1], dtype)))


def instance(x: Tensor, p: Parameters = (None, None)) -> Tensor:
    return F.instance_norm(x, None, None, *p, eps=EPS)


@pytest.mark.parametrize("shape", [(2, 6, 5), (1, 33, 5, 4), (3, 16, 20, 30), (2, 4, 3, 4, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_instance_norm_matches_eager(shape, dtype):
    tolerance = 1e-5 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    for x in images(shape, dtype):
        for p in ((None, None), affine(shape[1], dtype)):
            assert_same(OPS.instance_norm(x, *p, EPS, [], True), instance(x, p), tolerance)
            kept = OPS.instance_norm(x, *p, EPS, [], False)
            assert kept.stride() == x.stride()
            assert_same(kept.contiguous(), instance(x, p), tolerance)
        assert fast(lambda x=x: OPS.instance_norm(x, None, None, EPS, [], True))


def error(actual: Tensor, x: Tensor, groups: int) -> float:
    return float((actual.double() - F.group_norm(x.contiguous().double(), groups)).abs().max())


@pytest.mark.parametrize("offset", [0.0, 1.0, -100.0, 1e4, 3e6])
@pytest.mark.parametrize("groups", [1, 8, 32])
def test_is_as_exact_as_eager_on_contiguous_images(offset, groups):
    x = torch.randn(2, 32, 45, 41) + offset
    least = error(F.group_norm(x, groups, eps=EPS), x, groups)
    for laid_out in (x, x.contiguous(memory_format=torch.channels_last)):
        assert fast(lambda laid_out=laid_out: ours(laid_out, groups))
        assert error(ours(laid_out, groups), x, groups) <= max(least, 1e-6)


@pytest.mark.parametrize("shape", [(2, 4), (2, 4, 1), (2, 4, 1, 1)])
def test_a_group_of_one_element_is_its_bias(shape):
    weight, bias = affine(4)
    expected = bias.view(1, 4, *[1] * (len(shape) - 2)).expand(shape)
    assert torch.equal(ours(torch.randn(shape) * 100, 4, (weight, bias)), expected)


def test_a_group_of_equal_elements_is_its_bias():
    for x in images((2, 4, 70, 80)):
        x.fill_(12345.678)
        bias = torch.randn(4)
        expected = bias.view(1, 4, 1, 1).expand(x.shape)
        assert torch.equal(ours(x, 2, (torch.randn(4), bias)), expected)


def test_a_first_guess_far_from_the_mean():
    # What is looked at first is the one part of the image that is unlike the rest.
    x = torch.randn(1, 4, 64, 64) * 1e-3
    x.view(1, 2, -1)[..., :: 2 * 64 * 64 // 16] = 1e3
    for laid_out in (x, x.contiguous(memory_format=torch.channels_last)):
        assert error(ours(laid_out, 2), x, 2) <= 5e-7 * ours(laid_out, 2).abs().max()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e38])
def test_what_is_not_finite_stays_in_its_group(value):
    for x in images((2, 6, 5, 7)):
        x[1, 2, 3, 4] = value
        y = ours(x, 3)
        assert_same(y, eager(x, 3))
        rest = torch.ones(2, 6, dtype=torch.bool)
        rest[1, 2:4] = False
        assert y[rest].isfinite().all()


POST_OPS = {
    ("relu",): F.relu,
    ("silu",): F.silu,
    ("leaky_relu(0.2)",): lambda y: F.leaky_relu(y, 0.2),
    ("gelu",): F.gelu,
    ("mish",): F.mish,  # no kernel has it
    ("mul_number(2.0)", "elu(1.0,1.0,1.0)", "relu6"): lambda y: F.relu6(F.elu(y * 2)),
}


@pytest.mark.parametrize("post_ops", POST_OPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_post_ops(post_ops, dtype):
    tolerance = 1e-5 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps
    for x in images((2, 36, 9, 11), dtype):
        p = affine(36)
        assert_same(ours(x, 4, p, post_ops), POST_OPS[post_ops](eager(x, 4, p)), tolerance)
        assert_same(
            OPS.instance_norm(x, *p, EPS, list(post_ops), True),
            POST_OPS[post_ops](instance(x.float(), p).to(dtype)),
            tolerance,
        )


def test_post_ops_with_operands_are_refused():
    with pytest.raises(RuntimeError, match="without operands"):
        ours(torch.randn(1, 4, 3, 3), 2, post_ops=("add",))


def test_threads_make_no_difference():
    cases = [(x, groups) for x in images((2, 64, 33, 35)) for groups in (1, 8, 64)]
    with own_thread_count():
        torch.set_num_threads(1)
        alone = [ours(x, groups) for x, groups in cases]
        torch.set_num_threads(3)
        assert all(torch.equal(ours(x, groups), y) for (x, groups), y in zip(cases, alone))


def rest() -> dict[str, tuple[Any, ...]]:
    """What the kernels do not take."""
    x, (weight, bias) = torch.randn(2, 4, 3, 5), affine(4)
    return {
        "CPU tensor": (x.double(), 2, (weight.double(), bias.double())),
        "empty": (x[:0], 2, (weight, bias)),
        "plain": (x, 2, (torch.randn(8)[::2], bias)),
    }


@pytest.mark.parametrize("reason", rest())
def test_the_rest_is_left_to_aten(reason):
    x, groups, p = rest()[reason]
    assert_same(ours(x, groups, p), F.group_norm(x, groups, *p, EPS), tolerance=0)
    assert reason in str(why_aten(lambda: ours(x, groups, p)))


@pytest.mark.parametrize("x", [torch.randn(2, 8, 3, 5)[:, ::2], torch.randn(2, 4, 5, 3).mT, torch.randn(2, 9, 4).mT])
def test_what_is_not_dense_is_copied_as_aten_copies_it(x):
    assert fast(lambda: ours(x, 2))
    assert_same(ours(x, 2), F.group_norm(x, 2, eps=EPS))


def test_sizes_that_eager_refuses():
    for x, groups, p in (
        (torch.randn(2, 4, 3), 3, (None, None)),
        (torch.randn(2, 4, 3), 2, affine(5)),
        (torch.randn(2, 4, 3), 2, affine(4, torch.bfloat16)),
        (torch.randn(4), 2, (None, None)),
    ):
        for call in (F.group_norm, ours):
            with pytest.raises((RuntimeError, IndexError)):
                call(x, groups, *(p if call is F.group_norm else (p,)))


def test_gradients_and_autocast_are_those_of_eager():
    x, (weight, bias) = torch.randn(2, 4, 3, 3, requires_grad=True), affine(4)
    wanted = (x, weight.requires_grad_(), bias.requires_grad_())
    actual = torch.autograd.grad(ours(x, 2, (weight, bias), ("relu",)).square().sum(), wanted)
    expected = torch.autograd.grad(F.group_norm(x, 2, weight, bias, EPS).relu().square().sum(), wanted)
    assert_same(actual, expected)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert_same(ours(x, 2, (weight, bias)), F.group_norm(x, 2, weight, bias, EPS), tolerance=0)


def test_native_group_norm():
    for x in images((2, 6, 4, 5)):
        p = affine(6)
        assert_same(OPS.native_group_norm(x, *p, 2, 6, 20, 3, EPS, ["relu"]), eager(x, 3, p).relu())
    # The sizes may say something else about contiguous memory.
    x = torch.randn(2, 6, 4, 5)
    expected = torch.native_group_norm(x, None, None, 4, 3, 20, 3, EPS)[0]
    assert_same(OPS.native_group_norm(x, None, None, 4, 3, 20, 3, EPS, []), expected, tolerance=0)


def test_the_inputs_stay_as_they_are():
    for x in images((2, 6, 40, 50)):
        tensors = (x, *affine(6))
        before = [t.clone() for t in tensors]
        ours(x, 3, tensors[1:], ("relu",))
        assert all(torch.equal(t, b) for t, b in zip(tensors, before))
