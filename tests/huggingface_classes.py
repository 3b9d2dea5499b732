"""Classes of transformers, drawn by seed, small and else by default: through jit_optimize and optimize.

Each works, or gets one sentence that says why not, or a warning of torch that its trace holds for values like the
example's. A class whose small configuration makes no model that runs is drawn
anew, and counted.
"""

from __future__ import annotations

import argparse
import inspect
import os
import random
import sys
import warnings
from collections import Counter
from typing import Any

import torch

import ipex

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
SMALL = {
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers "
    "num_decoder_layers num_hidden_groups",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
    "num_key_value_heads num_query_groups attention_heads",
    16: "head_dim d_kv attention_head_size kv_lora_rank",
    64: "hidden_size n_embd d_model dim embed_dim embedding_size projection_dim hidden_dim emb_dim",
    128: "intermediate_size n_inner ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff hidden_mlp_size moe_intermediate_size "
    "ffn_hidden_size max_position_embeddings n_positions",
    200: "vocab_size",
}  # names that stand for sizes, by what they become
MOST_PARAMETERS = 20_000_000
TOKENS = 9


def classes() -> list[str]:
    """The classes of models that have a task or none."""
    from transformers.models.auto import modeling_auto as auto

    names = [name for name in dir(auto) if name.startswith("MODEL_") and name.endswith("MAPPING_NAMES")]
    found: set[str] = set()
    for name in names:
        for value in getattr(auto, name).values():
            found.update([value] if isinstance(value, str) else value)
    return sorted(found)


def shrink(config: Any) -> None:
    """Make sizes small, in configurations within this one too."""
    for value, names in SMALL.items():
        for name in names.split():
            if isinstance(getattr(config, name, None), int) and getattr(config, name) > value:
                setattr(config, name, value)
    for part in vars(config).values():
        if hasattr(part, "to_dict") and hasattr(part, "model_type"):
            shrink(part)
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, 1)


def made(name: str) -> Any:
    """The model, small. Raises where it would not be."""
    import transformers

    kind = getattr(transformers, name)
    config = kind.config_class()
    shrink(config)
    with torch.device("meta"):
        count = sum(p.numel() for p in kind(config).parameters())
    if count > MOST_PARAMETERS:
        raise ValueError(f"it has {count} parameters")
    return kind(config).eval()


def inputs_of(model: Any) -> dict[str, Any]:
    """Inputs by the names that its forward has."""
    names = inspect.signature(model.forward).parameters
    config = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    given: dict[str, Any] = {}
    if "input_ids" in names and model.main_input_name in ("input_ids", "pixel_values"):
        given["input_ids"] = torch.randint(3, getattr(text, "vocab_size", 100), (2, TOKENS))
        given["attention_mask"] = torch.ones(2, TOKENS, dtype=torch.long)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in names:
        given["decoder_input_ids"] = torch.randint(3, getattr(text, "vocab_size", 100), (2, 5))
    if "pixel_values" in names and "input_ids" not in names:
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", 224) or 224
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        given["pixel_values"] = torch.randn(1, getattr(vision, "num_channels", 3), height, width)
    if model.main_input_name == "input_values":
        given["input_values"] = torch.randn(1, 4000)
    if model.main_input_name == "input_features":
        bins = getattr(config, "num_mel_bins", 80)
        given["input_features"] = torch.randn(1, bins, 2 * getattr(config, "max_source_positions", 100))
    return {name: value for name, value in given.items() if name in names}


def outcome(model: Any, optimize: Any, given: Any, others: Any) -> str:
    """What came of it: works, one sentence of ipex, or what else. `others` are inputs with other values."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            optimized = optimize()
            verification = ipex.verify(model, optimized, given)
        except Exception as error:
            text = str(error)
            if text.startswith("ipex"):
                return f"sentence: {text.splitlines()[0]}"
            return f"FAILS: {type(error).__name__}: {(text.splitlines() or [''])[0]}"
    if not verification.original_repeats:
        return "works: the model gives other results at each call"
    if not verification.ok:
        return f"DIFFERS: {' '.join(str(verification).split())[:300]}"
    try:
        verification = ipex.verify(model, optimized, others)
        reason = "" if verification.ok else " ".join(str(verification).split())[:200]
    except Exception as error:
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[-1]}"
    if not reason:
        return "works"
    is_told = any(issubclass(warning.category, torch.jit.TracerWarning) for warning in caught)
    return f"{'warned, for the example alone' if is_told else 'DIFFERS for other values'}: {reason}"


@torch.no_grad()
def run(count: int, seed: int) -> int:
    """Draw and try; return how many neither work nor say why."""
    names = classes()
    random.Random(seed).shuffle(names)
    counts: dict[str, Counter[str]] = {"jit_optimize": Counter(), "optimize": Counter()}
    tried = drawn_anew = 0
    for name in names:
        if tried == count:
            break
        torch.manual_seed(seed)
        try:
            model = made(name)
            given, others = inputs_of(model), inputs_of(model)
            model(**given)
        except Exception:
            drawn_anew += 1
            continue
        tried += 1
        for what, optimize in (
            ("jit_optimize", lambda: ipex.jit_optimize(model, given)),  # noqa: B023
            ("optimize", lambda: ipex.optimize(model)),  # noqa: B023
        ):
            found = outcome(model, optimize, given, others)
            counts[what][found.partition(":")[0]] += 1
            print(f"{name}: {what}: {found}", flush=True)
    for what, found in counts.items():
        print(f"{what}: {tried} classes: {', '.join(f'{number} {kind}' for kind, number in found.most_common())}")
    print(f"drawn anew, as the small configuration makes no model that runs: {drawn_anew}")
    return sum(number for found in counts.values() for kind, number in found.items() if kind.startswith(("F", "D")))


def main() -> int:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    return 1 if run(options.count, options.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
