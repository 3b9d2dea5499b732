"""A file may say anything about a tensor: its storage is measured before anything is read."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ipex

OUTSIDE = "that lies inside of its storage"


class Outputs(nn.Module):
    """A recurrent layer whose states nobody wants."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


def context_of(model: nn.Module, x: Tensor) -> torch.ScriptObject:
    is_recurrent = isinstance(model, Outputs)
    return ipex.jit_optimize(
        torch.jit.script(model.eval()) if is_recurrent else torch.jit.trace(model.eval(), x)
    ).packed_0


MODELS = {
    "convolution": (nn.Conv2d(4, 8, 3), torch.randn(1, 4, 8, 8)),
    "linear": (nn.Linear(6, 8), torch.randn(2, 6)),
    "lstm": (Outputs(nn.LSTM(6, 8)), torch.randn(3, 2, 6)),
    "gru": (Outputs(nn.GRU(6, 8, bidirectional=True)), torch.randn(3, 2, 6)),
}


def restored(state: tuple, class_name: str) -> torch.ScriptObject:
    context = torch.ScriptObject.__new__(torch.ScriptObject)
    context.__setstate__((state, class_name))
    return context


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_of_a_state_is_checked(name):
    model, x = MODELS[name]
    (version, tensors, *rest), class_name = context_of(model, x).__getstate__()
    assert len(tensors) >= 2
    for damaged in tensors:
        copies = {key: tensor.clone() for key, tensor in tensors.items()}
        copies[damaged].untyped_storage().resize_(copies[damaged].nbytes - 1)
        with pytest.raises(RuntimeError, match=f"expected a tensor '{damaged}' {OUTSIDE}"):
            restored((version, copies, *rest), class_name)


def test_a_tensor_that_is_not_a_weight_is_checked_too():
    model, x = MODELS["lstm"]
    (version, tensors, *rest), class_name = context_of(model, x).__getstate__()
    surplus = torch.randn(9)
    surplus.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=f"expected a tensor 'surplus' {OUTSIDE}"):
        restored((version, {**tensors, "surplus": surplus}, *rest), class_name)


def rewrite(source: Path, target: Path, old: bytes, new: bytes) -> int:
    """Copies an archive with other bytes in its pickle. How often they were there."""
    found = 0
    with zipfile.ZipFile(source) as read, zipfile.ZipFile(target, "w") as write:
        for name in read.namelist():
            content = read.read(name)
            if name.endswith("/data.pkl"):
                found = content.count(old)
                content = content.replace(old, new)
            write.writestr(name, content)
    return found


def damage(folder: Path, old: bytes, new: bytes) -> None:
    """Saves a convolution as bad.pt with `new` instead of `old`."""
    model, x = MODELS["convolution"]
    ipex.jit_optimize(torch.jit.trace(model.eval(), x)).save(folder / "good.pt")
    assert rewrite(folder / "good.pt", folder / "same.pt", old, old) == 1
    assert torch.allclose(ipex.load(folder / "same.pt")(x), model(x), atol=1e-5)
    rewrite(folder / "good.pt", folder / "bad.pt", old, new)


# A tuple of small integers as pickle has it.
SIZES, STRIDES = b"K\x08K\x04K\x03K\x03", b"K$K\tK\x03K\x01"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(SIZES, b"K\x80K\x04K\x03K\x03", id="sizes"),
        pytest.param(STRIDES, b"K\xffK\tK\x03K\x01", id="strides"),
        pytest.param(STRIDES, b"J\x00\x00\x00\xffK\tK\x03K\x01", id="negative stride"),
    ],
)
def test_a_damaged_file(tmp_path, old, new):
    damage(tmp_path, old, new)
    with pytest.raises(RuntimeError, match="that its storage does not hold"):
        ipex.load(tmp_path / "bad.pt")
    refused_by_torch = "require a storage of|negative stride"  # newer ones look too
    with pytest.raises(RuntimeError, match=f"expected a tensor 'weight' {OUTSIDE}|{refused_by_torch}"):
        torch.jit.load(tmp_path / "bad.pt")


def test_memory_that_goes_between_loading_and_the_first_call():
    model, x = MODELS["linear"]
    (version, tensors, *rest), class_name = context_of(model, x).__getstate__()
    weight = tensors["weight"].clone()
    context = restored((version, {**tensors, "weight": weight}, *rest), class_name)
    weight.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="a tensor whose memory is gone"):
        torch.ops.ipex.linear_run(x, context, [], True)
