"""Kernels that multiply rows read and write at any distance of rows: no op shows all of that yet, so C++ does.

Under a sanitizer it shows too what they read and write beside.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ipex import _C

HERE = Path(__file__).parent
RUNTIME = HERE.parents[2] / "runtime"
COMPILER = shutil.which(os.environ.get("CXX", "c++"))
# As runtime/CMakeLists.txt has them.
OPTIONS_OF_A_LEVEL = {
    "default": [],
    "avx2_vnni": ["-mavx2", "-mfma", "-mavxvnni", "-DIPEX_WIDTH=8"],
    "avx512_vnni": ["-mavx512f", "-mavx512bw", "-mfma", "-mavx512vnni", "-DIPEX_WIDTH=16"],
    "amx": ["-mavx512f", "-mavx512bw", "-mfma", "-mamx-tile", "-mamx-bf16", "-DIPEX_WIDTH=16"],
}
OPTIONS_OF_A_FILE = {"byte_tiles": ["-mavx512bf16", "-mavx512vnni", "-mamx-int8"]}


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.skipif(not RUNTIME.is_dir(), reason="no source tree beside the tests")
@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("rows_product", "default"),
        ("low_bit_products", "default"),
        ("low_bit_products", "avx2_vnni"),
        ("low_bit_products", "avx512_vnni"),
        ("tile_product", "amx"),
        ("byte_tiles", "amx"),
    ],
)
def test_every_number_and_nothing_beside(tmp_path, name, level):
    if not _C.isa_has(level):
        pytest.skip(f"{level} is not used")
    program = tmp_path / name
    options = ["-std=c++20", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover", f"-I{RUNTIME}"]
    options += OPTIONS_OF_A_LEVEL[level] + OPTIONS_OF_A_FILE.get(name, [])
    subprocess.run([COMPILER, *options, str(HERE / f"{name}.cpp"), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    cases, wrong = map(int, re.match(r"(\d+) cases, (\d+) wrong elements", done.stdout).groups())
    assert (cases > 1000, wrong) == (True, 0)
