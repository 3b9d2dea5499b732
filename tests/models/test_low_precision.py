"""Whole models in 16 bits: given the dtype, and with weights of that dtype."""

import copy

import pytest
import torch

import ipex
from anchored import trace
from low_precision import assert_no_worse, both_dtypes
from zoo import MODELS

NAMES = ["ResNet-18", "MobileNet V2", "DenseNet", "U-Net, transposed convolutions", "BERT, eager", "ViT, sdpa", "DLRM"]
# Stock TorchScript folds batch_norm into 16-bit weights as well: the rounding of a weight does not average out.
TIMES_WITH_A_FOLDED_BATCH_NORM = 4


def first(result):
    return result[0] if isinstance(result, (tuple, list)) else result


@pytest.mark.filterwarnings("ignore")  # transformers'
@both_dtypes
@pytest.mark.parametrize("name", NAMES)
def test_models(name, dtype):
    if MODELS[name].needs:
        pytest.importorskip(MODELS[name].needs)
    model, calls = MODELS[name].make()
    low = copy.deepcopy(model).to(dtype)

    def cast(inputs):
        return tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)

    given = ipex.jit_optimize(trace(model, *calls[0]), dtype=dtype)
    own = ipex.jit_optimize(trace(low, *cast(calls[0])))
    with torch.no_grad():
        for inputs in calls:
            exact, stock = first(model(*inputs)), first(low(*cast(inputs)))
            for ours, expected, times in (
                (first(given(*inputs)), exact, 2),
                (first(own(*cast(inputs))), stock, TIMES_WITH_A_FOLDED_BATCH_NORM),
            ):
                assert ours.dtype == expected.dtype
                assert ours.shape == expected.shape
                assert ours.stride() == expected.stride()
                assert_no_worse(ours, stock, exact, dtype, times)
