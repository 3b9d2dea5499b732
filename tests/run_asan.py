"""Runs tests on libraries that are built with AddressSanitizer, in build/asan: `make asan`.

    python tests/run_asan.py [PYTEST ARGUMENTS]     by default those of DEFAULT

Our code is instrumented, overflows of signed integers and bounds of arrays included. torch and oneDNN are not, and
leaks of Python's and torch's are not looked for. A report ends the run. First a planted fault has to be reported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "asan"
FLAGS = "-fsanitize=address,signed-integer-overflow,bounds -fno-sanitize-recover=signed-integer-overflow,bounds"
# Left out is a test of memory: the sanitizer keeps what was freed.
OF_MEMORY = "tests/runtime/packed/test_packed_weight.py::test_packing_takes_memory_once"
DEFAULT = ("tests/passes", "tests/runtime/ops", "tests/runtime/packed", "--deselect", OF_MEMORY)
PLANTED = """
import ctypes, torch, ipex
x = torch.ops.ipex.softmax(torch.randn(2, 3), 1, None)
ctypes.memmove(x.data_ptr(), x.data_ptr() + 4, 1 << 20)
"""


def build() -> None:
    flags = {"CXXFLAGS": f"{FLAGS} -O1 -g1 -fno-omit-frame-pointer", "LDFLAGS": FLAGS}
    settings = [f"build-dir={BUILD / 'objects'}", "cmake.build-type=RelWithDebInfo"]
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--upgrade"]
    command += ["--target", BUILD / "site", *(f"--config-settings={setting}" for setting in settings), ROOT]
    subprocess.run(command, env={**os.environ, **flags}, check=True)


def environment() -> dict[str, str]:
    """Python loads the sanitizers first; aborts are not caught, and reports go to files: pytest keeps the rest."""

    def library(name: str) -> str:
        return subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout

    reports = f"log_path={BUILD / 'report'}"
    return {
        **os.environ,
        "LD_PRELOAD": " ".join(library(name).strip() for name in ("libasan.so", "libubsan.so")),
        "ASAN_OPTIONS": f"detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:detect_odr_violation=0:{reports}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:{reports}",
        "PYTHONPATH": str(BUILD / "site"),
    }


def main() -> int:
    build()
    for report in BUILD.glob("report.*"):
        report.unlink()
    with_sanitizer = environment()
    for library in (BUILD / "site").rglob("libipex*.so"):
        assert b"__asan_report" in library.read_bytes(), f"{library} is not instrumented"
    planted = subprocess.run([sys.executable, "-W", "ignore", "-c", PLANTED], env=with_sanitizer, check=False)
    if planted.returncode == 0 or not list(BUILD.glob("report.*")):
        raise SystemExit("make asan: FAILED, it did not see a planted fault")
    for report in BUILD.glob("report.*"):
        report.unlink()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(sys.argv[1:] or DEFAULT)]
    done = subprocess.run(command, env=with_sanitizer, cwd=ROOT, check=False)
    for report in BUILD.glob("report.*"):
        print(report.read_text())
    print(f"make asan: {'OK' if done.returncode == 0 else 'FAILED'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
