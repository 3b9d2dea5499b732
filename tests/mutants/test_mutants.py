"""The tool that removes conditions: what it finds in C++, how it writes it, and that it tells what tests notice."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mutants.run import Build, Passing, Results, drawn, in_order, reasons, table, try_mutant, within
from mutants.sources import Finder, Mutant, only_code, rewritten, write_copy


def removed(text: str) -> list[tuple[str, str]]:
    """What is found in this text, each with what it is when it is removed."""
    return [(text[c.start : c.end], c.neutral) for c in Finder(text).conditions()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if (!a) return;", [("!a", "false")]),
        ("if (a) b();", [("a", "true")]),
        ("if (a) { b(); return; }", [("a", "false")]),
        ("if (a) { return b(); } else if (c) d();", [("a", "false"), ("c", "true")]),
        ("if (a || b) continue;", [("a", "false"), ("b", "false")]),
        ("if (a && b) break;", [("a && b", "false"), ("a", "true"), ("b", "true")]),
        ("if (a && b) c();", [("a", "true"), ("b", "true")]),
        ("if (!(a && b)) return;", [("a", "true"), ("b", "true")]),
        ("return a && (b || c);", [("a", "true"), ("(b || c)", "true"), ("b", "false"), ("c", "false")]),
        ("return a || b && c;", [("a", "false"), ("b && c", "false"), ("b", "true"), ("c", "true")]),
        ("return a && b ? c : d || e;", [("a", "true"), ("b", "true"), ("d", "false"), ("e", "false")]),
        ("const bool x = a && b;", [("a", "true"), ("b", "true")]),
        ("x |= a || b;", [("a", "false"), ("b", "false")]),
        ("if (auto x = a(); x > 0) return;", [("x > 0", "false")]),
        ("TORCH_CHECK(a, b);", [("a", "true")]),
        ("TORCH_CHECK(a && f(b, c), d);", [("a", "true"), ("f(b, c)", "true")]),
        ("TORCH_CHECK(a || b, c);", [("a || b", "true"), ("a", "false"), ("b", "false")]),
        ("TORCH_CHECK_WITH(Error, a, b);", [("a", "true")]),
        ("any([](int x) { return x < 0 && y; });", [("x < 0", "true"), ("y", "true")]),
        ('r.only_if("x", f);', [("f", "true")]),
        ('return a == "b && c" && d;', [('a == "b && c"', "true"), ("d", "true")]),
    ],
)
def test_finds(text, expected):
    assert removed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "if (const auto x = a()) return;",
        "if constexpr (a) return;",
        "constexpr bool f(int x) { if (x) return a && b; return false; }",
        "constexpr bool x = a && b;",
        "static_assert(a && b);",
        "#define F(x) \\\n  if (x) return;\n",
        "// if (a) return;\n/* return a && b; */",
        'const char* x = R"(if (a) return;)";',
        "auto&& x = a;",
        "return std::forward<T&&>(x);",
        "while (a && b) c();",
        "for (int i = 0; i < n && a; ++i) b();",
        "TORCH_CHECK(false, a);",
        "return a(b && c);",
    ],
)
def test_leaves_alone(text):
    assert removed(text) == []


def test_code_stays_where_it_is():
    text = "g'b'\"c\\\"\" 1'000'000 /* x\n */ d // e\n#if f\\\n g\nh"
    code = only_code(text)
    assert len(code) == len(text)
    assert code == "g________ 1'000'000     \n    d     \n######\n##\nh"


def test_rewritten_conditions_nest():
    text = "return a && (b || c);"
    assert rewritten(text, Finder(text).conditions(), 7) == (
        "return (::mutant(7) ? true : static_cast<bool>(a)) && (::mutant(8) ? true : static_cast<bool>("
        "((::mutant(9) ? false : static_cast<bool>(b)) || (::mutant(10) ? false : static_cast<bool>(c)))));"
    )
    text = 'r.only_if("x", f);'
    assert rewritten(text, Finder(text).conditions(), 7) == 'r.only_if("x", ::mutant_condition<7>(f));'


def test_more_mutants_begin_with_the_same():
    mutants = [Mutant(i, f"{i % 5}.cpp", i, "if", "true", "x") for i in range(50)]
    assert {mutant.path for mutant in drawn(mutants, 5, seed=1)} == {f"{i}.cpp" for i in range(5)}
    assert drawn(mutants, 30, seed=1)[:5] == drawn(mutants, 5, seed=1)
    assert drawn(mutants, 30, seed=2) != drawn(mutants, 30, seed=1)
    assert sorted(drawn(mutants, 99, seed=1)) == mutants


def test_tests_that_know_most_come_first():
    mutant = Mutant(1, "passes/lower/pad_bytes.cpp", 1, "if", "true", "x")
    names = ["tests/a/test_a.py::slow", "tests/a/test_a.py::quick", "tests/passes/lower/test_b.py::b"]
    names += ["tests/c/test_pad_bytes.py::c", "tests/a/test_a.py::elsewhere"]
    tests = [Passing(name, seconds, reached) for name, seconds, reached in zip(names, (9, 1, 5, 7, 1), (2, 2, 2, 2, 5))]
    ordered = in_order(mutant, tests)
    assert [test.name.partition("::")[2] for test in ordered] == ["c", "b", "quick", "slow"]
    assert [test.seconds for test in within(8, ordered)] == [7, 1]
    assert [test.seconds for test in within(0, ordered)] == [7]


SOURCE = """
bool is_even_and_small(int x) { return x % 2 == 0 && x < 100; }
bool is_odd(int x) {
  if (x < -1000) return false;
  while (x > 1) {
    if (x > 1) x -= 2;
  }
  return x == 1;
}
int* last(int* x, int n) {
  if (n == 0) return nullptr;
  if (n < 0) return nullptr;
  return x + *x;
}
extern "C" int even(int x) { return is_even_and_small(x); }
extern "C" int odd(int x) { return is_odd(x); }
extern "C" int first(int n) { return last(nullptr, n) == nullptr; }
extern "C" int never(int x) { if (x) return 1; return 2; }
"""
TESTS = """
import ctypes, sys
library = ctypes.CDLL([p for p in sys.path if p.endswith("site")][0] + "/conditions.so")
def test_even():
    assert library.even(2) and not library.even(3)
