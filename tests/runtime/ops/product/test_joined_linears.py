"""Linears of one input give the bits that each gives alone, however the op is called.

A profiler shows the layers where they run one by one, and nothing where they run at once.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex import FP32MathMode
from ipex.llm._codes import linear_of, rounded
from support import assert_same, calls_of, fallback_reasons, kinds, own_thread_count


class Projections(nn.Module):
    def __init__(self, width: int, *widths: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, w, bias=w % 2 == 0) for w in widths)

    def forward(self, x: Tensor) -> list[Tensor]:
        return [self.layers[0](x).relu(), *(layer(x) for layer in self.layers[1:])]


def both(model: nn.Module, x: Tensor, **options: object) -> tuple[torch.jit.ScriptModule, torch.jit.ScriptModule]:
    """The model with its layers joined, and without."""
    traced = torch.jit.trace(model.eval(), x, check_trace=False, strict=False)
    joined = ipex.jit_optimize(traced, **options)
    apart = ipex.jit_optimize(traced, disable=["join_linears"], **options)
    assert kinds(joined)["ipex::joined_linears_run"] == 1
    assert kinds(apart)["ipex::joined_linears_run"] == 0
    return joined, apart


def assert_same_bits(joined: torch.jit.ScriptModule, apart: torch.jit.ScriptModule, x: Tensor) -> None:
    before = x.clone()
    for actual, expected in zip(joined(x), apart(x)):
        assert_same(actual, expected, tolerance=0)
    assert torch.equal(x, before)
    assert fallback_reasons(joined) == fallback_reasons(apart)


@pytest.mark.parametrize("rows", [1, 2, 6, 7, 40, 129])
@pytest.mark.parametrize("widths", [(33, 65, 24), (96, 96, 96), (200, 17), (64, 1, 16, 2, 64)])
def test_at_once(rows, widths):
    x = torch.randn(rows, 48)
    with torch.no_grad():
        joined, apart = both(Projections(48, *widths), x)
        with own_thread_count():
            for count in (1, 2, 3, 7):
                torch.set_num_threads(count)
                assert_same_bits(joined, apart, x)
        # Weights of 9 to 16 outputs stay plain without AVX-512, and are oneDNN's.
        are_plain = not ipex.isa.has_avx512() and any(8 < width <= 16 for width in widths)
        assert are_plain or calls_of("ipex::linear_run", joined, x) == 0


def test_any_rank_and_layout():
    wide = torch.randn(4, 40)
    inputs = (
        torch.randn(20),
        torch.randn(2, 3, 20),
        torch.randn(20, 4).t(),
        wide[:, ::2],
        wide[1:2, 3:23].expand(3, 20),
    )
    with torch.no_grad():
        joined, apart = both(Projections(20, 30, 40), torch.randn(2, 20))
        for x in (*inputs, torch.randn(0, 20), torch.randn(2, 0, 20)):
            assert_same_bits(joined, apart, x)


def test_a_mode_of_the_process():
    x = torch.randn(40, 20)
    with torch.no_grad():
        joined, apart = both(Projections(20, 30, 40), x)
        with ipex.fp32_math_mode(FP32MathMode.BF32):
            assert calls_of("ipex::linear_run", joined, x) == 2
            assert_same_bits(joined, apart, x)
        assert calls_of("ipex::linear_run", joined, x) == 0


def test_a_layer_that_kernels_do_not_have():
    class Mixed(Projections):
        def forward(self, x: Tensor) -> list[Tensor]:
            return [nn.functional.softplus(self.layers[0](x), threshold=100), self.layers[1](x)]

    x = torch.randn(3, 20)
    with torch.no_grad():
        joined, apart = both(Mixed(20, 30, 40), x)
        assert_same_bits(joined, apart, x)
        assert calls_of("ipex::linear_run", joined, x) == 2


def test_gradients():
    model = Projections(20, 30, 40)
    x = torch.randn(3, 20)
    joined, _ = both(model, x)
    expected, actual = (x.clone().requires_grad_() for _ in range(2))
    sum(y.square().sum() for y in model(expected)).backward()
    sum(y.square().sum() for y in joined(actual)).backward()
    assert_same(actual.grad, expected.grad, tolerance=1e-5)


def test_results_are_tensors_of_their_own():
    x = torch.randn(3, 20)
    with torch.no_grad():
        joined, apart = both(Projections(20, 30, 40), x)
        results, expected = joined(x), apart(x)
        results[0].zero_()
        assert_same(results[1], expected[1], tolerance=0)


def test_another_input_width():
    layers = [
        torch.ops.ipex.linear_prepack(torch.randn(4, width), None, [], None, None, None, None, False)
        for width in (3, 5)
    ]
    with pytest.raises(RuntimeError, match="expected layers of one input width, got 3 and 5. Only linears that read"):
        torch.ops.ipex.joined_linears_prepack(layers)
    with pytest.raises(RuntimeError, match="expected at least one layer"):
        torch.ops.ipex.joined_linears_prepack([])


def of_codes(model: Projections, *formats: tuple[str, int, bool], row_bits: int = 24) -> Projections:
    """Its layers as codes: of each the format, the group's size, and whether it is symmetric."""
    for i, form in enumerate(formats):
        layer = model.layers[i]
        model.layers[i] = linear_of(rounded(layer.weight, *form), layer.bias)
        model.layers[i].row_bits = row_bits
    return model


