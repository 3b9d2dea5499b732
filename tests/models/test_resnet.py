"""ResNet-50 from end to end: nothing is left that should be fast, and memory stays within bounds."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import ipex
from resnet50 import resnet50
from support import assert_round_trip, assert_same, fallback_reasons, kinds


@pytest.fixture(scope="module")
def models():
    model, x = resnet50(), torch.randn(1, 3, 224, 224)
    with torch.no_grad(), warnings.catch_warnings():
        traced = torch.jit.trace(model, x)
        return model, traced, ipex.jit_optimize(traced), x


def test_nothing_is_left_to_aten(models):
    left = {kind for kind in kinds(models[2]) if kind.startswith("aten::")}
    assert not left


def test_one_pair_of_conversions(models):
    found = kinds(models[2])
    assert found["ipex::to_channels_last"] == found["ipex::rearrange"] == 1  # the way back is joined with flatten
    assert found["ipex::restore_layout"] == 0


@pytest.mark.parametrize("shape", [(1, 3, 224, 224), (2, 3, 224, 224), (1, 3, 160, 192), (3, 3, 64, 64)])
def test_matches_eager(models, shape):
    model, _, optimized, _ = models
    x = torch.randn(shape)
    with torch.no_grad():
        assert_same(optimized(x), model(x))
    assert fallback_reasons(optimized) == []


def test_survives_save_and_load(models, tmp_path):
    assert_round_trip(models[2], tmp_path, models[3])


# Prints by how many MiB the resident memory of a process peaks above what it was before it loads and runs a model.
# A tiny model runs first: the pages of code are not the model's.
PEAK = """
import sys, torch, ipex
torch.set_grad_enabled(False)
def resident(key):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))
ipex.load(sys.argv[2])(torch.randn(1, 3, 64, 64))
before = resident("VmRSS")
model = ipex.load(sys.argv[1])
for _ in range(3):
    model(torch.randn(1, 3, 224, 224))
print(resident("VmHWM") - before)
"""


def peak_mib(model: Path, warm_up: Path) -> float:
    command = [sys.executable, "-W", "ignore", "-c", PEAK, model, warm_up]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_peak_memory(models, tmp_path):
    """Within 1.15 times weights plus activations, the latter being what the stock frozen model needs for them."""
    model, traced, optimized, _ = models
    from resnet50 import tiny_resnet

    paths = {name: tmp_path / f"{name}.pt" for name in ("stock", "ours", "tiny stock", "tiny ours")}
    tiny = torch.jit.trace(tiny_resnet(), torch.randn(1, 3, 64, 64))
    torch.jit.freeze(traced).save(paths["stock"])
    torch.jit.freeze(tiny).save(paths["tiny stock"])
    optimized.save(paths["ours"])
    ipex.jit_optimize(tiny).save(paths["tiny ours"])

    weights = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**20
    weights_and_activations = max(peak_mib(paths["stock"], paths["tiny stock"]), weights)
    ours = peak_mib(paths["ours"], paths["tiny ours"])
    print(f"weights {weights:.0f} MiB, with activations {weights_and_activations:.0f} MiB, optimised {ours:.0f} MiB")
    assert ours <= 1.15 * weights_and_activations
