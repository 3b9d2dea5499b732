"""Which instructions are used: by ipex's own kernels, and by the oneDNN inside it.

Nothing is read or decided on import. The first model that is packed or run decides, once for the process, from the CPU,
the operating system, the environment (`ATEN_CPU_CAPABILITY`, `ONEDNN_MAX_CPU_ISA`) and `limit`. What asks here changes
nothing, and raises RuntimeError where that first use would.
"""

from __future__ import annotations

import enum

from ._load_extension import _C

__all__ = [
    "Level",
    "current",
    "has_amx",
    "has_amx_fp16",
    "has_avx2",
    "has_avx2_vnni",
    "has_avx512",
    "has_avx512_bf16",
    "has_avx512_fp16",
    "has_avx512_vnni",
    "has_bf16",
    "has_fast_avx512_bf16",
    "has_fp16",
    "highest_binary",
    "highest_cpu",
    "limit",
    "onednn",
    "optional_families",
]


class Level(enum.IntEnum):
    """Sets of instructions, in rising order.

    A CPU need not have all that is below its own level: some with AVX512_VNNI lack AVX2_VNNI, and some with AVX512_FP16
    lack AMX. The functions named has_... tell.
    """

    DEFAULT = 0
    AVX2 = 1
    AVX2_VNNI = 2
    AVX512 = 3
    AVX512_VNNI = 4
    AVX512_BF16 = 5
    AMX = 6
    AVX512_FP16 = 7
    AMX_FP16 = 8

    def __str__(self) -> str:
        """Return the word that ATEN_CPU_CAPABILITY takes."""
        return self.name.lower()


def current() -> Level:
    """Return the highest level that the CPU has and no cap forbids.

    RuntimeError where `ATEN_CPU_CAPABILITY` is unknown or above what the CPU has, and where the CPU lacks AVX2.
    """
    return Level[_C.isa_current().upper()]


def highest_cpu() -> Level:
    """Return the highest level of this CPU, under this operating system."""
    return Level[_C.isa_highest_cpu().upper()]


def highest_binary() -> Level:
    """Return the highest level of ipex's own kernels. oneDNN may go beyond it."""
    return Level[_C.isa_highest_binary().upper()]


def optional_families() -> list[Level]:
    """Return the levels for whose instructions alone ipex has some kernels of its own, and may use them here."""
    return [Level[name.upper()] for name in _C.isa_optional_families()]


def onednn() -> str:
    """Return what oneDNN uses, as it writes that in `ONEDNN_MAX_CPU_ISA`.

    Foretold until oneDNN has run: asking it would fix it, and request the use of AMX for the process.
    """
    return _C.isa_onednn()


def limit(level: Level | str) -> None:
    """Use nothing above this level, such as "avx2". Call it before any model is packed or run.

    RuntimeError once that has happened, and for a level that the CPU does not have. The lower of this and
    `ATEN_CPU_CAPABILITY` holds.
    """
    _C.isa_limit(str(level))


def has_avx2() -> bool:
    """Whether AVX2 and FMA are there and no cap forbids them."""
    return _C.isa_has("avx2")


def has_avx2_vnni() -> bool:
    """Whether AVX-VNNI is there and no cap forbids it."""
    return _C.isa_has("avx2_vnni")


def has_avx512() -> bool:
    """Whether AVX-512 (F, BW, VL, DQ) is there and no cap forbids it."""
    return _C.isa_has("avx512")


def has_avx512_vnni() -> bool:
    """Whether AVX512-VNNI is there and no cap forbids it."""
    return _C.isa_has("avx512_vnni")


def has_avx512_bf16() -> bool:
    """Whether AVX512-BF16 is there and no cap forbids it."""
    return _C.isa_has("avx512_bf16")


def has_fast_avx512_bf16() -> bool:
    """Whether AVX512-BF16 is there, allowed, and multiplies more numbers at a time than float32's instructions do.

    Intel's CPUs since Sapphire Rapids multiply bfloat16 numbers fast by AMX alone, which virtual machines may hide.
    """
    return _C.isa_has_fast_avx512_bf16()


def has_avx512_fp16() -> bool:
    """Whether AVX512-FP16 is there and no cap forbids it."""
    return _C.isa_has("avx512_fp16")


def has_amx() -> bool:
    """Whether AMX, with bfloat16 and int8, is there and no cap forbids it."""
    return _C.isa_has("amx")


def has_amx_fp16() -> bool:
    """Whether AMX with float16 is there and no cap forbids it."""
    return _C.isa_has("amx_fp16")


has_bf16 = has_avx512_bf16
has_fp16 = has_avx512_fp16
