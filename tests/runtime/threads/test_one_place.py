"""All parallel work of ours goes through runtime/threads."""

from __future__ import annotations

import re
from pathlib import Path

RUNTIME = Path(__file__).parents[3] / "runtime"
OTHER_WAYS = re.compile(r"at::parallel_(for|reduce)|#pragma omp|std::thread(?!::)\b")


def test_nothing_else_opens_a_parallel_region():
    sources = [path for pattern in ("*.cpp", "*.h", "*.inc") for path in RUNTIME.rglob(pattern)]
    others = {path.relative_to(RUNTIME).as_posix() for path in sources if OTHER_WAYS.search(path.read_text())}
    assert {path for path in others if not path.startswith("threads/")} == set()
