"""Tensor parallelism over processes: each has a share of every layer's heads and channels, and they add up what they
found. Which linears go together is what the model's configuration says, its `base_model_tp_plan`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, distributed, nn
from transformers import PreTrainedModel

from ._capture import check_same

# By the names that transformers 5 has had for them.
_STYLES = {
    "colwise": (True, False),  # whether outputs are shared out, and whether each process needs them, or has them, whole
    "colwise_gather_output": (True, True),
    "colwise_rep": (True, True),
    "rowwise": (False, False),
    "rowwise_split_input": (False, True),
    "rowwise_rep": (False, True),
}
_WORDS = 7  # of the text that is compared
_groups: dict[str, Any] = {}  # ops know them by name

# Ops, so that a trace holds them: those of torch.distributed take what a trace can't hold.
_ops = torch.library.Library("ipex_distributed", "DEF")
_ops.define("sum(Tensor x, str group) -> Tensor")
_ops.define("join(Tensor x, str group) -> Tensor")


def _sum(x: Tensor, group: str) -> Tensor:
    total = x.float().contiguous().clone()  # 16 bits are rounded once
    distributed.all_reduce(total, group=_groups[group])
    return total.to(x.dtype)


def _join(x: Tensor, group: str) -> Tensor:
    parts = [torch.empty(x.shape) for _ in range(distributed.get_world_size(_groups[group]))]
    distributed.all_gather(parts, x.float().contiguous(), group=_groups[group])
    return torch.cat(parts, -1).to(x.dtype)


_ops.impl("sum", _sum, "CPU")
_ops.impl("join", _join, "CPU")


class _Joined(nn.Module):
    """A linear of some outputs, and those of the other processes."""

    def __init__(self, linear: nn.Linear, group: str) -> None:
        super().__init__()
        self.linear, self._group = linear, group

    def forward(self, x: Tensor) -> Tensor:
        joined: Tensor = torch.ops.ipex_distributed.join(self.linear(x), self._group)
        return joined


class _Summed(nn.Module):
    """A linear of some inputs. What the other processes make of theirs is added."""

    def __init__(self, linear: nn.Linear, bias: Tensor | None, part: slice | None, group: str) -> None:
        super().__init__()
        self.linear, self._part, self._group = linear, part, group
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        part = x if self._part is None else x[..., self._part]
        result: Tensor = torch.ops.ipex_distributed.sum(self.linear(part), self._group)
        return result if self.bias is None else result + self.bias


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)  # the rest can be freed
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return linear.eval()


def _share(linear: nn.Linear, style: str, rank: int, count: int, group: str) -> nn.Module:
    by_outputs, is_whole = _STYLES[style]
    if by_outputs:
        size = linear.out_features // count
        part = slice(rank * size, (rank + 1) * size)
        bias = None if linear.bias is None else linear.bias[part]
        mine = _linear(linear.weight[part], bias)
        return _Joined(mine, group) if is_whole else mine
    size = linear.in_features // count
    part = slice(rank * size, (rank + 1) * size)
    return _Summed(_linear(linear.weight[:, part], None), linear.bias, part if is_whole else None, group)


def _planned(model: Any) -> Iterator[tuple[str, nn.Linear, str]]:
    """The linears that the plan of a model names, and how each is shared out."""
    config = model.config.get_text_config(decoder=True)
    base = model.base_model
    for pattern, style in (getattr(config, "base_model_tp_plan", None) or {}).items():
        wanted = re.compile(re.escape(pattern).replace(r"\*", r"\d+"))
        for name, module in base.named_modules():
            if wanted.fullmatch(name) and type(module) is nn.Linear:
                yield name, module, style


def tensor_parallel(model: Any, group: Any = None) -> Any:
    """Return a model of transformers with this process's share of it, for `ipex.llm.optimize`.

    Call it in each process of a group of `torch.distributed` (gloo), with the same model; `group` is all processes
    unless you say otherwise. From then on each process makes the same calls with the same inputs, and gets the same
    results: those of the whole model, up to rounding. Attention heads and the channels between two linears are shared
    out; embedding, head, norms and experts are whole in each process. `model` is not changed.
    """
    where = "ipex.llm.tensor_parallel"
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"{where}: expected a model of transformers, got {type(model).__name__}.")
    if not distributed.is_initialized():
        raise RuntimeError(
            f"{where}: expected a process group, got none. Call torch.distributed.init_process_group('gloo') in each "
            "process that torch.distributed.run starts."
        )
    group = distributed.group.WORLD if group is None else group
    rank, count, name = distributed.get_rank(group), distributed.get_world_size(group), group.group_name
    planned = list(_planned(model))
    if not planned:
        raise ValueError(f"{where}: expected a base_model_tp_plan in the configuration, got none that names a linear.")
    config = model.config.get_text_config(decoder=True)
    for heads in ("num_attention_heads", "num_key_value_heads"):
        if (getattr(config, heads, None) or count) % count:
            raise ValueError(
                f"{where}: expected {heads} to be a multiple of {count} processes, got {getattr(config, heads)}."
            )
    for path, linear, style in planned:
        if style not in _STYLES:
            raise ValueError(f"{where}: expected one of {', '.join(_STYLES)} for {path} in the plan, got {style!r}.")
        size = linear.out_features if _STYLES[style][0] else linear.in_features
        if size % count:
            raise ValueError(f"{where}: expected {path} to divide into {count} processes, got {size} channels.")
    # Weights that stay whole are those of the model.
    kept = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    shared = copy.deepcopy(model, kept)
    _groups[name] = group
    for path, linear, style in planned:
        parent, _, own = path.rpartition(".")
        setattr(shared.base_model.get_submodule(parent), own, _share(linear, style, rank, count, name))
    _compare(model, shared, where)
    return shared


@torch.no_grad()
def _compare(model: Any, shared: Any, where: str) -> None:
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    words = torch.randint(0, vocabulary, (2, _WORDS), generator=torch.Generator().manual_seed(3))
    expected = model(input_ids=words, use_cache=False).logits.float()
    try:
        found = shared(input_ids=words, use_cache=False).logits.float()
        check_same(model, found, expected, model.dtype)
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise ValueError(
            f"{where}: expected the shares to compute what the model does, but {type(error).__name__}: {first_line}. "
            "This model can't be shared out."
        ) from error
