"""Makes a failing program smaller, statement by statement, for as long as it fails in the same way.

Hypothesis shrinks the numbers that were drawn, and takes long to find out which statements don't matter. Here a
statement goes at once: what read its result reads one of its operands instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from fuzz.strategies import Case, Options
from fuzz.tensors import TensorSpec

METHOD = re.compile(r"\n    @torch\.jit\.export\n    def (\w+)\(.*\n(?: {8}.*\n)*")
ASSIGNMENT = re.compile(r"( +)(\w+(?:, \w+)*) = (.*)")
MEMBER = re.compile(r" {8}(?:self\.(\w+) = |self\.register_buffer\('(\w+)')")


def minimise(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The smallest case found. `fails` may raise to end the search: what it accepted last is then the answer."""
    changed = True
    while changed:
        changed = False
        for candidates in (_fewer_calls, _fewer_methods, _plainer_calls, _fewer_statements, _fewer_results):
            smaller = True
            while smaller:
                smaller = False
                for candidate in candidates(case):
                    candidate = candidate._replace(source=without_unused(candidate.source))
                    if candidate != case and fails(candidate):
                        case, smaller, changed = candidate, True, True
                        break
    return case


def _fewer_calls(case: Case) -> Iterator[Case]:
    for index in reversed(range(len(case.calls))):
        if len(case.calls) > 1:
            yield case._replace(calls=case.calls[:index] + case.calls[index + 1 :])


def _fewer_methods(case: Case) -> Iterator[Case]:
    """Without a method that is exported, and its calls."""
    for found in METHOD.finditer(case.source):
        calls = tuple(call for call in case.calls if call.method != found[1])
        if calls:
            yield case._replace(source=case.source.replace(found[0], ""), calls=calls)


def _plainer_calls(case: Case) -> Iterator[Case]:
    if case.saved:
        yield case._replace(saved=False)
    if case.options != Options():
        yield case._replace(options=Options())
        yield case._replace(options=case.options._replace(disable=()))
    for name in case.options.disable:
        yield case._replace(options=Options(tuple(d for d in case.options.disable if d != name)))
    if any(call.overwrites for call in case.calls):
        yield case._replace(calls=tuple(call._replace(overwrites=False) for call in case.calls))
    if case.dtype:
        yield case._replace(dtype="")
    if case.how not in ("trace", "script"):
        yield case._replace(how=case.how.split()[-1])
    plain_build = re.sub(r"settle\(Model\(\).*, (\d+)\)", r"settle(Model(), 'normal', \1)", case.source)
    if plain_build != case.source:
        yield case._replace(source=plain_build)
    for index, call in enumerate(case.calls):
        simpler = []
        if call.mode != "no_grad" and (call.mode != "autocast" or "autocast" not in case.how):
            simpler.append(call._replace(mode="no_grad"))
        if call.threads != 1:
            simpler.append(call._replace(threads=1))
        if call.overwrites:
            simpler.append(call._replace(overwrites=False))
        for position, spec in enumerate(call.arguments):
            if isinstance(spec, TensorSpec):
                for field, plain in (("layout", "contiguous"), ("content", "normal")):
                    if getattr(spec, field) != plain:
                        changed = spec._replace(**{field: plain})
                        arguments = (*call.arguments[:position], changed, *call.arguments[position + 1 :])
                        simpler.append(call._replace(arguments=arguments))
        for other in simpler:
            yield case._replace(calls=(*case.calls[:index], other, *case.calls[index + 1 :]))


def _fewer_statements(case: Case) -> Iterator[Case]:
    """Without one statement, or without the `if` around some; the last ones first."""
    lines = case.source.split("\n")
    for index in reversed(range(len(lines))):
        line = lines[index]
        if not line.startswith("        ") or "super().__init__" in line or line.strip().startswith("return"):
            continue
        before, after = lines[:index], lines[index + 1 :]
        if line.endswith(":"):
            end = _end_of_block(lines, index)
            yield _with(case, [*before, *lines[end:]])
            yield _with(case, [*before, *(inner[4:] for inner in lines[index + 1 : end]), *lines[end:]])
            continue
        assigned = ASSIGNMENT.fullmatch(line)
        if assigned is None:
            yield _with(case, [*before, *after])
        elif not assigned[2].startswith("self"):
            # Later lines read an operand, or the input, in place of the result.
            names = dict.fromkeys(re.findall(r"\b(?:[a-z]\d+|x|y)\b", assigned[3]))
            for name in [*names, "x"] if "x" not in names else names:
                later = "\n".join(after)
                for result in assigned[2].split(", "):
                    later = re.sub(rf"\b{result}\b", name, later)
                yield _with(case, [*before, *later.split("\n")])


def _end_of_block(lines: list[str], start: int) -> int:
    indent = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while lines[end].startswith(" " * (indent + 1)):
        end += 1
    return end


def _fewer_results(case: Case) -> Iterator[Case]:
    for found in re.finditer(r"\n        return ([\[{]?)(.+?)([\]}]?)\n", case.source):
        names = found[2].split(", ")
        for index in range(len(names)):
            if len(names) > 1:
                left = f"\n        return {found[1]}{', '.join(names[:index] + names[index + 1 :])}{found[3]}\n"
                yield case._replace(source=case.source[: found.start()] + left + case.source[found.end() :])
        if found[1] == "[":
            left = f"\n        return {found[2]}\n"
            yield case._replace(source=case.source[: found.start()] + left + case.source[found.end() :])


def _with(case: Case, lines: list[str]) -> Case:
    return case._replace(source="\n".join(lines))


def without_unused(source: str) -> str:
    """The source without weights, submodules, classes and functions that nothing reads."""
    while True:
        kept, in_init = [], False
        for line in source.split("\n"):
            if line.startswith("    def "):
                in_init = line.startswith("    def __init__")
            if not (in_init and _is_unused_member(line, source)):
                kept.append(line)
        smaller = "\n".join(kept)
        for found in re.finditer(r"^(?:class|def) (\w+\d+)\(.*?\n\n\n", smaller, re.M | re.S):
            if len(re.findall(rf"\b{found[1]}\b", smaller)) == 1:
                smaller = smaller.replace(found[0], "")
                break
        if smaller == source:
            return source
        source = smaller


def _is_unused_member(line: str, source: str) -> bool:
    found = MEMBER.match(line)
    if found is None:
        return False
    name = found[1] or found[2]
    return len(re.findall(rf"\bself\.{name}\b", source)) == (1 if found[1] else 0)
