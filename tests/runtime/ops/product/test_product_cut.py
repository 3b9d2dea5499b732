"""How products are cut for 1 to 64 threads: computed from sizes, so this machine need not have them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNTIME = HERE.parents[3] / "runtime"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))

WIDTH = 16  # of a register
ORDINARY_THREADS = (1, 2, 4, 8, 16, 28, 32, 48, 64)
LEAST_OF_A_SHARE = 96 * 64  # elements of the result


@pytest.fixture(scope="module")
def cuts(tmp_path_factory):
    """All cuts as (kind, rows, columns, panel_columns, threads, efficiency)."""
    if COMPILER is None or not RUNTIME.is_dir():
        pytest.skip("no C++ compiler, or no source tree beside the tests")
    program = tmp_path_factory.mktemp("cut") / "product_cut"
    sources = [HERE / "product_cut.cpp", RUNTIME / "ops/product/product_cut.cpp"]
    subprocess.run([COMPILER, "-std=c++20", "-O1", f"-I{RUNTIME}", *sources, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"shares overlap or leave something out: {done.returncode}"
    rows = [line.split() for line in done.stdout.splitlines()]
    return [(kind, *map(int, sizes), float(efficiency)) for kind, *sizes, efficiency in rows]


def test_few_rows_give_all_threads_equal_shares(cuts):
    seen = 0
    for kind, _, columns, _, threads, efficiency in cuts:
        vectors = -(-columns // WIDTH)
        if kind != "few":
            continue
        seen += 1
        # A register of columns is the least share: what rounding to that costs, and at most 3% for longer streams.
        assert efficiency >= 0.97 * vectors / (threads * -(-vectors // threads)) - 1e-4
        if vectors >= 6 * threads:
            assert efficiency >= 0.83, (columns, threads)
    assert seen > 5000


def test_both_products_of_a_small_layer_keep_16_threads_busy(cuts):
    found = {(c, e) for kind, _, c, _, threads, e in cuts if kind == "few" and threads == 16 and c in (768, 2304, 3072)}
    assert found == {(768, 1.0), (2304, 1.0), (3072, 1.0)}


def test_many_rows_leave_no_thread_idle(cuts):
    seen = 0
    for kind, rows, columns, _, threads, efficiency in cuts:
        if kind == "many" and rows * columns >= LEAST_OF_A_SHARE * threads:
            seen += 1
            assert efficiency >= (0.85 if threads in ORDINARY_THREADS else 0.7), (rows, columns, threads)
    assert seen > 5000


def test_winograd_has_work_for_all_threads(cuts):
    found = {(side, columns): e for kind, side, columns, _, threads, e in cuts if kind == "winograd" and threads == 16}
    assert len(found) == 15
    assert min(found.values()) >= 0.85  # with tiles alone, 0.77 at 28x28
