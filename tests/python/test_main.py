import subprocess
import sys
from pathlib import Path

import pytest

import ipex


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ipex", *arguments], capture_output=True, text=True, check=False)


def test_cmake_dir():
    assert (Path(ask("--cmake-dir").stdout.strip()) / "ipex" / "ipexConfig.cmake").is_file()


def test_version():
    assert ask("--version").stdout.strip() == ipex.__version__


def test_passes():
    assert {"fuse_activation", "fuse_add", "fold_batch_norm"} <= set(ask("--passes").stdout.split())


def test_isa():
    lines = ask("--isa").stdout.splitlines()
    assert [line[:20].rstrip() for line in lines] == [
        "highest of the CPU",
        "highest in ipex",
        "used by ipex",
        "used by oneDNN",
    ]
    used = [min(ipex.isa.current(), ipex.isa.highest_binary()), *ipex.isa.optional_families()]
    expected = [str(ipex.isa.highest_cpu()), "avx512", ", ".join(map(str, used)), ipex.isa.onednn()]
    assert [line[20:] for line in lines] == expected


@pytest.mark.parametrize("arguments", [(), ("--nonsense",)])
def test_bad_arguments(arguments):
    done = ask(*arguments)
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_bench_has_options_of_its_own():
    assert "usage: python -m ipex bench" in ask("bench", "--help").stdout
