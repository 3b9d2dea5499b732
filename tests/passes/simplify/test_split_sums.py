import pytest
import torch
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

NAME = "split_sums"
CONSTANTS = (
    *(f"%n{n} : int = prim::Constant[value={n}]()" for n in (0, 1, 2, 3)),
    "%any : int = prim::Constant[value=-1]()",
    "%none : NoneType = prim::Constant()",
    "%true : bool = prim::Constant[value=1]()",
    "%false : bool = prim::Constant[value=0]()",
    "%ones : int[] = prim::Constant[value=[1, 1]]()",
    "%zeros : int[] = prim::Constant[value=[0, 0]]()",
    "%over : int[] = prim::Constant[value=[1]]()",
    "%over_more : int[] = prim::Constant[value=[1, 2]]()",
)
IMAGE = (
    "%c : Tensor = aten::conv2d(%i, %k, %none, %ones, %zeros, %ones, %n1)",
    "%x : Tensor = aten::relu(%c)",
    *(f"%s{d} : int = aten::size(%x, %n{d})" for d in range(4)),
    "%half : int = aten::floordiv(%s1, %n2)",
)
HALVES = (
    "%sizes : int[] = prim::ListConstruct(%s0, %n2, %half, %s2, %s3)",
    "%p : Tensor = aten::reshape(%x, %sizes)",
)
SUM = "%y : Tensor = aten::sum(%p, %over, %false, %none)"
GATES = (
    "%gate_sizes : int[] = prim::ListConstruct(%s0, %n2, %half, %n1, %n1)",
    "%g : Tensor = aten::reshape(%t, %gate_sizes)",
    "%m : Tensor = aten::mul(%p, %g)",
    "%y : Tensor = aten::sum(%m, %over, %false, %none)",
)


UNSEEN = "%z : Tensor = aten::linear(%y, %k, %none)"


def ir(*lines: str, returns: str = "%z") -> str:
    return graph_ir("%i : Tensor, %k : Tensor, %t : Tensor", *CONSTANTS, *lines, UNSEEN, returns=returns)


def test_a_sum_of_halves():
    result = assert_rewrites(NAME, ir(*IMAGE, *HALVES, SUM))
    assert result.count("aten::sum") == result.count("aten::reshape") == 0
    assert result.count("aten::split") == result.count("aten::add") == 1


def test_a_sum_of_two_that_are_stacked():
    stack = (
        "%l : Tensor[] = prim::ListConstruct(%x, %c)",
        "%p : Tensor = aten::stack(%l, %n1)",
    )
    for lines in ((SUM,), GATES):
        result = assert_rewrites(NAME, ir(*IMAGE, *stack, *lines))
        assert result.count("aten::sum") == result.count("aten::stack") == 0
    three = (stack[0].replace("%x, %c", "%x, %c, %x"), stack[1])
    for other in (three, (stack[0], stack[1].replace("%n1", "%n2")), (stack[0].replace("%x", "%t"), stack[1])):
        assert_unchanged(NAME, ir(*IMAGE, *other, SUM), reason=None)


@pytest.mark.parametrize("product", ["aten::mul(%p, %g)", "aten::mul(%g, %p)"])
def test_a_sum_of_halves_that_are_weighed(product):
    result = assert_rewrites(NAME, ir(*IMAGE, *HALVES, *(g.replace("aten::mul(%p, %g)", product) for g in GATES)))
    assert result.count("aten::sum") == 0
    assert result.count("aten::mul") == result.count("aten::select") == 2


@pytest.mark.parametrize(
    "change",
    [
        ("%over, %false", "%over_more, %false"),
        ("%over, %false", "%over, %true"),
        ("%s0, %n2, %half", "%s0, %n3, %half"),
        ("%half, %s2, %s3", "%half, %s3, %s2"),
        ("%half, %s2, %s3", "%any, %s2, %s3"),
        ("aten::conv2d(%i, %k, %none, %ones, %zeros, %ones, %n1)", "aten::mul(%i, %k)"),
    ],
)
def test_leaves_what_is_not_known_to_be_halves(change):
    assert_unchanged(NAME, ir(*(line.replace(*change) for line in (*IMAGE, *HALVES, SUM))), reason=None)


