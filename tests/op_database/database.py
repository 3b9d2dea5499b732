"""PyTorch's own op database: what ops there are, and arguments to call them with.

torch keeps it for its own tests (it imports numpy and expecttest): an entry (OpInfo) has the function, its in-place
form, whether it takes out=, and sample arguments for each dtype. Entries go by name, "add" or
"linalg.norm.subgradients_at_zero".
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.testing._internal import common_methods_invocations as database
from torch.utils import _pytree as pytree

FEW = 40  # samples of an op that are looked at
ENOUGH = 3  # of these that eager takes
SMALL = 20000  # elements of a sample: some are meant for GPUs

# What these return is whatever the memory held.
UNINITIALISED = {
    *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_"),
    "resize_as_",
}
# They compile CUDA code.
FOR_GPUS = "jiterator"


def _without_seed(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return function(*arguments, **options)


@functools.cache
def entries() -> dict[str, Any]:
    # Around a random op: it would make eager repeat itself where a traced model can't.
    database.wrapper_set_seed = _without_seed
    tables = ("op_db", *sorted(name for name in dir(database) if name.startswith("foreach_") and name.endswith("_db")))
    found: dict[str, Any] = {}
    for op in itertools.chain.from_iterable(getattr(database, table) for table in tables):
        if not op.name.startswith(FOR_GPUS):
            found[op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")] = op
    return found


def takes(name: str, dtype: torch.dtype) -> bool:
    return dtype in entries()[name].supported_dtypes("cpu")


@functools.lru_cache(maxsize=64)
def samples(name: str, dtype: torch.dtype, seed: int, written: bool) -> list[Any]:
    """Some of the arguments that the database has for an op, in random order: those that eager takes.

    `written` asks for samples that the op's in-place form takes.
    """
    torch.manual_seed(seed)
    random.seed(seed)
    few = list(itertools.islice(entries()[name].sample_inputs("cpu", dtype, requires_grad=False), FEW))
    random.Random(f"{name} {seed}").shuffle(few)
    # Samples that do something first: no empty tensor, alpha=2 and not its default.
    few.sort(key=lambda sample: (any(not t.numel() for t in tensors_in(sample)), not sample.kwargs))
    function = in_place(name) if written else entries()[name].op
    return list(itertools.islice((sample for sample in few if _is_usable(sample, function)), ENOUGH))


def _is_usable(sample: Any, function: Callable[..., Any]) -> bool:
    tensors = tensors_in(sample)
    if any(t.layout != torch.strided for t in tensors) or sum(t.numel() for t in tensors) > SMALL:
        return False
    sample = copy.deepcopy(sample)
    try:
        with torch.no_grad():
            function(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        return False
    return True


def tensors_in(sample: Any) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def in_place(name: str) -> Callable[..., Any] | None:
    """The form that writes its first argument."""
    op = entries()[name]
    if op.inplace_variant is not None:
        return op.inplace_variant  # type: ignore[no-any-return]
    short = op.name.rpartition(".")[2]
    for home in (F, torch):
        if op.name.startswith("nn.functional.") and callable(getattr(home, f"{short}_", None)):
            return getattr(home, f"{short}_")  # type: ignore[no-any-return]
    if inspect.isfunction(op.op) and "inplace" in inspect.signature(op.op).parameters:
        return functools.partial(op.op, inplace=True)
    return None


def spelling(name: str, function: Callable[..., Any]) -> str | None:
    """How a program calls this function, None where it has no name that TorchScript knows."""
    short = entries()[name].name
    for text in (f"torch.{short}", f"torch.{short}_", f"torch.Tensor.{short}_"):
        found: Any = torch
        for part in text.split(".")[1:]:
            found = getattr(found, part, None)
        if found is function:
            return text
    return None
