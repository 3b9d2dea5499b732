"""Trains a small language model on the sources of Python's library, and shows what each precision costs in perplexity.

    python benchmarks/int8_language_model.py

A transformer of bytes: three layers, 192 wide, texts of 128 bytes. Files are shared out by their names: most train, one
in eight tests. Prints the perplexity per byte in float32, in 16 bits, and in integers by each way of
ipex.quantization and, where they are installed, by ONNX Runtime (static and dynamic) and OpenVINO. Nothing is
downloaded.
"""

from __future__ import annotations

import argparse
import sysconfig
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ipex
from int8_models import has, peers
from ipex.quantization import Recipe, convert, dynamic, prepare, weight_only

LENGTH, BATCH, WIDTH, HEADS = 128, 16, 192, 4


class Block(nn.Module):
    """A layer that looks at what came before."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("ahead", torch.full((LENGTH, LENGTH), -1e4).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        """Add what attention and the wide layer make of it."""
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / shape[-1] ** 0.5 + self.ahead
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class Language(nn.Module):
    """Bytes in, and for each of them the logits of the next one out."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.layers = nn.Sequential(*(Block() for _ in range(3)), nn.LayerNorm(WIDTH))
        self.last = nn.Linear(WIDTH, 256)

    def forward(self, x: Tensor) -> Tensor:
        """Predict."""
        return self.last(self.layers(self.bytes(x) + self.places))


def texts() -> tuple[Tensor, Tensor]:
    """Return the bytes that train, and those that test."""
    folder = Path(sysconfig.get_path("stdlib"))
    parts: tuple[bytearray, bytearray] = (bytearray(), bytearray())
    for file in sorted(folder.glob("*.py")):
        parts[zlib.crc32(file.name.encode()) % 8 == 0].extend(file.read_bytes())
    train, test = (torch.frombuffer(part, dtype=torch.uint8).long() for part in parts)
    return train, test


def samples(text: Tensor, count: int, seed: int) -> Iterator[Tensor]:
    """Give batches of texts that are one byte longer than what the model reads."""
    random = torch.Generator().manual_seed(seed)
    for _ in range(count):
        starts = torch.randint(len(text) - LENGTH - 1, (BATCH,), generator=random)
        yield torch.stack([text[start : start + LENGTH + 1] for start in starts])


def trained(text: Tensor, steps: int) -> nn.Module:
    """Train for so many batches."""
    torch.manual_seed(0)
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for batch in samples(text, steps, seed=0):
        optimizer.zero_grad()
        F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def perplexity(call: Callable[[Tensor], Tensor], test: list[Tensor]) -> float:
    """Of a byte, when those before it are known."""
    losses = [F.cross_entropy(torch.as_tensor(call(b[:, :-1])).float().flatten(0, 1), b[:, 1:].flatten()) for b in test]
    return torch.stack(losses).mean().exp().item()


def of_onnxruntime(model: nn.Module, x: Tensor) -> Callable[[Tensor], Tensor]:
    """ONNX Runtime's own dynamic int8."""
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder:
        plain, prepared, quantized = (str(Path(folder) / f"{name}.onnx") for name in ("plain", "prepared", "quantized"))
        torch.onnx.export(model, (x,), plain, dynamo=False, input_names=["x"], opset_version=17)
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        quantize_dynamic(prepared, quantized, weight_type=QuantType.QInt8, per_channel=True)
        session = onnxruntime.InferenceSession(quantized, providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0])


def ways(model: nn.Module, seen: list[Tensor]) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """Give the model in each precision."""
    x = seen[0]
    yield "ipex float32", ipex.jit_optimize(model, x)
    yield "ipex BF32", ipex.jit_optimize(model, x, fp32_math_mode=ipex.FP32MathMode.BF32)
    yield "ipex bfloat16", ipex.jit_optimize(model, x, dtype=torch.bfloat16)
    for text, recipe in {"": Recipe(), ", min_max": Recipe("min_max"), ", smooth": Recipe(smooth=0.5)}.items():
        prepared = prepare(model, x, recipe)
        for batch in seen:
            prepared(batch)
        yield f"ipex int8, static{text}", convert(prepared)
    yield "ipex int8, dynamic", dynamic(model, x)
    for dtype in ("bfloat16", "int8", "float8_e4m3fn", "float8_e5m2"):
        yield f"ipex weight-only {dtype}", weight_only(model, x, dtype=dtype)
    for size in (128, 32):
        yield f"ipex weight-only int4, groups of {size}", weight_only(model, x, dtype="int4", group_size=size)
    if has("onnx") and has("onnxruntime"):
        yield "ONNX Runtime int8, dynamic", of_onnxruntime(model, x)
    for peer, call in peers(model, "transformer", seen, threads=torch.get_num_threads()):
        yield f"{peer} int8, static", lambda x, call=call: call(x.numpy())


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=800, help="of training: about 3 minutes of one core")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    train, test = texts()
    model = trained(train, options.steps)
    held_back = list(samples(test, 32, seed=1))
    seen = [batch[:, :-1] for batch in samples(train, 16, seed=2)]
    with torch.no_grad():
        exact = perplexity(model, held_back)
        print(f"{len(train)} bytes train, {len(test)} test\n")
        print("| arithmetic | perplexity | of float32's |\n|---|---|---|")
        print(f"| float32 | {exact:.4f} | 1.0000 |", flush=True)
        for name, call in ways(model, seen):
            found = perplexity(call, held_back)
            print(f"| {name} | {found:.4f} | {found / exact:.4f} |", flush=True)


if __name__ == "__main__":
    main()
