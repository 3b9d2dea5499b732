import math

import pytest
import torch
from torch import Tensor

from low_precision import assert_no_worse, both_dtypes
from support import assert_same, assert_same_error, why_aten

INF = math.inf
LOWEST = torch.finfo(torch.float32).min


def heads(*sizes: int) -> Tensor:
    """[batch, heads, length, width], as a linear and a transpose make it."""
    batch, count, length, width = sizes
    return torch.randn(batch, length, count, width).transpose(1, 2)


QUERY, KEY, VALUE = (2, 3, 5, 16), (2, 3, 7, 16), (2, 3, 7, 16)


def inputs() -> list[Tensor]:
    torch.manual_seed(0)
    return [heads(*QUERY), heads(*KEY), heads(*VALUE)]


def eager(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, fill: float | None = None) -> Tensor:
    scores = query @ key.transpose(-1, -2) / 4
    if mask is not None:
        scores = scores + mask if fill is None else scores.masked_fill(mask, fill)
    return scores.softmax(-1) @ value


def ours(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    fill: float | None = None,
    eager_layout: bool = True,
) -> Tensor:
    steps, numbers = ["matmul", "div_number"], [4.0]
    if mask is not None:
        steps.append("add" if fill is None else "masked_fill")
        numbers += [] if fill is None else [fill]
    operands = [] if mask is None else [mask]
    return torch.ops.ipex.attention(
        query, key.transpose(-1, -2), value, [*steps, "softmax", "matmul"], operands, [*numbers, -1.0], eager_layout
    )


def check(*arguments, reason: str | None = None) -> None:
    assert_same(ours(*arguments), eager(*arguments))
    said = why_aten(lambda: ours(*arguments))
    assert (said is None) == (reason is None), said
    assert reason is None or reason in str(said)


MASKS = [(2, 1, 1, 7), (1, 1, 5, 7), (5, 7), (2, 3, 5, 7), (7,), (2, 1, 5, 1), (1,), (2, 3, 1, 1)]


@pytest.mark.parametrize("shape", MASKS)
def test_masks_of_every_shape(shape):
    check(*inputs(), torch.randn(shape))


def test_without_a_mask():
    check(*inputs())
    check(*(t[0] for t in inputs()))  # 3-D
    query, key, value = inputs()
    check(query[:, :, :1], key, value)
    check(query[:, :1], key[:, :1], value[:, :1])
    check(query, key, value[..., :4])
    check(query.contiguous(), key.transpose(-1, -2).contiguous().transpose(-1, -2), value.contiguous())


@pytest.mark.parametrize("width", [8, 64])
@pytest.mark.parametrize("length", [3, 60, 130, 300])
def test_rows_of_one_product(length, width):
    """Values of a long prompt lie far apart, and are brought together."""
    query, key, value = torch.randn(2, length, 3, 2, width).permute(2, 0, 3, 1, 4).unbind(0)
    check(query, key, value)
    check(query, key, value, torch.randn(length, length))
    check(query, key[:, :, :-1], value[:, :, :-1])


def test_more_keys_than_a_block_of_the_kernel():
    query, key, value = torch.randn(1, 2, 40, 8), torch.randn(1, 2, 1100, 8), torch.randn(1, 2, 1100, 8)
    mask = torch.zeros(40, 1100)
    mask[:, :600] = -INF
    check(query, key, value, mask)
    check(query, key, value, torch.full((40, 1100), -INF).triu(1))


@pytest.mark.parametrize("number", [LOWEST, -INF, 1.0, -1e4])
def test_a_mask_with_closed_places(number):
    mask = torch.zeros(2, 1, 1, 7)
    mask[0, ..., 3:] = number
    check(*inputs(), mask)
    mask[1] = number
    check(*inputs(), mask, reason="sees no key" if number == -INF else None)


@pytest.mark.parametrize("number", [INF, math.nan])
def test_a_mask_that_is_no_number(number):
    mask = torch.zeros(2, 1, 1, 7)
    mask[0, ..., 3] = number
    check(*inputs(), mask, reason="sees no key")


