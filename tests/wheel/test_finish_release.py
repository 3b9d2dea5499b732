"""cmake/finish_release.py: what stands beside the wheels of `make release`."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "cmake" / "finish_release.py"
SBOM = "ipex-0.1.0.dist-info/sboms/ipex.cdx.json"


def finish(folder: Path, *members: str) -> subprocess.CompletedProcess[str]:
    for torch in ("torch-2.13.0", "torch-2.14.1"):
        (folder / torch).mkdir()
        with zipfile.ZipFile(folder / torch / "ipex-0.1.0.whl", "w") as wheel:
            for name in members:
                wheel.writestr(name, f"{name} of {torch}")
    return subprocess.run([sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, check=False)


def test_sboms_and_sums(tmp_path):
    done = finish(tmp_path, "ipex/__init__.py", SBOM)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "torch-2.13.0" / "ipex-0.1.0.cdx.json").read_text() == f"{SBOM} of torch-2.13.0"
    sums = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert [line.split("  ")[1] for line in sums] == [
        f"torch-{version}/ipex-0.1.0{suffix}" for version in ("2.13.0", "2.14.1") for suffix in (".cdx.json", ".whl")
    ]
    # As a user checks them.
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)


def test_a_wheel_without_an_sbom_is_no_release(tmp_path):
    done = finish(tmp_path, "ipex/__init__.py")
    assert done.returncode == 1
    assert "expected one SBOM in" in done.stderr
    assert not (tmp_path / "SHA256SUMS").exists()
