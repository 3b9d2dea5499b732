from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import ipex
from ir import held
from support import assert_rewrites, assert_unchanged, graph_ir, kinds

# torch.nn's own checks of shapes, which a trace leaves out.
pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")

FLAGS = (
    "%true : bool = prim::Constant[value=1]()",
    "%false : bool = prim::Constant[value=0]()",
    "%one : int = prim::Constant[value=1]()",
    "%p : float = prim::Constant[value=0.5]()",
)


def weights(gates: int, dtype: str = "Float", hidden_rows: int = 0) -> tuple[str, ...]:
    rows = 8 * gates

    def weight(name: str, rows: int, depth: int) -> str:
        kind = f"{dtype}({rows}, {depth}, strides=[{depth}, 1], requires_grad=0, device=cpu)"
        return f"%{name} : {kind} = prim::Constant[value=<Tensor>]()"

    return (weight("w", rows, 5), weight("u", hidden_rows or rows, 8), "%all : Tensor[] = prim::ListConstruct(%w, %u)")


def lstm(
    *lines: str,
    params: str = "%all",
    state: str = "%hx",
    train: str = "%false",
    layers: str = "%one",
    returns: str = "%y",
    **weight: object,
) -> str:
    arguments = f"%x, {state}, {params}, %false, {layers}, %p, {train}, %false, %false"
    return graph_ir(
        "%x : Tensor, %h0 : Tensor, %c0 : Tensor, %v : Tensor, %n : int",
        *FLAGS,
        *weights(4, **weight),
        "%hx : Tensor[] = prim::ListConstruct(%h0, %c0)",
        *lines,
        f"%y : Tensor, %h : Tensor, %c : Tensor = aten::lstm({arguments})",
        returns=returns,
    )


def gru(train: str = "%false", *lines: str, params: str = "%all") -> str:
    return graph_ir(
        "%x : Tensor, %h0 : Tensor",
        *FLAGS,
        *weights(3),
        *lines,
        f"%y : Tensor, %h : Tensor = aten::gru(%x, %h0, {params}, %false, %one, %p, {train}, %false, %false)",
        returns="%y, %h",
    )


def test_lstm_fires_on_constant_weights():
    result = assert_rewrites("prepack_lstm", lstm())
    assert result.count("ipex::lstm_prepack") == result.count("ipex::lstm_run") == 1
    assert result.count("aten::lstm") == 0
    assert "ipex::lstm_run(%x, %h0, %c0, " in result.graph


def test_gru_fires_on_constant_weights():
    result = assert_rewrites("prepack_gru", gru())
    assert result.count("ipex::gru_prepack") == result.count("ipex::gru_run") == 1
    assert result.count("aten::gru") == 0
    assert "ipex::gru_run(%x, %h0, " in result.graph


def test_declines_computed_weights():
    computed = "%some : Tensor[] = prim::ListConstruct(%w, %v)"
    assert_unchanged("prepack_lstm", lstm(computed, params="%some"), reason="its weights are not constants")


def test_declines_a_list_of_weights_that_others_see():
    appended = "%more : Tensor[] = aten::append(%all, %v)"
    assert_unchanged("prepack_lstm", held(lstm(appended), "all"), reason="its weights are not constants")


def test_declines_an_initial_state_that_others_may_change():
    swapped = "%more : Tensor[] = aten::append(%hx, %v)"
    assert_unchanged("prepack_lstm", held(lstm(swapped), "hx"), reason="its initial state is not a list of two tensors")


def test_lstms_may_share_their_lists():
    again = (
        "%a : Tensor, %b : Tensor, %d : Tensor = aten::lstm(%x, %hx, %all, %false, %one, %p, %false, %false, %false)"
    )
    result = assert_rewrites("prepack_lstm", lstm(again, returns="%y, %a"))
    assert result.count("ipex::lstm_run") == 2
    assert result.count("aten::lstm") == 0


def test_declines_other_dtypes():
    assert_unchanged("prepack_lstm", lstm(dtype="Double"), reason="a weight is Double, not float32")


def test_declines_weights_that_do_not_fit():
    assert_unchanged("prepack_lstm", lstm(hidden_rows=16), reason="its weights do not fit together")


def test_declines_a_wrong_number_of_weights():
    two = "%two : int = prim::Constant[value=2]()"
    assert_unchanged("prepack_lstm", lstm(two, layers="%two"), reason="its weights do not fit together")


def test_declines_a_gru_with_projections():
    projection = "%p2 : Float(8, 8, strides=[8, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
    three = "%three : Tensor[] = prim::ListConstruct(%w, %u, %p2)"
    text = gru("%false", projection, three, params="%three")
    assert_unchanged("prepack_gru", text, reason="its weights do not fit together")


def test_declines_training():
    assert_unchanged("prepack_lstm", lstm(train="%true"), reason="it is not in eval mode")
    assert_unchanged("prepack_gru", gru(train="%true"), reason="it is not in eval mode")


def test_declines_a_computed_number_of_layers():
    assert_unchanged("prepack_lstm", lstm(layers="%n"), reason="its num_layers is not a constant")


class Packed(nn.Module):
    """A recurrent layer on sequences of different lengths."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.layer(pack_padded_sequence(x, lengths))[0].data


@pytest.mark.parametrize(("kind", "layer"), [("lstm", nn.LSTM(4, 8)), ("gru", nn.GRU(4, 8))])
def test_declines_a_packed_sequence(kind, layer):
    model, x, lengths = Packed(layer).eval(), torch.randn(5, 2, 4), torch.tensor([5, 3])
    with torch.no_grad():
        optimized = ipex.jit_optimize(torch.jit.trace(model, (x, lengths)))
        assert torch.equal(optimized(x, lengths), model(x, lengths))
    assert kinds(optimized)[f"aten::{kind}"] == 1
    assert any("it runs on a PackedSequence" in d.reason for d in ipex.explain(optimized).declined)


class Alone(nn.Module):
    """A recurrent layer has no forward that can be scripted: the module around it has."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


@pytest.mark.parametrize("layer", [nn.LSTM(4, 8, 2, dropout=0.5), nn.GRU(4, 8, 2, dropout=0.5)])
def test_fires_on_traced_and_scripted_modules(layer):
    model, x = Alone(layer).eval(), torch.randn(5, 2, 4)
    for module in (torch.jit.trace(model, x), torch.jit.script(model), torch.jit.freeze(torch.jit.script(model))):
        found = kinds(ipex.jit_optimize(module))
        assert found["ipex::lstm_run"] + found["ipex::gru_run"] == 1
        assert not {"aten::lstm", "aten::gru", "ipex::lstm_prepack", "ipex::gru_prepack"} & found.keys()
