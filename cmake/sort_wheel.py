"""Sorts what a wheel holds: sort_wheel.py dist/ipex-*.whl. `make wheel`.

scikit-build-core takes the files of the metadata in the order in which the file system lists them, and another machine
lists them in another.
"""

from __future__ import annotations

import os
import sys
import zipfile


def place(name: str) -> tuple[bool, bool, str]:
    """Return what to sort by: the metadata comes last, and of it the list of all files, as the format recommends."""
    return ".dist-info/" in name, name.endswith(".dist-info/RECORD"), name


def main(wheel: str) -> None:
    """Write the wheel anew, with the same members, dates and modes."""
    sorted_wheel = f"{wheel}.sorted"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(sorted_wheel, "w") as target:
        for member in sorted(source.infolist(), key=lambda member: place(member.filename)):
            data = source.read(member)
            if place(member.filename)[1]:
                data = b"".join(sorted(data.splitlines(keepends=True)))
            target.writestr(member, data)
    os.replace(sorted_wheel, wheel)


if __name__ == "__main__":
    main(*sys.argv[1:])
