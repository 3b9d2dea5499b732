import doctest

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex import Decision
from ipex._options import Options
from support import assert_same


class TwoInputs(nn.Module):
    """A model with two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(self.linear(x) + y)


@pytest.mark.parametrize("as_mapping", [False, True])
def test_a_module_is_traced(as_mapping):
    model, x, y = TwoInputs().eval(), torch.randn(2, 4), torch.randn(2, 3)
    optimized = ipex.jit_optimize(model, {"x": x, "y": y} if as_mapping else (x, y))
    with torch.no_grad():
        assert_same(optimized(x, y), model(x, y))
    assert "ipex::linear_run" in str(optimized.graph)


def test_a_script_module_takes_no_example_inputs():
    x = torch.randn(2, 4)
    script = torch.jit.script(nn.Linear(4, 3).eval())
    with torch.no_grad():
        assert_same(ipex.jit_optimize(script)(x), script(x))
    message = "expected no example_inputs with a ScriptModule, got Tensor. It is not traced again: leave them out"
    with pytest.raises(TypeError, match=message):
        ipex.jit_optimize(script, x)


def test_training_mode_is_refused():
    with pytest.raises(ValueError, match="expected a module in eval mode, got training=True"):
        ipex.jit_optimize(nn.Linear(2, 2), torch.randn(1, 2))


def test_ops_in_training_mode_are_warned_of():
    class Drops(nn.Module):
        def forward(self, x: Tensor, twice: bool) -> Tensor:
            if twice:
                x = nn.functional.dropout(x, 0.5, True)
            return nn.functional.dropout(nn.functional.dropout(x, 0.5, True), 0.5, False)

    script = torch.jit.script(Drops().eval())
    with pytest.warns(UserWarning, match="without ops in training mode") as caught:
        ipex.jit_optimize(script)
    assert str(caught[0].message).count("aten::dropout at") == 2


@pytest.mark.parametrize(("inputs", "kind"), [(None, "None"), ({1}, "set"), (3, "int")])
def test_a_module_needs_example_inputs(inputs, kind):
    message = f"ipex.jit_optimize: expected inputs, got {kind}. Pass a tensor, a tuple"
    with pytest.raises(TypeError, match=message):
        ipex.jit_optimize(nn.Linear(2, 2).eval(), inputs)


@pytest.mark.parametrize(("thing", "kind"), [(3, "int"), (lambda x: x, "function")])
def test_other_things_are_refused(thing, kind):
    with pytest.raises(TypeError, match=f"expected a ScriptModule, an nn.Module or an exported program, got {kind}"):
        ipex.jit_optimize(thing, torch.randn(1, 2))
    with pytest.raises(TypeError, match=f"ipex.explain: expected a ScriptModule, got {kind}"):
        ipex.explain(thing)


def test_explain_refuses_a_plain_module():
    with pytest.raises(TypeError, match=r"expected a ScriptModule, got the nn.Module Linear. Call ipex.jit_optimize"):
        ipex.explain(nn.Linear(2, 2))


def test_disable_refuses_a_bare_string():
    message = r"expected a list of pass names in disable, got the string 'fuse_activation'. Take \['fuse_activation'\]"
    with pytest.raises(TypeError, match=message):
        Options(disable="fuse_activation")


def test_options_read_an_iterator_once():
    options = Options(disable=(name for name in ("fuse_activation", "fold_constants")), dtype=torch.bfloat16)
    expected = {
        "disable": ["fuse_activation", "fold_constants"],
        "dtype": "bfloat16",
        "fp32_math_mode": None,
        "stop_after": "",
    }
    assert [options.for_cpp(), options.for_cpp()] == [expected, expected]
    assert options == Options(disable=["fuse_activation", "fold_constants"], dtype=torch.bfloat16)


def test_the_binding_takes_dtypes_by_name():
    module = torch.jit.trace(nn.Linear(4, 4).eval(), torch.randn(2, 4))._c
    with pytest.raises(RuntimeError, match="expected the name of a dtype in dtype, got 'bf16'. Take bfloat16"):
        ipex._C.jit_optimize(module, dtype="bf16")
    with pytest.raises(RuntimeError, match="expected bfloat16 or float16 in dtype, got Int"):
        ipex._C.jit_optimize(module, dtype="int32")


@pytest.mark.parametrize("what", [{"disable": ["fuse_activation"]}, {"stop_after": "fuse_activation"}])
def test_no_pass_is_left_out_of_an_optimised_model(what):
    """It would be the same model again, without a word."""
    optimized = ipex.jit_optimize(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.randn(2, 4))
    with pytest.raises(RuntimeError, match="jit_optimize: expected a model that was not optimised before"):
        ipex.jit_optimize(optimized, **what)
    ipex.jit_optimize(optimized)


def test_a_decision_is_about_forward_unless_it_says_otherwise():
    decision = Decision("fuse_activation", "aten::relu (%3)", True, "fused")
    assert decision.method == "forward"
    assert str(decision) == "applied   fuse_activation: aten::relu (%3): fused"
    assert Decision(*("fuse_activation", "aten::relu (%3)", False, "two readers", "encode")).method == "encode"


def test_the_example_in_the_docstring():
    finder = doctest.DocTestFinder().find(ipex.jit_optimize, globs={"torch": torch, "ipex": ipex})
    results = [doctest.DocTestRunner().run(test) for test in finder]
    assert sum(r.attempted for r in results) > 0
    assert sum(r.failed for r in results) == 0
