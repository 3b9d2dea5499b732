"""What people bring that is not quite a model in eval mode: it works, or one sentence says what to do."""

import functools
import io
import re

import pytest
import torch
from torch import nn

import ipex

pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
X = torch.randn(4, 8)


def model():
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 4)).eval()


def traced_in_training():
    return torch.jit.trace(model().train(), X, check_trace=False).eval()


def test_one_submodule_in_training_mode():
    net = model()
    net[1].train()
    for call in (ipex.jit_optimize, ipex.quantization.prepare, ipex.quantization.dynamic):
        with pytest.raises(
            ValueError, match=r"expected a module in eval mode, got training=True in 1. Call module.eval"
        ):
            call(net, X)


def test_traced_in_training_mode():
    message = r"got aten::dropout at 1, aten::batch_norm at 2\. The results are those of training. Call eval\(\) on the"
    with pytest.warns(UserWarning, match=message) as warned:
        optimized = ipex.jit_optimize(traced_in_training())
    assert [w.filename for w in warned if str(w.message).startswith("ipex")] == [__file__]
    assert "1 x aten::dropout" in " ".join(ipex.explain(optimized).verdict)


def test_frozen_in_training_mode():
    with pytest.warns(UserWarning, match="got aten::dropout at "):
        ipex.jit_optimize(torch.jit.freeze(traced_in_training()))


class Meant(nn.Module):
    def forward(self, x):
        return nn.functional.batch_norm(x, None, None, training=True)


def test_a_norm_without_statistics_is_as_it_should_be():
    assert ipex.verify(Meant().eval(), ipex.jit_optimize(Meant().eval(), X), X)


def test_hooks_that_are_lost():
    net, seen = model(), []

    def record(kept, *_):
        kept.append(1)

    net[0].register_forward_hook(functools.partial(record, seen))
    net.register_forward_pre_hook(lambda *_: seen.append(2))
    with pytest.warns(
        UserWarning, match=r"got .*<lambda> of the model, partial of 0\. Calls of the trace don't call"
    ) as warned:
        ipex.jit_optimize(net, X)
    assert [w.filename for w in warned if str(w.message).startswith("ipex")] == [__file__]


def test_hooks_of_torch_compute():
    net = torch.nn.utils.spectral_norm(nn.Linear(8, 8)).eval()  # has a hook
    assert net._forward_pre_hooks
    assert ipex.verify(net, ipex.jit_optimize(net, X), X)


def test_optimize_of_a_frozen_module():
    net = model()
    frozen = torch.jit.freeze(torch.jit.trace(net, X))
    assert ipex.verify(net, ipex.optimize(frozen), X)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda path: torch.save(model().state_dict(), path), "got what torch.save wrote: a state_dict, or a module"),
        (lambda path: torch.save(model(), path), "got what torch.save wrote: a state_dict, or a module"),
        (
            lambda path: torch.export.save(torch.export.export(model(), (X,)), path),
            "got a program of torch.export. Call ipex.jit_optimize(torch.export.load(path)).",
        ),
    ],
    ids=["state_dict", "module", "program"],
)
@pytest.mark.filterwarnings("ignore")
def test_files_of_other_kinds(what, message, tmp_path):
    path = str(tmp_path / "file.pt")
    what(path)
    with pytest.raises(RuntimeError, match=re.escape(f"expected a saved TorchScript model at {path!r}, {message}")):
        ipex.load(path)


@pytest.mark.parametrize("call", [lambda m: ipex.aot_save(m, "no.ipex"), ipex.StreamPool])
def test_what_optimize_returned_is_no_script_module(call, tmp_path):
    optimized = ipex.optimize(model())
    message = "got the nn.Module Sequential, which ipex.optimize returned. Call ipex.jit_optimize"
    with pytest.raises(TypeError, match=message):
        call(optimized)
    ipex.aot_save(ipex.jit_optimize(optimized, X), tmp_path / "model.ipex")  # what the message says


@pytest.mark.parametrize(
    ("thing", "advice"),
    [
        ("model.pt", "got str. Load the file first: ipex.load(path)."),
        (model().state_dict(), "got OrderedDict. Make the model in Python, and load_state_dict"),
        (torch.relu, "Make an nn.Module whose forward calls it."),
        (3, "got int. Pass a model."),
    ],
    ids=["path", "state_dict", "function", "number"],
)
def test_what_is_no_model(thing, advice):
    for call in (lambda m: ipex.jit_optimize(m, X), ipex.optimize, ipex.explain):
        with pytest.raises(TypeError, match=re.escape(advice)):
            call(thing)


def test_optimize_of_a_program():
    program = torch.export.export(model(), (X,))
    for exported in (program, program.module()):
        with pytest.raises(TypeError, match=r"Call ipex.jit_optimize\(program\)"):
            ipex.optimize(exported)


@pytest.mark.parametrize(
    ("inputs", "got"),
    [
        ({"x": X}, "got the names 'x': missing a required argument: 'input'. Pass"),
        ((4, 8), "got 2 arguments: too many positional arguments. Pass"),
        ((), "got none: missing a required argument: 'input'. Pass"),
    ],
)
def test_example_inputs_that_forward_does_not_take(inputs, got):
    message = f"ipex.jit_optimize: expected example inputs for Sequential.forward(input), {got} a tensor, a tuple"
    with pytest.raises(TypeError, match=re.escape(message)):
        ipex.jit_optimize(model(), inputs)


def test_example_inputs_in_place_of_a_dtype():
    with pytest.raises(TypeError, match="in dtype, got Tensor. Example inputs go into sample_input."):
        ipex.optimize(model(), X)


def test_an_optimizer_of_another_model():
    net, other = model().train(), model()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    message = "expected an optimizer of the model's parameters, got a SGD of others: nothing would train. Make it of"
    with pytest.raises(ValueError, match=message):
        ipex.optimize(net, optimizer=optimizer)
    optimizer.add_param_group({"params": net.parameters()})
    ipex.optimize(net, optimizer=optimizer)


def test_a_file_is_loaded_by_its_path():
    with pytest.raises(TypeError, match="ipex.load: expected the path of a file, got BytesIO"):
        ipex.load(io.BytesIO())
