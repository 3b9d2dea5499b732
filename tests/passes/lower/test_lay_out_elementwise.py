import torch
from torch import Tensor, nn

import ipex
from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, told

NAME = "lay_out_elementwise"
CHAIN = "%y : Tensor = ipex::elementwise(%inputs, %steps)"
RESHAPE = "%z : Tensor = aten::reshape(%y, %sizes)"


def ir(*lines: str, returns: str = "%r") -> str:
    constants = (
        "%none : NoneType = prim::Constant()",
        "%no : bool = prim::Constant[value=0]()",
        "%one : int = prim::Constant[value=1]()",
    )
    last = "%r : Tensor = aten::sum(%z, %sizes, %no, %none)"
    inputs = "%inputs : Tensor[], %steps : str[], %sizes : int[]"
    return graph_ir(inputs, *constants, *lines, last, returns=returns)


def in_one_piece(graph) -> int:
    return sum(chain["in_one_piece"] for chain in told(graph, "ipex::elementwise") if "in_one_piece" in chain)


def sliced(graph) -> int:
    return sum(chain.get("outermost") is not None for chain in told(graph, "ipex::elementwise"))


def test_fires():
    result = assert_rewrites(NAME, ir(CHAIN, "%s : int = aten::size(%y, %one)", RESHAPE))
    assert in_one_piece(result) == 1
    flatten = "%z : Tensor = aten::flatten(%y, %one, %one)"
    assert in_one_piece(assert_rewrites(NAME, ir(CHAIN, flatten))) == 1


def test_declines_where_strides_are_seen():
    assert_unchanged(NAME, ir(CHAIN, RESHAPE, returns="%z"), reason="the strides of a result depend on it")


def test_leaves_others():
    assert_unchanged(NAME, ir(CHAIN, "%z : Tensor = aten::relu(%y)"), reason=None)
    assert_unchanged(NAME, ir(CHAIN, RESHAPE, "%w : Tensor = aten::relu(%y)", returns="%r, %w"), reason=None)
    permuted = "%z : Tensor = aten::permute(%y, %sizes)"
    assert_unchanged(NAME, ir(CHAIN, permuted), reason=None)


class RelativePositions(nn.Module):
    """Those of rows and of columns, added for each pixel, as in MViT and SAM."""

    def forward(self, scores: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        sums = rows.permute(1, 0, 2)[:, :, :, None] + columns.tanh()[:, :, None, :]
        scores = scores + scores
        scores[:, 1:] += sums.reshape(12, 20)
        return scores.softmax(-1)


def test_matches_eager(tmp_path):
    inputs = (torch.randn(12, 21), torch.randn(4, 3, 4), torch.randn(3, 4, 5))
    turned = (inputs[0], inputs[1], inputs[2].transpose(1, 2).contiguous().transpose(1, 2))
    optimized = check_against_eager(RelativePositions(), *inputs, also=(turned,))
    assert in_one_piece(optimized) == 1
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        optimized(*inputs)
    assert not [event.key for event in profile.key_averages() if event.key in ("aten::copy_", "aten::clone")]
    assert_round_trip(optimized, tmp_path, *inputs)


def test_can_be_switched_off():
    inputs = (torch.randn(12, 21), torch.randn(4, 3, 4), torch.randn(3, 4, 5))
    module = torch.jit.trace(RelativePositions().eval(), inputs)
    assert in_one_piece(ipex.jit_optimize(module, disable=[NAME])) == 0


SLICES = ("%a : Tensor = aten::select(%y, %one, %none_of)", "%b : Tensor = aten::select(%y, %one, %one)")
LISTS = ("%l : Tensor[] = prim::ListConstruct(%a, %b)", "%z : Tensor = ipex::elementwise(%l, %steps)")


def slices(*lines: str, returns: str = "%r") -> str:
    return ir("%none_of : int = prim::Constant[value=0]()", CHAIN, *lines, returns=returns)


def test_slices_that_chains_read_are_in_one_piece():
    result = assert_rewrites(NAME, slices("%s : int = aten::size(%y, %one)", *SLICES, *LISTS))
    assert sliced(result) == 1


def test_leaves_slices_that_others_read():
    one = (SLICES[0], LISTS[0].replace("%a, %b", "%a, %a"), LISTS[1])
    assert_unchanged(NAME, slices(*one), reason=None)
    assert_unchanged(NAME, slices(*SLICES, *LISTS, returns="%r, %a"), reason=None)
    assert_unchanged(NAME, slices(*SLICES, *LISTS, "%w : Tensor = aten::relu(%y)", returns="%r, %w"), reason=None)
    other = SLICES[1].replace("%one, %one", "%none_of, %one")
    assert_unchanged(NAME, slices(SLICES[0], other, *LISTS), reason=None)
    written = "%w : Tensor = aten::relu_(%a)"
    assert_unchanged(NAME, slices(*SLICES, written, *LISTS), reason=None)


class StateSpace(nn.Module):
    """The recurrence of a selective scan, written down step by step, as in Mamba."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.a = steps, nn.Parameter(torch.randn(12, 4))

    def forward(self, x: Tensor, dt: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        dt = dt.sigmoid()
        decay = torch.exp(-self.a.exp()[None, :, None, :] * dt[:, :, :, None])
        update = dt[:, :, :, None] * b[:, None] * x[:, :, :, None].tanh()
        state = torch.zeros(x.size(0), 12, 4)
        outputs = []
        for i in range(self.steps):
            state = decay[:, :, i] * state + update[:, :, i]
            outputs.append(state.sum(-1))
        return torch.stack(outputs, -1), state


def test_a_recurrence_matches_eager(tmp_path):
    inputs = (torch.randn(2, 12, 5), torch.randn(2, 12, 5), torch.randn(2, 5, 4))
    alone = tuple(i[:1] for i in inputs)
    turned = (inputs[0].mT.contiguous().mT, inputs[1].mT.contiguous().mT, inputs[2])
    optimized = check_against_eager(StateSpace(5), *inputs, also=(alone, turned, tuple(i[:0] for i in inputs)))
    assert sliced(optimized) == 2
    assert_round_trip(optimized, tmp_path, *inputs)
