"""LSTM and GRU of `ipex.optimize` under autocast: the dtypes that eager gives, and weights that are not unpacked."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import ipex
from ipex._optimize.packed import recurrent
from ipex._optimize.packed.source import Source
from ipex._torch_internals import has_lstm_of
from support import assert_same

KINDS = [nn.LSTM, nn.GRU]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def layers(request):
    torch.manual_seed(0)
    layer = request.param(6, 8, 2, bidirectional=True, batch_first=True).eval()
    return layer, ipex.optimize(layer)


def skip_without_eager(layer):
    if isinstance(layer, nn.LSTM) and not has_lstm_of(torch.bfloat16):
        pytest.skip("torch has no LSTM of bfloat16 under autocast on this CPU")


@pytest.fixture
def unpacked(monkeypatch):
    """How often a weight was unpacked."""
    count, values = [0], Source._packed_values

    def counted(source):
        count[0] += 1
        return values(source)

    monkeypatch.setattr(Source, "_packed_values", counted)
    return count


def tensors(results) -> list[torch.Tensor]:
    output, states = results
    return [output, *(states if isinstance(states, tuple) else (states,))]


@pytest.mark.parametrize("is_fast", [False, True], ids=["float32", "bfloat16 is fast"])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 5, 6), (40, 3, 6), (5, 6)])
def test_results_have_the_dtypes_of_eager(layers, shape, given, is_fast, unpacked, monkeypatch):
    monkeypatch.setattr(recurrent, "multiplies_bfloat16_fast", lambda: is_fast)
    layer, optimized = layers
    skip_without_eager(layer)
    x = torch.randn(shape).to(given)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            for e, a in zip(tensors(layer(x)), tensors(optimized(x))):
                assert_same(a, e, 2**-5)
    is_torchs = is_fast and shape[0] == 40
    assert unpacked[0] == (len(list(layer.parameters())) if is_torchs else 0)


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
def test_given_states(layers, given, unpacked):
    layer, optimized = layers
    skip_without_eager(layer)
    x, state = torch.randn(2, 5, 6), torch.randn(4, 2, 8).to(given)
    states = (state, state) if isinstance(layer, nn.LSTM) else state
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for e, a in zip(tensors(layer(x, states)), tensors(optimized(x, states))):
            assert_same(a, e, 2**-5)
    assert unpacked[0] == 0


def test_float64_is_refused_as_by_eager(layers):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for layer in layers:
            with pytest.raises(RuntimeError):
                layer(torch.randn(2, 5, 6).double())


def test_packed_sequences_unpack_once(layers, unpacked):
    layer, optimized = layers
    sequence = pack_padded_sequence(torch.randn(3, 5, 6), torch.tensor([5, 4, 2]), batch_first=True)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(optimized(sequence)[0].data, layer(sequence)[0].data)
        assert unpacked[0] == len(list(layer.parameters()))
        for each in layers:
            each.weight_hh_l0.mul_(2)
        assert torch.equal(optimized(sequence)[0].data, layer(sequence)[0].data)
        x = torch.randn(2, 5, 6)
        assert_same(optimized(x)[0], layer(x)[0])
