import torch
from torch import Tensor, nn

from support import assert_rewrites, assert_unchanged, check_against_eager, graph_ir, kinds


def test_computes_once_what_is_computed_twice():
    ir = graph_ir(
        "%x : Tensor",
        "%a : Tensor = aten::exp(%x)",
        "%b : Tensor = aten::exp(%x)",
        "%c : Tensor = aten::mul(%a, %b)",
        returns="%c",
    )
    assert assert_rewrites("share_subexpressions", ir).count("aten::exp") == 1


def test_equal_numbers_are_one_number():
    ir = graph_ir(
        "%x : Tensor",
        "%one : int = prim::Constant[value=1]()",
        *(f"%n{i} : Long(requires_grad=0, device=cpu) = prim::Constant[value={{7}}]()" for i in (1, 2)),
        *(f"%a{i} : Tensor = aten::add(%x, %n{i}, %one)" for i in (1, 2)),
        "%c : Tensor = aten::mul(%a1, %a2)",
        returns="%c",
    )
    assert assert_rewrites("share_subexpressions", ir).count("aten::add") == 1


def test_leaves_overwritten_memory_alone():
    ir = graph_ir(
        "%x : Tensor",
        "%a : Tensor = aten::exp(%x)",
        "%w : Tensor = aten::neg_(%x)",
        "%b : Tensor = aten::exp(%x)",
        "%c : Tensor = aten::mul(%a, %b)",
        returns="%c",
    )
    assert_unchanged("share_subexpressions", ir, reason=None)


class Twice(nn.Module):
    """The same value twice, one of them overwritten, both returned."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = torch.exp(x), torch.exp(x)
        return a.relu_().add_(1), b


class BothReturned(nn.Module):
    """Two equal results: each is the caller's own."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.exp(x), torch.exp(x)


def test_matches_eager():
    check_against_eager(Twice(), torch.randn(4, 4))
    first, second = check_against_eager(BothReturned(), torch.randn(4, 4))(torch.randn(4, 4))
    assert first.data_ptr() != second.data_ptr()


class RelativePositions(nn.Module):
    """Weighs by a table that a small network makes of constants, as Swin v2 does."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Sequential(nn.Linear(2, 8), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(8, 4))
        self.register_buffer("coordinates", torch.randn(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return x + 16 * torch.sigmoid(self.table(self.coordinates))


def test_a_network_of_constants_is_computed_once():
    optimized = check_against_eager(RelativePositions(), torch.randn(4, 4))
    assert not [kind for kind in kinds(optimized) if kind.startswith("ipex::") or kind == "aten::sigmoid"]
