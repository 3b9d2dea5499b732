import pytest
import torch
from torch import Tensor, nn

from support import assert_rewrites, assert_round_trip, assert_unchanged, check_against_eager, graph_ir, kinds


def two(inner: str, first: list[int], outer: str, second: list[int], between: str = "") -> str:
    return graph_ir(
        "%x : Tensor, %d : int",
        f"%first : int[] = prim::Constant[value={first}]()",
        f"%second : int[] = prim::Constant[value={second}]()",
        "%any : int[] = prim::ListConstruct(%d, %d)",
        f"%a : Tensor = aten::{inner}(%x, %first)",
        *([between] if between else []),
        f"%b : Tensor = aten::{outer}",
        returns="%b",
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [([6, 4], [2, 3, 4]), ([24], [2, 12]), ([-1], [2, 3, 4]), ([-1, 4], [3, -1, 8]), ([6, 4], [24])],
)
@pytest.mark.parametrize("outer", ["view", "reshape"])
def test_two_become_one(first, second, outer):
    result = assert_rewrites("simplify_views", two("view", first, f"{outer}(%a, %second)", second))
    assert f"aten::{outer}(%x," in result.graph


@pytest.mark.parametrize(
    ("inner", "first", "outer", "second", "reason"),
    [
        ("view", [6, 4], "view(%a, %any)", [], "not constants"),
        ("view", [-1, 7], "view(%a, %second)", [-1], "refuses"),
        ("view", [6, 4], "view(%a, %second)", [-1, 4], "refuses"),
        ("view", [4], "view(%a, %second)", [-1, 4], "refuses"),
        ("view", [5, 4], "view(%a, %second)", [2, 3, 4], "refuses"),
        ("view", [0, 4], "view(%a, %second)", [4, 0], "refuses"),
        ("reshape", [6, 4], "view(%a, %second)", [2, 3, 4], None),
    ],
)
def test_declines(inner, first, outer, second, reason):
    assert_unchanged("simplify_views", two(inner, first, outer, second), reason=reason)


def test_declines_where_something_is_overwritten():
    write = "%t : Tensor = aten::t_(%x)"
    ir = two("view", [6, 4], "view(%a, %second)", [2, 3, 4], between=write)
    assert_unchanged("simplify_views", ir, reason="overwritten in between")


class Views(nn.Module):
    """What is viewed is not contiguous."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        t = x.transpose(0, 1)
        a = t.view(4, 2, 3)
        return a.view(2, 2, 2, 3) * 2, a.reshape(24) + 1, a.reshape(4, 3, 2)


@pytest.mark.parametrize("script", [False, True])
def test_matches_eager(tmp_path, script):
    optimized = check_against_eager(Views(), torch.randn(6, 4), script=script)
    assert kinds(optimized)["aten::view"] == 1
    assert_round_trip(optimized, tmp_path, torch.randn(6, 4))
