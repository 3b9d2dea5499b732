import pytest
import torch
from torch import Tensor, nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds

MATRIX = "%w : Float(6, 5, strides=[5, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
HEADS = "%h : Float(6, 2, 5, strides=[10, 5, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
SINGLE = "%s : Float(6, 1, 5, strides=[5, 5, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
COLUMN = "%c : Float(1, 5, strides=[5, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
BIAS = "%b : Float(5, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()"
NUMBERS = ("%one : int = prim::Constant[value=1]()", "%two : int = prim::Constant[value=2]()")


def spelled(call: str, *extra: str) -> str:
    return graph_ir(
        "%x : Tensor, %v : Tensor",
        MATRIX,
        HEADS,
        SINGLE,
        COLUMN,
        BIAS,
        *NUMBERS,
        *extra,
        f"%y : Tensor = {call}",
        returns="%y",
    )


def einsum(equation: str, factors: str = "%x, %w") -> str:
    return spelled(
        "aten::einsum(%eq, %l, %path)",
        f'%eq : str = prim::Constant[value="{equation}"]()',
        "%path : NoneType = prim::Constant()",
        f"%l : Tensor[] = prim::ListConstruct({factors})",
    )


@pytest.mark.parametrize(
    "ir",
    [
        spelled("aten::addmm(%b, %x, %w, %one, %one)"),
        spelled("aten::addmm(%c, %x, %w, %one, %one)"),
        spelled("aten::matmul(%x, %w)"),
        spelled("aten::mm(%x, %w)"),
        einsum("bij,jk->bik"),
        einsum("bij, kj -> bik"),
        einsum("...j,jk->...k"),
        einsum("bij,jnd->bind", "%x, %h"),
        einsum("bij,jnd->bidn", "%x, %h"),
        einsum("...j,jnd->...nd", "%x, %h"),
        einsum("bind,hnd->bih", "%x, %h"),
        einsum("bidn,hnd->bih", "%x, %h"),
    ],
)
def test_fires(ir):
    result = assert_rewrites("rewrite_as_linear", ir)
    assert result.count("aten::linear") == 1
    assert result.count("aten::addmm") + result.count("aten::matmul") + result.count("aten::einsum") == 0


@pytest.mark.parametrize(
    ("ir", "reason"),
    [
        (spelled("aten::addmm(%b, %x, %w, %two, %one)"), "it scales a term"),
        (spelled("aten::addmm(%b, %x, %w, %one, %two)"), "it scales a term"),
        (spelled("aten::addmm(%v, %x, %w, %one, %one)"), "not a constant vector"),
        (spelled("aten::addmm(%w, %x, %w, %one, %one)"), "not a constant vector"),
        (spelled("aten::addmm(%s, %x, %w, %one, %one)"), "not a constant vector"),
        (spelled("aten::matmul(%x, %v)"), "not a constant matrix"),
        (spelled("aten::matmul(%w, %x)"), "not a constant matrix"),
        (einsum("bij,ik->bjk"), "not a sum over the last dimension"),
        (einsum("bij,jk->bki"), "not a sum over the last dimension"),
        (einsum("bij,jk->ik"), "not a sum over the last dimension"),
        (einsum("bjj,jk->bjk"), "not a sum over the last dimension"),
        (einsum("bij,jj->bij"), "not a sum over the last dimension"),
        (einsum("bij,jk"), "not a sum over the last dimension"),
        (einsum("bij,jk->bik", "%x, %c"), "spreads a dimension of one element"),
        (einsum("bij,jk->bik", "%x, %v"), "not a constant matrix"),
        (einsum("bij,jnd->bnid", "%x, %h"), "not a sum over the last dimension"),
        (einsum("bind,hnd->hbi", "%x, %h"), "not a sum over the last dimension"),
        (einsum("bind,hnd->bin", "%x, %h"), "not a sum over the last dimension"),
        (einsum("bij,jn->bin", "%x, %h"), "not a sum over the last dimension"),
        (einsum("bij,jnn->bin", "%x, %h"), "not a sum over the last dimension"),
        (einsum("bij,jnd->bind", "%x, %s"), "a dimension of its result has one element"),
        (einsum("bind,hnd->bih", "%x, %s"), "spreads a dimension of one element"),
    ],
)
def test_declines(ir, reason):
    assert_unchanged("rewrite_as_linear", ir, reason=reason)


