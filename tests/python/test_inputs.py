"""Every call that takes inputs takes the same, and reads them in one place."""

from collections import UserDict, namedtuple
from concurrent.futures import Future

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex._cli import main
from support import assert_same

A, B = torch.randn(2, 4), torch.randn(2, 4)
Pair = namedtuple("Pair", ["x", "y"])


class Model(nn.Module):
    """Two inputs, of which one may be left out, and results with names."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, y: Tensor | None = None, scale: float = 1.0):
        x = self.linear(x) * scale
        return {"sum": x if y is None else x + y, "twice": 2 * x}


INPUTS = {
    "tensor": A,
    "tuple": (A, B),
    "list": [A, B],
    "NamedTuple": Pair(A, B),
    "dict": {"x": A, "y": B},
    "UserDict": UserDict(y=B, x=A),  # as BatchEncoding is one
    "a float and None": (A, None, 0.5),
    "a float by name": {"x": A, "scale": 0.5},
}
MODEL = Model().eval()


def called(model, inputs):
    with torch.no_grad():
        if isinstance(inputs, torch.Tensor):
            return model(inputs)
        return model(*inputs) if isinstance(inputs, (tuple, list)) else model(**inputs)


def jit_optimize(inputs):
    assert_same(called(ipex.jit_optimize(MODEL, inputs), inputs), called(MODEL, inputs))


def verify(inputs):
    assert ipex.verify(MODEL, ipex.jit_optimize(MODEL, inputs), inputs)


def profile(inputs):
    assert ipex.profile(ipex.jit_optimize(MODEL, inputs), inputs, calls=1).ops


def optimize(inputs):
    assert_same(called(ipex.optimize(MODEL, sample_input=inputs), inputs), called(MODEL, inputs))


def prepare(inputs):
    called(ipex.quantization.prepare(MODEL, inputs), inputs)


def aot_save(inputs):
    for given in (inputs, [inputs]) if isinstance(inputs, (tuple, dict, UserDict)) else (inputs,):
        ipex.aot_save(ipex.jit_optimize(MODEL, inputs), "model.ipex", example_inputs=given)


def stream_pool(inputs):
    with ipex.StreamPool(ipex.jit_optimize(MODEL, inputs), streams=1) as pool:
        expected = called(MODEL, inputs)
        assert_same(called(pool, inputs), expected)
        (found,) = pool.map([inputs])
        assert_same(found, expected)


def command_line(inputs):
    if isinstance(inputs, (tuple, UserDict)):  # a file holds plain ones
        inputs = tuple(inputs) if isinstance(inputs, tuple) else dict(inputs)
    script = torch.jit.script(MODEL)
    script.save("model.pt")
    torch.save(inputs, "inputs.pt")
    assert main(["verify", "model.pt", "--inputs", "inputs.pt"]) == 0
    assert main(["aot", "model.pt", "-o", "model.ipex", "--inputs", "inputs.pt"]) == 0


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("inputs", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize(
    "reads", [jit_optimize, verify, profile, optimize, prepare, aot_save, stream_pool, command_line]
)
def test_every_call_takes_the_same(reads, inputs):
    reads(inputs)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ipex.jit_optimize(MODEL, x),
        lambda x: ipex.verify(MODEL, MODEL, x),
        lambda x: ipex.profile(ipex.jit_optimize(MODEL, A), x),
        lambda x: ipex.optimize(MODEL, sample_input=x),
        lambda x: ipex.quantization.prepare(MODEL, x),
        lambda x: ipex.aot_save(ipex.jit_optimize(MODEL, A), "model.ipex", example_inputs=x),
        lambda x: list(ipex.StreamPool(ipex.jit_optimize(MODEL, A), streams=1).map([x])),
    ],
)
def test_what_is_no_input(call):
    message = r"ipex\.[\w.()]+: expected inputs, got set. Pass a tensor, a tuple or list of arguments, or a mapping"
    with pytest.raises(TypeError, match=message):
        call({1})


def test_a_list_of_tuples_is_several_calls_for_aot_save(tmp_path):
    optimized = ipex.jit_optimize(MODEL, (A, B))
    ipex.aot_save(optimized, tmp_path / "model.ipex", example_inputs=[(A, B), {"x": A[:1], "y": B[:1]}])
    with pytest.raises(TypeError, match="expected the argument y of forward, got none. Pass it"):
        ipex.aot_save(optimized, tmp_path / "model.ipex", example_inputs=[(A, B), (A,)])


def test_names_that_forward_does_not_have():
    pool = ipex.StreamPool(ipex.jit_optimize(nn.Linear(4, 4).eval(), A), streams=1)
    with pytest.raises(TypeError, match=r"ipex.StreamPool: expected the arguments of forward, input, got z too"):
        pool.submit(z=A)
    assert isinstance(pool.submit(input=A), Future)


def test_a_file_of_something_else(capsys):
    torch.jit.script(MODEL).save("model.pt")
    torch.save(UserDict(x=A), "inputs.pt")
    assert main(["verify", "model.pt", "--inputs", "inputs.pt"]) == 2
    assert "expected tensors, and tuples, lists and dicts of them in inputs.pt, got" in capsys.readouterr().err
