import doctest

import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_same


class TwoInputs(nn.Module):
    """A model with two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(self.linear(x) + y)


@pytest.mark.parametrize("as_mapping", [False, True])
def test_optimize_traces(as_mapping):
    model, x, y = TwoInputs().eval(), torch.randn(2, 4), torch.randn(2, 3)
    optimized = ipex.optimize(model, {"x": x, "y": y} if as_mapping else (x, y))
    with torch.no_grad():
        assert_same(optimized(x, y), model(x, y))
    assert "ipex::linear_run" in str(optimized.graph)


def test_optimize_takes_a_script_module_too():
    x = torch.randn(2, 4)
    model = nn.Linear(4, 3).eval()
    with torch.no_grad():
        assert_same(ipex.optimize(torch.jit.script(model), x)(x), model(x))


def test_optimize_refuses_training_mode():
    with pytest.raises(ValueError, match="expected a module in eval mode, got training=True"):
        ipex.optimize(nn.Linear(2, 2), torch.randn(1, 2))


def test_optimize_refuses_other_things():
    with pytest.raises(TypeError, match="expected a torch.nn.Module, got function"):
        ipex.optimize(lambda x: x, torch.randn(1, 2))


def test_jit_optimize_refuses_a_plain_module():
    with pytest.raises(TypeError, match=r"expected a ScriptModule, got the nn.Module Linear. Call torch.jit.trace"):
        ipex.jit_optimize(nn.Linear(2, 2))


def test_jit_optimize_refuses_other_things():
    with pytest.raises(TypeError, match="expected a ScriptModule, got int"):
        ipex.jit_optimize(3)


def test_disable_refuses_a_bare_string():
    module = torch.jit.trace(nn.Linear(2, 2).eval(), torch.randn(1, 2))
    with pytest.raises(TypeError, match="expected a list of pass names in disable, got the string 'fuse_activation'"):
        ipex.jit_optimize(module, disable="fuse_activation")


def test_the_example_in_the_docstring():
    finder = doctest.DocTestFinder().find(ipex.jit_optimize, globs={"torch": torch, "ipex": ipex})
    results = [doctest.DocTestRunner().run(test) for test in finder]
    assert sum(r.attempted for r in results) > 0
    assert sum(r.failed for r in results) == 0
