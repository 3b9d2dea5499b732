"""Models that are calibrated, converted, and carry 8-bit numbers from layer to layer."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from ipex.quantization import Recipe, convert, prepare
from support import assert_round_trip, contexts, converted, kinds, told


class Bottleneck(nn.Module):
    """A residual block as ResNet has it, with a stem that pools, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.pool = nn.MaxPool2d(2)
        self.first, self.second = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 32, 1)
        self.shortcut, self.third = nn.Conv2d(16, 32, 1), nn.Conv2d(32, 32, 1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.norm(self.stem(x))))
        x = F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))
        x = F.relu(x + self.third(x))
        return self.head(x.mean((2, 3)))


class Encoder(nn.Module):
    """A layer of a transformer that normalises first."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(32, 32) for _ in range(4))
        self.wide, self.narrow = nn.Linear(32, 64), nn.Linear(64, 32)
        self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)

    def forward(self, x: Tensor) -> Tensor:
        n = self.first(x)
        q, k, v = (f(n).view(*x.shape[:2], 4, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class Inception(nn.Module):
    """Branches that are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.b = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        return self.last(torch.cat([F.relu(self.a(x)), F.relu(self.b(x))], 1))


FORCED = Recipe(forced=True)  # on any CPU
MODELS = {
    "bottleneck": (Bottleneck, (4, 3, 16, 16)),
    "encoder": (Encoder, (4, 9, 32)),
    "inception": (Inception, (4, 3, 9, 9)),
}


def quantized(name: str, recipe: Recipe = FORCED) -> tuple[nn.Module, Tensor, torch.jit.ScriptModule]:
    make, shape = MODELS[name]
    model, x = make().eval(), torch.randn(shape)
    prepared = prepare(model, x, recipe)
    prepared(x)
    return model, x, convert(prepared)


