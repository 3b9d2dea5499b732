"""Language models: `ipex.llm.optimize` makes a model of transformers generate faster, by its own `generate`.

A small model with random weights stands for `AutoModelForCausalLM.from_pretrained(folder).eval()`:

>>> from transformers import LlamaConfig, LlamaForCausalLM
>>> sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64}
>>> config = LlamaConfig(num_hidden_layers=1, num_attention_heads=2, eos_token_id=None, **sizes)
>>> model = ipex.llm.optimize(LlamaForCausalLM(config).eval())
>>> prompt = torch.tensor([[1, 5, 9]])
>>> model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=4, do_sample=False).shape
torch.Size([1, 7])

`from_gguf` reads a file of llama.cpp. `tensor_parallel` gives each of several processes its share of a model.
`modules` and `functional` are the parts that models are built of, by IPEX's names.

Needs transformers 5.0 or later. `import ipex` does not import it.
"""

from . import functional, modules
from ._from_gguf import from_gguf
from ._optimize import optimize
from ._parallel import tensor_parallel

__all__ = ["from_gguf", "functional", "modules", "optimize", "tensor_parallel"]