@pytest.mark.parametrize("number", [LOWEST, -INF, -1e4, -1e9, -50.0, 0.0, 1.0, math.nan])
@pytest.mark.parametrize("shape", [(2, 1, 1, 7), (5, 7)])
def test_masked_fill(number, shape):
    mask = torch.zeros(shape, dtype=torch.bool)
    mask[0, ..., 3:] = True
    counts = "may still count" if not number < -100 else None
    check(*inputs(), mask, number, reason=counts)
    check(*inputs(), mask[:1].expand(shape), number, reason=counts)
    mask[:] = True
    check(*inputs(), mask, number, reason=None if number == LOWEST else counts or "sees no key")


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("number", [math.nan, INF, -INF, 1e38, 1e20])
def test_special_values(which, number):
    tensors = inputs()
    tensors[which][0, 1, 2, 3] = number
    check(*tensors, reason=None if number == 1e20 else "not finite")


def test_the_rest_is_computed_step_by_step():
    query, key, value = inputs()
    check(query.double(), key.double(), value.double(), reason="float32 or 16 bits")
    check(query[:0], key[:0], value[:0], reason="empty")
    check(query[:, :, :0], key, value, reason="empty")
    check(query, key[:, :, :0], value[:, :, :0], reason="empty")
    check(query, key[:1], value[:1], reason="broadcast")
    check(query, key, value[:1], reason="broadcast")
    check(query[0], key, value, reason="dimensions")
    check(query, key, value, torch.randn(4, 1, 1, 1, 7), reason="shape of the scores")
    check(query[:1], key[:1], value[:1], torch.randn(2, 1, 1, 7), reason="shape of the scores")
    check(query, key, value, torch.tensor(1.0), reason="no CPU tensor of float32 or 16 bits")
    hidden = torch.rand(2, 1, 5, 7) < 0.3
    check(query[:1], key[:1], value[:1], hidden, LOWEST, reason="shape of the scores")


def check_16_bits(steps, operands, numbers, eager, queries: int, dtype: torch.dtype, why: str | None = None) -> None:
    """`eager(scores, operands)` is what the steps between the products are, in the dtype of the scores."""
    sizes = [(2, 3, queries, 16), KEY, VALUE]
    query, key, value = (heads(*size).to(dtype) for size in sizes)
    stock = eager(query @ key.transpose(-1, -2), operands) @ value
    wide = [operand if operand.dtype == torch.bool else operand.double() for operand in operands]
    exact = eager(query.double() @ key.double().transpose(-1, -2), wide).double() @ value.double()
    arguments = (query, key.transpose(-1, -2), value, ["matmul", *steps, "matmul"], operands, numbers, True)
    actual = torch.ops.ipex.attention(*arguments)
    assert (actual.dtype, actual.stride()) == (stock.dtype, stock.stride())
    assert_no_worse(actual, stock, exact, dtype, times=1)
    said = why_aten(lambda: torch.ops.ipex.attention(*arguments))
    assert (said is None) == (why is None), said
    assert why is None or why in str(said)


@both_dtypes
@pytest.mark.parametrize("queries", [1, 5, 70])
def test_16_bits(dtype, queries):
    number = {torch.bfloat16: 15.0, torch.float16: 5.0, torch.float32: 6.0}  # of ScalarType
    mask, hidden = torch.randn(queries, 7).to(dtype), torch.randn(2, 1, queries, 7) < -1
    lowest = torch.finfo(dtype).min
    for steps, operands, numbers, eager_steps in (
        (["div_number", "softmax"], [], [4.0, -1], lambda s, o: (s / 4).softmax(-1)),
        (["mul_number", "add", "softmax"], [mask], [0.25, -1], lambda s, o: (s * 0.25 + o[0]).softmax(-1)),
        # As in GPT-2 and BERT of Hugging Face: the softmax in float32, back to the dtype of the values.
        (
            ["add", "softmax_to", "to"],
            [mask],
            [-1, number[torch.float32], number[dtype]],
            lambda s, o: (s + o[0]).softmax(-1, torch.float32 if s.dtype == dtype else None).to(s.dtype),
        ),
        (["masked_fill", "softmax"], [hidden], [lowest, -1], lambda s, o: s.masked_fill(o[0], lowest).softmax(-1)),
        # A mask of float32 makes them float32.
        (
            ["add", "softmax", "to"],
            [mask.float()],
            [-1, number[dtype]],
            lambda s, o: (s + o[0]).softmax(-1).to(s.dtype),
        ),
    ):
        check_16_bits(steps, operands, numbers, eager_steps, queries, dtype)


