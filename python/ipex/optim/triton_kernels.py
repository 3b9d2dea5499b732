"""Steps of optimizers on a GPU: a launch updates all parameters of one format, thousands of small ones too.

A launch has a program per block of BLOCK elements. `blocks` says which block of which parameter, `parameters` where
that parameter lies, and `numbers` what it is updated with: runtime/ops/training/device_step.cpp lists both tables.

Arithmetic is that of runtime/kernels/updates.inc, whose names these functions have, operation by operation: float32
whatever the weight is stored in, a product and a sum in one operation where `fma` says so and nowhere else (launch with
enable_fp_fusion=False), quotients and roots rounded to nearest. Norms are summed in float64, in another order than on
the CPU.

Blocks that are whole and lie at addresses divisible by 16 move whole vectors (VECTORS); others mask what is not theirs.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Columns of the parameters' table.
COLUMNS = tl.constexpr(10)
WEIGHT = tl.constexpr(0)
MASTER = tl.constexpr(1)
GRADIENT = tl.constexpr(2)
STATE = tl.constexpr(3)  # and the two after it
COUNT = tl.constexpr(6)
NUMBERS = tl.constexpr(7)
ALIGNED = tl.constexpr(9)
# WeightFormat; the last one is float16.
FLOATS = tl.constexpr(0)
SPLIT = tl.constexpr(1)
BFLOAT16 = tl.constexpr(2)


@triton.jit
def is_own(row, offsets, VECTORS: tl.constexpr):
    """Return which of the elements there are."""
    if VECTORS:
        mask = tl.full(offsets.shape, True, tl.int1)
    else:
        mask = offsets < tl.load(row + COUNT)
    return mask


@triton.jit
def number(numbers, column: tl.constexpr):
    """Return one of the numbers, all but a few of which come from a float32."""
    return tl.load(numbers + column).to(tl.float32)


@triton.jit
def flag(numbers, column: tl.constexpr):
    """Return whether one of the numbers is not 0."""
    return tl.load(numbers + column).to(tl.int32) != 0


@triton.jit
def elements(row, column: tl.constexpr, offsets, dtype: tl.constexpr, VECTORS: tl.constexpr):
    """Return where these elements lie."""
    pointers = tl.load(row + column).to(tl.pointer_type(dtype)) + offsets
    if VECTORS:
        pointers = tl.multiple_of(pointers, 16)
    return pointers


@triton.jit
def load_halves(row, column: tl.constexpr, offsets, mask, VECTORS: tl.constexpr):
    """Return 16 bits of each element in 32."""
    return tl.load(elements(row, column, offsets, tl.uint16, VECTORS), mask=mask, other=0).to(tl.uint32)


@triton.jit
def store_halves(row, column: tl.constexpr, offsets, bits, mask, VECTORS: tl.constexpr):
    """Write the lower 16 of 32 bits."""
    tl.store(elements(row, column, offsets, tl.uint16, VECTORS), bits.to(tl.uint16), mask=mask)


@triton.jit
def load_gradient(row, offsets, mask, FORMAT: tl.constexpr, VECTORS: tl.constexpr):
    """Return the gradient in float32."""
    if FORMAT == FLOATS:
        gradient = tl.load(elements(row, GRADIENT, offsets, tl.float32, VECTORS), mask=mask, other=0.0)
    elif FORMAT == SPLIT or FORMAT == BFLOAT16:
        gradient = (load_halves(row, GRADIENT, offsets, mask, VECTORS) << 16).to(tl.float32, bitcast=True)
    else:
        halves = tl.load(elements(row, GRADIENT, offsets, tl.float16, VECTORS), mask=mask, other=0.0)
        gradient = halves.to(tl.float32)
    return gradient


@triton.jit
def load_weight(row, offsets, mask, FORMAT: tl.constexpr, VECTORS: tl.constexpr):
    """Return every bit of the float32 value."""
    if FORMAT == SPLIT:
        top = load_halves(row, WEIGHT, offsets, mask, VECTORS)
        bottom = load_halves(row, MASTER, offsets, mask, VECTORS)
        weight = (((top - (bottom >> 15)) << 16) | bottom).to(tl.float32, bitcast=True)
    elif FORMAT == FLOATS:
        weight = tl.load(elements(row, WEIGHT, offsets, tl.float32, VECTORS), mask=mask, other=0.0)
    else:
        weight = tl.load(elements(row, MASTER, offsets, tl.float32, VECTORS), mask=mask, other=0.0)
    return weight


@triton.jit
def store_weight(row, offsets, value, mask, FORMAT: tl.constexpr, VECTORS: tl.constexpr):
    """Write the float32 value, and what the format has beside it."""
    bits = value.to(tl.uint32, bitcast=True)
    if FORMAT == SPLIT:
        bits = tl.where(value == value, bits, 0x7FC00000)  # rounding up could carry the payload of a NaN into a number
        store_halves(row, WEIGHT, offsets, (bits + 0x8000) >> 16, mask, VECTORS)
        store_halves(row, MASTER, offsets, bits & 0xFFFF, mask, VECTORS)
    elif FORMAT == FLOATS:
        tl.store(elements(row, WEIGHT, offsets, tl.float32, VECTORS), value, mask=mask)
    else:
        tl.store(elements(row, MASTER, offsets, tl.float32, VECTORS), value, mask=mask)
        if FORMAT == BFLOAT16:
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            store_halves(row, WEIGHT, offsets, tl.where(value == value, rounded, 0x7FC0), mask, VECTORS)
        else:
            tl.store(elements(row, WEIGHT, offsets, tl.float16, VECTORS), value.to(tl.float16), mask=mask)


@triton.jit
def update_sgd(row, numbers, offsets, trusts, FORMAT: tl.constexpr, VECTORS: tl.constexpr):
    """Update weights and momentum."""
    scale, decay = number(numbers, 0), number(numbers, 1)
    momentum, one_minus_dampening = number(numbers, 2), number(numbers, 3)
    minus_rate, has_momentum = -number(numbers, 4), flag(numbers, 5)
    nesterov, starts = flag(numbers, 6), flag(numbers, 7)

    mask = is_own(row, offsets, VECTORS)
    weight = load_weight(row, offsets, mask, FORMAT, VECTORS)
    gradient = load_gradient(row, offsets, mask, FORMAT, VECTORS) * scale
    # Asked for early: a load inside the branch would wait for what is before it.
    buffers = elements(row, STATE, offsets, tl.float32, VECTORS)
    buffer = tl.load(buffers, mask=mask & has_momentum, other=0.0)
    if decay != 0:
        gradient = tl.fma(decay, weight, gradient)
    gradient = gradient * tl.load(trusts).to(tl.float32)
    if has_momentum:
        if starts:
            moved = gradient
        else:
            moved = tl.fma(one_minus_dampening, gradient, momentum * buffer)
        tl.store(buffers, moved, mask=mask)
        if nesterov:
            gradient = tl.fma(momentum, moved, gradient)
        else:
            gradient = moved
    weight = tl.fma(minus_rate, gradient, weight)
    store_weight(row, offsets, weight, mask, FORMAT, VECTORS)


@triton.jit
def update_adagrad(row, numbers, offsets, _, FORMAT: tl.constexpr, VECTORS: tl.constexpr):
    """Update weights and sums."""
    scale, decay, eps, minus_rate = number(numbers, 0), number(numbers, 1), number(numbers, 2), -number(numbers, 3)

    mask = is_own(row, offsets, VECTORS)
    weight = load_weight(row, offsets, mask, FORMAT, VECTORS)
    gradient = load_gradient(row, offsets, mask, FORMAT, VECTORS) * scale
    sums = elements(row, STATE, offsets, tl.float32, VECTORS)
    before = tl.load(sums, mask=mask, other=0.0)
    if decay != 0:
        gradient = tl.fma(decay, weight, gradient)
    now = tl.fma(gradient, gradient, before)
    tl.store(sums, now, mask=mask)
    quotient = tl.div_rn(gradient, tl.sqrt_rn(now) + eps)
    weight = tl.fma(minus_rate, quotient, weight)
    store_weight(row, offsets, weight, mask, FORMAT, VECTORS)


@triton.jit
def moved_moments(row, offsets, gradient, mask, one_minus_beta1, beta2, one_minus_beta2, VECTORS: tl.constexpr):
    """Update the moving averages of the gradient and of its square, and return them."""
    firsts = elements(row, STATE, offsets, tl.float32, VECTORS)
    seconds = elements(row, STATE + 1, offsets, tl.float32, VECTORS)
    first = tl.load(firsts, mask=mask, other=0.0)
    second = tl.load(seconds, mask=mask, other=0.0)
    first = tl.fma(one_minus_beta1, gradient - first, first)
    second = tl.fma(one_minus_beta2 * gradient, gradient, beta2 * second)
    tl.store(firsts, first, mask=mask)
    tl.store(seconds, second, mask=mask)
    return first, second


@triton.jit
def update_adam(row, numbers, offsets, _, FORMAT: tl.constexpr, VECTORS: tl.constexpr):
    """Update weights and moments."""
    scale, decay, factor = number(numbers, 0), number(numbers, 1), number(numbers, 2)
    one_minus_beta1, beta2, one_minus_beta2 = number(numbers, 3), number(numbers, 4), number(numbers, 5)
    eps, minus_step, inverse_root = number(numbers, 6), -number(numbers, 7), number(numbers, 8)
    amsgrad = flag(numbers, 9)

    mask = is_own(row, offsets, VECTORS)
    weight = load_weight(row, offsets, mask, FORMAT, VECTORS) * factor
    gradient = load_gradient(row, offsets, mask, FORMAT, VECTORS) * scale
    largest = elements(row, STATE + 2, offsets, tl.float32, VECTORS)
    before = tl.load(largest, mask=mask & amsgrad, other=0.0)
    if decay != 0:
        gradient = tl.fma(decay, weight, gradient)
    first, second = moved_moments(row, offsets, gradient, mask, one_minus_beta1, beta2, one_minus_beta2, VECTORS)
    if amsgrad:
        # NaN stays, whichever has it.
        second = tl.where(second > before, second, tl.where(second == second, before, second))
        tl.store(largest, second, mask=mask)
    root = tl.sqrt_rn(second)
    denominator = tl.fma(root, inverse_root, eps)
    weight = tl.fma(minus_step, tl.div_rn(first, denominator), weight)
    store_weight(row, offsets, weight, mask, FORMAT, VECTORS)


@triton.jit
def lamb_update(first, second, weight, numbers):
    """Return what the weight is to move by."""
    decay, eps, inverse, inverse_root = number(numbers, 1), number(numbers, 5), number(numbers, 6), number(numbers, 7)
    root = tl.sqrt_rn(second)
    denominator = tl.fma(root, inverse_root, eps)
    return tl.fma(decay, weight, tl.div_rn(first * inverse, denominator))


@triton.jit
def sum_of_squares(values, mask):
    """Return it in float64."""
    wide = tl.where(mask, values, 0.0).to(tl.float64)
    return tl.sum(wide * wide, 0)


@triton.jit
def lamb_moments(row, numbers, offsets, sums, FORMAT: tl.constexpr, VECTORS: tl.constexpr):
    """Update moments, and leave the squared norms of weight and update."""
    scale, one_minus_beta1 = number(numbers, 0), number(numbers, 2)
    beta2, one_minus_beta2 = number(numbers, 3), number(numbers, 4)
    mask = is_own(row, offsets, VECTORS)
    weight = load_weight(row, offsets, mask, FORMAT, VECTORS)
    gradient = load_gradient(row, offsets, mask, FORMAT, VECTORS) * scale
    first, second = moved_moments(row, offsets, gradient, mask, one_minus_beta1, beta2, one_minus_beta2, VECTORS)
    tl.store(sums, sum_of_squares(weight, mask))
    tl.store(sums + 1, sum_of_squares(lamb_update(first, second, weight, numbers), mask))


@triton.jit
def update_lamb_weight(row, numbers, offsets, trusts, FORMAT: tl.constexpr, VECTORS: tl.constexpr):
    """Update weights."""
    minus_rate = -(tl.load(numbers + 8) * tl.load(trusts)).to(tl.float32)
    mask = is_own(row, offsets, VECTORS)
    weight = load_weight(row, offsets, mask, FORMAT, VECTORS)
    first = tl.load(elements(row, STATE, offsets, tl.float32, VECTORS), mask=mask, other=0.0)
    second = tl.load(elements(row, STATE + 1, offsets, tl.float32, VECTORS), mask=mask, other=0.0)
    update = lamb_update(first, second, weight, numbers)
    weight = tl.fma(minus_rate, update, weight)
    store_weight(row, offsets, weight, mask, FORMAT, VECTORS)


@triton.jit
def lars_norms(row, numbers, offsets, sums, FORMAT: tl.constexpr, VECTORS: tl.constexpr):
    """Leave the squared norms of weight and gradient."""
    mask = is_own(row, offsets, VECTORS)
    gradient = load_gradient(row, offsets, mask, FORMAT, VECTORS) * number(numbers, 0)
    tl.store(sums, sum_of_squares(load_weight(row, offsets, mask, FORMAT, VECTORS), mask))
    tl.store(sums + 1, sum_of_squares(gradient, mask))


# What is launched.


@triton.jit
def step(
    parameters,
    numbers,
    blocks,
    beside,
    FUNCTION: tl.constexpr,
    PER_PARAMETER: tl.constexpr,
    PER_BLOCK: tl.constexpr,
    FORMAT: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Call FUNCTION on a block. `beside` has PER_PARAMETER float64 for each parameter or PER_BLOCK for each block."""
    program = tl.program_id(0).to(tl.int64)
    parameter = tl.load(blocks + 2 * program).to(tl.int64)
    first = tl.load(blocks + 2 * program + 1).to(tl.int64) * BLOCK
    row = parameters + parameter * COLUMNS
    own = numbers + tl.load(row + NUMBERS) * WIDTH
    to = beside + parameter * PER_PARAMETER + program * PER_BLOCK
    offsets = first + tl.arange(0, BLOCK)
    if (first + BLOCK <= tl.load(row + COUNT)) & (tl.load(row + ALIGNED) != 0):
        FUNCTION(row, own, offsets, to, FORMAT, True)
    else:
        FUNCTION(row, own, offsets, to, FORMAT, False)


