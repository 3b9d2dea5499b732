"""Finds conditions in C++ and writes a copy of the tree in which each can be removed while a process starts.

    if (a && b) return x;   ->   if ((::mutant(1) ? true : static_cast<bool>(a)) && (::mutant(2) ? ..

Removed means that the condition no longer decides: `true` for an operand of && and for what TORCH_CHECK asks, `false`
for an operand of ||. An `if` whose body leaves (return, continue, break, throw) never does; any other always enters.

Wrapped are operands of && and || in conditions of `if`, in results of functions, in assignments and in TORCH_CHECK; a
whole condition where it has no operands, or where it is a refusal; and the conditions of patterns in passes, which are
data. Left alone are declarations (`if (auto x = ..)`), constexpr, macros, conditions of loops, kernels, headers.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LEFT_OUT = {"build", "dist", "shared", "__pycache__"}
FOLDERS = ("passes", "runtime")
# A process has one mutant, or none, by MUTANT_CHOSEN. It marks those that it reaches in a file shared with others.
# The names don't begin with IPEX_: tests drop such variables.
HEADER = """#pragma once
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct MutantsOfProcess {
  int chosen = -1;
  volatile unsigned char* reached = nullptr;
  MutantsOfProcess() {
    if (const char* number = getenv("MUTANT_CHOSEN")) chosen = atoi(number);
    const char* path = getenv("MUTANTS_REACHED");
    const int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void* memory = mmap(nullptr, COUNT, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) reached = static_cast<volatile unsigned char*>(memory);
    close(file);
  }
};

inline bool mutant(int number) {
  static const MutantsOfProcess mutants;
  if (mutants.reached) mutants.reached[number] = 1;
  return number == mutants.chosen;
}
"""
# Of a function, or of an object that may hold something.
OF_PATTERNS = """#pragma once
#include <functional>
#include <type_traits>
#include "mutant.h"

namespace torch::jit {
struct Value;
}

