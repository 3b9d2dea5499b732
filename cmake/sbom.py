"""Writes the SBOM of a wheel (CycloneDX 1.6): what is linked into the binaries, and which torch they need."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any


def library(name: str, license: str, purl: str, version: str = "", **more: Any) -> dict[str, Any]:
    """Return a component; its purl is its name in the list of dependencies."""
    known = {"version": version} if version else {}
    licenses = [{"license": {"id": license}}]
    return {"type": "library", "bom-ref": purl, "name": name, **known, "licenses": licenses, "purl": purl, **more}


def sbom(version: str, torch: str, onednn: str, purl: str = "", file: str = "", sha256: str = "") -> dict[str, Any]:
    """Return the document. `purl`, `file` and `sha256` are of the archive that oneDNN was built from."""
    archive = {"type": "source-distribution", "url": file, "hashes": [{"alg": "SHA-256", "content": sha256}]}
    ours = library("ipex", "Apache-2.0", f"pkg:pypi/ipex@{version}", version)
    built_in = [
        library(
            "oneDNN",
            "Apache-2.0",
            purl or f"pkg:github/uxlfoundation/oneDNN@v{onednn}",
            onednn,
            pedigree={"notes": "The build changes copies of some sources: cmake/onednn/changes.cmake."},
            **({"externalReferences": [archive]} if file else {}),
        ),
        library("Xbyak", "BSD-3-Clause", "pkg:github/herumi/xbyak"),
        library("Boost", "BSL-1.0", "pkg:generic/boost", description="A hash function, in oneDNN."),
        library("pybind11", "BSD-3-Clause", "pkg:pypi/pybind11", description="Its headers, as torch brings them."),
    ]
    needed = library("torch", "BSD-3-Clause", "pkg:pypi/torch", f"{torch}.*", description="Installed by itself.")
    onednn_ref, xbyak, boost, pybind11 = (component["bom-ref"] for component in built_in)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": written_at(), "component": ours},
        "components": [*built_in, needed],
        "dependencies": [
            {"ref": ours["bom-ref"], "dependsOn": [onednn_ref, pybind11, needed["bom-ref"]]},
            {"ref": onednn_ref, "dependsOn": [xbyak, boost]},
        ],
    }


def written_at() -> str:
    """Return the time of the commit where the build has it, so that the same commit gives the same bytes."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())))


def main() -> None:
    """Write the file that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("output", "version", "torch", "onednn"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("purl", "file", "sha256"):
        parser.add_argument(f"--onednn-{name}", dest=name, default="")
    arguments = vars(parser.parse_args())
    path = Path(arguments.pop("output"))
    path.write_text(json.dumps(sbom(**arguments), indent=2) + "\n")


if __name__ == "__main__":
    main()
