"""Times models quantised to static int8 beside their peers', and shows how far results are from float32.

    python benchmarks/int8_models.py --threads 1 --models "ResNet-50" "BERT base" timm:efficientnet_b0

    python benchmarks/int8_models.py --threads 1 --models --draw 6 --seed 19

Calls of ipex, ONNX Runtime and OpenVINO are taken in turn. All are calibrated with the same inputs, noise, and by the
range of what they see: the ONNX model by onnxruntime.quantization (QDQ, a scale per channel), OpenVINO's by NNCF. Peers
that are not installed are left out: `pip install onnx onnxruntime openvino nncf`. Weights are random, nothing is
downloaded. Prints Markdown: medians and fastest calls in milliseconds, and the noise of results relative to float32's.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ipex
from in_turn import CLOCKS, Clock, times_in_turn
from ipex.quantization import Recipe, convert, prepare
from low_precision import MODELS, enliven

sys.path.append(str(Path(__file__).parent / "zoo"))

from torchvision_import import import_with_torchvision

Call = Callable[[], Any]
TRANSFORMERS = ("BERT", "ViT", "vit", "deit", "swin", "transformer")
CALIBRATION_CALLS = 4


def model_of(name: str) -> tuple[nn.Module, Callable[[int], Tensor]]:
    """Make a model of the benchmark or, for `timm:NAME`, one of timm's with weights that let results differ."""
    if not name.startswith("timm:"):
        make, inputs, _ = MODELS[name]
        return make().eval(), inputs
    timm = import_with_torchvision("timm")
    model = timm.create_model(name.removeprefix("timm:")).eval()
    size = model.default_cfg["input_size"]
    return enliven(model), lambda batch: torch.randn(batch, *size)


def drawn(count: int, seed: int) -> list[str]:
    """Draw models of timm for images of up to 256 pixels, with up to 40 million parameters."""
    timm = import_with_torchvision("timm")
    names = sorted(timm.list_models())
    random.Random(seed).shuffle(names)
    found: list[str] = []
    for name in names:
        size = timm.models.get_pretrained_cfg(name).input_size
        if len(found) == count or size[0] != 3 or size[1] > 256:
            continue
        if sum(parameter.numel() for parameter in timm.create_model(name).parameters()) <= 4e7:
            found.append(f"timm:{name}")
    return found


def has(module: str) -> bool:
    """Whether a package is there."""
    return importlib.util.find_spec(module) is not None


def onnx_runtime(exported: Path, seen: list[Tensor], threads: int) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Quantise with ONNX Runtime's tool, and give a session."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter(seen)

        def get_next(self) -> dict[str, Any] | None:
            x = next(self.rest, None)
            return None if x is None else {"x": x.numpy()}

    prepared, quantized = exported.with_suffix(".prepared.onnx"), exported.with_suffix(".int8.onnx")
    quant_pre_process(str(exported), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared),
        str(quantized),
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(quantized), options, providers=["CPUExecutionProvider"])
    yield "ONNX Runtime", lambda x: session.run(None, {"x": x})[0]


def openvino(exported: Path, seen: list[Tensor], threads: int, kind: str) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Quantise with NNCF, and give OpenVINO's model."""
    import nncf
    import openvino as ov

    options = {"model_type": nncf.ModelType.TRANSFORMER} if any(part in kind for part in TRANSFORMERS) else {}
    dataset = nncf.Dataset([{"x": x.numpy()} for x in seen])
    quantized = nncf.quantize(ov.convert_model(str(exported)), dataset, **options)
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = ov.Core().compile_model(quantized, "CPU", settings)
    yield "OpenVINO", lambda x: compiled([x])[0]


def peers(model: nn.Module, name: str, seen: list[Tensor], threads: int) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Give the peers that are there; say why one is not."""
    if not has("onnx"):
        return
    # The exporter does not know the ops into which torch fuses its encoder layers.
    torch.backends.mha.set_fastpath_enabled(False)
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "model.onnx"
        torch.onnx.export(model, (seen[0],), str(exported), dynamo=False, input_names=["x"], opset_version=17)
        if has("onnxruntime"):
            yield from onnx_runtime(exported, seen, threads)
        if has("openvino") and has("nncf"):
            yield from openvino(exported, seen, threads, name)


def noise(y: Any, reference: Tensor) -> float:
    """Of a result, relative to the signal."""
    return float((torch.as_tensor(y) - reference).norm() / reference.norm())


def measure(
    name: str, threads: int, seconds: float, recipe: Recipe, clock: Clock
) -> list[tuple[str, float, float, float]]:
    """Give (who, median, fastest, noise) for one model."""
    torch.manual_seed(0)
    model, inputs = model_of(name)
    seen = [inputs(1) for _ in range(CALIBRATION_CALLS)]
    x = seen[-1]
    with torch.no_grad():
        reference = model(x)
        plain = ipex.jit_optimize(model, x)
        prepared = prepare(model, x, recipe)
        for batch in seen:
            prepared(batch)
        quantized = convert(prepared)
        results = {"ipex, float32": plain(x), "ipex": quantized(x)}
        calls: dict[str, Call] = {"ipex, float32": lambda: plain(x), "ipex": lambda: quantized(x)}
        for peer, call in peers(model, name, seen, threads):
            results[peer] = call(x.numpy())
            calls[peer] = partial(call, x.numpy())
        times = times_in_turn(seconds, list(calls.values()), clock)
    return [(who, statistics.median(own), min(own), noise(results[who], reference)) for who, own in zip(calls, times)]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS), help="of this benchmark, or timm:NAME")
    parser.add_argument("--draw", type=int, default=0, help="so many models of timm besides")
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=15, help="per model")
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="process: on a machine with other work")
    parser.add_argument("--activations", default="min_max", help="how ipex chooses ranges: see Recipe")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    print("| model | | median, ms | fastest, ms | noise |\n|---|---|---|---|---|")
    for name in options.models + (drawn(options.draw, options.seed) if options.draw else []):
        recipe, clock = Recipe(options.activations), CLOCKS[options.clock]
        for who, median, fastest, error in measure(name, options.threads, options.seconds, recipe, clock):
            print(f"| {name} | {who} | {median * 1e3:.2f} | {fastest * 1e3:.2f} | {error:.4f} |", flush=True)


if __name__ == "__main__":
    main()
