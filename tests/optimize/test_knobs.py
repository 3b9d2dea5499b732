"""What `ipex.optimize` is asked for: levels, knobs and what does not apply."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import ipex
from optimize.models import Classifier, Mlp, Tagger, trained

X = torch.randn(3, 16)


def what_applied(optimized: nn.Module) -> set[str]:
    return {d.pass_name for d in ipex.explain(optimized).applied}


def test_o0_changes_nothing():
    model = trained(Classifier())
    optimized = ipex.optimize(model, level="O0")
    assert what_applied(optimized) == set()
    assert [type(m) for m in optimized.modules()] == [type(m) for m in model.modules()]
    assert optimized is not model


def test_o1_sets_the_documented_defaults():
    applied = what_applied(ipex.optimize(trained(Classifier())))
    assert applied == {"conv_bn_folding", "replace_dropout_with_identity", "channels_last", "weights_prepack"}
    assert what_applied(ipex.optimize(trained(Mlp()))) == {
        "linear_bn_folding",
        "replace_dropout_with_identity",
        "weights_prepack",
    }
    assert what_applied(ipex.optimize(trained(Tagger()))) == {"optimize_lstm", "weights_prepack"}


@pytest.mark.parametrize("knob", ["linear_bn_folding", "replace_dropout_with_identity", "weights_prepack"])
def test_a_knob_wins_over_the_level(knob):
    assert what_applied(ipex.optimize(trained(Mlp()), level="O0", **{knob: True})) == {knob}
    assert knob not in what_applied(ipex.optimize(trained(Mlp()), level="O1", **{knob: False}))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"level": "O2"}, ValueError, "expected 'O0' or 'O1' in level, got 'O2'"),
        ({"dtype": torch.int8}, ValueError, "expected torch.float32, torch.bfloat16 or torch.float16 in dtype"),
        ({"dtype": "bf16"}, TypeError, "expected a torch.dtype or None in dtype, got 'bf16'"),
        ({"weights_prepack": 1}, TypeError, "expected True, False or None in weights_prepack, got 1"),
        ({"sample_input": 3}, TypeError, "expected inputs, got int. Pass a tensor, a tuple"),
    ],
)
def test_mistakes(options, error, message):
    with pytest.raises(error, match=message):
        ipex.optimize(trained(Mlp()), **options)


def test_a_model_in_the_wrong_mode():
    with pytest.raises(ValueError, match="expected a model in eval mode, or an optimizer"):
        ipex.optimize(Mlp().train())
    model = Mlp().eval()
    with pytest.raises(ValueError, match="expected a model in training mode with an optimizer"):
        ipex.optimize(model, optimizer=torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(TypeError, match="expected an nn.Module, got function"):
        ipex.optimize(lambda x: x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fuse_update_step": True}, "fuse_update_step is ignored. It is for training"),
        ({"split_master_weight_for_bf16": True}, "split_master_weight_for_bf16 is ignored. It is for training"),
        ({"weights_prepack": False, "sample_input": X}, "sample_input is ignored. It needs weights_prepack=True"),
        ({"weights_prepack": False, "auto_kernel_selection": True}, "auto_kernel_selection is ignored. It needs"),
        ({"weights_prepack": False, "concat_linear": True}, "concat_linear is ignored. It needs weights_prepack"),
        ({"auto_kernel_selection": True}, "auto_kernel_selection is ignored. It times the shapes of a sample"),
    ],
)
def test_what_does_not_apply_is_warned_of(options, message):
    model = trained(Mlp())
    with pytest.warns(UserWarning, match=message) as caught:
        optimized = ipex.optimize(model, **options)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with torch.no_grad():
        torch.testing.assert_close(optimized(X), model(X))


def test_nothing_is_warned_of_without_need():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ipex.optimize(trained(Mlp()), sample_input=X)
        ipex.optimize(trained(Classifier()), dtype=torch.float32)


def test_an_optimisation_that_fails_is_left_out(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no luck")

    monkeypatch.setattr("ipex._optimize.front_door.fold_into_linears", fail)
    model = trained(Mlp())
    with pytest.warns(UserWarning, match="linear_bn_folding is left out. RuntimeError: no luck") as caught:
        optimized = ipex.optimize(model)
    assert len(caught) == 1
    assert any("no luck" in d.reason for d in ipex.explain(optimized).declined)
    assert "weights_prepack" in what_applied(optimized)
    with torch.no_grad():
        torch.testing.assert_close(optimized(X), model(X))


def test_dropout_becomes_identity():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Sequential(nn.Dropout2d())).eval()
    model[2].register_module("hooked", nn.Dropout())
    model[2].hooked.register_forward_hook(lambda *_: None)
    optimized = ipex.optimize(model.eval(), level="O0", replace_dropout_with_identity=True)
    assert [type(m).__name__ for m in (optimized[1], optimized[2][0], optimized[2].hooked)] == [
        "Identity",
        "Identity",
        "Dropout",
    ]
    assert type(model[1]) is nn.Dropout


def test_channels_last_is_automatic_and_can_be_turned_off():
    model, x = trained(Classifier()), torch.randn(2, 3, 16, 16)

    def is_channels_last(module):
        return module.stem(x).is_contiguous(memory_format=torch.channels_last)

    with torch.no_grad():
        assert is_channels_last(ipex.optimize(model))
        assert model.stem[0].weight.is_contiguous()
        ipex.disable_auto_channels_last()
        try:
            assert not is_channels_last(ipex.optimize(model))
        finally:
            ipex.enable_auto_channels_last()


def test_concat_linear_says_why_they_stay_apart():
    from optimize.models import Attention

    optimized = ipex.optimize(Attention().eval(), concat_linear=True)
    (decision,) = [d for d in ipex.explain(optimized).declined if d.pass_name == "concat_linear"]
    assert decision.node == "query, key, value"


def test_a_script_module_is_optimised():
    model = trained(Classifier())
    x = torch.randn(2, 3, 16, 16)
    traced = torch.jit.trace(model, x)
    optimized = ipex.optimize(traced)
    assert isinstance(optimized, torch.jit.ScriptModule)
    assert any(d.applied for d in ipex.explain(optimized))
    with torch.no_grad():
        torch.testing.assert_close(optimized(x), model(x))
    assert ipex.optimize(traced, level="O0") is traced
    with pytest.warns(UserWarning, match="conv_bn_folding, inplace ignored. A ScriptModule is optimised by"):
        ipex.optimize(traced, conv_bn_folding=True, inplace=True)


@pytest.mark.parametrize("inplace", [False, True])
def test_with_an_optimizer_both_come_back(inplace):
    model = Mlp().train()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    result = ipex.optimize(model, optimizer=optimizer, dtype=torch.bfloat16, inplace=inplace)
    assert len(result) == 2
    assert (result[0] is model) == inplace
    assert isinstance(result[1], torch.optim.Optimizer)


def test_what_stands_for_a_dropout_has_its_attributes():
    model = ipex.optimize(nn.Sequential(nn.Dropout(0.3), nn.Dropout2d(0.2, inplace=True)).eval())
    assert [(type(m), m.p, m.inplace) for m in model] == [(nn.Identity, 0.3, False), (nn.Identity, 0.2, True)]
