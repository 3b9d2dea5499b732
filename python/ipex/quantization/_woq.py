"""IPEX's way to say in which numbers the weights of linears are kept."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum


class WoqWeightDtype(Enum):
    """Of weights. `ipex.quantization.weight_only` says what each is."""

    INT8 = "int8"
    INT4 = "int4"
    NF4 = "nf4"
    FP8 = "float8_e4m3fn"


class WoqLowpMode(IntEnum):
    """To how many bits a kernel may round its inputs: as floats are, 16, or 8. They are integers with a scale for each
    group of inputs, and sums are exact, so that FP16 and BF16 lose less than these formats would."""

    NONE = 0
    FP16 = 1
    BF16 = 2
    INT8 = 3


class WoqActQuantMode(IntEnum):
    """How IPEX rounded inputs under WoqLowpMode.INT8. Here it is PER_BATCH_IC_BLOCK_SYM in every mode."""

    NONE = -1
    PER_TENSOR = 0
    PER_IC_BLOCK = 1
    PER_BATCH = 2
    PER_BATCH_IC_BLOCK = 3
    PER_TENSOR_SYM = 4
    PER_IC_BLOCK_SYM = 5
    PER_BATCH_SYM = 6
    PER_BATCH_IC_BLOCK_SYM = 7


class WoqWeightQScheme(IntEnum):
    """Whether codes lie around zero. UNDEFINED: as suits the dtype."""

    UNDEFINED = 0
    ASYMMETRIC = 1
    SYMMETRIC = 2


@dataclass(frozen=True)
class WeightOnlyQuantConfig:
    """What `get_weight_only_quant_qconfig_mapping` returns."""

    weight_dtype: WoqWeightDtype = WoqWeightDtype.INT8
    lowp_mode: WoqLowpMode = WoqLowpMode.NONE
    group_size: int = 0
    symmetric: bool = True

    @property
    def row_bits(self) -> int:
        """`ipex.quantization.WeightOnlyLinear` says what they are."""
        return {WoqLowpMode.NONE: 24, WoqLowpMode.INT8: 8}.get(self.lowp_mode, 16)


# With the inputs that share a scale, where the user does not say; 0 is all of them.
_GROUP_SIZES = {WoqWeightDtype.INT8: 0, WoqWeightDtype.INT4: 32, WoqWeightDtype.NF4: 32, WoqWeightDtype.FP8: 0}


def get_weight_only_quant_qconfig_mapping(
    *,
    weight_dtype: WoqWeightDtype = WoqWeightDtype.INT8,
    lowp_mode: WoqLowpMode = WoqLowpMode.NONE,
    act_quant_mode: WoqActQuantMode = WoqActQuantMode.PER_BATCH_IC_BLOCK_SYM,
    group_size: int = -1,
    weight_qscheme: WoqWeightQScheme = WoqWeightQScheme.UNDEFINED,
) -> WeightOnlyQuantConfig:
    """Return a `quantization_config` for `ipex.llm.optimize`.

    `group_size` inputs share a scale: -1 for whole rows, in INT4 and NF4 for 32. Codes of INT4 are asymmetric unless
    you say otherwise, those of INT8 symmetric, and those of NF4 and FP8 (E4M3) always. `act_quant_mode` is accepted:
    inputs that `lowp_mode` rounds have a scale for each word and group. Beside NF4 and FP8 none are rounded.
    """
    where = "ipex.quantization.get_weight_only_quant_qconfig_mapping"
    dtype, mode = WoqWeightDtype(weight_dtype), WoqLowpMode(lowp_mode)
    WoqActQuantMode(act_quant_mode)
    scheme = WoqWeightQScheme(weight_qscheme)
    if group_size != -1 and (group_size <= 0 or group_size % 8):
        raise ValueError(f"{where}: expected -1 or a multiple of 8 in group_size, got {group_size}.")
    if dtype in (WoqWeightDtype.NF4, WoqWeightDtype.FP8) and scheme is WoqWeightQScheme.ASYMMETRIC:
        raise ValueError(
            f"{where}: expected SYMMETRIC or UNDEFINED in weight_qscheme for {dtype.name}, got ASYMMETRIC. Its codes "
            "are floats, which have no offsets. Use INT4 or INT8 with offsets."
        )
    size = group_size if group_size != -1 else _GROUP_SIZES[dtype]
    is_asymmetric = dtype is WoqWeightDtype.INT4 and scheme is WoqWeightQScheme.UNDEFINED
    is_symmetric = not is_asymmetric and scheme is not WoqWeightQScheme.ASYMMETRIC
    return WeightOnlyQuantConfig(dtype, mode, size, is_symmetric)
