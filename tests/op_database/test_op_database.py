"""A sample of the op database's cases, drawn anew by each IPEX_OP_DATABASE_SEED. `make op-database` runs all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from op_database.cases import Case
from op_database.check import check

SEED = os.environ.get("IPEX_OP_DATABASE_SEED", "0")
CASES = 600


def test_ops_between_packed_ops_match_eager():
    # In a process of its own: one that has computed with threads can't be forked.
    run = [sys.executable, "-W", "ignore", Path(__file__).with_name("run.py")]
    command = [*run, "--cases", str(CASES), "--seed", SEED, "--jobs", "2"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(f"IPEX_OP_DATABASE_SEED={SEED}\n{done.stdout}")
    assert done.returncode == 0
    assert f"{CASES} cases" in done.stdout


class Wrong:
    """An optimised module that does something wrong on purpose."""

    def __init__(self, module, dtype=None):
        self.module, self.dtype = module, dtype

    def __call__(self, *arguments):
        return self.module(*arguments)


class out_not_written(Wrong):
    def __call__(self, *arguments):
        result = super().__call__(*arguments)
        arguments[-1].fill_(7)
        return result


class written_twice(Wrong):
    def __call__(self, *arguments):
        result = super().__call__(*arguments)
        arguments[0].mul_(2)
        return result


class shape_written(Wrong):
    def __call__(self, *arguments):
        result = super().__call__(*arguments)
        arguments[0].unsqueeze_(0)
        return result


class copy_returned(Wrong):
    def __call__(self, *arguments):
        return torch.utils._pytree.tree_map(torch.clone, super().__call__(*arguments))


class off_by_a_little(Wrong):
    def __call__(self, *arguments):
        return torch.utils._pytree.tree_map(lambda t: t * (1 + 1e-4), super().__call__(*arguments))


class too_coarse(Wrong):
    """bfloat16 with half of its bits."""

    def __call__(self, *arguments):
        return torch.utils._pytree.tree_map(lambda t: t * (1 + 2**-4), super().__call__(*arguments))


class overwritten_by_the_next_call(Wrong):
    def __call__(self, *arguments):
        result = torch.utils._pytree.tree_leaves(super().__call__(*arguments))[0]
        self.last = result if not hasattr(self, "last") else self.last.copy_(result * 2)
        return result if self.last is result else self.module(*arguments)


@pytest.mark.parametrize(
    ("bug", "case"),
    [
        (out_not_written, "add/out= an argument/float32/0"),
        (written_twice, "add/plain/float32/1"),
        (written_twice, "exp/in place on an argument/float32/0"),
        (shape_written, "add/plain/float32/1"),
        (copy_returned, "add/out= an argument/float32/0"),
        (off_by_a_little, "mul/plain/float32/0"),
        (off_by_a_little, "exp/scripted/float32/0"),
        (too_coarse, "mul/given bfloat16/float32/0"),
        (too_coarse, "mul/autocast/float32/0"),
        (too_coarse, "mul/plain/bfloat16/0"),
        (overwritten_by_the_next_call, "mul/plain/float32/0"),
    ],
)
def test_finds_planted_bugs(bug, case):
    op, variant, dtype, sample = case.split("/")
    planted = check(Case(op, variant, dtype, int(sample)), lambda module, dtype=None: bug(module, dtype))
    assert planted.kind == "wrong", planted
    assert check(Case(op, variant, dtype, int(sample)), lambda module, dtype=None: module).kind == "clean"
