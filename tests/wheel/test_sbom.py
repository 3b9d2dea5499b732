"""cmake/sbom.py, and what it says of the ipex that is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import files, requires, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "cmake" / "onednn" / "sources.cmake").read_text()
ARCHIVE = ("--onednn-purl=pkg:deb/debian/onednn@3.7.2", "--onednn-file=onednn.tar.xz", f"--onednn-sha256={'0a' * 32}")


def written(folder: Path, *more: str) -> str:
    path = folder / "ipex.cdx.json"
    command = [sys.executable, str(ROOT / "cmake" / "sbom.py"), "--output", str(path), *more]
    known = ["--version", "0.1.0", "--torch", "2.13", "--onednn", "3.7.2"]
    subprocess.run([*command, *known], env={"SOURCE_DATE_EPOCH": "86400", "TZ": "Asia/Kathmandu"}, check=True)
    return path.read_text()


def component(sbom: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [component for component in sbom["components"] if component["name"] == name]
    return found


def test_the_archive_that_onednn_is_built_from(tmp_path):
    onednn = component(json.loads(written(tmp_path, *ARCHIVE)), "oneDNN")
    assert (onednn["version"], onednn["purl"]) == ("3.7.2", "pkg:deb/debian/onednn@3.7.2")
    assert onednn["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    (archive,) = onednn["externalReferences"]
    assert archive["url"] == "onednn.tar.xz"
    assert archive["hashes"] == [{"alg": "SHA-256", "content": "0a" * 32}]


def test_a_source_tree_of_the_user_has_no_hash(tmp_path):
    onednn = component(json.loads(written(tmp_path)), "oneDNN")
    assert onednn["purl"] == "pkg:github/uxlfoundation/oneDNN@v3.7.2"
    assert "externalReferences" not in onednn


def test_the_time_is_that_of_the_commit(tmp_path):
    assert json.loads(written(tmp_path))["metadata"]["timestamp"] == "1970-01-02T00:00:00Z"


def test_all_that_NOTICE_names_and_torch(tmp_path):
    sbom = json.loads(written(tmp_path, *ARCHIVE))
    names = {component["name"] for component in sbom["components"]}
    assert names == {"oneDNN", "Xbyak", "Boost", "pybind11", "torch"}
    notice = (ROOT / "NOTICE").read_text()
    assert [name for name in names - {"torch"} if name not in notice] == []
    assert component(sbom, "torch")["version"] == "2.13.*"
    # Each is reached from ipex, and nothing else is.
    edges = {edge["ref"]: edge["dependsOn"] for edge in sbom["dependencies"]}
    reached = [sbom["metadata"]["component"]["bom-ref"]]
    for ref in reached:
        reached += edges.get(ref, [])
    assert sorted(reached[1:]) == sorted(component["bom-ref"] for component in sbom["components"])


def test_the_installed_ipex_has_one():
    found = [path for path in files("ipex") or [] if path.match("*.dist-info/sboms/ipex.cdx.json")]
    assert len(found) == 1
    sbom = json.loads(found[0].locate().read_text())
    assert sbom["metadata"]["component"]["version"] == version("ipex")
    assert f"torch=={component(sbom, 'torch')['version']}" in requires("ipex")
    onednn = component(sbom, "oneDNN")
    for archive in onednn.get("externalReferences", []):  # none where a oneDNN of the user's was taken
        (origin,) = re.findall(rf"set\(IPEX_ONEDNN_(\w+)_SHA256 {archive['hashes'][0]['content']}\)", SOURCES)
        assert f"set(IPEX_ONEDNN_{origin}_VERSION {onednn['version']})" in SOURCES
        assert f"set(IPEX_ONEDNN_{origin}_FILE {archive['url']})" in SOURCES