def error(actual: Tensor, expected: Tensor) -> float:
    """Of the noise to the signal."""
    return ((actual - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("activations", ["min_max", "moving_average", "percentile", "mean_squared_error"])
@pytest.mark.parametrize("name", MODELS)
def test_results_are_near_those_in_floats(name, activations, tmp_path):
    recipe = Recipe(activations, percentile=99.9, forced=True)
    model, x, module = quantized(name, recipe)
    kept = x.clone()
    with torch.no_grad():
        expected = model(x)
        assert error(module(x), expected) < 0.06
        assert module(x).dtype == torch.float32
        assert module(x).stride() == expected.stride()
        assert error(module(x[:1]), expected[:1]) < 0.09
    assert torch.equal(x, kept)
    assert kinds(module)["ipex::linear_run"] + kinds(module)["ipex::convolution_run"] == 0
    assert_round_trip(module, tmp_path, x)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(module, [x] * 16))
    assert all(torch.equal(y, results[0]) for y in results)


def test_a_prepared_model_computes_in_floats_and_leaves_the_model_alone():
    model, x = Bottleneck().eval(), torch.randn(2, 3, 16, 16)
    before = copy.deepcopy(model.state_dict())
    prepared = prepare(model, x, FORCED)
    with torch.no_grad():
        torch.testing.assert_close(prepared(x), model(x), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_numbers_pass_from_layer_to_layer():
    module = quantized("bottleneck")[2]
    # Numbers: the stem, the first two, the shortcut and the last one. Floats: the head.
    # The image, and what the head reads: a mean is floats, of numbers.
    assert kinds(module)["ipex::quantize"] == 2
    described = [context.describe() for context in contexts(module)]
    assert sum("result=uint8" in text for text in described) == 5
    assert sum("operands=[uint8" in text for text in described) == 2
    module = quantized("inception")[2]
    assert kinds(module)["ipex::quantize"] == 1
    module = quantized("encoder")[2]
    # Attention, the two norms and the wide linear give numbers.
    assert kinds(module)["ipex::quantize"] == 0
    assert kinds(module)["ipex::layer_norm"] == 2


class Rescaled(nn.Module):
    """What two layers read is overwritten in between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        x.mul_(50)
        return y + self.second(x)


def test_each_layer_is_calibrated_by_what_it_reads():
    model, x = Rescaled().eval(), torch.randn(64, 32)
    prepared = prepare(torch.jit.script(model), None, Recipe("min_max", forced=True))
    prepared(x.clone())
    with torch.no_grad():
        assert error(convert(prepared)(x.clone()), model(x.clone())) < 0.03


class Gated(nn.Module):
    """A block with a gate, as squeeze-and-excite has it, and one that joins and normalises, as DenseNet has it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last, self.norm = nn.Conv2d(3, 24, 3), nn.Conv2d(48, 8, 3), nn.BatchNorm2d(48)
        self.reduce, self.expand, self.project = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1), nn.Conv2d(24, 24, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.stem(x))
        gate = torch.sigmoid(self.expand(F.relu(self.reduce(x.mean((2, 3), keepdim=True)))))
        y = self.project(x * gate)
        return self.last(F.relu(self.norm(torch.cat([x, y], 1))))


class Pieces(nn.Module):
    """Channels that are cut into pieces for windows of several sizes."""

    def __init__(self, *, is_shown: bool = False) -> None:
        super().__init__()
        self.stem, self.a, self.b = nn.Conv2d(3, 16, 1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 5, padding=2)
        self.last = nn.Conv2d(16, 4, 1)
        self.is_shown = is_shown

    def forward(self, x: Tensor) -> Tensor:
        a, b = torch.split(F.silu(self.stem(x)), [8, 8], 1)
        y = self.last(F.relu(torch.cat([self.a(a), self.b(b)], 1)))
        return y + b.mean() if self.is_shown else y


@pytest.mark.parametrize("is_shown", [False, True])
def test_pieces_are_rounded_before_they_are_cut(is_shown, tmp_path):
    """Once for all, so that the layer before gives numbers; not where somebody else reads a piece."""
    torch.manual_seed(2)
    model, x = Pieces(is_shown=is_shown).eval(), torch.randn(4, 3, 9, 9)
    prepared = prepare(model, x, Recipe("min_max", forced=True))
    prepared(x)
    module = convert(prepared)
    assert kinds(module)["ipex::quantized_convolution_run"] == 4
    assert kinds(module)["ipex::quantize"] == (3 if is_shown else 1)
    with torch.no_grad():
        expected = model(x)
    assert (module(x) - expected).norm() / expected.norm() < 0.03
    assert_round_trip(module, tmp_path, x)


def test_gates_and_norms_give_numbers(tmp_path):
    model, x = Gated().eval(), torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        model.norm.running_var.uniform_(0.5, 2)
        prepared = prepare(model, x, FORCED)
        prepared(x)
        module = convert(prepared)
        assert error(module(x), model(x)) < 0.06
    found = kinds(module)
    # The image alone is rounded by an op of its own.
    assert (found["ipex::quantize"], found["aten::mul"], found["ipex::elementwise"]) == (1, 0, 1)
    assert found["ipex::cat_batch_norm"] == 1
    assert all(told(module, kind)[0]["rounded"] for kind in ("ipex::elementwise", "ipex::cat_batch_norm"))
    assert_round_trip(module, tmp_path, x)
    # The two convolutions of the gate.
    reasons = [d.reason for d in ipex.explain(module) if d.pass_name == "quantize" and not d.applied]
    assert [reason for reason in reasons if "single pixel" in reason] == reasons
    assert len(reasons) == 2


def test_linears_read_pieces():
    class Gates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both, self.a, self.b = nn.Linear(16, 24), nn.Linear(12, 8), nn.Linear(12, 8)

        def forward(self, x: Tensor) -> Tensor:
            left, right = F.gelu(self.both(x)).chunk(2, -1)
            return self.a(left) + self.b(right)

    model, x = Gates().eval(), torch.randn(5, 16)
    prepared = prepare(model, x, Recipe(smooth=0.5, forced=True))
    prepared(x)
    module = convert(prepared)
    with torch.no_grad():
        assert error(module(x), model(x)) < 0.05
    assert kinds(module)["ipex::quantize"] == 1


def test_a_smoothed_norm_gives_floats():
    model, x = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32)).eval(), torch.randn(8, 32)
    prepared = prepare(model, x, Recipe(smooth=0.5, forced=True))
    prepared(x)
    assert kinds(convert(prepared))["ipex::quantize"] == 1


def test_layers_are_left_in_float():
    recipe = Recipe(float_layers=["head", "first"], forced=True)
    module = quantized("bottleneck", recipe)[2]
    assert kinds(module)["ipex::linear_run"] == 1
    assert kinds(module)["ipex::convolution_run"] == 1
    reasons = {d.reason for d in ipex.explain(module) if d.pass_name == "quantize" and not d.applied}
    assert reasons == {"it is one of the layers to leave in float"}


def test_a_recipe_that_names_no_layer_is_refused():
    model, x = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval(), torch.randn(4, 64)
    with pytest.raises(ValueError, match="expected paths of modules .* got 'head', of which the trace has none"):
        prepare(model, x, Recipe(float_layers=["2", "head"]))


def test_arguments_of_ipex_are_refused():
    from torch.ao.quantization import QConfigMapping, default_qconfig

    model, x = nn.Linear(64, 32).eval(), torch.randn(4, 64)
    with pytest.raises(TypeError, match=r"expected a model, example_inputs and a Recipe, got QConfig\. Leave out"):
        prepare(model, default_qconfig, x)
    with pytest.raises(TypeError, match="got QConfigMapping, inplace. Leave out what is IPEX's: a Recipe stands for"):
        prepare(model, QConfigMapping(), example_inputs=x, inplace=False)
    with pytest.raises(TypeError, match="expected an ipex.quantization.Recipe in recipe, got str"):
        prepare(model, x, "min_max")


