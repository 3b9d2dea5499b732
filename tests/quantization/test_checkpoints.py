"""Checkpoints of GPTQ and AWQ: the results are those of the integers' numbers in float32."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

import ipex
import packed_checkpoints as packed
from ipex.quantization import WeightOnlyLinear, from_awq, from_gptq
from support import assert_same, fallback_reasons, kinds, packed_post_ops

DAMAGED = "expected {} for 0, got {}"


class Block(nn.Module):
    def __init__(self, has_bias: bool = True) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(128)
        self.wide, self.narrow = nn.Linear(128, 192, has_bias), nn.Linear(192, 128, has_bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(F.silu(self.wide(self.norm(x))))


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def random_rest(model: nn.Module) -> dict[str, Tensor]:
    """What a checkpoint has beside weights of linears, in float16."""
    generator = torch.Generator().manual_seed(7)
    names = [name for name in model.state_dict() if not name.endswith(("wide.weight", "narrow.weight"))]
    return {name: torch.randn(model.state_dict()[name].shape, generator=generator).half() for name in names}


def float_model(model: nn.Module, rest: dict[str, Tensor], **linears: packed.Linear) -> nn.Module:
    """The same model with the integers' numbers for weights."""
    weights = {f"{path}.weight": own.weight() for path, own in linears.items()}
    model = copy.deepcopy(model)
    model.load_state_dict({**rest, **weights})
    return model.eval()


def assert_is(loaded: nn.Module, expected: nn.Module, inputs: int) -> torch.jit.ScriptModule:
    """In eager, and optimised for each number of rows."""
    optimized = ipex.jit_optimize(loaded.eval(), torch.randn(2, inputs))
    for rows in (1, 3, 7, 60):
        x = torch.randn(rows, inputs)
        assert_same(loaded(x), expected(x))
        assert_same(optimized(x), expected(x))
    assert fallback_reasons(optimized) == []
    return optimized


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_ordered", [True, False])
@pytest.mark.parametrize(
    ("bits", "group_size", "is_symmetric"),
    [(4, 32, False), (4, 32, True), (4, 64, False), (8, 32, False), (2, 32, False), (4, 128, False)],
)
def test_gptq(bits, group_size, is_symmetric, is_ordered, version, tmp_path):
    model = Block()
    wide = packed.linear(192, 128, bits, group_size, is_symmetric, is_ordered)
    narrow = packed.linear(128, 192, bits, group_size, is_symmetric, is_ordered, seed=1)
    rest = random_rest(model)
    checkpoint = {**rest, **packed.gptq(wide, "wide", version), **packed.gptq(narrow, "narrow", version)}
    before = copy.deepcopy(model.state_dict())
    known = {"bits": bits, "group_size": group_size, "desc_act": not is_ordered, "sym": is_symmetric}
    loaded = from_gptq(model, checkpoint, **known, checkpoint_format="gptq" if version == 1 else "gptq_v2")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    optimized = assert_is(loaded, float_model(model, rest, wide=wide, narrow=narrow), 128)
    found = kinds(optimized)
    assert (found["ipex::weight_only_linear_run"], found["ipex::weight_only_linear"], found["aten::silu"]) == (2, 0, 0)
    assert packed_post_ops(optimized) == [["silu"], ["radd"]]
    assert ("inputs=in an order" in optimized.packed_0.describe()) == (not is_ordered and group_size < 128)
    optimized.save(tmp_path / "model.pt")
    x = torch.randn(3, 128)
    assert torch.equal(ipex.load(tmp_path / "model.pt")(x), optimized(x))


def test_the_tensors_say_all_but_the_version():
    own = packed.linear(192, 128, 4, 32, is_symmetric=False)
    model = nn.Sequential(nn.Linear(128, 192, bias=False))
    expected = F.linear(torch.eye(128), own.weight())
    for has_order in (True, False):
        loaded = from_gptq(model, packed.gptq(own, "0", has_order=has_order))
        assert torch.equal(loaded(torch.eye(128)), expected)
        assert (
            repr(loaded[0]) == "WeightOnlyLinear(in_features=128, out_features=192, bias=False, bits=4, group_size=32)"
        )
    wrong = from_gptq(model, packed.gptq(own, "0"), checkpoint_format="gptq_v2")
    assert not torch.allclose(wrong(torch.eye(128)), expected)


def test_the_number_of_outputs_need_not_fill_words():
    own = packed.linear(30, 128, 4, 32, is_symmetric=False)
    assert_is(from_gptq(nn.Sequential(nn.Linear(128, 30, False)), packed.gptq(own, "0")), F_linear(own), 128)


