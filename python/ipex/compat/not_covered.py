"""What of IPEX is not covered, and what to use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "intel_extension_for_pytorch"

# By the part of the name after the package's.
REPLACEMENTS = {
    "cpu": "Use ipex.StreamPool in place of cpu.runtime (docs/how_to/streams.md), ipex.isa for what the CPU has, and "
    "taskset or numactl to pin cores.",
    "fast_bert": "Call ipex.optimize(model), or ipex.jit_optimize(model, example_inputs): attention is fused there.",
    "llm": "Call ipex.llm.optimize(model), or build of ipex.llm.modules and ipex.llm.functional: docs/how_to/llm.md.",
    "nn": "Use the modules of torch.nn; ipex.optimize packs them.",
    "optim": "Use the optimizers of torch.optim, and pass them to ipex.optimize.",
    "quantization": "Use ipex.quantization: prepare and convert take a Recipe in place of a qconfig, dynamic none.",
    "transformers": "Call ipex.optimize(model), or ipex.jit_optimize(model, example_inputs): attention is fused there.",
    "verbose": "Set IPEX_VERBOSE=1, and print ipex.explain(optimized).",
    "xpu": "Use torch.xpu, which is in torch itself.",
}
_ELSE = "docs/migrating.md lists what is covered."


def message(name: str) -> str:
    """Return the error for a name that is not covered."""
    part = name.removeprefix(PACKAGE + ".")
    known = next((advice for prefix, advice in REPLACEMENTS.items() if f"{part}.".startswith(f"{prefix}.")), _ELSE)
    return f"ipex.compat: expected a name that is covered, got {name}. {known}"


class Finder(MetaPathFinder, Loader):
    """Makes the submodules that are covered. For others it raises: Python would only say that they are not there."""

    def __init__(self, covered: Mapping[str, Callable[[], ModuleType]]) -> None:
        self._covered = covered  # how to make each, by its whole name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make a submodule."""
        return self._covered[spec.name]()

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: it was made whole."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return nothing for the modules of others."""
        if fullname in self._covered:
            return ModuleSpec(fullname, self)
        if fullname.startswith(PACKAGE + "."):
            raise ModuleNotFoundError(message(fullname))  # with a name, `from .. import ..` would swallow it
        return None
