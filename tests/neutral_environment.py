"""Makes what a process inherits the same on every machine, so that no test depends on it: conftest.py calls this first.

Processes that tests start inherit it in turn.
"""

from __future__ import annotations

import contextlib
import locale
import os
import signal
import tempfile
import threading

# What programs under test, torch and the tools print, compute with, or read their options from.
DROPPED = (
    *("IPEX_", "ONEDNN_", "DNNL_", "ITT_", "OMP_", "GOMP_", "KMP_", "MKL_", "TORCH", "PYTORCH", "MALLOC_"),
    *("PYTHON", "LANG", "LC_", "TZ", "COLUMNS", "LINES", "MAKE", "MFLAGS"),
    *("FORCE_COLOR", "NO_COLOR", "CLICOLOR", "PY_COLORS", "TTY_", "GREP_", "LS_COLORS", "CDPATH"),
)
# Chosen by whoever runs the tests, which pass with any: instructions, seeds, samples, threads, where packages lie.
KEPT = (
    *("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "IPEX_FAST_AVX512_BF16"),
    *("IPEX_TEST_SEED", "IPEX_FUZZ_SEED", "IPEX_ZOO_SEED", "IPEX_OP_DATABASE_SEED"),
    *("IPEX_VERIFY", "IPEX_NIGHTLY"),
    *("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "TORCH_HOME"),
    *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONHASHSEED", "PYTHONPYCACHEPREFIX"),
    "PYTHONDONTWRITEBYTECODE",
)
LOCALE = "C.UTF-8"


def neutral(environment: dict[str, str]) -> dict[str, str]:
    """Return these variables without those that change what tests see."""
    kept = {k: v for k, v in environment.items() if k in KEPT or not k.startswith(DROPPED)}
    kept["LC_ALL"] = LOCALE
    if "PYTHONPATH" in kept:  # tests start processes in folders of their own
        kept["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, kept["PYTHONPATH"].split(os.pathsep))))
    if " " in kept.get("TMPDIR", ""):  # where torch's own compiler can't write
        del kept["TMPDIR"]
    return kept


def make_neutral() -> None:
    """Change this process: before torch is imported, which reads some of it once."""
    variables = neutral(dict(os.environ))
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None  # which was looked for before
    with contextlib.suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, LOCALE)
    os.umask(0o022)
    if threading.current_thread() is not threading.main_thread():
        return
    # A shell without job control starts what is in the background with SIGINT ignored, nohup ignores SIGHUP, and some
    # supervisors SIGCHLD. Python itself ignores the other two, and gives them back to its children.
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
