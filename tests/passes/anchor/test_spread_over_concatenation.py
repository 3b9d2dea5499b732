import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from ir import PACKED, packed
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "spread_over_concatenation"
NORM = "%n : Tensor = aten::batch_norm(%c, %v, %v, %v, %v, %false, %momentum, %eps, %false)"
LIST = "%l : Tensor[] = prim::ListConstruct(%y, %y2)"
CAT = "%c : Tensor = aten::cat(%l, %one)"


def ir(*lines: str, channels: int = 16, returns: str = "%n") -> str:
    constants = (
        f"%v : Float({channels}, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
        "%eps : float = prim::Constant[value=9.9999999999999995e-06]()",
        "%momentum : float = prim::Constant[value=0.10000000000000001]()",
        "%two : int = prim::Constant[value=2]()",
    )
    return graph_ir("%x : Tensor", *PACKED, *constants, *packed("x", "y2", "2"), *lines, returns=returns)


def test_a_batch_norm_goes_into_what_is_joined():
    result = assert_rewrites(NAME, ir(LIST, CAT, NORM))
    assert result.count("aten::batch_norm") == 0
    assert result.count("aten::cat") == 1


def test_an_activation_goes_before_the_concatenation():
    result = assert_rewrites(NAME, ir(LIST, CAT, "%n : Tensor = aten::silu(%c)"))
    assert result.count("aten::silu") == 2
    assert result.count("aten::cat") == 1


def test_declines_another_dimension():
    assert_unchanged(NAME, ir(LIST, CAT.replace("%one", "%two"), NORM), reason="another dimension")


def test_declines_other_channels():
    assert_unchanged(NAME, ir(LIST, CAT, NORM, channels=8), reason="wrong size")


def test_declines_training():
    training = NORM.replace("%v, %false, %momentum", "%v, %training, %momentum")
    on = "%training : bool = prim::Constant[value=1]()"
    assert_unchanged(NAME, ir(on, LIST, CAT, training), reason="not in eval mode")


def test_declines_what_follows_a_post_op():
    lines = ir(LIST, CAT, NORM).replace("annotate(List[str], [])", '["relu"]', 1)
    assert_unchanged(NAME, lines, reason="plain float32 convolutions")


@pytest.mark.parametrize("step", [NORM, "%n : Tensor = aten::relu(%c)"])
@pytest.mark.parametrize(
    "other",
    [
        {"returns": "%n, %y"},
        {"returns": "%n, %c"},
        {"returns": "%n, %l"},
        {"lines": ("%l : Tensor[] = prim::ListConstruct(%y, %x)", CAT)},
        {"lines": (LIST, CAT, "%w2 : Tensor = aten::relu_(%x)")},
    ],
)
def test_stays_where_somebody_else_reads_a_part(step, other):
    lines = other.get("lines", (LIST, CAT))
    assert_unchanged(NAME, ir(*lines, step, returns=other.get("returns", "%n")), reason=None)


def test_declines_a_slope_that_is_computed():
    slope = ("%size : int = aten::size(%x, %zero)", "%n : Tensor = aten::leaky_relu(%c, %size)")
    assert_unchanged(NAME, ir(LIST, CAT, *slope), reason=None)


class Mixed(nn.Module):
    """Windows of several sizes side by side, a batch_norm and an activation of all, as in MixNet."""

    def __init__(self, activation: nn.Module | None = None, *, groups: int = 1) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Conv2d(8, 8 * i, 2 * i + 1, padding=i, groups=groups) for i in (1, 2, 3))
        self.norm = nn.BatchNorm2d(48)
        self.activation = activation or nn.Identity()
        for value in (self.norm.running_mean, self.norm.weight, self.norm.bias):
            nn.init.normal_(value)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.norm(torch.cat([part(x) for part in self.parts], 1)))


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("activation", [None, nn.SiLU(), nn.SiLU(inplace=True), nn.Hardtanh(-0.5, 0.5), nn.ReLU()])
def test_matches_eager(tmp_path, activation, groups):
    x = torch.randn(2, 8, 9, 7)
    pixel = torch.randn(2, 8, 1, 1)
    channels_last = [v.to(memory_format=torch.channels_last) for v in (x, pixel)]
    optimized = check_against_eager(Mixed(activation, groups=groups), x, also=(pixel, *channels_last))
    counts = kinds(optimized)
    assert counts["ipex::convolution_run"] == 3
    assert sum(count for kind, count in counts.items() if kind.startswith("aten::")) == 0
    assert counts["ipex::cat"] == 1
    assert_round_trip(optimized, tmp_path, x)


def test_nan_stays():
    x = torch.randn(1, 8, 9, 9)
    x[0, 2, 4, 4] = float("nan")
    check_against_eager(Mixed(nn.ReLU()), x)


def test_a_channel_that_vanishes():
    model = Mixed()
    model.norm.weight.data[3] = 0
    check_against_eager(model, torch.randn(2, 8, 9, 9))


def test_weights_that_would_overflow():
    model = Mixed().eval()
    for part in model.parts:
        nn.init.uniform_(part.weight, 1e19, 2e19)
        nn.init.zeros_(part.bias)
    nn.init.constant_(model.norm.weight, 1e25)
    optimized = check_against_eager(model, torch.rand(2, 8, 9, 9) * 1e-19)
    assert kinds(optimized)["aten::cat"] + kinds(optimized)["ipex::cat_batch_norm"] == 1


def test_an_image_without_a_batch():
    """Its rows are what a batch_norm takes for channels: eager refuses them, but for as many as there are channels."""
    optimized = check_against_eager(Mixed(), torch.randn(2, 8, 9, 9))
    with pytest.raises(RuntimeError, match="expected an input of 4 dimensions"):
        optimized(torch.randn(8, 9, 9))


def test_linears_before_an_activation(tmp_path):
    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 16), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(torch.cat([self.a(x), self.b(x)], -1))

    x = torch.randn(3, 8)
    optimized = check_against_eager(Joined(), x, also=(torch.randn(2, 5, 8),))
    assert_round_trip(optimized, tmp_path, x)


def test_parts_of_several_dtypes_stay():
    """The concatenation widens the narrow part, and the activation rounds nothing."""

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 16), nn.Linear(8, 4).bfloat16()

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return F.gelu(torch.cat([self.a(x), self.b(y)], -1))

    inputs = torch.randn(3, 8), torch.randn(3, 8).bfloat16()
    optimized = ipex.jit_optimize(torch.jit.trace(Joined().eval(), inputs))
    counts = kinds(optimized)
    assert counts["aten::gelu"] + counts["ipex::elementwise"] == 1