template <int number, typename Condition>
auto mutant_condition(Condition condition) {
  using Function = bool (*)(const torch::jit::Value*);
  if constexpr (std::is_convertible_v<Condition, Function>) {
    static const Function held = condition;
    const Function with_mutant = [](const torch::jit::Value* value) { return mutant(number) || held(value); };
    const Function function = condition;
    return held == function ? with_mutant : function;
  } else {
    return std::function<bool(const torch::jit::Value*)>(
        [condition](const torch::jit::Value* value) { return mutant(number) || condition(value); });
  }
}
"""


class Condition(NamedTuple):
    """A part of a file that can be replaced by `neutral`. `kind` says what it is part of."""

    start: int
    end: int
    neutral: str
    kind: str


class Mutant(NamedTuple):
    """A condition, as people look for it."""

    number: int
    path: str
    line: int
    kind: str
    neutral: str
    text: str


OPENING, CLOSING = "([{", ")]}"
NOT_CODE = re.compile(
    r"""(?P<directive>^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*) | //[^\n]* | /\*.*?\*/
    | R"(?P<mark>[^()\s]*)\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def only_code(text: str) -> str:
    """The text, as long as before, with comments as spaces, literals as "_" and directives as "#"."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        with_what = "#" if match["directive"] is not None else " " if found.startswith(("//", "/*")) else "_"
        return re.sub(r"[^\n]", with_what, found)

    return NOT_CODE.sub(blank, text)


class Finder:
    """Conditions of one file."""

    def __init__(self, text: str) -> None:
        self.code = only_code(text)
        self.found: dict[tuple[int, int], Condition] = {}

    def conditions(self) -> list[Condition]:
        """All of them; one may lie within another."""
        skipped_to = 0
        words = r"\b(?:if|return|constexpr|consteval|concept|static_assert|TORCH_CHECK\w*)\b"
        for match in re.finditer(rf"{words}|\.(?:only_if|declines_unless)(?=\()|(?<= )[|&]?=(?=\s)", self.code):
            word, place = match[0], match.end()
            if match.start() < skipped_to:
                continue
            if word in ("constexpr", "consteval", "concept", "static_assert"):
                if not re.search(r"\bif\s*$", self.code[: match.start()]):
                    skipped_to = self._end_of_declaration(place)
            elif word == "if":
                self._if(place)
            elif word.startswith("TORCH_CHECK"):
                self._check(word, place)
            elif word.startswith("."):
                self._pattern(place)
            else:
                kind = "result" if word == "return" else "value"
                end = self._next(place, ";,")
                if self.code[end : end + 1] == ";":
                    self._operands(place, end, kind)
        return sorted(self.found.values(), key=lambda condition: (condition.start, -condition.end))

    def _add(self, start: int, end: int, neutral: str, kind: str) -> None:
        start, end = self._stripped(start, end)
        if self.code[start:end] not in ("", "true", "false") and "#" not in self.code[start:end]:
            self.found.setdefault((start, end), Condition(start, end, neutral, kind))

    def _stripped(self, start: int, end: int) -> tuple[int, int]:
        part = self.code[start:end]
        return end - len(part.lstrip()), start + len(part.rstrip())

    def _top_level(self, start: int, end: int) -> Iterator[int]:
        """Places that no bracket of this part encloses."""
        depth = 0
        for i in range(start, end):
            depth -= self.code[i] in CLOSING
            if depth < 0:
                return
            if depth == 0:
                yield i
            depth += self.code[i] in OPENING

    def _next(self, start: int, wanted: str) -> int:
        """The first of these characters on this level, or where the level ends."""
        last = start
        for last in self._top_level(start, len(self.code)):
            if self.code[last] in wanted:
                return last
        return last + 1

    def _closing(self, opening: int) -> int:
        return self._next(opening + 1, "") if self.code[opening + 1] not in CLOSING else opening + 1

    def _end_of_declaration(self, start: int) -> int:
        place = self._next(start, ";{=")
        if self.code[place : place + 1] == "{":
            return self._closing(place)
        return self._next(place, ";")

    def _opening(self, place: int) -> int | None:
        match = re.compile(r"\s*\(").match(self.code, place)
        return match.end() - 1 if match else None

    def _if(self, place: int) -> None:
        opening = self._opening(place)  # none: `if constexpr`
        if opening is None:
            return
        start, end = opening + 1, self._closing(opening)
        begin = self._next(start, ";")
        if begin < end:  # after a declaration
            start = begin + 1
        if any(self._is_assignment(i) for i in self._top_level(start, end)):
            return
        operators = self._operands(start, end, "if")
        leaves = self._leaves(end + 1)
        if not operators or (leaves and operators == "&&"):
            self._add(start, end, "false" if leaves else "true", "if")

    def _is_assignment(self, i: int) -> bool:
        return self.code[i] == "=" and self.code[i - 1] not in "=!<>" and self.code[i + 1] != "="

    def _leaves(self, place: int) -> bool:
        """Whether the statement there ends in one that leaves."""
        start, _ = self._stripped(place, len(self.code))
        if self.code[start] == "{":
            end, start = self._closing(start), start + 1
            first = start
            for i in self._top_level(first, end):
                is_end = self.code[i] == ";" or (self.code[i] == "}" and i > first)
                if is_end and self.code[i + 1 : end].strip():
                    start = i + 1
        return re.match(r"\s*(return|continue|break|throw|goto)\b", self.code[start:]) is not None

    def _check(self, word: str, place: int) -> None:
        opening = self._opening(place)
        if opening is None:
            return
        start, end = opening + 1, self._next(opening + 1, ",")
        if word == "TORCH_CHECK_WITH":
            start, end = end + 1, self._next(end + 1, ",")
        if self._operands(start, end, "check") != "&&":
            self._add(start, end, "true", "check")

    def _pattern(self, opening: int) -> None:
        comma = self._next(opening + 1, ",")
        end = self._next(comma + 1, ",")
        self._add(comma + 1, end, "true", "pattern")

    def _operands(self, start: int, end: int, kind: str) -> str:
        """Add those of && and ||; return the operator of the outermost level, or ""."""
        start, end = self._stripped(start, end)
        if start >= end:
            return ""
        inner = start + (self.code[start] == "!")
        if self.code[inner] == "(" and self._closing(inner) == end - 1:
            operators = self._operands(inner + 1, end - 1, kind)
            # Of !(a && b) the whole is one of the other kind.
            return operators if inner == start else {"&&": "||", "||": "&&"}.get(operators, "")
        places = list(self._top_level(start, end))
        question = next((i for i in places if self.code[i] == "?"), None)
        if question is not None:
            self._operands(start, question, kind)
            colon = self._colon(question, end)
            self._operands(question + 1, colon, kind)
            self._operands(colon + 1, end, kind)
            return ""
        for operator, neutral in (("||", "false"), ("&&", "true")):
            cuts = [i for i in places if self.code[i : i + 2] == operator and self._is_operator(i)]
            if cuts:
                for first, last in zip([start, *(i + 2 for i in cuts)], [*cuts, end]):
                    self._add(first, last, neutral, kind)
                    self._operands(first, last, kind)
                return operator
        return ""

    def _is_operator(self, i: int) -> bool:
        """Not a reference, as in auto&& or <T&&>."""
        return re.match(r"\s*[>,)]", self.code[i + 2 :]) is None and re.search(r"\bauto$", self.code[:i]) is None

    def _colon(self, question: int, end: int) -> int:
        depth = 1
        for i in self._top_level(question + 1, end):
            if self.code[i] == "?":
                depth += 1
            elif self.code[i] == ":" and ":" not in (self.code[i - 1], self.code[i + 1]):
                depth -= 1
                if depth == 0:
                    return i
        return end


def rewritten(text: str, conditions: list[Condition], first: int) -> str:
    """The text with each condition wrapped; they are numbered from `first` on."""
    pieces: list[tuple[int, int, int, str]] = []
    for i, condition in enumerate(conditions):
        before, after = f"(::mutant({first + i}) ? {condition.neutral} : static_cast<bool>(", "))"
        if condition.kind == "pattern":
            before, after = f"::mutant_condition<{first + i}>(", ")"
        pieces.append((condition.start, 1, -condition.end, before))
        pieces.append((condition.end, 0, -condition.start, after))
    result, place = "", 0
    for at, _, _, piece in sorted(pieces):
        result += text[place:at] + piece
        place = at
    return result + text[place:]


def write_copy(root: Path, copy: Path, of: str = "") -> list[Mutant]:
    """Write the tree with the mutants of this folder or file in it; those elsewhere are numbered alone.

    Files that stay the same are not touched, and not compiled again.
    """
    mutants: list[Mutant] = []
    contents: dict[Path, bytes] = {}
    for path in sorted(path for path in _files(root) if copy.parent not in path.parents):
        content = path.read_bytes()
        if path.suffix == ".cpp" and path.relative_to(root).parts[0] in FOLDERS:
            with_mutants = _with_mutants(content.decode(), str(path.relative_to(root)), copy, mutants)
            if str(path.relative_to(root)).startswith(of):
                content = with_mutants.encode()
        contents[path.relative_to(root)] = content
    contents[Path("mutant.h")] = HEADER.replace("COUNT", str(len(mutants))).encode()
    contents[Path("mutant_condition.h")] = OF_PATTERNS.encode()
    for path, content in contents.items():
        target = copy / path
        if not target.exists() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            if (root / path).exists():
                shutil.copymode(root / path, target)
    for path in list(_files(copy)):
        if path.relative_to(copy) not in contents:
            path.unlink()
    return mutants


def _files(root: Path) -> Iterator[Path]:
    for path in root.iterdir():
        if path.name in LEFT_OUT or path.name.startswith(".") or path.is_symlink():
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _with_mutants(text: str, path: str, copy: Path, mutants: list[Mutant]) -> str:
    if "#define IPEX_ISA" in text:  # compiled for one set of instructions: it may share no inline function with others
        return text
    conditions = Finder(text).conditions()
    if not conditions:
        return text
    first = len(mutants)
    for i, (start, end, neutral, kind) in enumerate(conditions):
        line, written = text.count("\n", 0, start) + 1, " ".join(text[start:end].split())
        mutants.append(Mutant(first + i, path, line, kind, neutral, written))
    has_pattern = any(condition.kind == "pattern" for condition in conditions)
    header = copy / ("mutant_condition.h" if has_pattern else "mutant.h")
    return f'#include "{header}"\n#line 1\n{rewritten(text, conditions, first)}'
