"""Optimises a ResNet-50 with random weights, in Python, and serves it from C++: `make demo`."""

import argparse
import collections
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch

import ipex
from build_cpp import build, load_tensor, save_tensor
from resnet50 import resnet50


def paired_times(
    before: torch.jit.ScriptModule, after: torch.jit.ScriptModule, x: torch.Tensor, rounds: int
) -> tuple[list[float], list[float]]:
    """Time both, turn about, so that what else the machine does hits both alike."""
    times: tuple[list[float], list[float]] = ([], [])
    for round_ in range(rounds + 2):
        for model, list_ in zip((before, after), times):
            start = time.perf_counter()
            model(x)
            if round_ >= 2:  # the first two are warm-up
                list_.append(time.perf_counter() - start)
    return times


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds")
    rounds = parser.parse_args().rounds
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # in step with what serve prints
    warnings.filterwarnings("ignore", message=".*torch.jit.*")
    torch.manual_seed(0)
    torch.set_grad_enabled(False)

    print("demo: tracing and optimising a ResNet-50 with random weights")
    model, x = resnet50(), torch.randn(1, 3, 224, 224)
    traced = torch.jit.trace(model, x)
    optimized = ipex.jit_optimize(traced)

    print(ipex.explain(optimized), end="\n\n")
    left = collections.Counter(n.kind() for n in optimized.inlined_graph.nodes() if n.kind().startswith("aten::"))
    unwanted = {"aten::_convolution", "aten::conv2d", "aten::batch_norm", "aten::relu", "aten::relu_"} & left.keys()
    if unwanted:
        raise SystemExit(f"demo: FAILED, still in aten: {unwanted}")

    print("demo: comparing with eager")
    verification = ipex.verify(model, optimized, x)
    print(verification)
    if not verification:
        raise SystemExit("demo: FAILED, the optimised model differs from eager")
    ours = optimized(x)

    print(f"demo: timing, {rounds} rounds")
    before, after = paired_times(traced, optimized, x, rounds)
    ratio = statistics.median(b / a for b, a in zip(before, after))
    print(
        f"TorchScript {statistics.median(before) * 1e3:.1f} ms, optimised {statistics.median(after) * 1e3:.1f} ms, "
        f"median paired speed-up {ratio:.2f}x ({torch.get_num_threads()} threads, {rounds} rounds)"
    )

    print("demo: building a C++ server, and asking it")
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        optimized.save(folder / "model.pt")
        save_tensor(x, folder / "input.pt")
        programs = build(Path(__file__).parent / "cpp", folder / "build")
        subprocess.run([programs / "serve", folder / "model.pt", folder / "input.pt", folder / "output.pt"], check=True)
        if not torch.equal(load_tensor(folder / "output.pt"), ours):
            raise SystemExit("demo: FAILED, C++ and Python give different outputs")
    print("C++ and Python outputs are identical to the last bit")
    print("demo: OK")


if __name__ == "__main__":
    main()