def F_linear(own: packed.Linear) -> nn.Module:
    outputs, inputs = own.integers.shape
    model = nn.Linear(inputs, outputs, bias=False)
    model.weight.copy_(own.weight())
    return model


def test_whole_rows_and_a_shorter_last_group():
    for inputs, group_size, asked in ((128, 128, -1), (136, 64, 64), (40, 40, -1)):
        own = packed.linear(64, inputs, 4, group_size, is_symmetric=False)
        loaded = from_gptq(nn.Sequential(nn.Linear(inputs, 64, False)), packed.gptq(own, "0"), group_size=asked)
        assert loaded[0].group_size == group_size
        assert_is(loaded, F_linear(own), inputs)


@pytest.mark.parametrize("group_size", [32, 128])
def test_awq(group_size, tmp_path):
    model = Block(has_bias=False)
    wide = packed.linear(192, 128, 4, group_size, is_symmetric=False)
    narrow = packed.linear(128, 192, 4, group_size, is_symmetric=False, seed=1)
    rest = random_rest(model)
    checkpoint = {**rest, **packed.awq(wide, "wide"), **packed.awq(narrow, "narrow")}
    loaded = from_awq(model, checkpoint, bits=4, group_size=group_size)
    assert_is(loaded, float_model(model, rest, wide=wide, narrow=narrow), 128)


def test_biases():
    """Where the linear has none, zeros are none, and others are."""
    own = packed.linear(64, 128, 4, 32, is_symmetric=True)
    bias = torch.randn(64).half()
    for has_bias, stored in ((True, bias), (True, 0 * bias), (False, bias), (False, 0 * bias), (False, None)):
        checkpoint = packed.gptq(own, "0") | ({} if stored is None else {"0.bias": stored})
        loaded = from_gptq(nn.Sequential(nn.Linear(128, 64, has_bias)), checkpoint)
        assert (loaded[0].bias is not None) == (has_bias or bool(stored is not None and stored.any()))
        x = torch.randn(2, 128)
        assert_same(loaded(x), F.linear(x, own.weight(), None if stored is None else stored.float()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_results_follow_the_dtype_of_the_input(dtype):
    model, own = Block(has_bias=False), packed.linear(192, 128, 4, 32, is_symmetric=False)
    narrow = packed.linear(128, 192, 4, 32, is_symmetric=False, seed=1)
    rest = random_rest(model)
    checkpoint = {**rest, **packed.gptq(own, "wide"), **packed.gptq(narrow, "narrow")}
    loaded = from_gptq(model, checkpoint).to(dtype).eval()
    assert loaded.wide.scales.dtype == torch.float32
    expected, x = float_model(model, rest, wide=own, narrow=narrow), torch.randn(3, 128)
    optimized = ipex.jit_optimize(loaded, x.to(dtype))
    for actual in (loaded(x.to(dtype)), optimized(x.to(dtype))):
        assert actual.dtype == dtype
        assert_same(actual.float(), expected(x), 0.02)


def test_a_model_without_weights():
    own, narrow = (packed.linear(*sizes, 4, 32, is_symmetric=False) for sizes in ((192, 128), (128, 192)))
    with torch.device("meta"):
        model = Block()
    rest = {name: tensor.float() for name, tensor in random_rest(Block()).items()}
    loaded = from_gptq(model, {**rest, **packed.gptq(own, "wide"), **packed.gptq(narrow, "narrow")})
    assert_is(loaded, float_model(Block(), rest, wide=own, narrow=narrow), 128)


def test_what_is_shared_stays_shared():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.first, self.head = (
                nn.Embedding(50, 128),
                nn.Linear(128, 128, False),
                nn.Linear(128, 50, False),
            )
            self.again, self.head.weight = self.first, self.words.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.again(self.first(self.words(x))))

    own, words = packed.linear(128, 128, 4, 32, is_symmetric=True), torch.randn(50, 128)
    loaded = from_gptq(Tied(), {**packed.gptq(own, "first"), "words.weight": words})
    assert loaded.again is loaded.first
    assert loaded.head.weight is loaded.words.weight
    x = torch.tensor([[1, 4]])
    assert_same(loaded(x), words[x] @ own.weight().t() @ own.weight().t() @ words.t())


@pytest.mark.parametrize("configuration", ["quantize_config.json", "config.json"])
def test_folders(configuration, tmp_path):
    model, own = Block(has_bias=False), packed.linear(192, 128, 4, 32, False, is_ordered=False)
    narrow = packed.linear(128, 192, 4, 32, False, is_ordered=False, seed=1)
    rest = random_rest(model)
    save_file(packed.gptq(own, "wide", version=2), tmp_path / "model-1.safetensors")
    save_file({**rest, **packed.gptq(narrow, "narrow", version=2)}, tmp_path / "model-2.safetensors")
    said = {"bits": 4, "group_size": 32, "desc_act": True, "sym": False, "checkpoint_format": "gptq_v2"}
    found = {"hidden_size": 128, "quantization_config": said} if configuration == "config.json" else said
    (tmp_path / configuration).write_text(json.dumps(found))
    assert_is(from_gptq(model, tmp_path), float_model(model, rest, wide=own, narrow=narrow), 128)
    with pytest.raises(ValueError, match="expected g_idx in order for wide, got another order. Say desc_act=True"):
        from_gptq(model, str(tmp_path), desc_act=False)


@pytest.mark.parametrize("kind", [Path, str])
def test_the_configuration_beside_a_file(kind, tmp_path):
    one, file = nn.Sequential(nn.Linear(128, 64, bias=False)), tmp_path / "model.safetensors"
    save_file(packed.gptq(OWN, "0", version=2), file)
    (tmp_path / "quantize_config.json").write_text(json.dumps({"bits": 4, "checkpoint_format": "gptq_v2"}))
    assert_is(from_gptq(one, kind(file)), F_linear(OWN), 128)


def test_a_pair_says_what_arguments_do_not():
    one = nn.Sequential(nn.Linear(128, 64, bias=False))
    tensors = packed.gptq(OWN, "0", version=2)
    said = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "checkpoint_format": "gptq_v2"}
    assert_is(from_gptq(one, (tensors, said)), F_linear(OWN), 128)
    with pytest.raises(ValueError, match="groups of 64 of 128 inputs"):
        from_gptq(one, (tensors, said), group_size=64)
    with pytest.raises(ValueError, match="expected 4 bits for 0, got 8"):
        from_awq(one, (packed.awq(OWN, "0"), {"w_bit": 8}))