def test_what_eager_refuses_in_16_bits():
    query, key, value = (t.bfloat16() for t in inputs())
    call = torch.ops.ipex.attention
    with pytest.raises(RuntimeError):  # weights of float32 times values of bfloat16
        call(query, key.transpose(-1, -2), value, ["matmul", "softmax_to", "matmul"], [], [-1, 6.0], True)
    hidden = torch.zeros(5, 7, dtype=torch.bool)
    with pytest.raises(RuntimeError, match="overflow"):
        ours(query.half(), key.half(), value.half(), hidden, -1e9)
    with pytest.raises(RuntimeError):
        ours(query, key.half(), value)


def test_an_error_is_that_of_eager():
    wrong = torch.randn(1, 1, 1, 1).expand(2, 1, 1, 6)
    with pytest.raises(RuntimeError, match="must match"):
        ours(*inputs(), wrong)


def test_values_of_another_length_are_refused_as_in_eager():
    query, key, value = inputs()
    for other in (value[:, :, :6], torch.cat([value, value], 2)):
        assert_same_error(lambda: ours(query, key, other), lambda: eager(query, key, other))  # noqa: B023


REFUSED = {
    "view of fewer rows": (["matmul", "view"], [], [3, 3, 4, 7], lambda s: s.view(3, 4, 7)),
    "view of no rows": (["matmul", "view"], [], [3, -1, 0, 7], lambda s: s.view(-1, 0, 7)),
    "an input that does not fit": (
        ["baddbmm"],
        [torch.zeros(2, 5, 7)],
        [0.0, 1.0],
        lambda s: torch.baddbmm(torch.zeros(2, 5, 7), s, torch.zeros(3, 7, 7), beta=0.0),
    ),
    "a complex scale": (
        ["matmul", "mul"],
        [torch.tensor(0.5 + 0j)],
        [],
        lambda s: (s * torch.tensor(0.5 + 0j)).softmax(-1),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_steps_that_eager_refuses(name):
    steps, operands, numbers, spelled_out = REFUSED[name]
    query, key, _ = (t[0] for t in inputs())
    assert_same_error(
        lambda: call([*steps, "softmax", "matmul"], operands, [*numbers, -1.0]),
        lambda: spelled_out(query @ key.transpose(-1, -2)),
    )


def test_gradients_are_those_of_eager():
    tensors = [t.requires_grad_() for t in inputs()]
    mask = torch.randn(2, 1, 1, 7, requires_grad=True)
    expected = torch.autograd.grad(eager(*tensors, mask).sum(), [*tensors, mask])
    assert_same(torch.autograd.grad(ours(*tensors, mask).sum(), [*tensors, mask]), expected)
    frozen = [t.detach() for t in tensors]
    (expected,) = torch.autograd.grad(eager(*frozen, mask).sum(), [mask])
    assert_same(torch.autograd.grad(ours(*frozen, mask).sum(), [mask])[0], expected)
    scale, (query, key, value) = torch.tensor(0.25, requires_grad=True), (t[0].detach() for t in tensors)
    spelled_out = ((query @ key.transpose(-1, -2)) * scale).softmax(-1) @ value
    scaled = call(["matmul", "mul", "softmax", "matmul"], [scale], [-1.0])
    assert_same(torch.autograd.grad(scaled.sum(), [scale]), torch.autograd.grad(spelled_out.sum(), [scale]), 1e-4)


def test_autocast_is_that_of_eager():
    with torch.autocast("cpu", torch.bfloat16):
        check(*inputs(), reason="autocast")


@pytest.mark.parametrize("query_shape", [QUERY, (2, 3, 1, 16)])
def test_the_layout_that_merges_heads_for_free(query_shape):
    _, key, value = inputs()
    query = heads(*query_shape)
    result = ours(query, key, value, None, None, False)
    assert_same(result.transpose(1, 2).contiguous(), eager(query, key, value).transpose(1, 2).contiguous())
    assert result.transpose(1, 2).is_contiguous()


def test_that_layout_whatever_the_query_has():
    _, key, value = inputs()
    query = torch.randn(5, 2, 3, 16).permute(1, 2, 0, 3)  # as a recurrent layer with batch_first hands it on
    result = ours(query, key, value, None, None, False)
    assert_same(result.transpose(1, 2), eager(query, key, value).transpose(1, 2).contiguous())


def call(steps: list[str], operands: list[Tensor], numbers: list[float]) -> Tensor:
    query, key, value = (t[0] for t in inputs())
    return torch.ops.ipex.attention(query, key.transpose(-1, -2), value, steps, operands, numbers, True)


def test_every_step():
    query, key, value = (t[0] for t in inputs())
    scores, mask, number = query @ key.transpose(-1, -2), torch.rand(5, 7) < 0.3, torch.tensor(-1e38)
    addend = torch.randn(3, 5, 7)
    cases = [
        (["mul"], [torch.tensor(0.5)], [], scores * 0.5),
        (["mul_", "div_"], [torch.tensor(0.5), torch.tensor(3)], [], scores * 0.5 / 3),
        (["mul_number", "mul_number_", "div_number_"], [], [0.5, 0.3, 4.0], scores * 0.15 / 4),
        (["add", "add_"], [addend, addend], [], scores + 2 * addend),
        (["masked_fill_"], [mask], [-INF], scores.masked_fill(mask, -INF)),
        (["masked_fill_tensor"], [mask, number], [], scores.masked_fill(mask, -1e38)),
        (["masked_fill_tensor_"], [mask, number], [], scores.masked_fill(mask, -1e38)),
        (["where"], [mask], [-1e38], scores.masked_fill(~mask, -1e38)),
        (["where_tensor", "add"], [mask, number, addend], [], scores.masked_fill(~mask, -1e38) + addend),
        (["add", "masked_fill"], [addend, mask], [-1e38], (scores + addend).masked_fill(mask, -1e38)),
        (["add", "mul_number"], [addend], [0.5], (scores + addend) * 0.5),
        (["mul"], [addend], [], scores * addend),
        (["mul"], [addend[:, :1, :1]], [], scores * addend[:, :1, :1]),
        (["mul_number", "div"], [addend[:, :1, :1]], [0.5], scores * 0.5 / addend[:, :1, :1]),
        (
            ["mul", "add", "mul"],
            [addend[:, :1, :1], addend, addend[:1, :1, :1]],
            [],
            (scores * addend[:, :1, :1] + addend) * addend[:1, :1, :1],
        ),
        (["to"], [], [6.0], scores),
    ]
    for steps, operands, numbers, expected in cases:
        result = call(["bmm", *steps, "softmax", "bmm"], operands, [*numbers, 2.0])
        assert_same(result, expected.softmax(-1) @ value)
    result = call(["baddbmm", "softmax_to", "to", "bmm"], [addend], [1.0, 0.25, -1.0, 6.0, 6.0])
    assert_same(result, (addend + scores / 4).softmax(-1) @ value)
    result = call(["baddbmm", "softmax", "bmm"], [addend * math.nan], [0.0, 0.25, -1.0])
    assert_same(result, (scores / 4).softmax(-1) @ value)
    result = call(["bmm", "to", "softmax", "type_as", "bmm"], [], [7.0, -1.0, 0.0])
    assert_same(result, scores.softmax(-1) @ value)
    result = call(["baddbmm", "softmax", "bmm"], [addend], [0.5, 0.25, -1.0])
    assert_same(result, (addend / 2 + scores / 4).softmax(-1) @ value)
    result = call(["bmm", "softmax_to", "to", "bmm"], [], [-1.0, 7.0, 6.0])
    assert_same(result, scores.softmax(-1) @ value)


@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 3, 1, 1), (2, 3, 1, 1), (2, 1, 1, 1), (1, 1)])
@pytest.mark.parametrize("step", ["mul", "div", "mul_"])
def test_a_scale_for_each_head(shape, step):
    query, key, value = inputs()
    scales, mask = torch.rand(shape) + 0.5, torch.randn(2, 1, 1, 7)
    scores = query @ key.transpose(-1, -2)
    expected = (scores / scales if step == "div" else scores * scales) + mask

    def call() -> Tensor:
        steps = ["matmul", step, "add", "softmax", "matmul"]
        return torch.ops.ipex.attention(query, key.transpose(-1, -2), value, steps, [scales, mask], [-1.0], True)

    assert_same(call(), expected.softmax(-1) @ value)
    assert why_aten(call) is None
    scales.view(-1)[0] = math.nan
    assert torch.equal(
        call().isnan(),
        ((scores / scales if step == "div" else scores * scales) + mask).softmax(-1).matmul(value).isnan(),
    )


