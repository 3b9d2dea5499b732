"""Pieces of IR text that the pass tests are written with."""

import re

import torch

from support import graph_ir

WEIGHT = "Float(8, 4, 3, 3, strides=[36, 9, 3, 1], requires_grad=0, device=cpu)"
CONTEXT = "__torch__.torch.classes.ipex.ConvolutionContext"
LINEAR_CONTEXT = "__torch__.torch.classes.ipex.LinearContext"

# The constants of a plain convolution from 4 to 8 channels.
CONSTANTS = (
    f"%w : {WEIGHT} = prim::Constant[value=<Tensor>]()",
    "%none : NoneType = prim::Constant()",
    "%zero : int = prim::Constant[value=0]()",
    "%one : int = prim::Constant[value=1]()",
    "%false : bool = prim::Constant[value=0]()",
    "%true : bool = prim::Constant[value=1]()",
    "%ones : int[] = prim::Constant[value=[1, 1]]()",
    "%zeros : int[] = prim::Constant[value=[0, 0]]()",
)

# The same constants, and %y computed from %x by a packed convolution.
PACKED = (
    *CONSTANTS,
    "%post_ops : str[] = prim::Constant[value=annotate(List[str], [])]()",
    f"%p : {CONTEXT} = "
    "ipex::convolution_prepack(%w, %none, %ones, %zeros, %ones, %one, %false, %zeros, %post_ops, %none, %none, %none, "
    "%none, %false, %false, %false, %false)",
    "%operands : Tensor[] = prim::ListConstruct()",
    "%y : Tensor = ipex::convolution_run(%x, %p, %operands, %false)",
)


def packed(input_name: str, output_name: str, suffix: str) -> tuple[str, ...]:
    """One more packed convolution, from %`input_name` to %`output_name`; needs PACKED or CONSTANTS before it."""
    return (
        f"%post_ops{suffix} : str[] = prim::Constant[value=annotate(List[str], [])]()",
        f"%p{suffix} : {CONTEXT} = "
        f"ipex::convolution_prepack("
        f"%w, %none, %ones, %zeros, %ones, %one, %false, %zeros, %post_ops{suffix}, %none, %none, %none, "
        "%none, %false, %false, %false, %false)",
        f"%operands{suffix} : Tensor[] = prim::ListConstruct()",
        f"%{output_name} : Tensor = ipex::convolution_run(%{input_name}, %p{suffix}, %operands{suffix}, %false)",
    )


def linear(input_name: str, output_name: str, width_in: int, width_out: int, operand: str = "", dtype: str = "Float"):
    """A packed linear, as the passes before leave it; with `operand`, one whose post-op has that."""
    i = output_name
    weight = f"{dtype}({width_out}, {width_in}, strides=[{width_in}, 1], requires_grad=0, device=cpu)"
    return (
        f"%w{i} : {weight} = prim::Constant[value=<Tensor>]()",
        f"%post_ops{i} : str[] = prim::Constant[value=annotate(List[str], [])]()",
        f"%p{i} : {LINEAR_CONTEXT} = "
        f"ipex::linear_prepack(%w{i}, %none, %post_ops{i}, %none, %none, %none, %none, %false)",
        f"%operands{i} : Tensor[] = prim::ListConstruct({operand})",
        f"%{output_name} : Tensor = ipex::linear_run(%{input_name}, %p{i}, %operands{i}, %true)",
    )


def linear_graph(*lines: str, returns: str = "%z") -> str:
    """Of two tensors %x and %other."""
    constants = (
        "%none : NoneType = prim::Constant()",
        "%true : bool = prim::Constant[value=1]()",
        "%false : bool = prim::Constant[value=0]()",
    )
    return graph_ir("%x : Tensor, %other : Tensor", *constants, *lines, returns=returns)


def convolution(
    input_name: str,
    output_name: str,
    shape: tuple[int, ...],
    groups: int = 1,
    *,
    operand: str = "",
    dtype: str = "Float",
    layout: str = "%yes",
) -> tuple[str, ...]:
    """A packed convolution, as the passes before leave it; with `operand`, one whose post-op has that."""
    i = output_name
    strides = [torch.Size(shape[k + 1 :]).numel() for k in range(len(shape))]
    weight = f"{dtype}({', '.join(map(str, shape))}, strides={strides}, requires_grad=0, device=cpu)"
    return (
        f"%w{i} : {weight} = prim::Constant[value=<Tensor>]()",
        f"%post_ops{i} : str[] = prim::Constant[value=annotate(List[str], [])]()",
        f"%groups{i} : int = prim::Constant[value={groups}]()",
        f"%p{i} : {CONTEXT} = ipex::convolution_prepack(%w{i}, %none, %one, %zero, %one, %groups{i}, %no, %zero, "
        f"%post_ops{i}, %none, %none, %none, %none, %no, %no, %no, %no)",
        f"%operands{i} : Tensor[] = prim::ListConstruct({operand})",
        f"%{output_name} : Tensor = ipex::convolution_run(%{input_name}, %p{i}, %operands{i}, {layout})",
    )


def convolution_graph(*lines: str, returns: str = "%z") -> str:
    """Of two tensors %x and %other."""
    constants = (
        "%none : NoneType = prim::Constant()",
        "%yes : bool = prim::Constant[value=1]()",
        "%no : bool = prim::Constant[value=0]()",
        "%one : int[] = prim::Constant[value=[1, 1]]()",
        "%zero : int[] = prim::Constant[value=[0, 0]]()",
    )
    return graph_ir("%x : Tensor, %other : Tensor", *constants, *lines, returns=returns)


def held(ir: str, name: str) -> str:
    """The list %`name` as hold_changing_lists leaves it: a cast stands between it and its users."""
    made = re.search(rf"\n( *)%{name} : ([^=]+) = prim::ListConstruct\([^\n]*\n", ir)
    assert made is not None
    rest = re.sub(rf"%{name}\b", f"%held_{name}", ir[made.end() :])
    return f"{ir[: made.end()]}{made[1]}%held_{name} : {made[2]} = prim::unchecked_cast(%{name})\n{rest}"