def test_one_file(tmp_path):
    own = packed.linear(64, 128, 4, 32, is_symmetric=False)
    save_file(packed.awq(own, "0"), tmp_path / "own.safetensors")
    assert_is(from_awq(nn.Sequential(nn.Linear(128, 64, False)), tmp_path / "own.safetensors"), F_linear(own), 128)


@pytest.mark.parametrize(
    "damage", [lambda file: file[:5], lambda file: file[:-1], lambda file: file[:8] + b"?" + file[9:]]
)
def test_damaged_files(damage, tmp_path):
    own = packed.linear(64, 128, 4, 32, is_symmetric=False)
    path = tmp_path / "own.safetensors"
    save_file(packed.awq(own, "0"), path)
    path.write_bytes(damage(path.read_bytes()))
    message = r"ipex\.quantization\.from_awq: expected a whole safetensors file at .*, got: .*\. Download it again"
    with pytest.raises(ValueError, match=message):
        from_awq(nn.Sequential(nn.Linear(128, 64, False)), path)


def test_without_the_package(tmp_path, monkeypatch):
    (tmp_path / "own.safetensors").touch()
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"from_awq: expected the package safetensors, got none\. pip install"):
        from_awq(nn.Sequential(nn.Linear(128, 64, False)), tmp_path)


OWN = packed.linear(64, 128, 4, 32, is_symmetric=False)
ORDERED = packed.linear(64, 128, 4, 32, is_symmetric=False, is_ordered=False)
SYMMETRIC = packed.linear(64, 128, 4, 32, is_symmetric=True)
UNEVEN = ORDERED.group_of.clone()
UNEVEN[UNEVEN == 3] = 2


