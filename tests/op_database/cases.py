"""Which cases there are: an op of the database, a variant, a dtype and one of the op's samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from op_database import database

# What is done with the op, and how many samples of it are taken, each between other packed ops.
VARIANTS = {
    "plain": 3,
    "scripted": 1,
    "in place": 3,  # on the result of a packed op
    "in place on an argument": 1,
    "in place on a view": 3,  # of such a result, of an argument
    "out=": 2,  # a tensor made in the model
    "out= a view": 3,  # of one
    "out= an argument": 3,
    "out= a value": 1,  # the result of a packed op
    "out= empty": 1,
    "given bfloat16": 1,  # jit_optimize(dtype=torch.bfloat16)
    "autocast": 1,
}
DTYPES = (torch.float32, torch.bfloat16, torch.int64)


class Case(NamedTuple):
    op: str
    variant: str
    dtype: str
    sample: int
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.op}/{self.variant}/{self.dtype}/{self.sample}/{self.seed}"


def parse(text: str) -> Case:
    op, variant, dtype, sample, seed = text.rsplit("/", 4)
    return Case(op, variant, dtype, int(sample), int(seed))


def all_cases(seed: int) -> Iterator[Case]:
    for name, op in database.entries().items():
        for variant, count in VARIANTS.items():
            if variant.startswith("in place") and database.in_place(name) is None:
                continue
            # Lists of tensors have an out= that only torch.ops knows: tests/fuzz/ draws those.
            if variant.startswith("out=") and not (op.supports_out and not name.startswith("_foreach")):
                continue
            for dtype in DTYPES:
                if not database.takes(name, dtype):
                    continue
                if dtype != torch.float32 and variant not in ("plain", "in place", "out="):
                    continue
                for sample in range(count if dtype == torch.float32 else 2 if variant == "plain" else 1):
                    yield Case(name, variant, str(dtype).partition(".")[2], sample, seed)