@triton.jit
def norms(sums, ranges, SIZE: tl.constexpr):
    """Return the norms of a parameter from the sums of its blocks."""
    parameter = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(ranges + 2 * parameter), tl.load(ranges + 2 * parameter + 1)
    first = tl.zeros([SIZE], tl.float64)
    second = tl.zeros([SIZE], tl.float64)
    while begin < end:
        block = begin + tl.arange(0, SIZE)
        first += tl.load(sums + 2 * block, mask=block < end, other=0.0)
        second += tl.load(sums + 2 * block + 1, mask=block < end, other=0.0)
        begin += SIZE
    return tl.sqrt(tl.sum(first, 0)), tl.sqrt(tl.sum(second, 0))


@triton.jit
def lamb_trust(parameters, numbers, sums, ranges, trusts, WIDTH: tl.constexpr, SIZE: tl.constexpr):
    """Leave the quotient of the norms of weight and update, or 1."""
    weight, update = norms(sums, ranges, SIZE)
    trust = tl.where((weight != 0) & (update != 0), weight / update, 1.0)
    tl.store(trusts + tl.program_id(0), trust)


@triton.jit
def lars_trust(parameters, numbers, sums, ranges, trusts, WIDTH: tl.constexpr, SIZE: tl.constexpr):
    """Leave what gradient and decay are multiplied by."""
    weight, gradient = norms(sums, ranges, SIZE)
    own = numbers + tl.load(parameters + tl.program_id(0).to(tl.int64) * COLUMNS + NUMBERS) * WIDTH
    decay, coefficient, eps = tl.load(own + 1), tl.load(own + 8), tl.load(own + 9)
    trust = tl.where((weight != 0) & (gradient != 0), coefficient * weight / (gradient + decay * weight + eps), 1.0)
    tl.store(trusts + tl.program_id(0), trust)
