"""Builds libipex_runtime with ThreadSanitizer, in build/tsan, and runs many_threads on it: `make tsan`.

Our code and the program are instrumented. torch, oneDNN and libgomp are not, and what they do by themselves is not
reported: tsan.supp says what of it is left out beyond that, and why. Exits with 0 when a planted race is reported, the
run has no report, and every result is right.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from many_threads import CALLERS, build_program, run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "tsan"
FLAGS = "-fsanitize=thread -g1"


def main() -> int:
    """Build, run, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500, help="of each thread; a call takes 10 times as long as else")
    calls = parser.parse_args().calls
    warnings.filterwarnings("ignore", message=".*torch.jit.*")
    settings = ["-DIPEX_BUILD_PYTHON=OFF", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_CXX_FLAGS={FLAGS}"]
    settings.append(f"-DPython_EXECUTABLE={sys.executable}")
    subprocess.run(["cmake", "-G", "Ninja", "-S", ROOT, "-B", BUILD, *settings], check=True)
    subprocess.run(["cmake", "--build", BUILD, "--target", "ipex_runtime"], check=True)
    os.environ["CXXFLAGS"] = FLAGS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build_program(folder / "build", ipex_prefix=BUILD)
        options = f"suppressions={HERE / 'tsan.supp'} ignore_noninstrumented_modules=1 exitcode=66"
        # ThreadSanitizer wants addresses as they are without randomization.
        planted = subprocess.run(
            ["setarch", "-R", program.with_name("planted_race")],
            env={**os.environ, "TSAN_OPTIONS": options},
            capture_output=True,
            text=True,
            check=False,
        )
        if "WARNING: ThreadSanitizer: data race" not in planted.stderr:
            raise SystemExit(f"make tsan: FAILED, it did not see a planted race\n{planted.stderr}")
        failed = 0
        for threads in (1, 2):  # of each caller: alone, and with the pool
            done = run(["setarch", "-R", program], folder, CALLERS, calls, threads, TSAN_OPTIONS=options)
            print(done.stdout + done.stderr, end="")
            failed = failed or done.returncode
    print(f"make tsan: {'FAILED' if failed else 'OK'}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