def test_scales_and_masks_around_views():
    """Heads of other dimensions have a scale, or masks, of their own."""
    query, key, value = inputs()
    scores = query @ key.transpose(-1, -2)
    call = torch.ops.ipex.attention
    there, back = [4.0, 1, 6, 5, 7], [4.0, 2, 3, 5, 7]
    factor, mask, hidden = torch.rand(6, 1, 1), torch.randn(2, 1, 1, 7), torch.rand(6, 1, 7) < 0.3
    scaled = (
        ["view", "mul", "view"],
        [factor],
        (scores.view(1, 6, 5, 7) * factor).view(2, 3, 5, 7),
        "before its scale",
    )
    filled = (scores + mask).view(1, 6, 5, 7).masked_fill(hidden, LOWEST).view(2, 3, 5, 7)
    masked = (["add", "view", "masked_fill", "view"], [mask, hidden], filled, "masks of many shapes")
    for (steps, operands, expected, reason), numbers in ((scaled, []), (masked, [LOWEST])):
        given = (["matmul", *steps, "softmax", "matmul"], operands, [*there, *numbers, *back, -1.0], True)
        attend = lambda: call(query, key.transpose(-1, -2), value, *given)  # noqa: B023, E731
        assert_same(attend(), expected.softmax(-1) @ value)
        assert reason in str(why_aten(attend))