def check_codes_at_once(joined: torch.jit.ScriptModule, apart: torch.jit.ScriptModule) -> None:
    """Of 96 inputs: any number of rows and threads."""
    with own_thread_count():
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            for shape in ((1, 96), (96,), (2, 3, 96), (129, 96), (0, 96)):
                assert_same_bits(joined, apart, torch.randn(shape))
            assert_same_bits(joined, apart, torch.randn(3, 2 * 96)[:, ::2])
    assert calls_of("ipex::weight_only_linear_run", joined, torch.randn(2, 96)) == 0


@pytest.mark.parametrize("row_bits", [24, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("form", ["int8", "int4", "nf4", "float8_e4m3fn"])
def test_codes_at_once(form, symmetric, row_bits):
    if not symmetric and not form.startswith("int"):
        pytest.skip("floats are symmetric")
    model = of_codes(Projections(96, 33, 200, 64), *[(form, 32, symmetric)] * 3, row_bits=row_bits)
    with torch.no_grad():
        check_codes_at_once(*both(model, torch.randn(2, 96)))


@pytest.mark.parametrize(
    "formats",
    [
        [("int8", 32, True), ("int4", 32, True)],
        [("int8", 32, True), ("int8", 16, True)],
        [("int8", 32, True), ("int8", 32, False)],
        [("int8", 32, False), ("int8", 32, True)],
        [("float8_e4m3fn", 32, True), ("float8_e5m2", 32, True)],
    ],
)
def test_codes_that_read_rows_in_different_ways(formats):
    x = torch.randn(3, 96)
    with torch.no_grad():
        joined, apart = both(of_codes(Projections(96, 64, 200), *formats, row_bits=8), x)
        assert_same_bits(joined, apart, x)
        assert calls_of("ipex::weight_only_linear_run", joined, x) == 2


def test_codes_and_calls_that_aten_computes():
    model = of_codes(Projections(96, 64, 200), ("int8", 32, True), ("int8", 32, True))
    x = torch.randn(3, 96)
    joined, apart = both(model, x)
    with torch.no_grad():
        assert_same_bits(joined, apart, x.bfloat16())
    actual, expected = (x.clone().requires_grad_() for _ in range(2))
    sum(y.square().sum() for y in joined(actual)).backward()
    sum(y.square().sum() for y in apart(expected)).backward()
    assert_same(actual.grad, expected.grad)
    with pytest.raises(RuntimeError, match="expected input with last dimension 96"):
        joined(torch.randn(3, 95))


class Gated(Projections):
    """An up projection that is multiplied with its gate."""

    def forward(self, x: Tensor) -> list[Tensor]:
        return [nn.functional.silu(self.layers[0](x)) * self.layers[1](x), *(layer(x) for layer in self.layers[2:])]


@pytest.mark.parametrize("row_bits", [24, 8])
@pytest.mark.parametrize("others", [(), (33,)])
@pytest.mark.parametrize("form", ["int8", "int4", "nf4"])
def test_codes_with_the_result_of_another(form, others, row_bits):
    widths = (200, 200, *others)
    model = of_codes(Gated(96, *widths), *[(form, 32, False)] * len(widths), row_bits=row_bits)
    with torch.no_grad():
        joined, apart = both(model, torch.randn(2, 96))
        check_codes_at_once(joined, apart)
        assert_same_bits(joined, apart, torch.randn(3, 96).bfloat16())


def test_a_gate_of_another_width():
    model = of_codes(Gated(96, 1, 200), ("int8", 32, True), ("int8", 32, True))
    x = torch.randn(3, 96)
    with torch.no_grad():
        joined, apart = both(model, x)
        assert_same_bits(joined, apart, x)
        assert calls_of("ipex::weight_only_linear_run", joined, x) == 2


@pytest.mark.parametrize("operands", [[-1], [-1, 1], [0, -1], [-1, -2], [-1, 0, -1]])
def test_operands_that_are_no_layers_before(operands):
    layer = torch.ops.ipex.weight_only_linear_prepack(torch.randn(8, 32), None, [], "int8", 32, True)
    joined = torch.ops.ipex.joined_linears_prepack.codes([layer, layer])
    with pytest.raises(RuntimeError, match="expected of each of 2 layers one before it, or -1"):
        torch.ops.ipex.joined_linears_run.codes(torch.randn(3, 32), joined, operands)
    with pytest.raises(RuntimeError, match="expected 0 operands"):
        torch.ops.ipex.joined_linears_run.codes(torch.randn(3, 32), joined, [-1, 0])


def test_codes_are_saved_and_packed_ahead(tmp_path):
    model = of_codes(Projections(96, 64, 200), ("int4", 32, True), ("int4", 32, True), row_bits=8)
    x = torch.randn(3, 96)
    with torch.no_grad():
        joined, apart = both(model, x)
        torch.jit.save(joined, tmp_path / "model.pt")
        assert_same_bits(ipex.load(tmp_path / "model.pt"), apart, x)
        ipex.aot_save(joined, tmp_path / "model.ipex", example_inputs=(x,))
        assert_same_bits(ipex.aot_load(tmp_path / "model.ipex"), apart, x)
