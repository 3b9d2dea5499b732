import subprocess
import sys
from pathlib import Path

import pytest

import ipex
from ipex._cli import COMMANDS


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


def test_bad_arguments():
    done = ask("--nonsense")
    assert done.returncode == 2
    assert "usage: ipex COMMAND" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "stream"),
    [((), 0, "stdout"), (("--help",), 0, "stdout"), (("optimise",), 2, "stderr")],
)
def test_the_commands_are_listed(arguments, code, stream):
    done = ask(*arguments)
    assert done.returncode == code
    for name in COMMANDS:
        assert f"\n  {name} " in getattr(done, stream)


def test_a_wrong_command_is_named():
    assert ask("optimise", "model.pt").stderr.startswith("ipex: expected a command, got 'optimise'. ")


def test_bench_has_options_of_its_own():
    assert "usage: ipex bench" in ask("bench", "--help").stdout
