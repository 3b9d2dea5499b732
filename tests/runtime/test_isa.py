"""Which instructions are used: what is found, what caps it and until when, and that every level gives the same."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ipex
from ipex import _C, isa
from support import FP32_TOLERANCE, assert_same

pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")

AVX2 = ["sse4_1", "avx", "avx2", "fma"]
ALDER_LAKE = [*AVX2, "avx_vnni"]
SKYLAKE_SP = [*AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq"]
CASCADE_LAKE = [*SKYLAKE_SP, "avx512_vnni"]
COOPER_LAKE = [*CASCADE_LAKE, "avx512_bf16"]
SAPPHIRE_RAPIDS = [*COOPER_LAKE, "avx_vnni", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"]
GRANITE_RAPIDS = [*SAPPHIRE_RAPIDS, "amx_fp16"]
WITHOUT_TILES = [f for f in SAPPHIRE_RAPIDS if not f.startswith("amx")]  # as virtual machines often are


@pytest.mark.parametrize(
    ("features", "level", "onednn"),
    [
        (AVX2, "avx2", "avx2"),
        (ALDER_LAKE, "avx2_vnni", "avx2_vnni"),
        ([*ALDER_LAKE, "avx_vnni_int8", "avx_ne_convert"], "avx2_vnni", "avx2_vnni_2"),
        (SKYLAKE_SP, "avx512", "avx512_core"),
        ([*AVX2, "avx512f"], "avx2", "avx2"),  # Knights Landing: not enough for anything
        (CASCADE_LAKE, "avx512_vnni", "avx512_core_vnni"),
        (COOPER_LAKE, "avx512_bf16", "avx512_core_bf16"),
        (WITHOUT_TILES, "avx512_fp16", "avx512_core_fp16"),
        (SAPPHIRE_RAPIDS, "avx512_fp16", "avx512_core_amx"),
        (GRANITE_RAPIDS, "amx_fp16", "avx512_core_amx_fp16"),
    ],
)
def test_a_cpu_without_caps(features, level, onednn):
    assert _C.isa_choose(features, "", "", None) == (level, onednn, "")


@pytest.mark.parametrize(
    ("features", "cap", "level", "onednn", "onednn_limit"),
    [
        (GRANITE_RAPIDS, "default", "default", "sse41", "sse41"),
        (GRANITE_RAPIDS, "avx2", "avx2", "avx2", "avx2"),
        (GRANITE_RAPIDS, "avx2_vnni", "avx2_vnni", "avx2_vnni", "avx2_vnni"),
        (CASCADE_LAKE, "avx2_vnni", "avx2", "avx2", "avx2_vnni"),  # lower than avx512_vnni, and not there
        (GRANITE_RAPIDS, "avx512", "avx512", "avx512_core", "avx512_core"),
        (GRANITE_RAPIDS, "avx512_vnni", "avx512_vnni", "avx512_core_vnni", "avx512_core_vnni"),
        (GRANITE_RAPIDS, "avx512_bf16", "avx512_bf16", "avx512_core_bf16", "avx512_core_bf16"),
        (GRANITE_RAPIDS, "amx", "amx", "avx512_core_amx", "avx512_core_amx"),
        (WITHOUT_TILES, "amx", "avx512_bf16", "avx512_core_fp16", "avx512_core_amx"),
        (GRANITE_RAPIDS, "avx512_fp16", "avx512_fp16", "avx512_core_amx", "avx512_core_amx"),
        (GRANITE_RAPIDS, "amx_fp16", "amx_fp16", "avx512_core_amx_fp16", "avx512_core_amx_fp16"),
        (GRANITE_RAPIDS, "AVX2", "avx2", "avx2", "avx2"),
    ],
)
def test_a_cap_reaches_onednn_too(features, cap, level, onednn, onednn_limit):
    assert _C.isa_choose(features, cap, "", None) == (level, onednn, onednn_limit)
    assert _C.isa_choose(features, "", "", cap) == (level, onednn, onednn_limit)


def test_the_lower_cap_holds():
    assert _C.isa_choose(GRANITE_RAPIDS, "avx512", "", "avx2")[0] == "avx2"
    assert _C.isa_choose(GRANITE_RAPIDS, "avx2", "", "avx512")[0] == "avx2"


@pytest.mark.parametrize(
    ("word", "onednn"),
    [
        ("avx2", "avx2"),
        ("AVX512_CORE", "avx512_core"),
        ("avx512_core_fp16", "avx512_core_fp16"),
        ("avx10_1_512_amx", "avx512_core_amx"),
        ("default", "avx512_core_amx_fp16"),
        ("nonsense", "avx512_core_amx_fp16"),
    ],
)
def test_the_cap_of_onednn_is_for_onednn_alone(word, onednn):
    assert _C.isa_choose(GRANITE_RAPIDS, "", word, None) == ("amx_fp16", onednn, "")
    assert _C.isa_choose(GRANITE_RAPIDS, "avx512", word, None) == ("avx512", onednn, "")


@pytest.mark.parametrize(
    ("features", "cap", "message"),
    [
        (["sse4_1", "avx"], "", "expected a CPU with AVX2 and FMA, got one without.*ATEN_CPU_CAPABILITY=default"),
        ([], "", "expected a CPU with AVX2"),
        (["avx", "avx2"], "", "expected a CPU with AVX2 and FMA"),
        (["sse4_1", "avx"], "avx2", "ATEN_CPU_CAPABILITY: expected a level that this CPU has, at most 'default'"),
        (AVX2, "avx512", "expected a level that this CPU has, at most 'avx2', got 'avx512'"),
        (CASCADE_LAKE, "amx", "expected a level that this CPU has, at most 'avx512_vnni', got 'amx'"),
        (AVX2, "avx3", "ATEN_CPU_CAPABILITY: expected one of default, avx2, .*, amx_fp16, got 'avx3'"),
    ],
)
def test_what_is_refused(features, cap, message):
    with pytest.raises(RuntimeError, match=message):
        _C.isa_choose(features, cap, "", None)


def test_without_avx2_the_portable_kernels_can_be_asked_for():
    assert _C.isa_choose(["sse4_1"], "default", "", None) == ("default", "sse41", "sse41")
    assert _C.isa_choose([], "default", "", None) == ("default", "none", "sse41")


@pytest.mark.skipif(platform.system() != "Linux", reason="no /proc/cpuinfo")
def test_what_is_found_is_what_linux_found():
    flags = set(re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE).group(1).split())
    found = set(_C.isa_features())
    assert {"sse4_1", "avx", "avx2", "fma"} & flags == {"sse4_1", "avx", "avx2", "fma"} & found
    # Of the tiles, /proc/cpuinfo does not tell whether a process may use them.
    assert set(WITHOUT_TILES) & flags <= found
    # A fact about the CPU that is no flag; and an old kernel has no names for what came later.
    assert "avx512_bf16" in found or "slow_avx512_bf16" not in found
    newer = {"slow_avx512_bf16"}
    newer |= {"avx_vnni", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16", "avx_vnni_int8"}
    assert found - newer - {"avx_ne_convert"} <= flags


def test_pairs_are_fast_unless_the_cpu_is_known_to_be_slow():
    slow = [*SAPPHIRE_RAPIDS, "slow_avx512_bf16"]
    assert _C.isa_multiplies_pairs_fast(COOPER_LAKE, "")
    assert not _C.isa_multiplies_pairs_fast(slow, "")
    assert _C.isa_multiplies_pairs_fast(slow, "1")
    assert not _C.isa_multiplies_pairs_fast(COOPER_LAKE, "0")
    assert not _C.isa_multiplies_pairs_fast([*AVX2, "avx512_bf16"], "1")
    with pytest.raises(RuntimeError, match="IPEX_FAST_AVX512_BF16: expected 0 or 1, got 'yes'"):
        _C.isa_multiplies_pairs_fast(slow, "yes")
    assert isa.has_fast_avx512_bf16() <= isa.has_avx512_bf16()


def test_queries_agree():
    assert [str(level) for level in isa.Level] == [
        "default",
        *("avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx", "avx512_fp16", "amx_fp16"),
    ]
    assert isa.current() <= isa.highest_cpu()
    assert isa.highest_binary() == isa.Level.AVX512
    torch_knows = torch.backends.cpu.get_cpu_capability()
    assert (isa.highest_cpu() >= isa.Level.AVX512) >= (torch_knows == "AVX512")
    for level in isa.Level:
        assert _C.isa_has(str(level)) == (level <= isa.current() and level in levels_of_this_cpu())
    optional = (isa.Level.AVX512_VNNI, isa.Level.AVX512_BF16, isa.Level.AMX)
    families = [level for level in optional if _C.isa_has(str(level))]
    if isa.current() == isa.Level.AVX2_VNNI:
        families = [isa.Level.AVX2_VNNI]
    assert isa.optional_families() == families
    assert (isa.has_bf16(), isa.has_fp16()) == (isa.has_avx512_bf16(), isa.has_avx512_fp16())


def levels_of_this_cpu() -> list[isa.Level]:
    """Those whose instructions it has: capped at any other, a lower one is used."""
    features = _C.isa_features()
    levels = [level for level in isa.Level if level <= isa.highest_cpu()]
    return [level for level in levels if _C.isa_choose(features, str(level), "", None)[0] == str(level)]


class EveryKernel(nn.Module):
    """Something of each kind that is compiled, or chosen by oneDNN, per level."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 20, 3, padding=1)
        self.grouped = nn.Conv2d(20, 20, 3, groups=20)
        self.up = nn.ConvTranspose2d(20, 8, 2, stride=2)
        self.linear = nn.Linear(8 * 12 * 12, 37)
        self.lstm = nn.LSTM(37, 19, batch_first=True)
        self.gru = nn.GRU(19, 21, bidirectional=True)
        self.norm = nn.LayerNorm(42)
        self.bag = nn.EmbeddingBag(11, 42, mode="mean")

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        y = torch.relu(self.up(torch.sigmoid(self.grouped(torch.relu(self.conv(x))))))
        y = self.gru(self.lstm(self.linear(y.flatten(1)).unsqueeze(1).repeat(1, 5, 1))[0])[0]
        y = self.norm(y + self.bag(words).unsqueeze(1))
        scores = torch.softmax(torch.matmul(y, y.transpose(-2, -1)) * 0.25, dim=-1)
        return torch.matmul(torch.matmul(scores, y).transpose(0, 1), y.transpose(0, 1).transpose(1, 2))


