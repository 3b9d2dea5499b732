"""How the files of the package depend on one another, and on what torch does not document."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import torch

from ipex import _torch_internals as internals

PACKAGE = Path(__file__).parents[2] / "python" / "ipex"
SOURCES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
INTERNALS = "ipex._torch_internals"


def imported(name: str, path: Path, text: str) -> set[str]:
    """Return the modules of the package that a file imports: inside of functions and for type checkers too."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            found |= {f"{base}.{alias.name}" if f"{base}.{alias.name}" in SOURCES else base for alias in node.names}
    return found & set(SOURCES) - {name, "ipex"}  # the package itself: `from . import _C` is no file


def circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_imports_go_in_a_circle():
    assert circle({name: imported(name, path, path.read_text()) for name, path in SOURCES.items()}) == []


def test_a_circle_is_found():
    graph = {name: imported(name, path, path.read_text()) for name, path in SOURCES.items()}
    path = SOURCES["ipex._profile.roofline"]
    lazy = "def f():\n    from .profile import Profile\n"
    graph["ipex._profile.roofline"] = imported("ipex._profile.roofline", path, lazy)
    assert set(circle(graph)) == {"ipex._profile.roofline", "ipex._profile.profile"}


def private_names(text: str) -> list[str]:
    """Return what of torch's a file names that begins with an underscore."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("torch.")]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch" and not node.level:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and (dotted := ast.unparse(node)).startswith("torch."):
            found.append(dotted)
    return [name for name in found if any(p.startswith("_") and not p.startswith("__") for p in name.split("."))]


@pytest.mark.parametrize("name", sorted(set(SOURCES) - {INTERNALS}))
def test_what_torch_does_not_document_is_used_in_one_file(name):
    assert private_names(SOURCES[name].read_text()) == [], "take it from _torch_internals.py"


@pytest.mark.parametrize(
    "text",
    ["import torch\ntorch._C.f()", "from torch._dynamo import x", "from torch.utils import _pytree", "import torch._x"],
)
def test_such_a_use_is_found(text):
    assert private_names(text)


def test_documented_names_are_not():
    assert private_names("import torch\nprint(torch.__version__, torch.nn.Linear, self._c)") == []


def test_what_the_internals_say():
    seen = []

    def function(x):
        seen.append((internals.is_tracing(), internals.held_by_trace() is not None))
        with internals.tracing_paused():
            seen.append((internals.is_tracing(), None))
        return x + 1

    function(torch.ones(1))
    torch.jit.trace(torch.nn.Identity(), torch.ones(1))
    torch.jit.trace(function, torch.ones(1), check_trace=False)
    assert [tracing for tracing, _ in seen] == [False, False, True, False]
    x = torch.ones(2, 1)
    assert internals.overlaps_itself(x.expand(2, 3))
    assert not internals.overlaps_itself(x)
    image = torch.ones(1, 2, 3, 3)
    assert internals.memory_format_of(image) == torch.contiguous_format
    assert internals.memory_format_of(image.to(memory_format=torch.channels_last)) == torch.channels_last
    alone = internals.uses_of_storage(x.untyped_storage())
    view = x[0]
    assert internals.uses_of_storage(x.untyped_storage()) == alone + 1, view
    assert not internals.is_in_functorch()
    assert torch.func.vmap(lambda t: t + internals.is_in_functorch())(torch.zeros(2)).tolist() == [1, 1]
