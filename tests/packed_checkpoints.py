"""Checkpoints of GPTQ and AWQ from known integers, packed one by one, and the floats that they stand for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Where AWQ puts eight neighbours of a row: number 0 into the lowest four bits of a word, 2 into the next, ..
AWQ_PLACES = {0: 0, 2: 1, 4: 2, 6: 3, 1: 4, 3: 5, 5: 6, 7: 7}


@dataclass
class Linear:
    """Integers of a linear: [outputs, inputs], and by group [outputs, groups]."""

    integers: Tensor
    zeros: Tensor
    scales: Tensor
    group_of: Tensor  # [inputs]
    bits: int

    def weight(self) -> Tensor:
        """Return the numbers, in float32."""
        outputs, inputs = self.integers.shape
        weight = torch.empty(outputs, inputs)
        for k in range(inputs):
            group = int(self.group_of[k])
            weight[:, k] = (self.integers[:, k] - self.zeros[:, group]).float() * self.scales[:, group].float()
        return weight


def linear(
    outputs: int,
    inputs: int,
    bits: int,
    group_size: int,
    is_symmetric: bool,
    is_ordered: bool = True,
    seed: int = 0,
) -> Linear:
    """Return one of random integers, whose zeros are of the whole range."""
    generator = torch.Generator().manual_seed(seed)
    groups = -(-inputs // group_size)
    integers = torch.randint(0, 2**bits, (outputs, inputs), generator=generator)
    zeros = torch.randint(0, 2**bits, (outputs, groups), generator=generator)
    zeros[0, 0], zeros[-1, 0] = 0, 2**bits - 1
    if is_symmetric:
        zeros.fill_(2 ** (bits - 1))
    scales = torch.rand(outputs, groups, generator=generator).half() / 64 + 0.01
    group_of = torch.arange(inputs) // group_size
    if not is_ordered:
        group_of = group_of[torch.randperm(inputs, generator=generator)]
    return Linear(integers, zeros, scales.half(), group_of, bits)


def word_of(numbers: list[int], bits: int) -> int:
    """Put numbers into 32 bits, the first lowest, and read these as a signed integer."""
    word = sum(number << i * bits for i, number in enumerate(numbers))
    return word - 2**32 if word >= 2**31 else word


def in_words(rows: Tensor, bits: int) -> Tensor:
    """Pack neighbours of each row."""
    per_word = 32 // bits
    padded = torch.nn.functional.pad(rows, (0, -rows.shape[1] % per_word)).tolist()
    words = [[word_of(row[i : i + per_word], bits) for i in range(0, len(row), per_word)] for row in padded]
    return torch.tensor(words, dtype=torch.int32)


def gptq(of: Linear, path: str, version: int = 1, has_order: bool = True) -> dict[str, Tensor]:
    """Return its tensors. Version 1 stores zeros less one."""
    zeros = (of.zeros - 1) % 2**of.bits if version == 1 else of.zeros
    found = {
        "qweight": in_words(of.integers, of.bits).t().contiguous(),
        "qzeros": in_words(zeros.t(), of.bits),
        "scales": of.scales.t().contiguous(),
    }
    if has_order:
        found["g_idx"] = of.group_of.int()
    return {f"{path}.{key}": tensor for key, tensor in found.items()}


def awq(of: Linear, path: str) -> dict[str, Tensor]:
    """Return its tensors."""

    def in_awq_words(rows: Tensor) -> Tensor:
        words = []
        for row in rows.tolist():
            words.append([])
            for first in range(0, len(row), 8):
                placed = [0] * 8
                for number, place in AWQ_PLACES.items():
                    placed[place] = row[first + number]
                words[-1].append(word_of(placed, 4))
        return torch.tensor(words, dtype=torch.int32)

    return {
        f"{path}.qweight": in_awq_words(of.integers.t()),
        f"{path}.qzeros": in_awq_words(of.zeros.t()),
        f"{path}.scales": of.scales.t().contiguous(),
    }
