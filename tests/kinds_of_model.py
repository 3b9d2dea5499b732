"""A model for each kind of packed weight, with an input. The forms that its file must hold stand beside it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import ipex

# Names of forms in a file begin with these words.
BLOCKED, PAIRS, WINOGRAD, DEPTHWISE = "blocked", "bfloat16 pairs", "winograd", "depthwise"


class First(nn.Module):
    """A recurrent layer whose states nobody wants."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Tied(nn.Module):
    """Embedding rows of the weight that gives the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(300, 64)
        self.head = nn.Linear(64, 300, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embedding(x)))


class Twice(nn.Module):
    """A linear that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(96, 96)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(torch.tanh(self.linear(x)) * 2 + x))


class Bags(nn.Module):
    """Sums of rows, and a linear."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(400, 32, mode="mean")
        self.linear = nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.bags(x))


class Attention(nn.Module):
    """Heads that look at each other."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(64, 192)
        self.out = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out((torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v).transpose(1, 2).flatten(2))


class Constant(nn.Module):
    """A product with a matrix that is a constant of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.randn(64, 48))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.matmul(x, self.matrix))


def inverted_residual() -> nn.Module:
    """Return what becomes a chain: pixels, depthwise, pixels."""
    return nn.Sequential(
        nn.Conv2d(16, 64, 1), nn.ReLU6(), nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.ReLU6(), nn.Conv2d(64, 16, 1)
    )


def _integers(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, 300, shape)


def _noise(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape).to(dtype)


def _static(model: nn.Module, x: Tensor) -> torch.jit.ScriptModule:
    prepared = ipex.quantization.prepare(model, x, ipex.quantization.Recipe(forced=True))
    prepared(x)
    return ipex.quantization.convert(prepared)


@dataclass(frozen=True)
class Kind:
    """A model and its input; how it is optimised; the forms that the file must hold."""

    make: Callable[[], nn.Module]
    x: Callable[[], Tensor]
    forms: tuple[str, ...] = (BLOCKED,)
    optimize: Callable[[nn.Module, Tensor], torch.jit.ScriptModule] = field(
        default=lambda model, x: ipex.jit_optimize(model, x)
    )


def _with(**options: Any) -> Callable[[nn.Module, Tensor], torch.jit.ScriptModule]:
    return lambda model, x: ipex.jit_optimize(model, x, **options)


# Where the CPU rounds faster than it multiplies.
ROUNDS = ipex.isa.has_fast_avx512_bf16() or ipex.isa.has_amx()
PAIRS_OF_PIXELS = (PAIRS,) if ROUNDS else ()
ROUNDED = (BLOCKED, "bfloat16 of") if ROUNDS else (BLOCKED,)
# Where the CPU does not compute in a format, its weights stay plain, and there is nothing to store.
IN_BFLOAT16 = (BLOCKED,) if ipex.isa.has_avx512_bf16() else ()
IN_INT8 = ("int8",) if ipex.isa.has_avx512_vnni() or ipex.isa.has_avx2_vnni() else ()

BF32 = _with(fp32_math_mode=ipex.FP32MathMode.BF32)
KINDS: dict[str, Kind] = {
    "linear": Kind(lambda: nn.Sequential(nn.Linear(130, 70), nn.GELU()), _noise(33, 130)),
    "linear of one row": Kind(lambda: nn.Linear(256, 256), _noise(1, 256)),
    "linear of 12 outputs": Kind(lambda: nn.Linear(40, 12), _noise(5, 40)),
    "linears in a chain": Kind(
        lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)),
        _noise(2, 20),
    ),
    "linear in pairs": Kind(lambda: nn.Linear(512, 512), _noise(1, 512), (BLOCKED, PAIRS), BF32),
    "linear in bfloat16": Kind(
        lambda: nn.Linear(129, 64).bfloat16(), _noise(8, 129, dtype=torch.bfloat16), IN_BFLOAT16
    ),
    "linear with dtype": Kind(lambda: nn.Linear(128, 64), _noise(8, 128), IN_BFLOAT16, _with(dtype=torch.bfloat16)),
    "linear called twice": Kind(Twice, _noise(4, 96)),
    "tied embedding": Kind(Tied, _integers(2, 7)),
    "tied embedding in bfloat16": Kind(lambda: Tied().bfloat16(), _integers(2, 7), IN_BFLOAT16),
    "embedding bag": Kind(Bags, _integers(3, 5)),
    "attention": Kind(Attention, _noise(2, 20, 64)),
    "constant matrix": Kind(Constant, _noise(3, 9, 64)),
    "convolution": Kind(lambda: nn.Conv2d(8, 24, 3, stride=2), _noise(1, 8, 20, 20)),
    "convolution of pixels": Kind(lambda: nn.Conv2d(32, 48, 1), _noise(1, 32, 14, 14)),
    "convolution by winograd": Kind(
        lambda: nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()), _noise(1, 64, 56, 56), (BLOCKED, WINOGRAD)
    ),
    "convolution in pairs": Kind(
        lambda: nn.Conv2d(64, 64, 1), _noise(1, 64, 30, 30), (BLOCKED, *PAIRS_OF_PIXELS), BF32
    ),
    "convolution that rounds": Kind(lambda: nn.Conv2d(32, 48, 3, stride=2), _noise(2, 32, 40, 40), ROUNDED, BF32),
    "depthwise convolution": Kind(lambda: nn.Conv2d(32, 32, 3, padding=1, groups=32), _noise(1, 32, 16, 16)),
    "depthwise in a chain": Kind(
        inverted_residual,
        lambda: torch.randn(1, 16, 130, 130).to(memory_format=torch.channels_last),
        (BLOCKED, DEPTHWISE),
    ),
    "grouped convolution": Kind(lambda: nn.Conv2d(16, 32, 3, groups=4), _noise(1, 16, 12, 12)),
    "channels-last convolution": Kind(
        lambda: nn.Conv2d(16, 32, 3).to(memory_format=torch.channels_last), _noise(1, 16, 12, 12)
    ),
    "convolution in 1-d": Kind(lambda: nn.Conv1d(16, 32, 5), _noise(2, 16, 50)),
    "convolution in 3-d": Kind(lambda: nn.Conv3d(4, 8, 3), _noise(1, 4, 8, 8, 8)),
    "convolution and batch_norm": Kind(
        lambda: nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()), _noise(1, 8, 12, 12)
    ),
    "transposed convolution": Kind(lambda: nn.ConvTranspose2d(16, 8, 4, stride=2), _noise(1, 16, 9, 9)),
    "transposed in groups": Kind(lambda: nn.ConvTranspose2d(16, 8, 3, groups=2), _noise(1, 16, 9, 9)),
    "lstm": Kind(lambda: First(nn.LSTM(40, 50, bidirectional=True)), _noise(6, 3, 40), ("columns",)),
    "lstm with a projection": Kind(lambda: First(nn.LSTM(24, 32, 2, proj_size=8)), _noise(5, 2, 24), ("columns",)),
    "lstm in pairs": Kind(lambda: First(nn.LSTM(256, 256)), _noise(2, 1, 256), ("columns", PAIRS), BF32),
    "gru": Kind(lambda: First(nn.GRU(40, 50, batch_first=True)), _noise(2, 6, 40), ("columns",)),
    "dynamic int8": Kind(
        lambda: nn.Linear(512, 380), _noise(4, 512), ("int8", "int8 sums"), lambda m, x: ipex.quantization.dynamic(m, x)
    ),
    "dynamic int8 lstm": Kind(
        lambda: First(nn.LSTM(500, 300, bidirectional=True)),
        _noise(5, 2, 500),
        ("int8", "int8 sums"),
        lambda m, x: ipex.quantization.dynamic(m, x),
    ),
    "dynamic int8 lstm with a projection": Kind(
        lambda: First(nn.LSTM(500, 300, 2, proj_size=70)),
        _noise(5, 2, 500),
        ("int8", "int8 sums"),
        lambda m, x: ipex.quantization.dynamic(m, x),
    ),
    "dynamic int8 gru": Kind(
        lambda: First(nn.GRU(500, 400, batch_first=True)),
        _noise(2, 5, 500),
        ("int8", "int8 sums"),
        lambda m, x: ipex.quantization.dynamic(m, x),
    ),
    "int8 weights": Kind(
        lambda: nn.Linear(512, 380),
        _noise(4, 512),
        ("int8", "scales"),
        lambda m, x: ipex.quantization.weight_only(m, x),
    ),
    "int4 weights": Kind(
        lambda: nn.Linear(512, 380),
        _noise(4, 512),
        ("int4", "scales"),
        lambda m, x: ipex.quantization.weight_only(m, x, dtype="int4", group_size=32),
    ),
    "bfloat16 weights": Kind(
        lambda: nn.Linear(512, 380),
        _noise(4, 512),
        ("bfloat16", "scales"),
        lambda m, x: ipex.quantization.weight_only(m, x, dtype="bfloat16"),
    ),
    "E4M3 weights": Kind(
        lambda: nn.Linear(512, 380),
        _noise(4, 512),
        ("float8_e4m3fn", "scales"),
        lambda m, x: ipex.quantization.weight_only(m, x, dtype="float8_e4m3fn", group_size=32),
    ),
    "static int8": Kind(
        lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), _noise(4, 64), IN_INT8, _static
    ),
    "static int8 convolution": Kind(
        lambda: nn.Sequential(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Conv2d(32, 16, 3)),
        _noise(2, 16, 12, 12),
        IN_INT8,
        _static,
    ),
}


def model_and_input(name: str) -> tuple[torch.jit.ScriptModule, Tensor]:
    """Return an optimised model and its input, always the same numbers."""
    kind = KINDS[name]
    with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's recurrent layers look at sizes, and warn of their own slow ways
        torch.manual_seed(7)
        model, x = kind.make().eval(), kind.x()
        return kind.optimize(model, x), x
