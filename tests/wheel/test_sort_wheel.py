"""cmake/sort_wheel.py: a wheel's bytes don't depend on the order in which it was written."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "cmake" / "sort_wheel.py"
INFO = "ipex-0.1.0.dist-info"
MEMBERS = ["ipex/__init__.py", "ipex/lib/libipex.so", f"{INFO}/METADATA", f"{INFO}/licenses/LICENSE"]


def written(path: Path, names: list[str]) -> bytes:
    record = "".join(f"{name},sha256=0,1\n" for name in [*names, f"{INFO}/RECORD"])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name in [*names, f"{INFO}/RECORD"]:
            member = zipfile.ZipInfo(name, (2026, 11, 29, 6, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            wheel.writestr(member, record if name.endswith("RECORD") else name * 100)
    subprocess.run([sys.executable, str(SCRIPT), str(path)], check=True)
    return path.read_bytes()


def test_any_order_gives_the_same_bytes(tmp_path):
    assert written(tmp_path / "a.whl", MEMBERS) == written(tmp_path / "b.whl", MEMBERS[::-1])
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.whl", "b.whl"]


def test_contents_dates_and_modes_stay(tmp_path):
    written(tmp_path / "ipex.whl", MEMBERS[::-1])
    with zipfile.ZipFile(tmp_path / "ipex.whl") as wheel:
        assert wheel.namelist() == [*MEMBERS, f"{INFO}/RECORD"]
        member = wheel.getinfo("ipex/lib/libipex.so")
        assert (member.date_time, member.external_attr >> 16) == ((2026, 11, 29, 6, 0, 0), 0o755)
        assert member.compress_size < member.file_size
        assert wheel.read(member) == b"ipex/lib/libipex.so" * 100
        assert wheel.read(f"{INFO}/RECORD").decode().splitlines()[0] == f"{INFO}/METADATA,sha256=0,1"
