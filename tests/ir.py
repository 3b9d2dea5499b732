"""Pieces of IR text that the pass tests are written with."""

WEIGHT = "Float(8, 4, 3, 3, strides=[36, 9, 3, 1], requires_grad=0, device=cpu)"
CONTEXT = "__torch__.torch.classes.ipex.ConvolutionContext"

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
    "%none, %false, %false, %false)",
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
        "%none, %false, %false, %false)",
        f"%operands{suffix} : Tensor[] = prim::ListConstruct()",
        f"%{output_name} : Tensor = ipex::convolution_run(%{input_name}, %p{suffix}, %operands{suffix}, %false)",
    )
