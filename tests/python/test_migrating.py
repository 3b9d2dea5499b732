"""Scripts that were written for IPEX, and the page that tells how to leave it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/migrating.md").read_text()
EXAMPLES = dict(re.findall(r"^## (.+?)\n\n```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))


def run(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


def test_the_page_has_examples():
    assert len(EXAMPLES) == PAGE.count("```python") == 9


@pytest.mark.parametrize("title", EXAMPLES)
def test_examples_run_as_they_stand(title, tmp_path):
    done = run("-m", "ipex", "run", script(tmp_path, EXAMPLES[title]), folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_one_import_does(tmp_path):
    text = "import ipex.compat\n" + EXAMPLES["Float32"] + "\nprint(ipex.__name__, type(model[0]).__name__)\n"
    done = run(script(tmp_path, text))
    assert done.stdout.split() == ["intel_extension_for_pytorch", "PackedConv2d"], done.stderr


def test_a_script_gets_its_arguments_and_its_folder(tmp_path):
    (tmp_path / "beside.py").write_text("value = 3\n")
    text = "import sys, beside\nprint(__name__, sys.argv[1:], beside.value)\n"
    assert run("-m", "ipex", "run", script(tmp_path, text), "a", "--b").stdout == "__main__ ['a', '--b'] 3\n"
    assert "usage" in run("-m", "ipex", "run").stderr


def test_without_it_ipex_is_not_found(tmp_path):
    done = run(script(tmp_path, "import ipex\nimport intel_extension_for_pytorch\n"))
    assert "No module named 'intel_extension_for_pytorch'" in done.stderr


NOT_COVERED = {
    "ipex.xpu.is_available()": "Use torch.xpu",
    "ipex.quantization.autotune()": "Use ipex.quantization",
    "ipex.verbose(1)": "Set IPEX_VERBOSE=1",
    "ipex.something": "docs/migrating.md lists what is covered",
    "from intel_extension_for_pytorch.quantization import default_static_qconfig": "Use ipex.quantization",
    "import intel_extension_for_pytorch.cpu.runtime": "Use ipex.StreamPool in place of cpu.runtime",
    "ipex.cpu.runtime.CPUPool([0])": "Use ipex.StreamPool in place of cpu.runtime",
    "ipex.quantization.default_dynamic_qconfig_mapping": "dynamic none",
    "from intel_extension_for_pytorch.llm import generation": "docs/how_to/llm.md",
}


def test_what_is_not_covered_names_the_replacement(tmp_path):
    text = f"""
import intel_extension_for_pytorch as ipex
assert not hasattr(ipex, "xpu")
for line in {list(NOT_COVERED)}:
    try:
        exec(line)
    except (AttributeError, ImportError) as error:
        print(error)
    else:
        print("no error")
"""
    done = run("-m", "ipex", "run", script(tmp_path, text))
    lines = done.stdout.splitlines()
    assert len(lines) == len(NOT_COVERED), done.stderr
    for advice, line in zip(NOT_COVERED.values(), lines):
        assert line.startswith("ipex.compat: expected a name that is covered, got intel_extension_for_pytorch.")
        assert advice in line


def test_fusion_of_frozen_modules_can_be_turned_off(tmp_path):
    text = """
import sys
import torch
import intel_extension_for_pytorch as ipex
ipex.enable_onednn_fusion(sys.argv[1] == "on")
model = torch.jit.freeze(torch.jit.trace(torch.nn.Linear(8, 8).eval(), torch.ones(2, 8)))
for _ in range(3):
    model(torch.ones(2, 8))
print("ipex::" in str(torch.jit.last_executed_optimized_graph()))
"""
    for state, fused in (("on", "True"), ("off", "False")):
        assert run("-W", "ignore", "-m", "ipex", "run", script(tmp_path, text), state).stdout.split() == [fused]
