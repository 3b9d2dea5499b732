"""Puts the SBOM of each wheel beside it, and writes SHA256SUMS: finish_release.py dist/release. `make release`."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path


def main(folder: str) -> None:
    """Write these files into the folder."""
    release = Path(folder)
    for wheel in sorted(release.rglob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            sboms = [name for name in archive.namelist() if name.endswith(".dist-info/sboms/ipex.cdx.json")]
            if len(sboms) != 1:
                raise SystemExit(f"release: expected one SBOM in {wheel}, got {sboms}. Build it with `make release`.")
            wheel.with_suffix(".cdx.json").write_bytes(archive.read(sboms[0]))
    files = sorted(path for path in release.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(release)}\n" for path in files]
    (release / "SHA256SUMS").write_text("".join(sums))
    print(f"release: {len(files)} files and SHA256SUMS in {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
