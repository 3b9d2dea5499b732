"""A model of transformers with the weights of a GGUF file, whose integers stay as they are."""

from __future__ import annotations

import re
from math import isfinite
from os import PathLike
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..quantization import WeightOnlyLinear
from . import _heap
from ._codes import Codes, EmbeddingOfCodes, ExpertsOfCodes, linear_of
from ._gguf import GGUF

# What llama.cpp calls an architecture: the class of transformers, and whether rows of queries and keys lie in pairs.
_ARCHITECTURES = {
    "llama": ("Llama", True),
    "phi3": ("Phi3", False),
    "qwen2": ("Qwen2", False),
    "qwen2moe": ("Qwen2Moe", False),
    "qwen3": ("Qwen3", False),
    "qwen3moe": ("Qwen3Moe", False),
}
_WITH_EXPERTS = {"Llama": "Mixtral"}  # where one name stands for both
_MIXTURES = {"Mixtral": "num_local_experts", "Qwen2Moe": "num_experts", "Qwen3Moe": "num_experts"}
_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",  # where it is one, the gate's rows before the others
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
_MOST = 1 << 20  # of what a field counts
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_TABLE = "token_embd.weight"  # of embeddings; a head's too, where it has none of its own
_FREQUENCIES = "rope_freqs.weight"  # what the frequencies of the rotary embedding are divided by
# The same of texts as long as those that the model was trained with, and of longer ones.
_FACTORS = {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}


def from_gguf(path: str | PathLike[str], *, dtype: torch.dtype = torch.float32) -> Any:
    """Return the model of a GGUF file, in eval mode. `ipex.llm.optimize` makes it fast.

    Linears become `ipex.quantization.WeightOnlyLinear`: kernels read the file's own integers of 4 or 8 bits, with its
    scales, of a mixture of experts those that are chosen. `dtype` is that of everything else. The tokenizer is
    transformers' to read: `AutoTokenizer.from_pretrained(folder, gguf_file=name)`.
    """
    file = GGUF(path)
    architecture = file.fields.get("general.architecture")
    if architecture not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise ValueError(f"ipex.llm.from_gguf: expected one of {known} in '{path}', got {architecture!r}.")
    family, in_pairs = _ARCHITECTURES[architecture]
    if file.fields.get(f"{architecture}.expert_count"):
        family = _WITH_EXPERTS.get(family, family)
    model = _model_of(file, architecture, family)
    model.eval().requires_grad_(False)
    _Loader(file, model, in_pairs, dtype).load()
    return model


