"""Writes the pages of docs/reference that come from the code. tests/docs holds them against it."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import ipex
from ipex import _C
from ipex._cli import COMMANDS, help_of

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "reference"
WRITTEN = "<!-- docs/generate.py wrote this page: change the code, not the page. -->\n\n"


def support() -> str:
    """Return what is packed, fused and falls back, out of the op table and the list of post-ops."""
    table = _C.op_table()
    ours = sorted({row["name"] for row in table if row["name"].startswith("ipex::")})
    packed = [name.removesuffix("_run") for name in ours if name.endswith("_run")]
    kernels = [name for name in ours if not re.search(r"_(run|prepack)$|^ipex::(is|has|set)_", name)]
    left: dict[str, set[str]] = defaultdict(set)
    for row in table:
        if row["left"] and not row["name"].startswith("ipex::"):
            left[row["left"]].add(row["name"].removeprefix("aten::"))
    reasons = [(reason, ", ".join(sorted(names))) for reason, names in sorted(left.items())]
    return (
        "# Support matrix\n\n" + WRITTEN + "## Packed ops\n\n"
        "Convolutions, linears, products and recurrent layers become one of these, with a packed weight and post-ops:\n"
        f"{', '.join(f'`{name}`' for name in packed)}.\n\n"
        "## Post-ops\n\n"
        "A packed op computes these in its epilogue, where a kernel or a primitive gives aten's result; else aten\n"
        "computes them after it. Some are for `ipex::elementwise` alone.\n\n"
        + markdown(("post-op", "scalars", "other tensor", "computed by"), _post_ops())
        + "\n## Ops of ipex beside packed ones\n\n"
        + ", ".join(f"`{name}`" for name in kernels)
        + ".\n\n## Ops that may fall back to PyTorch, and the reason that `explain` gives\n\n"
        "Most of them are packed, or fused into a packed op before them. `explain` gives the reason where not.\n\n"
        + markdown(("reason", "ops"), reasons)
    )


def passes() -> str:
    """Return the phases and the contracts of their passes, with what the header of each says."""
    table = _C.pass_table()
    phases: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in table:
        phases[row["phase"]].append(row)
    parts = [
        "# Passes\n\n" + WRITTEN + "`ipex.jit_optimize` takes a graph through these phases. `disable=` leaves a pass "
        "out, `stop_after=` ends with a phase.\n\n## Invariants\n\nWhat passes rely on. A given one holds until a pass "
        "breaks it; the others hold once all passes that establish them have run.\nAt start-up the order of the passes "
        "is checked against that; `IPEX_VERIFY=1` checks the graph after every pass.\n\n"
        + markdown(("invariant", "holds", "meaning"), _invariants())
    ]
    for phase, rows in phases.items():
        lines = [
            (
                f"`{row['name']}`",
                _purpose(row["name"]),
                *(", ".join(row[key]) for key in ("needs", "establishes", "breaks")),
            )
            for row in rows
        ]
        parts.append(f"## {phase}\n\n" + markdown(("pass", "what it does", "needs", "establishes", "breaks"), lines))
    return "\n".join(parts)


def python() -> str:
    """Return the reference of the Python package, out of its docstrings."""
    own_pages = ", ".join(f"[`{name}`]({page})" for page, (_, name) in MODULE_PAGES.items())
    parts = [f"# Python\n\n{WRITTEN}What `import ipex` gives. Pages of their own: {own_pages}.\n"]
    for name in ipex.__all__:
        if not _has_own_page(f"ipex.{name}"):
            parts.append(_entry(f"ipex.{name}", getattr(ipex, name)))
    return "\n".join(parts)


def module(title: str, name: str) -> str:
    """Return the reference of one public module: its docstring, and every name in its `__all__`."""
    value = importlib.import_module(name)
    parts = [f"# {title}\n\n{WRITTEN}" + _as_markdown(inspect.getdoc(value) or "").rstrip() + "\n"]
    for each in public_names(value):
        if not _has_own_page(f"{name}.{each}"):
            parts.append(_entry(f"{name}.{each}", getattr(value, each)))
    return "\n".join(parts)


def _has_own_page(name: str) -> bool:
    return any(name == module for _, module in MODULE_PAGES.values())


def public_names(value: ModuleType) -> list[str]:
    """Return the names of a module that are for users."""
    return [name for name in getattr(value, "__all__", ()) if not name.startswith("_")]


# A public module with a page of its own: the page's title, and the module's name.
MODULE_PAGES = {
    "quantization.md": ("Quantization", "ipex.quantization"),
    "fp8.md": ("FP8", "ipex.quantization.fp8"),
    "optim.md": ("Optimizers", "ipex.optim"),
    "llm.md": ("Language models", "ipex.llm"),
    "llm_modules.md": ("Parts of language models: modules", "ipex.llm.modules"),
    "llm_functional.md": ("Parts of language models: functions", "ipex.llm.functional"),
    "isa.md": ("Instruction sets from Python", "ipex.isa"),
}


def cpp() -> str:
    """Return the public headers."""
    parts = ["# C++\n\n" + WRITTEN + "The headers that are installed. `find_package(ipex)` finds them.\n"]
    for folder in ("runtime", "passes"):
        for header in sorted((ROOT / folder / "include" / "ipex").glob("*.h")):
            parts.append(f"## `<ipex/{header.name}>`\n\n```cpp\n{header.read_text().rstrip()}\n```\n")
    return "\n".join(parts)


def command_line() -> str:
    """Return the help of each command."""
    parts = [
        "# Command line\n\n"
        + WRITTEN
        + "`ipex COMMAND` and `python -m ipex COMMAND` are the same. A model is a TorchScript\n"
        "file, or the name of a model with random weights. What is asked for goes to standard output, all else to\n"
        "standard error.\n"
    ]
    for name in COMMANDS:
        parts.append(f"## ipex {name}\n\n```text\n{help_of(name).rstrip()}\n```\n")
    return "\n".join(parts)


PAGES = {
    "support.md": support,
    "passes.md": passes,
    "python.md": python,
    "cpp.md": cpp,
    "command_line.md": command_line,
    **{page: partial(module, *named) for page, named in MODULE_PAGES.items()},
}


def markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _invariants() -> list[tuple[str, ...]]:
    return [
        (f"`{name}`", "given" if is_given else "when established", meaning)
        for name, meaning, is_given in _C.invariant_table()
    ]


def source_of(name: str) -> Path:
    """Return the file that a pass is written in."""
    made = re.compile(rf'\{{\s*"{name}",|FusionRule\("{name}"\)|^Pass {name}\(\) \{{', re.MULTILINE)
    (source,) = [path for path in sorted((ROOT / "passes").rglob("*.cpp")) if made.search(path.read_text())]
    return source


def _purpose(name: str) -> str:
    """Return the first sentence that the header of a pass says of it."""
    header = re.match(r"(//.*\n)*", source_of(name).read_text())
    assert header is not None
    paragraphs = re.sub(r"^// ?", "", header[0], flags=re.MULTILINE).split("\n\n")
    of_pass = re.compile(rf"\b{name}\b(?:, \w+)*: (.+?)(?:\.(?= |$)|$)")
    (purpose, *_) = [found[1] for text in paragraphs if (found := of_pass.search(text.replace("\n", " ")))]
    return purpose.rstrip(".:").replace("|", "\\|")


def _post_ops() -> list[tuple[str, ...]]:
    text = re.sub(r"^//.*", "", (ROOT / "runtime" / "packed" / "post_ops.inc").read_text(), flags=re.MULTILINE)
    rows = []
    for macro, row in re.findall(r"^IPEX_(\w+)\((.*?)\)(?=\n(?:IPEX|\n|#))", text, re.MULTILINE | re.DOTALL):
        cells = _cells(row)
        name, numbers = cells[0], cells[1 if macro in ("ACTIVATION", "FUNCTION") else 2]
        by = ["kernels of ipex"] if "no_kernel" not in cells else []
        if macro != "FUNCTION" and "no_primitive" not in cells:
            by.append("oneDNN, for some numbers" if any("if_(" in c and "onednn(" in c for c in cells) else "oneDNN")
        operands = {"BINARY_POST_OP": "yes", "TERNARY_POST_OP": "two"}.get(macro, "")
        rows.append((f"`{name}`", numbers, operands, "; ".join(by) or "aten"))
    return rows


def _cells(row: str) -> list[str]:
    """Return the arguments of a macro."""
    cells, depth, is_text = [""], 0, False
    for letter in row:
        is_text ^= letter == '"'
        depth += not is_text and (letter in "(") - (letter in ")")
        if letter == "," and depth == 0 and not is_text:
            cells.append("")
        else:
            cells[-1] += letter
    return [cell.strip() for cell in cells]


def _entry(name: str, value: object) -> str:
    if isinstance(value, str):
        return f"## {name}\n\nA string.\n"
    parts = [f"## {name}"]
    if callable(value) and (signature := _signature(name, value)):
        parts.append(signature)
    documented = inspect.getdoc(value) or ""
    if inspect.isclass(value) and documented == inspect.getdoc(value.__mro__[1]):
        documented = ""
    parts.append(_as_markdown(documented).rstrip())
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        parts.append("Values: " + ", ".join(f"`{member.name}`" for member in value) + ".")
    elif inspect.isclass(value):
        parts.append("".join(_member(n, m) for n, m in vars(value).items() if not n.startswith("_")).rstrip())
    return "\n\n".join(part for part in parts if part) + "\n"


def _member(name: str, value: object) -> str:
    """Return a line on a method or property of a class, or nothing."""
    method = getattr(value, "__func__", value)
    if not (callable(method) or isinstance(value, property)) or not inspect.getdoc(value):
        return ""
    if not getattr(getattr(value, "fget", method), "__module__", "").startswith("ipex"):
        return ""
    arguments = ""
    if inspect.isfunction(method):
        parameters = list(inspect.signature(method).parameters.values())
        arguments = _written(inspect.signature(method).replace(parameters=parameters[1:]))
    return f"- `{name}{arguments}`: {_first_line(value)}\n"


def _signature(name: str, value: Any) -> str:
    """Return how something is called, as a block; one argument to a line where one line would be long."""
    if inspect.isclass(value) and (issubclass(value, enum.Enum) or value.__init__ is object.__init__):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    if inspect.isclass(value):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    line = name + _written(signature)
    if len(line) > 100 and signature.parameters:
        arguments, rest, has_star = [], f") -> {_annotation(signature.return_annotation)}", False
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                has_star = True
            if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
                arguments.append("*")
                has_star = True
            arguments.append(_written(inspect.Signature([parameter])).removeprefix("(").removesuffix(")"))
            arguments[-1] = arguments[-1].removeprefix("*, ")
        if signature.return_annotation is inspect.Signature.empty:
            rest = ")"
        line = f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + rest
    return f"```text\n{line}\n```"


def _annotation(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _written(signature: inspect.Signature) -> str:
    """Return a signature as it stands in the source: annotations without quotation marks, no addresses."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature))
    text = re.sub(r"<function (\w+) at 0x\w+>", r"\1", text)
    return re.sub(r"<(\w+)\.(\w+): [^>]*>", r"\1.\2", text)


def _first_line(value: object) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")


def _as_markdown(text: str) -> str:
    """Put examples, and formulas, into blocks of their own."""
    text = re.sub(r"(?<=\n\n)((?: {4}.*\n?)+)", lambda m: f"```text\n{inspect.cleandoc(m[1])}\n```\n", text)
    return re.sub(
        r"((?:^>>> .*\n?(?:^(?!>>>|\s*$).*\n?)*)+)", lambda m: f"```pycon\n{m[1].rstrip()}\n```\n", text, flags=re.M
    )


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make())
        print(f"docs/reference/{name}", file=sys.stderr)


if __name__ == "__main__":
    main()