@pytest.mark.parametrize(
    ("checkpoint", "arguments", "message"),
    [
        ({"0.weight": torch.zeros(64, 128)}, {}, "expected tensors named qweight in the checkpoint, got none"),
        (packed.gptq(OWN, "1"), {}, "expected an nn.Linear at 1, got no such module"),
        (packed.gptq(OWN, "0") | {"2.weight": torch.zeros(3)}, {}, "that the model has a place for, got 2.weight"),
        (packed.gptq(OWN, "0") | {"0.scales": torch.zeros(4, 63)}, {}, r"scales of floats \[any, 64\] .*\[4, 63\]"),
        (
            packed.gptq(OWN, "0") | {"0.qzeros": torch.zeros(4, 8)},
            {},
            r"qzeros of int32 \[4, 8\] .* torch.float32",
        ),
        (packed.gptq(OWN, "0") | {"0.qweight": torch.zeros(12, 64, dtype=torch.int32)}, {}, "2, 4 or 8 bits .*, got 3"),
        (packed.gptq(OWN, "0"), {"bits": 8}, "expected 8 bits for each of 128 inputs for 0, got 4"),
        (packed.gptq(OWN, "0"), {"group_size": 64}, "groups of 64 of 128 inputs for 0, got scales of 4 groups"),
        (packed.gptq(OWN, "0"), {"sym": True}, "expected zeros of 8 .*, got zeros of 0 to 15. Is it sym=False"),
        (packed.gptq(SYMMETRIC, "0", 2), {"sym": True}, "got zeros of 9 to 9. Its checkpoint_format is 'gptq_v2'"),
        (
            packed.gptq(OWN, "0", has_order=False),
            {"desc_act": True},
            "expected g_idx, as groups .* got none",
        ),
        (packed.gptq(ORDERED, "0"), {"desc_act": False}, "g_idx in order for 0, got another order"),
        (packed.gptq(ORDERED, "0") | {"0.g_idx": UNEVEN}, {}, "32 inputs in each group of g_idx for 0, got"),
        (packed.gptq(OWN, "0") | {"0.g_idx": OWN.group_of + 1}, {}, "groups 0 to 3 in g_idx for 0, got 1 to 4"),
        (packed.gptq(OWN, "0"), {"checkpoint_format": "marlin"}, "expected 'gptq' or 'gptq_v2' in checkpoint_format"),
    ],
)
def test_bad_checkpoints(checkpoint, arguments, message):
    model = nn.Sequential(nn.Linear(128, 64, bias=False))
    with pytest.raises(ValueError, match=rf"ipex.quantization.from_gptq: .*{message}"):
        from_gptq(model, checkpoint, **arguments)


def test_what_else_is_refused(tmp_path):
    model, own = nn.Sequential(nn.Linear(128, 64)), packed.gptq(OWN, "0")
    with pytest.raises(ValueError, match=r"expected bias for 0, got none"):
        from_gptq(model, own)
    two = nn.Sequential(nn.Linear(128, 64, False), nn.LayerNorm(64))
    with pytest.raises(ValueError, match=r"expected 1.weight, 1.bias in the checkpoint, got no such tensor"):
        from_gptq(two, own)
    one = nn.Sequential(nn.Linear(128, 64, False))
    assert isinstance(from_gptq(one, own | {"rotary.inv_freq": torch.ones(3)}, strict=False)[0], WeightOnlyLinear)
    with pytest.raises(ValueError, match=r"expected 64 outputs for 0, got 72"):
        from_gptq(one, packed.gptq(packed.linear(72, 128, 4, 32, True), "0"))
    with pytest.raises(ValueError, match=r"expected an nn.Linear at 0, got Bilinear"):
        from_gptq(nn.Sequential(nn.Bilinear(128, 128, 64)), own)
    with pytest.raises(ValueError, match=r"from_awq: expected 4 bits for 0, got 8"):
        from_awq(one, packed.awq(OWN, "0"), bits=8)
    with pytest.raises(ValueError, match=r"expected qweight of int32 \[128, any\] for 0, got torch.int32 \[16, 64\]"):
        from_awq(one, own)
    with pytest.raises(ValueError, match=r"from_gptq: expected a checkpoint of gptq, got quant_method 'awq'"):
        from_gptq(one, (own, {"quant_method": "awq"}))
    with pytest.raises(TypeError, match=r"from_gptq: expected a pair of .*, got a tuple of dict, int"):
        from_gptq(one, (own, 4))
    with pytest.raises(ValueError, match=r"expected a safetensors file, or a folder of them, got .*nowhere"):
        from_gptq(one, tmp_path / "nowhere")
    with pytest.raises(TypeError, match=r"expected a state_dict or a path in checkpoint, got int"):
        from_gptq(one, 3)
    save_file(packed.awq(OWN, "0"), tmp_path / "own.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"bits": 4, "version": "GEMV"}}))
    with pytest.raises(ValueError, match=r"from_awq: expected a checkpoint in the layout 'gemm', got 'gemv'"):
        from_awq(one, tmp_path)