def test_an_optimised_model_is_refused():
    with pytest.raises(RuntimeError, match="prepare: expected a model that was not optimised before, got one that was"):
        prepare(ipex.jit_optimize(nn.Conv2d(3, 16, 3).eval(), torch.randn(1, 3, 8, 8)))


def test_smoothing_evens_out_channels():
    torch.manual_seed(7)
    model = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32)).eval()
    model[0].weight.data[3] = 80.0  # a channel far out, as large language models have them
    x = torch.randn(256, 32)
    errors = {}
    for smooth in (None, 0.5):
        prepared = prepare(model, x, Recipe(smooth=smooth, forced=True))
        prepared(x)
        with torch.no_grad():
            errors[smooth] = error(convert(prepared)(x)[:, :], model(x))
    assert errors[0.5] < 0.7 * errors[None]


def test_what_is_left_out_says_why():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.linear = nn.Conv1d(4, 4, 3), nn.Linear(32, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.convolution(x), self.linear(x.flatten(1))

    model, x = Two().eval(), torch.randn(2, 4, 8)
    with torch.no_grad():
        model.convolution.weight[1, 2] = float("inf")
    prepared = prepare(model, x, FORCED)
    prepared(x)
    module = convert(prepared)
    assert kinds(module)["ipex::convolution_run"] == 1
    assert any("holds values that are not finite" in d.reason for d in ipex.explain(module))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolutions_of_every_rank(rank, transposed, tmp_path):
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{rank}d")
    model = nn.Sequential(kind(4, 8, 3, padding=1), nn.ReLU(), kind(8, 6, 2, stride=2), nn.ReLU(), kind(6, 4, 1)).eval()
    x = torch.randn(2, 4, *[8] * rank)
    prepared = prepare(model, x, FORCED)
    prepared(x)
    module = convert(prepared)
    with torch.no_grad():
        assert error(module(x), model(x)) < 0.06
        assert error(module(x[0]), model(x[0])) < 0.06  # without a batch
        assert module(x).stride() == model(x).stride()
    assert kinds(module)["ipex::quantized_convolution_run"] == 3
    assert kinds(module)["ipex::quantize"] == 1
    assert_round_trip(module, tmp_path, x)


def test_writes_between_readers_are_seen():
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            x = x + 0
            y = self.a(x)
            x[:, :4] = 0
            return y + self.b(x)

    model, x = Writes().eval(), torch.randn(64, 8)
    prepared = prepare(model, x, FORCED)
    prepared(x)
    with torch.no_grad():
        assert error(convert(prepared)(x), model(x)) < 0.03


def test_a_branch_that_calibration_did_not_take():
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            if x.shape[0] > 4:
                return self.a(x)
            return self.b(x)

    model = torch.jit.script(Branches().eval())
    prepared = prepare(model, None, FORCED)
    prepared(torch.randn(8, 8))
    with pytest.raises(ValueError, match="expected calibration data at .*, got none"):
        convert(prepared)
    x = torch.randn(4, 8)
    prepared(x)
    assert error(convert(prepared)(x), model(x)) < 0.1


def test_sums_that_32_bits_do_not_hold():
    model, x = nn.Sequential(nn.Linear(70000, 8), nn.Linear(8, 8)).eval(), torch.ones(1, 70000)
    nn.init.ones_(model[0].weight)
    module = converted(model, x)
    assert "its sums are too long for 32 bits" in [d.reason for d in ipex.explain(module)]
    with torch.no_grad():
        torch.testing.assert_close(module(x), model(x), rtol=0.02, atol=0)


def test_bad_calibration_is_said():
    model = nn.Linear(8, 4).eval()
    prepared = prepare(model, torch.randn(2, 8), FORCED)
    with pytest.raises(ValueError, match="expected calibration data"):
        convert(prepared)
    prepared(torch.full((2, 8), float("nan")))
    with pytest.raises(ValueError, match="expected finite numbers .*, got 16 that are not"):
        convert(prepared)
    prepared(torch.tensor([[1.0, float("inf")] * 4]))
    with pytest.raises(ValueError, match="expected finite numbers"):
        convert(prepared)
    with pytest.raises(ValueError, match="to quantise, got none"):
        prepare(nn.ReLU().eval(), torch.randn(2))
    with pytest.raises(TypeError, match="what ipex.quantization.prepare returns"):
        convert(model)
    with pytest.raises(ValueError, match=r"ipex\.quantization\.prepare: expected a module in eval mode"):
        prepare(nn.Linear(2, 2), torch.randn(2))


def test_an_input_of_zeros():
    model = nn.Linear(8, 4).eval()
    prepared = prepare(model, torch.zeros(2, 8), FORCED)
    prepared(torch.zeros(2, 8))
    with torch.no_grad():
        torch.testing.assert_close(convert(prepared)(torch.zeros(2, 8)), model(torch.zeros(2, 8)))


@pytest.mark.parametrize(
    "options",
    [
        {"activations": "all"},
        {"percentile": 20.0},
        {"float_layers": "head"},
        {"smooth": 2.0},
    ],
)
def test_bad_recipes(options):
    with pytest.raises((ValueError, TypeError), match=r"ipex\.quantization\.Recipe: expected"):
        Recipe(**options)


def test_a_second_calibration_adds_to_the_first():
    model = nn.Linear(8, 4).eval()
    prepared = prepare(model, torch.randn(2, 8), Recipe("min_max"))
    prepared(torch.rand(16, 8))
    (narrow,) = prepared.scales().values()
    prepared(8 * torch.rand(16, 8))
    (wide,) = prepared.scales().values()
    assert wide.scale > 4 * narrow.scale


def test_scales_in_a_file_convert_in_place_of_calibration(tmp_path):
    model, x = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval(), torch.randn(16, 64)
    recipe = Recipe(smooth=0.5, forced=True)
    prepared, fresh = prepare(model, x, recipe), prepare(model, recipe, example_inputs=x)  # in either order
    prepared(x)
    prepared.save_qconf_summary(tmp_path / "scales.json")
    with pytest.raises(ValueError, match="expected calibration data"):
        convert(fresh)
    fresh.load_qconf_summary(tmp_path / "scales.json")
    found, expected = convert(fresh), convert(prepared)
    assert "ipex::quantized_linear_run" in kinds(found)
    assert torch.equal(found(x), expected(x))
    other = prepare(nn.Sequential(nn.Linear(64, 8)).eval(), x, recipe)
    with pytest.raises(ValueError, match="load_qconf_summary: expected the scales of this model"):
        other.load_qconf_summary(tmp_path / "scales.json")


def test_a_prepared_model_is_explained():
    model, x = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval(), torch.randn(4, 64)
    prepared = prepare(model, x, FORCED)
    report = ipex.explain(prepared)
    assert report.verdict[0] == "2 of 2 linears packed. 1 of 1 elementwise op fused."
    assert report.verdict[1].startswith("2 packed ops")
    assert "ipex::observe" in {node.kind for node in report.final}
    assert "ipex::linear_run" in str(report)
    assert ipex.explain(prepared._observed) == report
    observer = prepared._observers[0]
    assert observer.describe() == f"ipex::observe(key={observer.key()}, calls=0, range=nothing, not_finite=0)"
    x[:] = torch.linspace(-1, 2, 64)
    prepared(x)
    assert observer.describe() == f"ipex::observe(key={observer.key()}, calls=1, range=-1..2, not_finite=0)"


@pytest.mark.parametrize("dtype", [torch.double, torch.bfloat16, torch.int32])
def test_an_observer_sees_floats_alone(dtype):
    observer = torch.ops.ipex.observer_prepack("linear", None)
    x = torch.ones(4, dtype=dtype)
    assert torch.ops.ipex.observe(x, observer) is x
    assert observer.describe() == "ipex::observe(key=linear, calls=0, range=nothing, not_finite=0)"


WITHOUT_INSTRUCTIONS = """
import warnings, torch, ipex
from ipex.quantization import Recipe, convert, prepare
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval()
x = torch.randn(9, 64)
for forced in (False, True):
    with warnings.catch_warnings(record=True) as seen, torch.no_grad():
        warnings.simplefilter("always")
        prepared = prepare(model, x, Recipe("min_max", forced=forced))
        prepared(x)
        quantized = convert(prepared)
        off = float((quantized(x) - model(x)).norm() / model(x).norm())
    stays = any("Recipe(forced=True)" in str(warning.message) for warning in seen)
    reasons = {d.reason for d in ipex.explain(quantized) if d.pass_name == "quantize" and not d.applied}
    print(forced, stays, off < (0.05 if forced else 1e-5), any("no int8 instructions" in reason for reason in reasons))
"""


# Vectors of AVX-512 have none below AVX512_VNNI, on CPUs too whose AVX2 has some.
@pytest.mark.parametrize("capability", ["avx2", *(["avx512"] if ipex.isa.has_avx512() else [])])
def test_a_cpu_without_int8_instructions_computes_in_floats(capability):
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
    command = [sys.executable, "-c", WITHOUT_INSTRUCTIONS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split("\n")[:2] == ["False True True True", "True False True False"], done.stderr
