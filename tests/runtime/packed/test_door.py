"""What a damaged graph gives an op is refused before anything is computed, by one check for all ops."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import ipex  # noqa: F401  registers the ops

ops = torch.ops.ipex
LARGEST = 2**63 - 1
DAMAGED = "If it came out of a file, that is damaged: save it again"


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def convolution(*geometry: object):
    return ops.convolution_prepack(rand(8, 4, 3, 3), None, *geometry, False, [0, 0], [], None, None, None)


# Each of these wrote, or read, beyond its memory, or took as much of it as the number says.
CALLS = {
    "pads whose sum wraps around": lambda: ops.pad(rand(1, 1, 64), [LARGEST, LARGEST], "constant", 0.0, False),
    "pads of rows": lambda: ops.pad(rand(1, 4, 64), [0, 0, LARGEST, LARGEST], "constant", 0.0, False),
    "dilation of a pool": lambda: ops.max_pool2d(rand(1, 16, 8, 8), [2, 2], [1, 1], [0, 0], [2**62] * 2, False),
    "padding of a convolution": lambda: convolution([1, 1], [2**62, 2**62], [1, 1], 1),
    "groups": lambda: convolution([1, 1], [1, 1], [1, 1], 2**62),
    "widths": lambda: ops.convolution_run(
        rand(1, 4, 6, 6), convolution([1, 1], [1, 1], [1, 1], 1), [], True, [2**62] * 4
    ),
    "layers": lambda: ops.lstm_prepack([rand(32, 6), rand(32, 8)], True, 2**40, False, False, None),
    "dimension": lambda: ops.softmax(rand(2, 3), LARGEST, None),
}


@pytest.mark.parametrize("what", CALLS)
def test_numbers_have_a_range(what):
    with pytest.raises(RuntimeError, match=rf"^ipex::\w+: expected \w+ between -\d+ and \d+, got -?\d+\. {DAMAGED}"):
        CALLS[what]()


def test_lists_have_a_length():
    steps = ["relu 0"] * 200_000  # each a frame of a recursion
    with pytest.raises(RuntimeError, match=f"expected steps to have at most 1024 elements, got 200000. {DAMAGED}"):
        ops.attention(rand(2, 3, 8), rand(2, 8, 3), rand(2, 3, 8), steps, [], [], True)


@pytest.mark.parametrize("number", [-1, 64, 3000, LARGEST])
def test_a_dtype_is_one(number):
    for call in (
        lambda: ops.softmax(rand(2, 3), 1, number),
        lambda: ops.lower_precision(rand(2, 3), number),
        lambda: ops.rms_norm(rand(2, 3), None, 1e-5, number, [3]),
    ):
        with pytest.raises(RuntimeError, match=rf"expected \w+ to be a dtype, got number .*{DAMAGED}"):
            call()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float64, torch.bool, torch.complex64], ids=str)
def test_kernels_write_no_other_dtype(dtype):
    calls = (
        lambda: ops.layer_norm(rand(8, 64), [64], None, None, 1e-5, dtype=dtype),
        lambda: ops.layer_norm.of_sum(rand(8, 64), rand(8, 64), [64], None, None, 1e-5, True, False, dtype=dtype),
        lambda: ops.elementwise([rand(8, 64)], ["relu 0"], dtype=dtype),
    )
    for call in calls:
        with pytest.raises(RuntimeError, match="expected dtype to be bfloat16, float16 or float32, got"):
            call()


@pytest.mark.parametrize("lies", [lambda x: x, lambda x: x.t(), lambda x: x[::2]], ids=["dense", "turned", "strided"])
def test_a_tensor_has_its_memory(lies):
    message = r"expected \w+ to have memory for its sizes .*, got a storage of 16 bytes"
    x = lies(rand(64, 64))
    row = x[0]
    x.untyped_storage().resize_(16)
    linear = ops.linear_prepack(rand(8, 64), None, [], None, None, None)
    for call in (
        lambda: ops.layer_norm(x, [64], None, None, 1e-5),
        lambda: ops.layer_norm(rand(2, 64), [64], row, None, 1e-5),
        lambda: ops.elementwise([rand(64), x], ["add 0 1"]),
        lambda: ops.linear_run(x, linear, [], True),
        lambda: ops.cat([x, x], 0),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()


def test_a_reshape_whose_product_wraps_around_is_eagers_error():
    pairs = ([6 * pow(odd, -1, 2**64) % 2**64, odd] for odd in range(5, 99, 2))
    sizes = next(pair for pair in pairs if pair[0] < 2**63)  # 6 elements, in 64 bits
    with pytest.raises(RuntimeError):
        ops.rearrange(rand(2, 3), ["reshape"], [2], sizes)


def test_windows_whose_product_wraps_around_are_eagers_error():
    with pytest.raises(RuntimeError):
        ops.rearrange(rand(1, 4, 4), ["col2im"], [10], [2**32, 2**32, 2**32, 2**32, 1, 1, 0, 0, 2**32, 2**32])


def test_an_image_wider_than_floats_count_is_atens():
    image, grid = torch.zeros(1, 1, 1, 1).expand(1, 1, 1, 2**25), torch.ones(1, 1, 1, 2)
    expected = torch.nn.functional.grid_sample(image, grid, align_corners=False)
    assert ops.sampled_sum([image], [grid], torch.ones(1, 1, 1, 1), 0, 0, False, False).item() == expected.item()


def test_a_bias_of_another_length_is_refused_as_in_eager():
    image, weight = rand(1, 64, 32, 32), rand(64, 64, 3, 3)
    with pytest.raises(RuntimeError, match="expected bias to be 1-dimensional with 64 elements"):
        ops.trained_convolution(image, weight, rand(3), [1, 1])


def test_all_ops_come_through_the_door():
    sources = [
        path for path in (Path(__file__).parents[3] / "runtime").rglob("*.cpp") if "TORCH_LIBRARY" in path.read_text()
    ]
    assert len(sources) > 40
    others = [path.name for path in sources if "m.def(" in path.read_text() or "m.impl(" in path.read_text()]
    assert others == []