class Product(nn.Module):
    """x times a constant matrix, in one of its spellings."""

    def __init__(self, spelling: str) -> None:
        super().__init__()
        self.spelling = spelling
        self.matrix = nn.Parameter(torch.randn(6, 5))
        self.bias = nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        if self.spelling == "addmm":
            return torch.addmm(self.bias, x, self.matrix)
        if self.spelling == "matmul":
            return x @ self.matrix + self.bias
        if self.spelling == "einsum":
            return torch.einsum("...i,io->...o", x, self.matrix)
        return torch.einsum("...i,oi->...o", x, self.matrix.t())


@pytest.mark.parametrize("spelling", ["addmm", "matmul", "einsum", "einsum, transposed"])
def test_matches_eager(tmp_path, spelling):
    x = torch.randn(4, 6)
    also = () if spelling == "addmm" else (torch.randn(6), torch.randn(2, 3, 6), torch.randn(0, 6))
    optimized = check_against_eager(Product(spelling), x, also=also)
    assert kinds(optimized)["ipex::linear_run"] == 1
    assert not [kind for kind in kinds(optimized) if kind.startswith("aten::")]
    assert_round_trip(optimized, tmp_path, x)


def test_size_of_a_product_plus_a_row():
    """TorchScript gives the matrix's size for that of an addmm (torch 2.13), which a linear's is not taken for."""

    class Reshaped(Product):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.addmm(self.bias.view(1, 5), x, self.matrix)
            return y.reshape(y.size(0), 1, 5)

    x = torch.randn(4, 6)
    optimized = check_against_eager(Reshaped("addmm"), x, also=(torch.randn(7, 6), torch.randn(0, 6)))
    assert kinds(optimized)["ipex::linear_run"] == 1


def test_einsum_spreads_one_element():
    """A last dimension of one element is as long as the sum needs, for einsum; for linear it is an error."""
    check_against_eager(Product("einsum"), torch.randn(4, 6), also=(torch.randn(4, 1), torch.randn(2, 0, 1)))


class Heads(nn.Module):
    """Attention's layers as JAX spells them: the heads have a dimension of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.output = nn.Parameter(torch.randn(6, 2, 5)), nn.Parameter(torch.randn(6, 2, 5))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        heads = torch.einsum("bih,hnd->bind", x, self.query)
        turned = torch.einsum("...h,hnd->...dn", x, self.query)
        return heads, torch.einsum("bind,hnd->bih", torch.relu(heads), self.output) + turned.sum()


def test_heads_match_eager(tmp_path):
    x = torch.randn(3, 4, 6)
    optimized = check_against_eager(Heads(), x, also=(x[:1], x[:, :1], x[:0], x[..., :1]))
    assert kinds(optimized)["ipex::linear_run"] == 3
    assert kinds(optimized)["aten::einsum"] == 0
    assert_round_trip(optimized, tmp_path, x)


@pytest.mark.parametrize(("equation", "matrix"), [("bij,jk->bik", (6, 5)), ("bhij,ijk->bhk", (4, 6, 5))])
def test_einsum_refuses_another_rank(equation, matrix):
    class Einsum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.randn(matrix))

        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum(equation, x, self.matrix)

    x = torch.randn((2, 3, 4, 6)[-equation.index(",") :])
    optimized = check_against_eager(Einsum(), x)
    assert kinds(optimized)["ipex::linear_run"] == 1
    for other in (x[0], x[None]):
        with pytest.raises(RuntimeError, match="einsum: expected a factor of"):
            optimized(other)


class Output(Heads):
    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bind,hnd->bih", x, self.output)


def test_einsum_spreads_one_element_of_several():
    x = torch.randn(3, 4, 2, 5)
    optimized = check_against_eager(Output(), x, also=(x[:, :, :1], x[..., :1], x[:, :, :1, :1]))
    with pytest.raises(RuntimeError, match="einsum"):
        optimized(torch.randn(3, 4, 2, 4))
