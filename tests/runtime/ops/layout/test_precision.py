"""ipex::lower_precision and ipex::restore_precision convert floats of 16 and 32 bits, and nothing else."""

import pytest
import torch

import ipex  # noqa: F401

HALVES = (torch.bfloat16, torch.float16)


@pytest.mark.parametrize("given", HALVES)
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES, torch.float64, torch.int32, torch.bool])
def test_which_are_converted(dtype, given):
    x = torch.randn(5).to(dtype)
    lowered, restored = torch.ops.ipex.lower_precision(x, given), torch.ops.ipex.restore_precision(x)
    assert torch.equal(lowered, x.to(given) if dtype in (torch.float32, *HALVES) else x)
    assert lowered.dtype == (given if dtype in (torch.float32, *HALVES) else dtype)
    assert torch.equal(restored, x.float() if dtype in HALVES else x)
    assert restored.dtype == (torch.float32 if dtype in HALVES else dtype)
