"""examples/triton_server, as far as it can be checked without Triton: layout, and the model in a host of backends."""

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import ipex
from build_cpp import load_tensor, save_tensor
from by_hand import TORCH

EXAMPLE = Path(__file__).parents[2] / "examples" / "triton_server"
RUNTIME = Path(ipex.cmake_prefix_path).parents[1] / "lib" / "libipex_runtime.so"


@pytest.fixture(scope="module")
def write_model():
    spec = importlib.util.spec_from_file_location("make_repository", EXAMPLE / "make_repository.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.write_model


class Classifier(nn.Module):
    """Two inputs and two results."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, features, words):
        scores = self.layers(features + self.words(words).sum(1))
        return scores, scores.argmax(-1, keepdim=True)


def test_layout_and_configuration(write_model, tmp_path):
    inputs = torch.randn(1, 16), torch.ones(1, 5, dtype=torch.long)
    folder = write_model(tmp_path, "classifier", Classifier().eval(), inputs)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"classifier/config.pbtxt", "classifier/1/model.pt"}
    config = (folder / "config.pbtxt").read_text()
    assert 'name: "classifier"' in config
    assert config.count("{") == config.count("}")
    tensors = re.findall(r'name: "(\w+)__(\d)", data_type: (\w+), dims: \[ ([\d, ]+) \]', config)
    assert tensors == [
        ("INPUT", "0", "TYPE_FP32", "16"),
        ("INPUT", "1", "TYPE_INT64", "5"),
        ("OUTPUT", "0", "TYPE_FP32", "4"),
        ("OUTPUT", "1", "TYPE_INT64", "1"),
    ]
    # As the server calls it: several rows, from requests that it joined.
    with torch.no_grad():
        scores, best = ipex.load(folder / "1" / "model.pt")(torch.randn(3, 16), torch.ones(3, 5, dtype=torch.long))
    assert scores.shape == (3, 4)
    assert best.shape == (3, 1)


def test_a_backend_that_a_host_loads_serves_the_model(write_model, plain_programs, tmp_path):
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(), torch.randn(2, 3, 9, 9)
    file = write_model(tmp_path / "models", "images", model, (x[:1],)) / "1" / "model.pt"
    save_tensor(x, tmp_path / "input.pt")
    host = [plain_programs / "host", plain_programs / "backend.so"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(TORCH / "lib"), "LD_PRELOAD": str(RUNTIME)}
    command = [*host, file, tmp_path / "input.pt", tmp_path / "output.pt"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        torch.testing.assert_close(load_tensor(tmp_path / "output.pt"), model(x))
