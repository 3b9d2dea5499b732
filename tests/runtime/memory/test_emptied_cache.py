"""What ops keep for the shapes that they have seen goes with `ipex.empty_cache()`, and is made again."""

import os
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import ipex
from kinds_of_model import KINDS, model_and_input
from support import own_thread_count

CALLS = """
import torch, ipex
model = ipex.jit_optimize(torch.nn.Conv2d(8, 16, 3, stride=2).eval(), torch.randn(1, 8, 20, 20))
def call(text):
    print(text, flush=True)
    with torch.no_grad():
        model(torch.ones(1, 8, 20, 20))
call("first")
call("second")
ipex.empty_cache()
call("emptied")
"""


def printed(calls: str) -> list[str]:
    """What oneDNN says of the primitives that it makes: at first, at the second call, and when the cache is empty."""
    environment = {**os.environ, "ONEDNN_VERBOSE": "profile_create"}
    done = subprocess.run([sys.executable, "-c", calls], env=environment, capture_output=True, text=True, check=True)
    first, _, rest = done.stdout.partition("second")
    second, _, emptied = rest.partition("emptied")
    return [first, second, emptied]


def test_primitives_are_made_again():
    parts = printed(CALLS)
    made = ["create:" in part and "convolution" in part for part in parts]
    assert made == [True, False, True], parts


IN_TURN = """
import torch, ipex
def call(text):
    print(text, flush=True)
    with torch.no_grad():
        model = torch.nn.Conv2d(8, 16, 3, stride=2).eval()
        ipex.jit_optimize(model, torch.randn(1, 8, 20, 20))(torch.ones(1, 8, 20, 20))
call("first")
call("second")
ipex.empty_cache()
call("emptied")
"""


def test_the_cache_of_onednn_is_emptied_too():
    made = [
        {line.split(",")[3] for line in part.splitlines() if "cpu,convolution" in line} for part in printed(IN_TURN)
    ]
    assert made == [{"create:cache_miss"}, {"create:cache_hit"}, {"create:cache_miss"}]


def test_figures_tell_what_is_kept():
    model, x = model_and_input("convolution")
    ipex.empty_cache()
    before = ipex.memory_stats()
    assert before["num_kept"] == 0
    assert before["kept_bytes"] == 0
    model(x)
    assert ipex.memory_stats()["num_kept"] > 0
    assert "ops keep" in ipex.memory_summary()
    ipex.empty_cache()
    assert ipex.memory_stats()["num_kept"] == 0
    assert "ops keep" not in ipex.memory_summary()


def test_row_maps_are_bounded_in_bytes():
    """A map has 8 bytes for each row: of four with three million, two fit into 64 MiB."""
    moves = torch.ops.ipex.row_moves_prepack(["permute"], [3])
    ipex.empty_cache()
    for rows in range(3_000_000, 3_000_008, 2):
        torch.ops.ipex.move_rows(torch.zeros(2, rows // 2, 1), moves, [1, 0, 2])
    assert ipex.memory_stats()["num_kept"] == 2
    assert ipex.memory_stats()["kept_bytes"] <= 64 << 20


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_the_same_and_weights_stay(kind):
    model, x = model_and_input(kind)
    with torch.no_grad(), own_thread_count():
        torch.set_num_threads(1)  # a thread that joins in later takes scratch memory then
        expected = model(x)
        model(x)
        ipex.empty_cache()
        held = ipex.memory_stats()["allocated_bytes.all.current"]
        assert torch.equal(model(x), expected)
        del expected
        assert ipex.memory_stats()["allocated_bytes.all.current"] <= held


def test_beside_calls_and_models_that_go():
    models = [model_and_input(kind) for kind in ("convolution", "linear", "static int8")]
    expected = [model(x) for model, x in models]
    has_ended = threading.Event()

    def empty():
        while not has_ended.is_set():
            ipex.empty_cache()

    emptying = threading.Thread(target=empty)
    emptying.start()
    try:
        with torch.no_grad():
            for i in range(150):
                (model, x), y = models[i % 3], expected[i % 3]
                assert torch.equal(model(x), y)
                if i % 10 == 0:
                    ipex.jit_optimize(nn.Linear(16, 16).eval(), torch.randn(2, 16))(torch.randn(3, 16))
    finally:
        has_ended.set()
        emptying.join()
