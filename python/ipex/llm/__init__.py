"""Language models: `ipex.llm.optimize` makes a model of transformers generate faster, by its own `generate`.

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    model = ipex.llm.optimize(model, dtype=torch.bfloat16)
    model.generate(**tokenizer("The capital of France is", return_tensors="pt"))

    model = ipex.llm.optimize(ipex.llm.from_gguf("model.gguf"))     # a file of llama.cpp

`modules` and `functional` are the parts that models are built of, by IPEX's names.

Needs transformers 5.0 or later. `import ipex` does not import it.
"""

from . import functional, modules
from ._from_gguf import from_gguf
from ._optimize import optimize

__all__ = ["from_gguf", "functional", "modules", "optimize"]
