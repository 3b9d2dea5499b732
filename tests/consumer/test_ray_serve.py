"""examples/ray_serve.py on this machine. Ray is large, and not installed by the tests: without it they skip."""

import io
import urllib.error
import urllib.request

import numpy
import pytest
import torch
from torch import nn

import ipex

ray = pytest.importorskip("ray", reason='ray is not installed: pip install "ray[serve]"')
serve = pytest.importorskip("ray.serve", reason='Ray Serve is not installed: pip install "ray[serve]"')


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    from ray_serve import app

    path = tmp_path_factory.mktemp("model") / "model.pt"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 5)).eval()
    ipex.jit_optimize(model, torch.randn(2, 24)).save(path)
    ray.init(num_cpus=4, include_dashboard=False)  # of which the replica takes 2, and Ray its own
    serve.run(app({"model": str(path), "shape": "24"}))
    yield "http://127.0.0.1:8000/", model
    serve.shutdown()
    ray.shutdown()


def ask(url, array):
    body = io.BytesIO()
    numpy.save(body, array)
    return urllib.request.urlopen(url, body.getvalue(), timeout=60).read()


def test_results(served):
    for rows in (1, 3, 8):
        x = torch.randn(rows, 24)
        found = torch.from_numpy(numpy.load(io.BytesIO(ask(served[0], x.numpy()))))
        with torch.no_grad():
            torch.testing.assert_close(found, served[1](x))


def test_a_bad_request_gets_a_clear_answer(served):
    for array, expected in (
        (numpy.zeros((1, 23), "f4"), "expected float32 of [*, 24], got float32 of [1, 23]"),
        (numpy.zeros((1, 24), "i8"), "expected float32 of [*, 24], got int64 of [1, 24]"),
    ):
        with pytest.raises(urllib.error.HTTPError) as error:
            ask(served[0], array)
        assert error.value.code == 400
        assert expected in error.value.read().decode()
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(served[0], b"nonsense", timeout=60)
    assert error.value.code == 400
