"""`ipex llm` answers a prompt and a chat; IPEX's own names lead to the same functions."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from ipex._cli import main  # noqa: E402
from llm.families import VOCABULARY, make  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, and a tokenizer whose words are w0, w1 .."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    path = tmp_path_factory.mktemp("model")
    make("Llama").save_pretrained(path)
    own = Tokenizer(WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    own.pre_tokenizer = Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=own, unk_token="w0", pad_token="w0")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}w1"
    tokenizer.save_pretrained(path)
    return path


def expected(folder, words: list[int], count: int) -> str:
    model = transformers.LlamaForCausalLM.from_pretrained(folder).eval()
    found = model.generate(torch.tensor([words]), max_new_tokens=count, do_sample=False)[0, len(words) :]
    return " ".join(f"w{word}" for word in found.tolist())


def test_a_prompt(folder, capsys):
    assert main(["llm", str(folder), "--prompt", "w5 w7 w9", "--tokens", "6"]) == 0
    said = capsys.readouterr()
    assert said.out.split() == expected(folder, [5, 7, 9], 6).split()
    assert "[3 tokens in " in said.err
    assert "then 6 at " in said.err


def test_a_chat_remembers(folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("w5\nw7\n"))
    assert main(["llm", str(folder), "--tokens", "3"]) == 0
    said = capsys.readouterr().out.split()
    first = expected(folder, [5, 1], 3).split()
    words = [5, *(int(word[1:]) for word in first), 7, 1]
    assert said == [*first, *expected(folder, words, 3).split()]


@pytest.mark.parametrize(
    "more",
    [["--weights", "int4"], ["--kv-cache-dtype", "int8"], ["--dtype", "bfloat16"], ["--threads", "1", "--sample"]],
)
def test_options(folder, capsys, more):
    threads = torch.get_num_threads()
    try:
        assert main(["llm", str(folder), "--prompt", "w5", "--tokens", "2", *more]) == 0
    finally:
        torch.set_num_threads(threads)
    assert len(capsys.readouterr().out.split()) == 2


def test_wrong_arguments(folder, capsys, tmp_path):
    assert main(["llm", str(tmp_path / "nowhere")]) == 2
    assert "expected a GGUF file or a folder, got" in capsys.readouterr().err
    (tmp_path / "bad.gguf").write_bytes(b"no model")
    assert main(["llm", str(tmp_path / "bad.gguf"), "--weights", "int4"]) == 2
    assert "expected no --weights with a GGUF file" in capsys.readouterr().err


NAMES_OF_IPEX = """
import pytest
import ipex.compat
import intel_extension_for_pytorch as theirs
from ipex import llm
assert theirs.llm.optimize is llm.optimize
assert theirs.quantization.WoqLowpMode.BF16 is ipex.quantization.WoqLowpMode.BF16
assert theirs.llm.modules.LinearSilu is llm.modules.LinearSilu
assert theirs.llm.functional.add_rms_norm is llm.functional.add_rms_norm
with pytest.raises(AttributeError, match="docs/how_to/llm.md"):
    theirs.llm.generation
with pytest.raises(AttributeError, match="take a Recipe in place of a qconfig"):
    theirs.quantization.default_static_qconfig
"""


def test_the_names_of_ipex():
    # In a process of its own: ipex.compat changes what importing means, and what frozen modules go through.
    command = [sys.executable, "-W", "ignore", "-c", NAMES_OF_IPEX]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_saves_and_loads(folder, tmp_path, capsys):
    given = ["llm", str(folder), "--prompt", "w5 w7", "--tokens", "4"]
    assert main([*given, "--weights", "int4", "--save", str(tmp_path)]) == 0
    first = capsys.readouterr().out
    assert main(["llm", str(tmp_path), *given[2:]]) == 0
    assert capsys.readouterr().out == first != ""
    assert main(["llm", str(tmp_path), *given[2:], "--weights", "int4"]) != 0
    assert "expected no --weights" in capsys.readouterr().err
