import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "fuse_cat_batch_norm"
CONSTANTS = (
    "%one : int = prim::Constant[value=1]()",
    "%two : int = prim::Constant[value=2]()",
    "%none : str[] = prim::Constant[value=annotate(List[str], [])]()",
    "%true : bool = prim::Constant[value=1]()",
    "%eps : float = prim::Constant[value=1e-05]()",
    "%w : Float(8, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
)
LIST = "%l : Tensor[] = prim::ListConstruct(%a, %b)"
CAT = "%c : Tensor = aten::cat(%l, %one)"
NORM = "%y : Tensor = ipex::batch_norm(%c, %w, %w, %w, %w, %eps, %true, %none)"


def ir(*lines: str, inputs: str = "%a : Tensor, %b : Tensor", returns: str = "%y") -> str:
    return graph_ir(inputs, *CONSTANTS, *lines, returns=returns)


def test_fires():
    result = assert_rewrites(NAME, ir(LIST, CAT, NORM))
    assert result.count("ipex::cat_batch_norm") == 1
    assert result.count("aten::cat") == result.count("ipex::batch_norm") == 0


def test_declines_another_dimension():
    assert_unchanged(NAME, ir(LIST, CAT.replace("%one", "%two"), NORM), reason="does not join channels")
    inputs = "%a : Tensor, %b : Tensor, %d : int"
    assert_unchanged(NAME, ir(LIST, CAT.replace("%one", "%d"), NORM, inputs=inputs), reason="does not join channels")


def test_declines_another_reader():
    assert_unchanged(NAME, ir(LIST, CAT, NORM, returns="%y, %c"), reason="another reader")


@pytest.mark.parametrize("place", [1, 2])
def test_declines_a_list_that_may_grow(place):
    lines = [LIST, CAT, NORM]
    lines.insert(place, "%grown : Tensor[] = aten::append(%l, %a)")
    assert_unchanged(NAME, ir(*lines), reason="its list may have other readers")


def test_declines_a_list_of_unknown_origin():
    assert_unchanged(NAME, ir(CAT, NORM, inputs="%l : Tensor[]"), reason="its list may have other readers")


def test_leaves_another_activation_to_the_batch_norm():
    silu = "%z : Tensor = aten::silu(%y)"
    assert_unchanged(NAME, ir(LIST, CAT, NORM, silu, returns="%z"), reason="no relu follows")


def test_declines_a_batch_norm_with_an_activation_of_its_own():
    text = ir(LIST, CAT, NORM).replace("annotate(List[str], [])", '["silu"]')
    assert_unchanged(NAME, text, reason="it has an activation that is no relu")


def test_declines_what_is_overwritten_in_between():
    assert_unchanged(NAME, ir(LIST, CAT, "%r : Tensor = aten::relu_(%a)", NORM), reason="overwritten in between")


class Norm(nn.Module):
    """batch_norm as a function: in a script, the module looks at its input's rank as well."""

    def __init__(self, channels: int, *, affine: bool = True) -> None:
        super().__init__()
        self.mean, self.variance = nn.Buffer(torch.randn(channels)), nn.Buffer(torch.rand(channels) + 0.5)
        self.weight = nn.Parameter(torch.randn(channels)) if affine else None
        self.bias = nn.Parameter(torch.randn(channels)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.mean, self.variance, self.weight, self.bias)


class Dense(nn.Module):
    """Dense layers: each joins all that came before."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.ModuleList([nn.Conv2d(5, 4, 1), nn.Conv2d(9, 6, 3, padding=1)])
        self.norm = nn.ModuleList([Norm(5, affine=False), Norm(9), Norm(15)])

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a = self.conv[0](torch.relu(self.norm[0](torch.cat([x, y], 1))))
        b = self.conv[1](torch.relu_(self.norm[1](torch.cat([x, y, a], 1))))
        c = self.norm[2](torch.cat([x, y, a, b], 1))
        return torch.max_pool2d(c, 2), b


def trained(model: nn.Module, *inputs: Tensor, script: bool = False) -> torch.jit.ScriptModule:
    optimized = check_against_eager(model, *inputs, script=script)
    assert kinds(optimized)["aten::cat"] == kinds(optimized)["ipex::batch_norm"] == 0
    return optimized


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script):
    x, y = torch.randn(2, 2, 6, 5), torch.randn(2, 3, 6, 5)
    optimized = trained(Dense(), x, y, script=script)
    assert kinds(optimized)["ipex::cat_batch_norm"] == 3
    assert_round_trip(optimized, tmp_path, x, y)


def channels_last(x: Tensor) -> Tensor:
    return x.to(memory_format=torch.channels_last)


X, Y = torch.randn(2, 2, 6, 5), torch.randn(2, 3, 6, 5)
LAYOUTS = {
    "channels-last": (channels_last(X), channels_last(Y)),
    "mixed": (channels_last(X), Y),
    "slices": (torch.randn(2, 4, 6, 5)[:, ::2], channels_last(torch.randn(2, 6, 6, 5))[:, 3:]),
    "transposed": (torch.randn(2, 2, 5, 6).transpose(2, 3), Y),
    "empty": (X[:0], Y[:0]),
    "skipped": (torch.empty(0), torch.randn(2, 5, 6, 5)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_matches_eager_in_every_layout(name):
    trained(Dense(), *LAYOUTS[name])


def test_declines_a_scripted_module_that_looks_at_the_rank():
    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(5)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.norm(torch.cat([x, y], 1))

    optimized = check_against_eager(Scripted(), X, Y, script=True)
    assert kinds(optimized)["ipex::cat"] == kinds(optimized)["ipex::batch_norm"] == 1


class Stem(nn.Module):
    """A dense layer between convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(6, 8, 3), nn.Conv2d(8, 4, 1), nn.Conv2d(12, 4, 3)
        self.norm = Norm(12)

    def forward(self, x: Tensor) -> Tensor:
        a = torch.relu(self.first(x))
        return self.third(torch.relu(self.norm(torch.cat([a, self.second(a)], 1))))


def test_stays_in_a_stretch():
    optimized = trained(Stem(), torch.randn(2, 6, 9, 9))
    assert kinds(optimized)["ipex::cat_batch_norm"] == 1
    assert kinds(optimized)["ipex::to_channels_last"] == kinds(optimized)["ipex::restore_layout"] == 1
    with torch.profiler.profile() as profile, torch.no_grad():
        optimized(torch.randn(2, 6, 9, 9))
    assert not any("in two steps" in event.name for event in profile.events())


def test_gradients_are_those_of_eager():
    model = Dense().eval()
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    optimized = trained(model, X, Y)
    expected = torch.autograd.grad(sum(t.square().sum() for t in model(x, y)), (x, y))
    actual = torch.autograd.grad(sum(t.square().sum() for t in optimized(x, y)), (x, y))
    for ours, eager in zip(actual, expected):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)
