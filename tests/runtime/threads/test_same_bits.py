"""However many threads take part, a model's result is the same to the bit."""

import pytest
import torch

import ipex
from kinds_of_model import KINDS, model_and_input

pytestmark = pytest.mark.skipif(not ipex.isa.has_avx2(), reason="aten computes here, and MKL's sums depend on threads")


@pytest.fixture(autouse=True)
def _restore_thread_count():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


# oneDNN cuts these by the number of threads, and adds what comes together in another order.
UNLIKE = pytest.mark.xfail(reason="oneDNN's order of additions depends on threads", strict=False)
TRANSPOSED = ("transposed convolution", "transposed in groups")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=UNLIKE if kind in TRANSPOSED else ()) for kind in KINDS])
def test_results_do_not_depend_on_the_number_of_threads(kind):
    model, x = model_and_input(kind)
    results = {}
    with torch.inference_mode():
        for threads in (1, 2, 3, 8, 16, 33, 64):
            torch.set_num_threads(threads)
            results[threads] = model(x)
    assert {threads for threads, y in results.items() if not torch.equal(y, results[1])} == set()