KINDS = ["convolution", "linear", "lstm", "gru", "embedding_bag", "layer_norm", "attention", "matmul"]


def fresh_process(script: str, folder: Path, **environment: str) -> dict[str, list[str]]:
    """Run the script, with nothing capped but by `environment`, and return what it puts into `said`."""
    kept = {k: v for k, v in os.environ.items() if not k.endswith(("_MAX_CPU_ISA", "CPU_CAPABILITY"))}
    prelude = "import json, os, torch, ipex\nfrom ipex import isa\nsaid = {}\n"
    command = [sys.executable, "-W", "ignore", "-c", f"{prelude}{script}\nprint(json.dumps(said))"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env={**kept, **environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LOAD_AND_RUN = """
said["foretold"] = [str(isa.current()), isa.onednn()]
with torch.no_grad():
    for name in ("model", "lstm"):
        model = ipex.load(f"../{name}.pt")
        torch.save(model(*torch.load(f"../{name}_inputs.pt")), f"{name}_output.pt")
        model.save(f"{name}.pt")
said["used"] = [str(isa.current()), isa.onednn()]
"""


class Saved:
    """Models saved at this process's level, and run from their files in others that are capped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        torch.manual_seed(5)
        model, self.inputs = EveryKernel().eval(), (torch.randn(2, 3, 8, 8), torch.randint(11, (2, 4)))
        lstm, steps = nn.LSTM(37, 19).eval(), (torch.randn(6, 3, 37),)
        with torch.no_grad():
            self.expected = model(*self.inputs)
            optimized = ipex.jit_optimize(model, self.inputs)
            for kind in KINDS:
                assert f"ipex::{kind}" in str(optimized.graph)
            for name, module, x in (("model", optimized, self.inputs), ("lstm", ipex.jit_optimize(lstm, steps), steps)):
                module.save(folder / f"{name}.pt")
                torch.save(x, folder / f"{name}_inputs.pt")
        self.runs: dict[str, tuple[Path, dict[str, list[str]]]] = {}

    def run(self, cap: str) -> tuple[Path, dict[str, list[str]]]:
        """Run both under a cap, such as "ATEN_CPU_CAPABILITY=avx2": a folder with the results, and what was said."""
        if cap not in self.runs:
            own = self.folder / cap
            own.mkdir()
            variable, word = cap.split("=")
            self.runs[cap] = own, fresh_process(LOAD_AND_RUN, own, **{variable: word})
        return self.runs[cap]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Saved:
    return Saved(tmp_path_factory.mktemp("saved"))


LEVELS = [f"ATEN_CPU_CAPABILITY={level}" for level in levels_of_this_cpu()]


@pytest.mark.parametrize("cap", [*LEVELS, "ONEDNN_MAX_CPU_ISA=avx"])
def test_a_saved_model_gives_the_same_at_every_level(saved, cap):
    folder, said = saved.run(cap)
    assert said["used"] == said["foretold"]
    assert said["used"][0 if cap in LEVELS else 1] == cap.split("=")[1]
    assert_same(torch.load(folder / "model_output.pt"), saved.expected, FP32_TOLERANCE)
    # Saved there, it is packed again here.
    with torch.no_grad():
        assert_same(ipex.load(folder / "model.pt")(*saved.inputs), saved.expected, FP32_TOLERANCE)


def test_a_cap_reaches_our_kernels(saved):
    portable, avx2 = (torch.load(saved.run(cap)[0] / "lstm_output.pt")[0] for cap in LEVELS[:2])
    # AVX2 brings FMA, which rounds once where a product and a sum round twice.
    assert not torch.equal(portable, avx2)
    assert_same(portable, avx2, FP32_TOLERANCE)


LIMIT = """
def refused(function, *arguments):
    try:
        function(*arguments)
    except RuntimeError as error:
        return str(error)
model = torch.jit.trace(torch.nn.Linear(4, 4).eval(), torch.randn(1, 4))
os.environ["ATEN_CPU_CAPABILITY"] = "avx3"
said["unknown"] = [refused(isa.current), refused(ipex.jit_optimize, model), refused(isa.has_avx2)]
del os.environ["ATEN_CPU_CAPABILITY"]
if isa.highest_cpu() < isa.Level.AMX_FP16:
    said["too high"] = [refused(isa.limit, "amx_fp16")]
said["no level"] = [refused(isa.limit, "avx3")]
isa.limit("avx2")
isa.limit(isa.Level.DEFAULT)
said["limited"] = [str(isa.current()), isa.onednn(), str(isa.has_avx2())]
ipex.jit_optimize(model)(torch.randn(1, 4))
said["too late"] = [refused(isa.limit, "avx2")]
os.environ["ATEN_CPU_CAPABILITY"] = "avx3"
said["used"] = [str(isa.current()), isa.onednn(), str(isa.has_avx2())]
"""


def test_a_limit_holds_until_the_first_use(tmp_path):
    said = fresh_process(LIMIT, tmp_path)
    for message in said["unknown"]:
        assert "ATEN_CPU_CAPABILITY: expected one of default, avx2" in message
    for message in said.get("too high", []):
        assert "ipex.isa.limit: expected a level that this CPU has" in message
    assert "expected one of default, avx2" in said["no level"][0]
    assert said["limited"] == said["used"] == ["default", "sse41", "False"]
    too_late = "expected a call before any model is packed or run, got one after kernels ran at 'default'"
    assert too_late in said["too late"][0]


QUERIES = """
import ctypes
def granted():
    mask = ctypes.c_ulong()
    assert ctypes.CDLL(None).syscall(158, 0x1022, ctypes.byref(mask)) == 0  # arch_prctl(ARCH_GET_XCOMP_PERM)
    return bool(mask.value >> 18 & 1)
before = granted()
isa.current(), isa.highest_cpu(), isa.onednn(), isa.has_amx(), isa.limit("avx512_fp16")
said["granted"] = [before, granted()]
"""


@pytest.mark.skipif(not isa.has_amx(), reason="this CPU has no AMX")
def test_a_query_does_not_request_amx(tmp_path):
    assert fresh_process(QUERIES, tmp_path)["granted"] in ([False, False], [True, True])
