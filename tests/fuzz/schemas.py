"""Which ops are drawn by schema: those that the passes know, in every overload and form.

Forms of an op `x` are `x` itself, `x_` in place, its overloads with out=, and `_foreach_x`. Ops that change a tensor's
shape in place are drawn too, whether a pass knows them or not.
"""

from __future__ import annotations

import functools

import torch

from ipex import _C

METADATA_WRITES = ("unsqueeze_", "squeeze_", "transpose_", "t_", "resize_", "swapaxes_", "swapdims_", "as_strided_")
# What draws random numbers or gives memory as it is, and what is for other devices or for training.
# conv2d with padding="same" is drawn; autocast does not know `_convolution_mode`, which that is traced to. A trace has
# `_convolution` for `convolution`, which refuses images without a batch, and for conv2d, which takes them.
NOT_DRAWN = {
    *("_convolution_mode", "convolution"),
    *("dropout", "feature_dropout", "native_dropout", "rrelu", "pin_memory", "embedding_renorm"),
    *("rand", "randn", "rand_like", "randn_like", "normal", "uniform"),
    *("empty", "empty_like", "new_empty", "set"),
}
# The process ends with a signal, in eager too: torch 2.11, where results given as out= have another size.
ENDS_IN_OLD_TORCH = ("min.dim_min", "max.dim_max", "native_layer_norm.out", "adaptive_max_pool2d.out")
# One of these an op must take.
TENSORS = ("Tensor", "List[Tensor]")


@functools.cache
def schemas() -> tuple[torch.FunctionSchema, ...]:
    """The schemas to draw from, in an order that does not change from run to run."""
    known = {name.partition(".")[0].removeprefix("aten::").rstrip("_") for name in _known()}
    known -= NOT_DRAWN
    wanted = {form for name in known for form in (name, f"{name}_", f"_foreach_{name}", f"_foreach_{name}_")}
    wanted |= set(METADATA_WRITES)
    found = [schema for schema in torch._C._jit_get_all_schemas() if schema.name.removeprefix("aten::") in wanted]
    return tuple(sorted(filter(_takes_tensors, found), key=str))


def _known() -> list[str]:
    """Names of the ops that passes take, or say that they leave."""
    return sorted({row["name"] for row in _C.op_table() if row["name"].startswith("aten::") and row["left"]})


def _takes_tensors(schema: torch.FunctionSchema) -> bool:
    types = [str(argument.type) for argument in schema.arguments]
    if any(argument.name == "out_dtype" for argument in schema.arguments):
        return False  # for GPUs alone
    if f"{schema.name}.{schema.overload_name}".removeprefix("aten::") in ENDS_IN_OLD_TORCH:
        return torch.__version__ >= (2, 13)
    return schema.name.startswith("aten::") and any(t in TENSORS for t in types) and "List[t]" not in types