def test_a_scale_for_heads_of_several_batches():
    query, key, value = (torch.stack([t, -t]) for t in inputs())
    factor = torch.rand(3, 1, 1)
    given = (["matmul", "mul", "softmax", "matmul"], [factor], [-1.0], True)
    attend = lambda: torch.ops.ipex.attention(query, key.transpose(-1, -2), value, *given)  # noqa: E731
    assert_same(attend(), (query @ key.transpose(-1, -2) * factor).softmax(-1) @ value)
    assert "several batches" in str(why_aten(attend))


@pytest.mark.parametrize("bad", [0.0, INF, math.nan])
def test_16_bits_that_stand_for_floats(bad):
    """Masks may be float32, in which scores are computed; the result has 16 bits, whoever computes it."""
    query, key, value = (x.bfloat16() for x in inputs())
    query[1, 2, 3, 4] += bad
    mask = torch.randn(2, 1, 1, 7).masked_fill(torch.arange(7) > 4, LOWEST)

    def call() -> Tensor:
        steps = ["of_16_bits", "matmul", "div_number", "add", "softmax", "matmul"]
        return torch.ops.ipex.attention(query, key.transpose(-1, -2), value, steps, [mask], [4.0, -1.0], True)

    expected = eager(query.float(), key.float(), value.float(), mask)
    actual = call()
    assert actual.dtype == torch.bfloat16
    assert torch.equal(actual.isnan(), expected.isnan())
    torch.testing.assert_close(actual.float(), expected, rtol=2.0**-7, atol=2.0**-7, equal_nan=True)
    assert (why_aten(call) is None) == (bad == 0)


def test_says_what_is_wrong_with_a_damaged_model():
    with pytest.raises(RuntimeError, match="a step that this version knows, got 'tanh'"):
        call(["bmm", "tanh", "softmax", "bmm"], [], [-1.0])
    with pytest.raises(RuntimeError, match="expected at least 3 steps"):
        call(["bmm"], [], [])
    with pytest.raises(RuntimeError, match="expected at least 4 steps"):
        call(["of_16_bits", "bmm", "bmm"], [], [])
    for count in (1e14, -1.0):  # of the sizes of a view
        with pytest.raises((RuntimeError, IndexError)):
            call(["bmm", "view", "softmax", "bmm"], [], [count, 3.0, 5.0, 7.0, -1.0])
