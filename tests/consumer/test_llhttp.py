"""examples/cpp/server/llhttp.cmake: where llhttp comes from, and what is said where it comes from nowhere."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from consumer.server_process import SOURCE

ARCHIVE = "httptools-0.9.0.tar.gz"
PROJECT = f"""cmake_minimum_required(VERSION 3.18)
project(parser LANGUAGES C)
include({SOURCE}/llhttp.cmake)
add_executable(program program.c)
target_link_libraries(program llhttp)
"""
PIP = """#!/bin/sh
cd {project}
echo "$@" >> calls.txt
mkdir -p httptools-0.9.0/vendor && cp -r llhttp httptools-0.9.0/vendor && mkdir -p cache/ipex
tar -czf cache/ipex/httptools-0.9.0.tar.gz httptools-0.9.0
"""


@pytest.fixture
def project(tmp_path):
    """A program that includes llhttp.h. Nothing is installed, and there is no pip."""
    for folder in ("llhttp/include", "llhttp/src", "packages", "programs", "installed"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "program.c").write_text("#include <llhttp.h>\nint main(void) { return 0; }\n")
    (tmp_path / "llhttp/include/llhttp.h").touch()
    for name in ("api", "http", "llhttp"):
        (tmp_path / f"llhttp/src/{name}.c").touch()
    add_python(tmp_path, "#!/bin/sh\necho no network >&2\nexit 1\n")
    return tmp_path


def add_python(project, script):
    (project / "programs/python3").write_text(script)
    (project / "programs/python3").chmod(0o755)


def install(project, version):
    (project / "packages/libllhttp.pc").write_text(
        f"Name: llhttp\nDescription: a parser\nVersion: {version}\nCflags: -I{project}/llhttp/include\n"
    )


def build(project, *settings):
    """What CMake says."""
    environment = {
        **os.environ,
        "PATH": f"{project}/programs:{os.environ['PATH']}",
        "PKG_CONFIG_LIBDIR": str(project / "packages"),
        "XDG_CACHE_HOME": str(project / "cache"),
    }
    said = ""
    for arguments in (["-S", ".", "-B", "build", "-G", "Ninja", *settings], ["--build", "build"]):
        done = subprocess.run(
            ["cmake", *arguments], cwd=project, env=environment, capture_output=True, text=True, check=False
        )
        said += done.stdout + " ".join(done.stderr.split())
        if done.returncode != 0:
            break
    return said


def calls(project):
    """What pip was asked."""
    return (project / "calls.txt").read_text().splitlines()


def test_a_folder_that_is_named_comes_first(project):
    install(project, "9.4.3")
    said = build(project, f"-DLLHTTP_SOURCE_DIR={project}/llhttp")
    assert f"server: llhttp from {project}/llhttp" in said
    assert (project / "build/program").exists(), said


def test_then_an_installed_one(project):
    install(project, "9.2.1")
    said = build(project)
    assert "server: llhttp 9.2.1, installed" in said
    assert (project / "build/program").exists(), said


def test_an_old_one_is_not_taken_and_pip_is_asked(project):
    install(project, "9.2.0")
    add_python(project, PIP.format(project=project))
    said = build(project)
    assert (project / "build/program").exists(), said
    (call,) = calls(project)
    assert call.startswith("-m pip download ")
    assert "--no-deps --no-binary httptools --require-hashes" in call
    pinned = (project / "build/llhttp.txt").read_text()
    assert pinned.startswith("httptools==0.9.0 --hash=sha256:")
    # Another archive than the pinned one is fetched anew.
    build(project)
    assert len(calls(project)) == 2


@pytest.mark.usefixtures("program")  # which fetches it
def test_the_pinned_archive_is_fetched_once(project):
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    if not (cache / "ipex" / ARCHIVE).exists():
        pytest.skip("an llhttp is installed, and the server is built with it")
    (project / "cache/ipex").mkdir(parents=True)
    shutil.copy(cache / "ipex" / ARCHIVE, project / "cache/ipex")
    said = build(project)  # without pip
    assert (project / "build/program").exists(), said


def test_what_is_missing_is_said(project):
    said = build(project)
    assert "server: expected llhttp 9.2.1 or later, found none installed, and pip could not fetch" in said
    assert "set LLHTTP_SOURCE_DIR to the folder." in said
    assert "no network" in said
