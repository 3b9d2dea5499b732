import pytest

from support import assert_rewrites, assert_unchanged, graph_ir


def embedding_bag(returns: str = "%y", scale: str = "%false", sparse: str = "%false", padding: str = ", %none") -> str:
    arguments = f"%w, %i, %o, {scale}, %mode, {sparse}, %none, %false{padding}"
    return graph_ir(
        "%w : Tensor, %i : Tensor, %o : Tensor, %flag : bool",
        "%mode : int = prim::Constant[value=1]()",
        "%false : bool = prim::Constant[value=0]()",
        "%true : bool = prim::Constant[value=1]()",
        "%none : NoneType = prim::Constant()",
        f"%y : Tensor, %of : Tensor, %size : Tensor, %max : Tensor = aten::embedding_bag({arguments})",
        returns=returns,
    )


@pytest.mark.parametrize("padding", [", %none", ""])
def test_fires_in_both_spellings(padding):
    result = assert_rewrites("simplify_embedding_bag", embedding_bag(padding=padding))
    assert result.count("ipex::embedding_bag") == 1
    assert result.count("aten::embedding_bag") == 0


@pytest.mark.parametrize("other", ["%of", "%size", "%max"])
def test_declines_a_reader_of_the_other_results(other):
    ir = embedding_bag(returns=f"%y, {other}")
    assert_unchanged("simplify_embedding_bag", ir, reason="what only its gradient needs is read")


@pytest.mark.parametrize("value", ["%true", "%flag"])
def test_declines_arguments_of_the_gradient(value):
    assert_unchanged("simplify_embedding_bag", embedding_bag(sparse=value), reason="its sparse is not False")
    scaled = embedding_bag(scale=value)
    assert_unchanged("simplify_embedding_bag", scaled, reason="its scale_grad_by_freq is not False")
