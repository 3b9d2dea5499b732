"""ipex::new_full and ipex::full_like are aten's, but for where their results lie."""

import pytest
import torch

import ipex  # noqa: F401

SOURCES = {
    "float32": torch.randn(2, 3, 4, 5),
    "bfloat16": torch.randn(2, 3).bfloat16(),
    "integers": torch.arange(6),
    "truths": torch.rand(3) > 0.5,
    "complex": torch.randn(3, dtype=torch.complex64),
    "channels-last": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "turned": torch.randn(5, 4, 3).permute(2, 0, 1),
    "gaps": torch.randn(3, 8)[:, 2:6],
    "spread": torch.randn(1, 4).expand(3, 4),
    "number": torch.tensor(2.0),
    "empty": torch.randn(0, 3),
    "gradient": torch.randn(3, requires_grad=True),
}


def assert_alike(actual, expected):
    assert torch.equal(actual, expected)
    assert (actual.dtype, actual.stride()) == (expected.dtype, expected.stride())


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("value", [0, 1, -2.5])
def test_match_aten(name, value):
    x = SOURCES[name]
    ours = torch.ops.ipex.full_like(x, value)
    assert_alike(ours, torch.full_like(x, value))
    assert not ours.requires_grad
    assert ours.data_ptr() != x.data_ptr() or not x.numel()
    for size in ([], [4], [2, 0], [3, 1, 5]):
        assert_alike(torch.ops.ipex.new_full(x, size, value), x.new_full(size, value))


def test_results_are_memory_of_their_own():
    x = torch.randn(300, 300).mT
    first, second = torch.ops.ipex.full_like(x, 1), torch.ops.ipex.full_like(x, 2)
    first[0] = 3
    assert (second == 2).all()


@pytest.mark.parametrize(("x", "value"), [(torch.randn(2).half(), 1e10), (torch.arange(3), torch.inf)])
def test_numbers_that_the_dtype_has_not(x, value):
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.full_like(x, value)
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.ops.ipex.full_like(x, value)


def test_a_negative_size():
    for new_full in (torch.ops.ipex.new_full, torch.ops.aten.new_full):
        with pytest.raises(RuntimeError, match="negative dimension"):
            new_full(torch.randn(2), [-1], 0)
