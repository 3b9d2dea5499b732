"""Failing cases as programs that a human can run, and the summary of a run."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from pathlib import Path

from fuzz import tensors
from fuzz.check import told_by_variables
from fuzz.session import Failure

PROGRAM = '''"""{category}

{detail}

Found by: {command}
"""

{tensors}
{source}

HOW = {how!r}
CALLS = {calls}


def compiled(model, arguments):
    if "trace" not in HOW:
        script = torch.jit.script(model)
    else:
        plain = [t for module in model.modules() for t in vars(module).values() if isinstance(t, Tensor)]
        state = [*model.parameters(), *model.buffers(), *plain]
        before = [tensor.clone() for tensor in state]
        script = torch.jit.trace(model, arguments, check_trace=False, strict=False)
        for tensor, value in zip(state, before):  # to trace it is to call it
            tensor.copy_(value)
    names = [name for name in script._c._method_names() if name != "forward"]
    return torch.jit.freeze(script, preserved_attrs=names) if "frozen" in HOW else script


def made(specs):
    """The arguments of a call. A number repeats an earlier one."""
    found = []
    for spec in specs:
        found.append(found[spec] if isinstance(spec, int) else make(spec)[1])
    return found


def tensors(results):
    if isinstance(results, Tensor):
        return [results]
    return [t for part in (results.values() if isinstance(results, dict) else results) for t in tensors(part)]


def show(name, module, specs, method, overwrites):
    arguments = made(specs)
    try:
        results = tensors((module if method == "forward" else getattr(module, method))(*arguments))
    except Exception as error:
        return print(f"  {{name}} raises {{type(error).__name__}}: {{str(error).strip().splitlines()[-1]}}")
    for result in results:
        numbers = result.detach().flatten()[:6].tolist()
        print(f"  {{name}}: {{result.dtype}} {{tuple(result.shape)}} strides {{result.stride()}} {{numbers}}")
    print(f"    arguments then add up to {{[argument.double().sum().item() for argument in arguments]}}")
    for result in results if overwrites else ():  # as the caller may
        if result.is_floating_point():
            result.add_(1)


if __name__ == "__main__":
    import os

    import ipex

    autocast = torch.autocast("cpu", torch.bfloat16, enabled="autocast" in HOW, cache_enabled=False)
    with torch.no_grad(), autocast:
        stock = compiled(build(), tuple(made(CALLS[0][0])))
        os.environ.update({environment})
        optimized = ipex.jit_optimize(compiled(build(), tuple(made(CALLS[0][0]))), dtype={dtype}, disable={disable})
    eager = build()
    print(optimized.inlined_graph)
    for specs, mode, threads, method, overwrites in CALLS:
        print(f"{{method}}, {{mode}}, {{threads}} threads, {{specs}}")
        torch.set_num_threads(threads)
        modes = {{"no_grad": torch.no_grad, "inference": torch.inference_mode, "grad": torch.enable_grad}}
        autocast = torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast", cache_enabled=False)
        with modes.get(mode, torch.no_grad)(), autocast:
            for name, module in (("eager", eager), ("TorchScript", stock), ("ipex", optimized)):
                show(name, module, specs, method, overwrites)
'''


def program_text(failure: Failure, command: str) -> str:
    case, verdict, _ = failure
    calls = "".join(f"    ({', '.join(map(repr, call))}),\n" for call in case.calls)
    helpers = inspect.getsource(tensors).split('"""', 2)[2].strip()
    return PROGRAM.format(
        category=f"{verdict.category}: eager and the optimised module differ.",
        detail=verdict.detail.replace('"""', "'''").replace("\\", "/"),
        command=command,
        tensors=helpers.replace(
            "from torch import Tensor, nn",
            "import torch.nn as nn\nimport torch.nn.functional as F\nfrom torch import Tensor",
        ),
        source="\n\n" + case.source.split("from torch import Tensor\n", 1)[1].strip("\n") + "\n",
        how=case.how,
        dtype=f"torch.{case.dtype}" if case.dtype else None,
        disable=repr(case.options.disable),
        environment=told_by_variables(case.options),
        calls=f"[\n{calls}]",
    )


def write_program(failure: Failure, folder: Path, command: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "_", failure.verdict.category)
    path = folder / f"{name}_{failure.seed.replace('/', '_')}.py"
    path.write_text(program_text(failure, command))
    return path


KINDS = ("clean", "torchscript differs", "freeze differs", "both crashed", "rejected", "failed")


def summary(counts: Counter[str], seconds: float) -> str:
    total = counts["cases"]
    lines = [f"{total} cases in {seconds:.0f} s, {total / max(seconds, 1e-9):.1f} a second"]
    for kind in KINDS:
        lines.append(f"{counts[kind]:9} {kind}")
        lines += [
            f"{'':9} {count:7} {name.split(': ', 1)[1]}"
            for name, count in counts.most_common()
            if name.startswith(f"{kind}: ")
        ]
    lines.append(f"{counts['failed as before']:9} of the failed look like an earlier one")
    for prefix, title in (("op ", "cases with"), ("pass ", "cases changed by")):
        lines += [f"{n:9} {title} {name[len(prefix) :]}" for name, n in counts.most_common() if name.startswith(prefix)]
    return "\n".join(lines)
