import pytest
import torch
from torch import Tensor, nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "fuse_batch_norm"
CONSTANTS = (
    "%false : bool = prim::Constant[value=0]()",
    "%eps : float = prim::Constant[value=1e-05]()",
    "%w : Float(8, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()",
)
NORM = "%n : Tensor = aten::batch_norm(%x, %w, %w, %w, %w, %false, %eps, %eps, %false)"
RELU = "%y : Tensor = aten::relu(%n)"


def ir(*lines: str, returns: str = "%y") -> str:
    return graph_ir("%x : Tensor, %b : bool", *CONSTANTS, *lines, returns=returns)


@pytest.mark.parametrize("relu", ["aten::relu", "aten::relu_"])
def test_fires_with_relu(relu):
    result = assert_rewrites(NAME, ir(NORM, RELU.replace("aten::relu", relu)))
    assert result.count("ipex::batch_norm") == 1
    assert result.count("aten::batch_norm") == result.count(relu) == 0
    assert "bool = prim::Constant[value=1]" in result.graph


def test_fires_alone():
    result = assert_rewrites(NAME, ir(NORM, returns="%n"))
    assert result.count("ipex::batch_norm") == 1
    assert "bool = prim::Constant[value=1]" not in result.graph


def test_leaves_a_relu_to_a_second_reader():
    result = assert_rewrites(NAME, ir(NORM, RELU, returns="%y, %n"))
    assert result.count("ipex::batch_norm") == result.count("aten::relu") == 1


@pytest.mark.parametrize("training", ["%true", "%b"])
def test_declines_training(training):
    norm = NORM.replace("%false, %eps, %eps", f"{training}, %eps, %eps")
    true = "%true : bool = prim::Constant[value=1]()"
    assert_unchanged(NAME, ir(true, norm, RELU), reason="not in eval mode")


@pytest.mark.parametrize(("statistics", "name"), [("%x, %w", "running_mean"), ("%w, %x", "running_var")])
def test_declines_statistics_that_may_change(statistics, name):
    norm = NORM.replace("%x, %w, %w, %w, %w", f"%x, %w, %w, {statistics}")
    assert_unchanged(NAME, ir(norm, RELU), reason=f"its {name} is not a constant")


class Dense(nn.Module):
    """batch_norm where nothing can fold it: after a concatenation, a pool, and on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(8, 4, 1)
        self.first, self.second, self.third = nn.BatchNorm2d(3), nn.BatchNorm2d(8, affine=False), nn.BatchNorm2d(8)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = torch.cat((x, self.conv(self.first(x).relu_())), 1)
        b = torch.relu(self.second(a))
        c = self.third(torch.max_pool2d(b, 2))
        return self.last(b), torch.relu(c), c


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script):
    x = torch.randn(2, 3, 6, 5)
    also = (x.to(memory_format=torch.channels_last), x[:, :, ::2], x.transpose(2, 3), x[:1], x[:0])
    optimized = check_against_eager(Dense(), x, script=script, also=also)
    assert kinds(optimized)["ipex::batch_norm"] + kinds(optimized)["ipex::cat_batch_norm"] == 3
    assert kinds(optimized)["aten::batch_norm"] == 0
    assert kinds(optimized)["aten::relu"] == 1
    assert_round_trip(optimized, tmp_path, x)


def test_stays_in_a_stretch():
    model = nn.Sequential(nn.Conv2d(6, 8, 3), nn.MaxPool2d(2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    optimized = check_against_eager(model, torch.randn(2, 6, 9, 9))
    assert kinds(optimized)["ipex::to_channels_last"] == kinds(optimized)["ipex::restore_layout"] == 1


class PreActivated(nn.Module):
    """An activation that is no relu, behind norms that nothing folds: of an image, and of channels that are joined."""

    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.act = act
        self.conv, self.first, self.second = nn.Conv2d(6, 5, 1), nn.BatchNorm2d(6), nn.BatchNorm2d(11)
        for norm in (self.first, self.second):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.second(torch.cat((x, self.conv(self.act(self.first(x)))), 1)))


@pytest.mark.parametrize("act", [nn.SiLU(inplace=True), nn.GELU(), nn.Hardswish(inplace=True), nn.Softplus(), nn.ELU()])
def test_takes_any_activation(tmp_path, act):
    x = torch.randn(2, 6, 7, 5)
    strange = x.clone()
    strange[0, :, 1] = torch.tensor([torch.nan, 1e30, -1e30, 0.0, -0.0])
    also = (x.to(memory_format=torch.channels_last), strange, x[:, :, ::2], x[:, :, :1, :1], x[:1], x[:0])
    optimized = check_against_eager(PreActivated(act), x, also=also)
    left = kinds(optimized)
    assert left["ipex::batch_norm"] + left["ipex::cat_batch_norm"] == 2
    assert not [kind for kind in left if kind.removesuffix("_") == "aten::" + type(act).__name__.lower()]
    assert_round_trip(optimized, tmp_path, x)


def test_an_activation_has_the_dtype_and_the_gradient_of_eager():
    model, x = PreActivated(nn.SiLU()).eval(), torch.randn(2, 6, 7, 5)
    optimized = check_against_eager(model, x)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert optimized(x).dtype == model(x).dtype
    given = [x.clone().requires_grad_() for _ in range(2)]
    for module, argument in zip((model, optimized), given):
        module(argument).sum().backward()
    torch.testing.assert_close(given[1].grad, given[0].grad)