def _model_of(file: GGUF, architecture: str, family: str) -> Any:
    import transformers

    def field(name: str, default: Any = None) -> Any:
        value = file.fields.get(f"{architecture}.{name}", default)
        if value is None:
            raise ValueError(f"ipex.llm.from_gguf: expected {architecture}.{name} in '{file.path}', got no such field.")
        return value

    def count(name: str, default: Any = None, most: int = _MOST) -> int:
        value = field(name, default)
        if not isinstance(value, int) or not 0 < value <= most:
            raise ValueError(
                f"ipex.llm.from_gguf: expected {architecture}.{name} from 1 to {most} in '{file.path}', got {value!r}. "
                "It is damaged, or another format."
            )
        return value

    def number(name: str, default: float | None = None) -> float:
        value = field(name, default)
        if not isinstance(value, (int, float)) or not isfinite(value):
            raise ValueError(
                f"ipex.llm.from_gguf: expected {architecture}.{name} of a number in '{file.path}', got {value!r}. "
                "It is damaged, or another format."
            )
        return value

    scaling = file.fields.get(f"{architecture}.rope.scaling.type", "none")
    rotary: dict[str, Any] = {"rope_type": "default", "rope_theta": number("rope.freq_base", 10000.0)}
    hidden, heads, between = count("embedding_length"), count("attention.head_count"), count("feed_forward_length")
    numbers = count("attention.key_length", hidden // heads)
    turned = count("rope.dimension_count", numbers, most=numbers)
    rotary["partial_rotary_factor"] = turned / numbers
    context = count("context_length", most=1 << 31)
    original = count("rope.scaling.original_context_length", context, most=context)
    if scaling == "linear":
        rotary.update(rope_type="linear", factor=number("rope.scaling.factor"))
    elif scaling == "longrope" or (scaling == "none" and any(name in file.names() for name in _FACTORS.values())):
        rotary.update({name: _plain(file, stored, (turned // 2,)).tolist() for name, stored in _FACTORS.items()})
        rotary["rope_type"] = "longrope"
        rotary["attention_factor"] = number("rope.scaling.attn_factor", 1.0)
        rotary["original_max_position_embeddings"] = original
    elif scaling != "none":
        raise ValueError(f"ipex.llm.from_gguf: expected rope.scaling none, linear or longrope, got {scaling}.")
    tokens = {
        f"{name}_token_id": file.fields.get(f"tokenizer.ggml.{stored}_token_id")
        for name, stored in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    more: dict[str, Any] = {}
    if family == "Phi3":
        more["sliding_window"] = file.fields.get("phi3.attention.sliding_window")
        more["original_max_position_embeddings"] = original
        more["partial_rotary_factor"] = rotary["partial_rotary_factor"]  # where transformers 5.0 looks
    if family in _MIXTURES:
        more[_MIXTURES[family]] = count("expert_count")
        more["num_experts_per_tok"] = used = count("expert_used_count", most=more[_MIXTURES[family]])
        # What Mixtral has in "feed_forward_length".
        more["moe_intermediate_size"] = count("expert_feed_forward_length", between // used)
        more["norm_topk_prob"] = family == "Qwen3Moe"  # as llama.cpp has it: no field says it
    if family == "Qwen2Moe":
        more["shared_expert_intermediate_size"] = count("expert_shared_feed_forward_length", between)
    settings = {
        "vocab_size": _shape(file, _TABLE)[0],
        "hidden_size": hidden,
        "intermediate_size": between,
        "num_hidden_layers": count("block_count", most=len(file.names())),
        "num_attention_heads": heads,
        "num_key_value_heads": count("attention.head_count_kv", heads),
        "head_dim": numbers,
        "max_position_embeddings": context,
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon"),
        "rope_parameters": rotary,
        "tie_word_embeddings": False,  # a head of its own kind reads the same codes
        "attention_bias": architecture == "llama" and "blk.0.attn_q.bias" in file.names(),
        "sliding_window": None,
        **tokens,
        **more,
    }
    try:
        config = getattr(transformers, f"{family}Config")(**settings)
        with torch.device("meta"):
            model = getattr(transformers, f"{family}ForCausalLM")(config)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise ValueError(
            f"ipex.llm.from_gguf: expected fields of a {family} model in '{file.path}', got some that it refuses: "
            f"{type(error).__name__}: {reason}. It is damaged, or another format."
        ) from error
    if (found := 2 * model.model.rotary_emb.inv_freq.numel()) != turned:
        raise ValueError(
            f"ipex.llm.from_gguf: expected {architecture}.rope.dimension_count of {found} in '{file.path}', got "
            f"{turned}: {family} turns no other part of a head."
        )
    return model


def _shape(file: GGUF, name: str) -> tuple[int, ...]:
    if name not in file.names():
        raise ValueError(f"ipex.llm.from_gguf: expected {name} in '{file.path}', got no such tensor.")
    return file.shape(name)


def _check_shape(file: GGUF, name: str, shape: tuple[int, ...]) -> None:
    found = _shape(file, name)
    if found != shape and (1, *found) != shape:  # a matrix of one row is stored as a vector
        raise ValueError(f"ipex.llm.from_gguf: expected {name} of {shape} in '{file.path}', got {found}.")


def _plain(file: GGUF, name: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor in float32."""
    _check_shape(file, name, shape)
    tensor = file.tensor(name)
    return tensor.numbers() if isinstance(tensor, Codes) else tensor.float()


class _Loader:
    def __init__(self, file: GGUF, model: Any, in_pairs: bool, dtype: torch.dtype) -> None:
        self.file, self.model, self.dtype = file, model, dtype
        self.in_pairs = in_pairs
        of_configuration = {_FACTORS.get(name) for name in model.config.rope_parameters}
        self.left = set(file.names()) - of_configuration
        self.table: WeightOnlyLinear | None = None  # that a head may be

    def load(self) -> None:
        """Give every module its weights. Raises where one has none, or a tensor has no place."""
        for name, module in list(self.model.named_modules()):
            if isinstance(module, nn.Linear):
                self._replace(name, self._linear(name, module))
            elif isinstance(module, nn.Embedding):
                self._replace(name, self._embedding(name, module))
            elif name.endswith(".mlp.experts"):
                self._replace(name, self._experts(name, module))
            else:
                for own in list(module._parameters):
                    module._parameters[own] = nn.Parameter(
                        self._floats(f"{name}.{own}", module._parameters[own]), False
                    )
                self._fill_buffers(module)
        if self.left:
            raise ValueError(
                f"ipex.llm.from_gguf: expected tensors that {type(self.model).__name__} has a place for, got "
                f"{', '.join(sorted(self.left)[:4])} in '{self.file.path}'."
            )

    def _replace(self, name: str, module: nn.Module) -> None:
        _heap.trim()  # what was needed on the way would stay, and add up
        parent, _, own = name.rpartition(".")
        setattr(self.model.get_submodule(parent), own, module.eval())

    def _stored(self, name: str) -> str:
        """The file's name of a parameter."""
        module, _, kind = name.rpartition(".")
        layer = _LAYER.fullmatch(module)
        stored = _NAMES.get(layer[2] if layer else module)
        if stored is None:
            raise ValueError(f"ipex.llm.from_gguf: {name} is no part of a model that a GGUF file is known to have.")
        stored = f"blk.{layer[1]}.{stored}.{kind}" if layer else f"{stored}.{kind}"
        return _TABLE if stored == "output.weight" and stored not in self.file.names() else stored

    def _tensor(self, name: str, shape: tuple[int, ...]) -> Tensor | Codes:
        tensor = self._read(self._stored(name), shape)
        order = self._order(name, shape[0])
        if order is None:
            return tensor
        return tensor.rows(order) if isinstance(tensor, Codes) else tensor[order]

    def _read(self, stored: str, shape: tuple[int, ...]) -> Tensor | Codes:
        _check_shape(self.file, stored, shape)
        self.left.discard(stored)
        tensor = self.file.tensor(stored)
        return tensor.view(shape) if isinstance(tensor, Tensor) else tensor

    def _order(self, name: str, rows: int) -> Tensor | None:
        """llama.cpp turns neighbours of a query or key, transformers the two halves of a head."""
        if not self.in_pairs or not re.search(r"self_attn\.[qk]_proj\.", name):
            return None
        heads = self.model.config.num_attention_heads if ".q_proj." in name else self.model.config.num_key_value_heads
        return torch.arange(rows).view(heads, -1, 2).transpose(1, 2).flatten()

    def _floats(self, name: str, like: Any) -> Tensor:
        tensor = self._tensor(name, tuple(like.shape))
        return (tensor.numbers() if isinstance(tensor, Codes) else tensor).to(self.dtype)

    def _linear(self, name: str, linear: nn.Linear) -> nn.Module:
        bias = None if linear.bias is None else self._floats(f"{name}.bias", linear.bias)
        if self.table is not None and bias is None and self._stored(f"{name}.weight") == _TABLE:
            return self.table
        weight = self._tensor(f"{name}.weight", (linear.out_features, linear.in_features))
        if isinstance(weight, Codes):
            return linear_of(weight, bias, self.dtype)
        linear.weight = nn.Parameter(weight.to(self.dtype), False)
        if bias is not None:
            linear.bias = nn.Parameter(bias, False)
        return linear

    def _experts(self, name: str, experts: Any) -> nn.Module:
        count, rows, inputs = experts.gate_up_proj.shape
        gate, up = (self._of_experts(f"{name}.{own}_proj", (count, rows // 2, inputs)) for own in ("gate", "up"))
        down = self._of_experts(f"{name}.down_proj", tuple(experts.down_proj.shape))
        if isinstance(gate, Codes) and isinstance(up, Codes) and isinstance(down, Codes):
            return ExpertsOfCodes(count, gate.beside(up, parts=count), down, experts.act_fn, self.dtype)
        gate, up, down = (one.numbers() if isinstance(one, Codes) else one for one in (gate, up, down))
        both = torch.cat([one.to(self.dtype).view(count, -1, inputs) for one in (gate, up)], 1)
        experts.gate_up_proj = nn.Parameter(both, False)
        experts.down_proj = nn.Parameter(down.to(self.dtype).view(experts.down_proj.shape), False)
        return cast("nn.Module", experts)

    def _of_experts(self, name: str, shape: tuple[int, ...]) -> Tensor | Codes:
        """Their matrices, one below the other: files of 2023 have a tensor for each."""
        stored = self._stored(f"{name}.weight")
        one = stored.removesuffix("_exps.weight")
        if stored in self.file.names() or f"{one}.0.weight" not in self.file.names():
            return self._read(stored, shape)
        each = [self._read(f"{one}.{i}.weight", shape[1:]) for i in range(shape[0])]
        codes = [matrix for matrix in each if isinstance(matrix, Codes)]
        if len(codes) == len(each):
            return codes[0].beside(*codes[1:])
        return torch.cat([matrix.numbers() if isinstance(matrix, Codes) else matrix.float() for matrix in each])

    def _embedding(self, name: str, embedding: nn.Embedding) -> nn.Module:
        table = self._tensor(f"{name}.weight", (embedding.num_embeddings, embedding.embedding_dim))
        if isinstance(table, Codes):
            self.table = linear_of(table, None, self.dtype)
            return EmbeddingOfCodes(self.table)
        embedding.weight = nn.Parameter(table.to(self.dtype), False)
        return embedding

    def _fill_buffers(self, module: nn.Module) -> None:
        """Buffers that no file holds, the frequencies of rotary embeddings, are made as the class makes them."""
        if not any(buffer.is_meta for buffer in module._buffers.values() if buffer is not None):
            return
        made = type(module)(self.model.config)
        for own, buffer in made.named_buffers(recurse=False):
            module._buffers[own] = buffer
        if _FREQUENCIES in self.file.names():
            self.left.discard(_FREQUENCIES)
            for own, buffer in module.named_buffers(recurse=False):
                module._buffers[own] = buffer / _plain(self.file, _FREQUENCIES, tuple(buffer.shape))