def test_odd():
    assert library.odd(3) and not library.odd(2)
def test_first():
    assert library.first(0)
def test_that_fails():
    assert library.never(1) == 0
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    root = tmp_path_factory.mktemp("root")
    for path, text in (("passes/conditions.cpp", SOURCE), ("tests/test_conditions.py", TESTS)):
        (root / path).parent.mkdir()
        (root / path).write_text(text)
    build = Build(root / "kept", root=root)
    build.site.mkdir()
    command = ["g++", "-shared", "-fPIC", "-o", build.site / "conditions.so", build.source / "passes/conditions.cpp"]
    subprocess.run(command, check=True)
    build.record("tests/test_conditions.py")
    return build


def test_what_a_test_looks_at_is_killed(build, tmp_path, monkeypatch):
    monkeypatch.setattr("mutants.run.SECONDS_TO_START", 10)
    tests = build.tests_of(["tests/test_conditions.py"])
    assert [test.name.partition("::")[2] for test in tests] == ["test_even", "test_odd", "test_first"]
    results = Results(tmp_path / "results.jsonl", build.mutants)
    for mutant in build.mutants:
        try_mutant(build, results, mutant, tests, budget=60)
    outcomes = {mutant.text: results.rows[mutant.number] for mutant in build.mutants}
    assert {text: row["outcome"] for text, row in outcomes.items()} == {
        "x % 2 == 0": "killed",
        "x < 100": "survived",
        "x < -1000": "survived",
        "x > 1": "survived",
        "n == 0": "killed",
        "n < 0": "not reached",
        "x": "not reached",
    }
    assert outcomes["x % 2 == 0"]["by"].endswith("::test_even")
    assert (outcomes["n == 0"]["how"], outcomes["n == 0"]["by"]) == ("SIGSEGV", "tests/test_conditions.py::test_first")
    # Read again, nothing is left to do; and the table has all of it.
    again = Results(tmp_path / "results.jsonl", build.mutants)
    size = (tmp_path / "results.jsonl").stat().st_size
    for mutant in build.mutants:
        try_mutant(build, again, mutant, tests, budget=60)
    assert (tmp_path / "results.jsonl").stat().st_size == size
    text = table(build.mutants, again, {})
    assert text.startswith("7 mutants: 3 survived, 2 killed, 2 not reached.")
    assert "| passes/conditions.cpp:2 | `x < 100` is true (result) | survived | 1 tests of 1 that reach it |" in text
    # A reason stands in the last column, after those that have none.
    text = table(build.mutants, again, {("passes/conditions.cpp", "x < 100"): "nobody asks"})
    assert "| `x < 100` is true (result) | survived, with a reason | nobody asks |" in text
    assert text.index("`x > 1`") < text.index("`n < 0`") < text.index("`x < 100`") < text.index("`n == 0`")


def test_a_hang_is_seen(build, monkeypatch):
    monkeypatch.setattr(build, "deadline", float("inf"))
    assert build.pytest(["tests/test_conditions.py"], [], seconds=0.01).how == "hang"
    monkeypatch.setattr(build, "deadline", 0.0)
    assert build.pytest(["tests/test_conditions.py"], [], seconds=60).how == "cut off"


def test_what_stays_the_same_is_not_written_again(build, tmp_path):
    path = build.source / "passes" / "conditions.cpp"
    before = path.stat().st_mtime_ns
    assert write_copy(build.folder.parent, build.source) == build.mutants
    assert path.stat().st_mtime_ns == before


def test_only_conditions_of_a_folder_are_written_and_numbers_stay(tmp_path):
    root, everywhere, some = tmp_path / "root", tmp_path / "everywhere" / "source", tmp_path / "some" / "source"
    for path in ("passes/a/a.cpp", "passes/b/b.cpp", "runtime/c.cpp"):
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text("bool f(int x) { return x > 1 && x < 3; }\n")
    assert write_copy(root, some, of="passes/b") == write_copy(root, everywhere)
    for path in ("passes/a/a.cpp", "runtime/c.cpp"):
        assert (some / path).read_bytes() == (root / path).read_bytes()
    written = (some / "passes/b/b.cpp").read_text()
    assert "::mutant(2)" in written
    assert written.replace(str(some), str(everywhere)) == (everywhere / "passes/b/b.cpp").read_text()


def test_each_reason_is_of_a_condition_that_is_there(tmp_path):
    root = Path(__file__).parents[2]
    known = {(mutant.path, mutant.text) for mutant in write_copy(root, tmp_path / "source")}
    assert sorted(reasons()) == list(reasons())
    assert set(reasons()) <= known


def test_our_own_tree_has_mutants_everywhere(tmp_path):
    mutants = write_copy(Path(__file__).parents[2], tmp_path / "source")
    assert len(mutants) > 3000
    assert {mutant.kind for mutant in mutants} == {"if", "result", "value", "check", "pattern"}
    assert {mutant.path.partition("/")[0] for mutant in mutants} == {"passes", "runtime"}
    assert not any(mutant.path.endswith("/avx2.cpp") for mutant in mutants)
