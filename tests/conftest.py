"""Random numbers differ from test to test and are the same in every run, so that a failure can be repeated.

What random numbers find beyond that is the fuzzer's to find. IPEX_TEST_SEED=n gives the tests other numbers.
"""

from __future__ import annotations

import os
import zlib

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_numbers_in_every_run(request: pytest.FixtureRequest) -> None:
    name = request.node.nodeid + os.environ.get("IPEX_TEST_SEED", "")
    torch.manual_seed(zlib.crc32(name.encode()))
