"""Compares two folders that `make release` wrote, and says where they differ: same_bytes.py FOLDER FOLDER."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path


def differences(one: Path, other: Path) -> list[str]:
    """Return the names of the files that differ; of wheels, the members that do."""
    names = sorted({path.relative_to(top) for top in (one, other) for path in top.rglob("*") if path.is_file()})
    found = []
    for name in names:
        pair = one / name, other / name
        if not all(path.is_file() for path in pair):
            found.append(f"{name}: in one folder alone")
        elif pair[0].read_bytes() != pair[1].read_bytes():
            members = differing_members(*pair) if name.suffix == ".whl" else []
            found.append(f"{name}: {', '.join(members)}" if members else str(name))
    return found


def differing_members(*wheels: Path) -> list[str]:
    """Return the members that one wheel alone has or that differ; none where their order or their headers do."""
    contents = []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    one, other = contents
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def main(one: str, other: str) -> None:
    """Exit with 1 where they differ, or where there is no wheel to compare."""
    if not list(Path(one).rglob("*.whl")):
        raise SystemExit(f"same_bytes: expected wheels in {one}, got none. Run `make release` first.")
    found = differences(Path(one), Path(other))
    if found:
        raise SystemExit("same_bytes: these differ:\n  " + "\n  ".join(found))
    print("same_bytes: OK")


if __name__ == "__main__":
    main(*sys.argv[1:])
