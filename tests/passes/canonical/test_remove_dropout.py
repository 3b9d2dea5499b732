from ir import CONSTANTS
from support import assert_rewrites, assert_unchanged, graph_ir


def dropout(train: str) -> str:
    return graph_ir(
        "%x : Tensor, %flag : bool",
        *CONSTANTS,
        "%half : float = prim::Constant[value=0.5]()",
        f"%y : Tensor = aten::dropout(%x, %half, {train})",
        "%z : Tensor = aten::neg(%y)",
        returns="%z",
    )


def test_fires_in_eval_mode():
    assert assert_rewrites("remove_dropout", dropout("%false")).count("aten::dropout") == 0


def test_declines_in_training_mode():
    assert_unchanged("remove_dropout", dropout("%true"), reason="not in eval mode")


def test_declines_when_the_mode_is_computed():
    assert_unchanged("remove_dropout", dropout("%flag"), reason="not in eval mode")