@pytest.mark.parametrize(
    "asked",
    [
        ("%s0 : int, %s1 : int, %s2 : int, %s3 : int = prim::ListUnpack(%all)",),
        ("%s1 : int = aten::size(%x, %n1)", *(f"%s{d} : int = aten::__getitem__(%all, %n{d})" for d in (0, 2, 3))),
    ],
)
def test_sizes_that_are_read_off_a_list(asked):
    lines = (*IMAGE[:2], "%all : int[] = aten::size(%x)", *asked, IMAGE[-1], *HALVES, SUM)
    assert assert_rewrites(NAME, ir(*lines)).count("aten::split") == 1
    swapped = (line.replace("%half, %s2, %s3", "%half, %s3, %s2") for line in lines)
    assert_unchanged(NAME, ir(*swapped), reason=None)


def test_leaves_a_product_to_a_second_reader():
    assert_unchanged(NAME, ir(*IMAGE, *HALVES, *GATES, returns="%z, %m"), reason=None)


def test_declines_strides_that_are_seen():
    assert_unchanged(NAME, ir(*IMAGE, *HALVES, SUM, returns="%y"), reason="the strides of a result depend on it")


def test_declines_what_is_overwritten():
    write = "%n : Tensor = aten::neg_(%x)"
    assert_unchanged(NAME, ir(*IMAGE, *HALVES, SUM, write), reason="something is overwritten")


class SplitAttention(nn.Module):
    """ResNeSt's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(6, 16, 3, padding=1, groups=2), nn.BatchNorm2d(16)
        self.squeeze, self.weigh, self.last = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 16, 1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        b, c, h, w = x.shape
        x = x.reshape(b, 2, c // 2, h, w)
        gates = self.weigh(torch.relu(self.squeeze(x.sum(dim=1).mean((2, 3), keepdim=True))))
        gates = torch.softmax(gates.view(b, 1, 2, -1).transpose(1, 2), dim=1).reshape(b, -1)
        return self.head((x * gates.reshape(b, 2, c // 2, 1, 1)).sum(dim=1))

    def head(self, y: Tensor) -> Tensor:
        return self.last(y.mean((2, 3)))


class SelectiveKernel(nn.Module):
    """SKNet's."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = nn.Conv2d(6, 8, 3, padding=1), nn.Conv2d(6, 8, 3, padding=2, dilation=2)
        self.weigh, self.last = nn.Conv2d(8, 16, 1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.stack([torch.relu(self.near(x)), torch.relu(self.far(x))], dim=1)
        gates = self.weigh(both.sum(1).mean((2, 3), keepdim=True))
        gates = torch.softmax(gates.view(x.shape[0], 2, 8, 1, 1), dim=1)
        return self.last((both * gates).sum(dim=1).mean((2, 3)))


class Seen(SplitAttention):
    """aten's sum is contiguous, of a channels-last image too."""

    def head(self, y: Tensor) -> Tensor:
        return y


@pytest.mark.parametrize("model", [SplitAttention, SelectiveKernel])
@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, model, script):
    x = torch.randn(2, 6, 7, 9)
    also = (x.to(memory_format=torch.channels_last), x[:1], x * torch.nan, torch.randn(3, 6, 4, 4))
    optimized = check_against_eager(model(), x, script=script, also=also)
    assert kinds(optimized)["ipex::sum"] == kinds(optimized)["aten::sum"] == 0
    assert_round_trip(optimized, tmp_path, x)


def test_an_odd_number_of_channels_raises_as_in_eager():
    model = SplitAttention().eval()
    model.conv, model.norm = nn.Conv2d(6, 3, 3), nn.Identity()
    model.squeeze, model.weigh = nn.Conv2d(1, 8, 1), nn.Conv2d(8, 2, 1)
    optimized = ipex.jit_optimize(torch.jit.script(model))
    for module in (model, optimized):
        with pytest.raises(RuntimeError):
            module(torch.randn(2, 6, 7, 9))


def test_strides_that_are_seen_are_those_of_eager():
    x = torch.randn(2, 6, 7, 9)
    check_against_eager(Seen(), x, also=(x.to(memory_format=torch.channels_last),))


def test_can_be_switched_off():
    module = torch.jit.trace(SplitAttention().eval(), torch.randn(2, 6, 7, 9))
    found = kinds(ipex.jit_optimize(module, disable=[NAME]))
    assert found["ipex::sum"] == found["ipex::elementwise.sum"] == 1
