"""The thread count is frozen into a primitive: it may change at any time, and many threads may call at once."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import ipex
from resnet50 import tiny_resnet
from support import assert_same


@pytest.fixture(autouse=True)
def _restore_thread_count():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def resnet():
    model, x = tiny_resnet(), torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        return ipex.jit_optimize(torch.jit.trace(model, x)), x, model(x)


def test_changing_the_thread_count_after_packing(resnet):
    optimized, x, expected = resnet
    for threads in (2, 1, 4, 1, 2):
        torch.set_num_threads(threads)
        with torch.no_grad():
            assert_same(optimized(x), expected)


def test_many_callers_at_once(resnet):
    optimized, x, expected = resnet

    def call(size: int) -> None:
        with torch.no_grad():
            for _ in range(3):
                assert_same(optimized(x[:size]), expected[:size])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, [1, 2] * 16))
