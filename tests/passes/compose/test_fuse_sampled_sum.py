import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "fuse_sampled_sum"
INPUTS = "%x : Tensor, %x2 : Tensor, %g : Tensor, %g2 : Tensor, %w : Tensor, %align : bool"
SAMPLES = (
    "%zero : int = prim::Constant[value=0]()",
    "%back1 : int = prim::Constant[value=-1]()",
    "%back2 : int = prim::Constant[value=-2]()",
    "%last : int[] = prim::Constant[value=[-1]]()",
    "%false : bool = prim::Constant[value=0]()",
    "%none : NoneType = prim::Constant()",
    "%a : Tensor = aten::grid_sampler(%x, %g, %zero, %zero, %align)",
    "%b : Tensor = aten::grid_sampler(%x2, %g2, %zero, %zero, %align)",
    "%list : Tensor[] = prim::ListConstruct(%a, %b)",
)
STACKED = ("%s : Tensor = aten::stack(%list, %back2)", "%f : Tensor = aten::flatten(%s, %back2, %back1)")
JOINED = ("%f : Tensor = aten::cat(%list, %back1)",)
SUM = ("%m : Tensor = aten::mul(%f, %w)", "%y : Tensor = aten::sum(%m, %last, %false, %none)")


@pytest.mark.parametrize("joins", [STACKED, JOINED], ids=["stack", "cat"])
def test_fires(joins):
    result = assert_rewrites(NAME, graph_ir(INPUTS, *SAMPLES, *joins, *SUM, returns="%y"))
    assert result.count("ipex::sampled_sum") == 1
    for gone in ("aten::grid_sampler", "aten::stack", "aten::cat", "aten::mul", "aten::sum"):
        assert result.count(gone) == 0


READ = "it sums no samples, or others read them"


@pytest.mark.parametrize(
    ("lines", "returns", "reason"),
    [
        ((*SAMPLES, *JOINED, *SUM), "%y, %a", READ),
        ((*SAMPLES, *JOINED, *SUM), "%y, %list", READ),
        ((*SAMPLES, *JOINED, *SUM), "%y, %m", "another reader"),
        ((*SAMPLES, "%t : Tensor = aten::relu_(%x)", *JOINED, *SUM), "%y", READ),
        ((*SAMPLES[:7], SAMPLES[7].replace("%zero, %align", "%back1, %align"), SAMPLES[8], *JOINED, *SUM), "%y", READ),
        ((*SAMPLES, JOINED[0].replace("%back1", "%back2"), *SUM), "%y", "it does not join rows"),
        ((*SAMPLES, STACKED[0].replace("%back2", "%back1"), STACKED[1], *SUM), "%y", "it does not stack rows"),
        ((*SAMPLES[:3], SAMPLES[3].replace("-1", "-2"), *SAMPLES[4:], *JOINED, *SUM), "%y", "over the last dimension"),
        ((*SAMPLES, *JOINED, SUM[0], SUM[1].replace("%false", "%align")), "%y", "it keeps the dimension"),
        ((*SAMPLES, *JOINED, SUM[0], SUM[1].replace("%none", "%zero")), "%y", "it sums in another dtype"),
    ],
)
def test_declines(lines, returns, reason):
    assert_unchanged(NAME, graph_ir(INPUTS, *lines, returns=returns), reason=reason)


class Attention(nn.Module):
    """Deformable attention over two images, as transformers writes it."""

    def __init__(self, stacks: bool) -> None:
        super().__init__()
        self.stacks, self.heads, self.places = stacks, 2, 3
        self.values, self.grids, self.weights = nn.Conv2d(3, 64, 1), nn.Linear(5, 24), nn.Linear(5, 12)

    def forward(self, x: Tensor, small: Tensor, queries: Tensor) -> Tensor:
        batch, count = queries.size(0), queries.size(1)
        grids = self.grids(queries).view(batch, count, self.heads, 2, self.places, 2)
        weights = self.weights(queries).view(batch, count, self.heads, -1).softmax(-1)
        samples = []
        for i, image in enumerate((x, small)):
            values = self.values(image).reshape(batch * self.heads, -1, image.size(2), image.size(3))
            grid = grids[:, :, :, i].transpose(1, 2).flatten(0, 1)
            samples.append(F.grid_sample(values, grid, align_corners=False))
        weights = weights.transpose(1, 2).reshape(batch * self.heads, 1, count, -1)
        joined = torch.stack(samples, dim=-2).flatten(-2) if self.stacks else torch.concat(samples, dim=-1)
        return (joined * weights).sum(-1).view(batch, -1, count).transpose(1, 2)


def images(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(batch, 3, 6, 7), torch.randn(batch, 3, 3, 4), torch.randn(batch, 19, 5)


@pytest.mark.parametrize("stacks", [False, True])
def test_matches_eager(tmp_path, stacks):
    inputs = images(1)
    optimized = check_against_eager(Attention(stacks), *inputs)
    assert kinds(optimized)["ipex::sampled_sum"] == 1
    assert kinds(optimized)["aten::grid_sampler"] == 0
    assert_round_trip(optimized, tmp_path, *inputs)
    check_against_eager(Attention(stacks), *images(3))


def test_can_be_switched_off():
    module = torch.jit.trace(Attention(stacks=True).eval(), images(1))
    assert kinds(ipex.jit_optimize(module, disable=[NAME]))["aten::grid_sampler"] == 2
