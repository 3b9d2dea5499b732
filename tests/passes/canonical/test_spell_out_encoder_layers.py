import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_round_trip, assert_same, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "spell_out_encoder_layers"


def layer(activation: str = "relu", norm_first: bool = False) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(32, 4, 48, activation=activation, norm_first=norm_first, batch_first=True)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_layer(tmp_path, activation, norm_first):
    x = torch.randn(2, 7, 32)
    optimized = check_against_eager(layer(activation, norm_first), x, also=(x[:1], torch.randn(3, 1, 32)))
    found = kinds(optimized)
    assert found["aten::_transformer_encoder_layer_fwd"] == 0
    assert found["ipex::linear_run"] + found["ipex::linear_chain_run"] >= 2
    assert found["ipex::scaled_dot_product_attention"] == 1
    assert_round_trip(optimized, tmp_path, x)


def test_an_encoder():
    x = torch.randn(2, 7, 32)
    encoder = nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False)
    optimized = check_against_eager(encoder, x)
    assert kinds(optimized)["ipex::scaled_dot_product_attention"] == 2


class SelfAttention(nn.Module):
    def __init__(self, weights: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.attention, self.weights = nn.MultiheadAttention(32, 4, bias=bias, batch_first=True), weights

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        y, weights = self.attention(x, x, x, need_weights=self.weights)
        return (y, weights) if self.weights else y


def test_an_attention():
    x = torch.randn(2, 7, 32)
    optimized = check_against_eager(SelfAttention(), x)
    assert kinds(optimized)["aten::_native_multi_head_attention"] == 0
    assert kinds(optimized)["ipex::linear_run"] == 2


def reasons(optimized: torch.jit.ScriptModule) -> set[str]:
    return {decision.reason for decision in ipex.explain(optimized).declined if decision.pass_name == NAME}


def test_declines_when_the_weights_are_read():
    x = torch.randn(2, 7, 32)
    optimized = check_against_eager(SelfAttention(weights=True), x)
    assert reasons(optimized) == {"the weights of the attention are read"}


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = layer()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.layer(x, src_mask=mask)


def test_declines_a_mask():
    x, mask = torch.randn(2, 7, 32), torch.ones(7, 7, dtype=torch.bool).triu(1)
    optimized = check_against_eager(Masked(), x, mask)
    assert reasons(optimized) == {"it has a mask"}


def test_declines_attention_to_something_else():
    inputs = "%q : Tensor, %k : Tensor, %w : Tensor, %b : Tensor"
    constants = (
        "%e : int = prim::Constant[value=8]()",
        "%no : bool = prim::Constant[value=0]()",
        "%none : NoneType = prim::Constant()",
    )
    call = "aten::_native_multi_head_attention(%q, %k, %k, %e, %e, %w, %b, %w, %b, %none, %no, %no, %none)"
    graph = graph_ir(inputs, *constants, f"%y : Tensor, %z : Tensor = {call}", returns="%y")
    assert_unchanged(NAME, graph, reason="query, key and value differ")


def test_can_be_switched_off():
    x = torch.randn(2, 7, 32)
    with torch.no_grad():
        traced = torch.jit.trace(layer().eval(), x)
        optimized = ipex.jit_optimize(traced, disable=[NAME])
        assert kinds(optimized)["aten::_transformer_encoder_layer_fwd"] == 1
        assert_same(optimized(x), traced(x))


WIDTH, HIDDEN = 8, 12
SHAPES = {
    "qkv_weight": (3 * WIDTH, WIDTH),
    "qkv_bias": (3 * WIDTH,),
    "proj_weight": (WIDTH, WIDTH),
    "proj_bias": (WIDTH,),
    "norm_weight_1": (WIDTH,),
    "norm_bias_1": (WIDTH,),
    "norm_weight_2": (WIDTH,),
    "norm_bias_2": (WIDTH,),
    "ffn_weight_1": (HIDDEN, WIDTH),
    "ffn_bias_1": (HIDDEN,),
    "ffn_weight_2": (WIDTH, HIDDEN),
    "ffn_bias_2": (WIDTH,),
}


class Called(nn.Module):
    """The op itself, which takes whatever it is given."""

    def __init__(self, heads: int, **shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.heads = heads
        for name, shape in {**SHAPES, **shapes}.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.aten._transformer_encoder_layer_fwd(
            x,
            8,
            self.heads,
            self.qkv_weight,
            self.qkv_bias,
            self.proj_weight,
            self.proj_bias,
            True,
            False,
            1e-5,
            self.norm_weight_1,
            self.norm_bias_1,
            self.norm_weight_2,
            self.norm_bias_2,
            self.ffn_weight_1,
            self.ffn_bias_1,
            self.ffn_weight_2,
            self.ffn_bias_2,
        )


def test_the_op_called_as_the_layer_does():
    check_against_eager(Called(2), torch.randn(2, 5, WIDTH))


@pytest.mark.parametrize("heads", [0, -1, 3])
def test_declines_heads_that_do_not_divide_the_width(heads):
    optimized = ipex.jit_optimize(torch.jit.script(Called(heads).eval()))
    assert reasons(optimized) == {"its width is not a multiple of its heads"}


@pytest.mark.parametrize("name", ["qkv_bias", "norm_weight_1"])
def test_declines_a_weight_of_another_dtype(name):
    model = Called(2)
    setattr(model, name, nn.Parameter(getattr(model, name).double()))
    optimized = ipex.jit_optimize(torch.jit.script(model.eval()))
    assert reasons(optimized) == {"its weights differ in dtype"}


@pytest.mark.parametrize("name", SHAPES)
def test_declines_a_weight_of_another_shape(name):
    optimized = ipex.jit_optimize(torch.jit.script(Called(2, **{name: (7,)}).eval()))
    assert len(reasons(optimized)) == 1
    assert name in next(iter(reasons(optimized))) or name == "ffn_weight_1"
