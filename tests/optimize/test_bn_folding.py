"""conv_bn_folding and linear_bn_folding: where it is proven to be right, and nowhere else."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import Tensor, nn

import ipex
from optimize.models import Classifier, Decoder, Mlp, Residual, trained
from support import assert_same

FOLDING = {"conv_bn_folding": True, "linear_bn_folding": True}
TOLERANCE = 2e-5


def fold(model: nn.Module, **options):
    return ipex.optimize(model, level="O0", **{**FOLDING, **options})


def folded(optimized: nn.Module) -> list[str]:
    return [d.node for d in ipex.explain(optimized).applied if "bn_folding" in d.pass_name]


def reasons(optimized: nn.Module) -> str:
    return "\n".join(d.reason for d in ipex.explain(optimized).declined)


@pytest.mark.parametrize(
    ("make", "x", "names"),
    [
        (Classifier, (2, 3, 16, 16), ["stem.1", "block.bn1", "block.bn2"]),
        (Mlp, (3, 16), ["norm"]),
        (Decoder, (2, 8, 6, 6), ["bn"]),
        (lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4, affine=False)), (2, 3, 9), ["1"]),
        (lambda: nn.Sequential(nn.ConvTranspose3d(4, 6, 2, groups=2), nn.BatchNorm3d(6)), (1, 4, 3, 3, 3), ["1"]),
    ],
)
def test_folds(make, x, names):
    model, x = trained(make()), torch.randn(*x)
    optimized = fold(model)
    assert folded(optimized) == names
    with torch.no_grad():
        assert_same(optimized(x), model(x), TOLERANCE)
    for name in names:
        assert isinstance(optimized.get_submodule(name), type(model.get_submodule(name)))
    assert [n for n, _ in optimized.named_parameters()] == [n for n, _ in model.named_parameters()]


def test_off_leaves_it():
    model = trained(Classifier())
    optimized = fold(model, conv_bn_folding=False, linear_bn_folding=False)
    assert folded(optimized) == []
    assert torch.equal(optimized.stem[1].running_mean, model.stem[1].running_mean)


class TwoReaders(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.bn(y) + y


class CalledTwice(TwoReaders):
    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x)) + self.conv(x + 1)


class NormCalledTwice(TwoReaders):
    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.conv(x))
        return self.bn(y)


class WeightRead(TwoReaders):
    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x)) + self.conv.weight.sum()


class OptionalInput(TwoReaders):
    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        y = self.conv(x)
        return self.bn(y) if more is None else self.bn(y + more)


class Option(TwoReaders):
    def forward(self, x: Tensor, also: bool = False) -> Tensor:
        y = self.conv(x)
        return self.bn(y) + y if also else self.bn(y)


class Returned(TwoReaders):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.conv(x)
        return self.bn(y), y


def with_hook() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    model[0].register_forward_hook(lambda module, inputs, output: None)
    return model


def with_batch_statistics() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, track_running_stats=False))


def with_shared_weight() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1))
    model[2].weight = model[0].weight
    return model


def with_parametrization() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 1)), nn.BatchNorm2d(4))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (TwoReaders, "has another reader"),
        (CalledTwice, "called 2 times"),
        (NormCalledTwice, "2 times"),
        (WeightRead, "parameters of conv are read elsewhere"),
        (OptionalInput, "reads another value|another reader"),
        (Option, "has another reader"),
        (Returned, "has another reader"),
        (with_hook, "has hooks"),
        (with_batch_statistics, "statistics of the batch"),
        (with_shared_weight, "shared"),
        (with_parametrization, None),
    ],
)
def test_declines(make, reason):
    model, x = trained(make()), torch.randn(2, 3, 5, 5)
    optimized = fold(model)
    assert folded(optimized) == []
    if reason is not None:
        assert any(part in reasons(optimized) for part in reason.split("|"))
    with torch.no_grad():
        assert_same(optimized(x), model(x), 0)


def test_a_weight_that_overlaps_itself_stays():
    model, x = trained(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))), torch.randn(2, 3, 5, 5)
    model[0].weight = nn.Parameter(torch.randn(1, 3, 1, 1).expand(4, 3, 1, 1))
    with torch.no_grad():
        expected = model(x)
        optimized = fold(model, inplace=True)
        assert folded(optimized) == []
        assert "can't be written to" in reasons(optimized)
        assert_same(optimized(x), expected, 0)


def test_in_train_mode_it_stays():
    model = trained(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
    model[1].train()
    optimized = fold(model)
    assert folded(optimized) == []
    assert "statistics of the batch" in reasons(optimized)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.conv(x)) if x.sum() > 0 else self.conv(x)


def test_a_flow_that_depends_on_values_is_warned_of_and_left():
    model, x = trained(Branches()), torch.randn(2, 3, 5, 5)
    with pytest.warns(
        UserWarning, match="conv_bn_folding is left out. torch.fx can't trace .* folds without it"
    ) as caught:
        optimized = fold(model)
    assert len(caught) == 1
    with torch.no_grad():
        for sign in (1, -1):
            assert_same(optimized(x.abs() * sign), model(x.abs() * sign), 0)


class Counts(Residual):
    calls = 0
    seen = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen = x
        return super().forward(x)


def test_finding_the_flow_leaves_no_traces():
    model = trained(Counts())
    optimized = ipex.optimize(model, inplace=True)
    assert model is optimized
    assert (model.calls, model.seen) == (0, None)


def test_a_linear_of_sequences_is_undone():
    model = trained(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)))
    optimized = fold(model)
    assert folded(optimized) == ["1"]
    flat, sequences = torch.randn(3, 6), torch.randn(3, 4, 6)
    with torch.no_grad():
        assert_same(optimized(flat), model(flat), TOLERANCE)
        assert_same(optimized(sequences), model(sequences), TOLERANCE)
        with pytest.raises(RuntimeError, match="expected 4 channels"):
            optimized(torch.randn(3, 5, 6))


@pytest.mark.parametrize("prepack", [False, True])
@pytest.mark.parametrize(("make", "x"), [(Classifier, (2, 3, 16, 16)), (Mlp, (3, 16)), (Decoder, (2, 8, 6, 6))])
def test_state_dicts_go_both_ways(make, x, prepack):
    model, other, x = trained(make()), trained(make()), torch.randn(*x)
    optimized = fold(model, weights_prepack=prepack)
    state = optimized.state_dict()
    for key, tensor in model.state_dict().items():
        assert state[key].shape == tensor.shape
        assert state[key].dtype == tensor.dtype
        assert type(state[key]) is Tensor
    assert list(state) == list(model.state_dict())
    with torch.no_grad():
        expected = model(x)
        plain = make().eval()
        plain.load_state_dict(state)
        assert_same(plain(x), expected, TOLERANCE)
        optimized.load_state_dict(state)
        assert_same(optimized(x).contiguous(), expected, TOLERANCE)
        optimized.load_state_dict(other.state_dict())
        assert_same(optimized(x).contiguous(), other(x), TOLERANCE)


@pytest.mark.parametrize("prepack", [False, True])
def test_a_batch_norm_that_is_loaded_alone(prepack):
    model, other = (trained(nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))) for _ in range(2))
    optimized, x = fold(model, weights_prepack=prepack), torch.randn(2, 4, 3, 3)
    optimized[2].load_state_dict(other[2].state_dict())
    as_saved = copy.deepcopy(model)
    as_saved.load_state_dict({**fold(model).state_dict(), **{f"2.{k}": v for k, v in other[2].state_dict().items()}})
    with torch.no_grad():
        assert_same(optimized(x), as_saved(x), TOLERANCE)


@pytest.mark.parametrize("prepack", [False, True])
def test_copies_fold_for_themselves(prepack):
    model, other, x = trained(Classifier()), trained(Classifier()), torch.randn(2, 3, 16, 16)
    optimized = fold(model, weights_prepack=prepack)
    file = io.BytesIO()
    torch.save(optimized, file)
    file.seek(0)
    with torch.no_grad():
        expected = model(x)
        for twin in (copy.deepcopy(optimized), torch.load(file, weights_only=False)):
            assert_same(twin(x), expected, TOLERANCE)
            twin.load_state_dict(other.state_dict())
            assert_same(twin(x), other(x), TOLERANCE)
            assert_same(optimized(x).contiguous(), expected, TOLERANCE)


def test_training_it_is_an_error():
    optimized = fold(trained(Classifier())).train()
    with pytest.raises(RuntimeError, match="expected a folded batch_norm in eval mode"):
        optimized(torch.randn(2, 3, 16, 16))
