"""How long a process takes from a file to its first result, and how much memory 8 of them take.

    python benchmarks/ahead_of_time.py resnet50 bert_base --threads 2

Compares `ipex.aot_load` with the portable file of `ipex.load`, and, where they are installed, ONNX Runtime's optimised
model and AOTInductor's package. Each time is the median of processes of their own, the file in the page cache:

    first   from the file to the first result, imports not counted; and the time of all threads on a CPU for that,
            which others who use the machine change less
    then    a call after 10 others
    memory  of a worker with 8 of them alive after a call: Pss of /proc/PID/smaps_rollup, in which a page that n
            processes share counts as 1/n. What the process had before it loaded the file is in it, and told beside.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

MIB = 1 << 20
WORKERS = 8
Call = Callable[[], Any]


def pss() -> int:
    """Return the proportional share of memory of this process."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    raise OSError("no Pss in smaps_rollup")


# Each format: how a file is written in the folder, and a call of it. Imports are those of `load`'s module.


def save_portable(model: str, folder: Path) -> None:
    """Write an optimised model as TorchScript does."""
    optimized, _ = ipex_model(model)
    optimized.save(str(folder / "portable"))


def save_aot(model: str, folder: Path) -> None:
    """Write one with its weights packed."""
    import ipex

    optimized, inputs = ipex_model(model)
    ipex.aot_save(optimized, folder / "aot", example_inputs=inputs)


def save_onnx(model: str, folder: Path) -> None:
    """Write what ONNX Runtime makes of the model."""
    import onnxruntime

    module, inputs = plain_model(model)
    torch.onnx.export(module, inputs, folder / "model.onnx", dynamo=False, opset_version=17)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "onnxruntime")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])


def save_inductor(model: str, folder: Path) -> None:
    """Write AOTInductor's package."""
    module, inputs = plain_model(model)
    exported = torch.export.export(module, inputs)
    torch._inductor.aoti_compile_and_package(
        exported, package_path=str(folder / "aotinductor.pt2"), inductor_configs={"freezing": True}
    )


def plain_model(name: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """Return a model of the benchmark with its inputs."""
    from ipex.bench.models import MODELS

    model, inputs = MODELS[name].make(1)
    return model.eval(), inputs if isinstance(inputs, tuple) else (inputs,)


def ipex_model(name: str) -> tuple[torch.jit.ScriptModule, tuple[Any, ...]]:
    """Return the same optimised."""
    import ipex

    model, inputs = plain_model(name)
    return ipex.jit_optimize(torch.jit.trace(model, inputs, check_trace=False)), inputs


def imports(what: str) -> None:
    """Import what a program has at hand before it loads a file."""
    if what == "onnxruntime":
        import onnxruntime  # noqa: F401
    elif what == "aotinductor":
        import torch._inductor.package  # noqa: F401
    else:
        import ipex  # noqa: F401


def load(what: str, folder: Path, inputs: tuple[Any, ...], threads: int) -> Call:
    """Return a call of the model in the file."""
    if what == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # that is done
        session = onnxruntime.InferenceSession(str(folder / what), options, providers=["CPUExecutionProvider"])
        feeds = {entry.name: x.numpy() for entry, x in zip(session.get_inputs(), inputs)}
        return lambda: session.run(None, feeds)
    if what == "aotinductor":
        package = torch._inductor.aoti_load_package(str(folder / "aotinductor.pt2"))
        return lambda: package(*inputs)
    import ipex

    model = ipex.aot_load(folder / what) if what == "aot" else ipex.load(folder / what)
    return lambda: model(*inputs)


SAVE = {"aot": save_aot, "portable": save_portable, "onnxruntime": save_onnx, "aotinductor": save_inductor}


def worker(what: str, folder: Path, threads: int) -> None:
    """Load and call. Says what that took; waits to be told; says what memory there is."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    inputs = torch.load(folder / "inputs", weights_only=True)
    imports(what)
    before = pss()
    start, cpu = time.perf_counter(), time.process_time()
    call = load(what, folder, inputs, threads)
    call()
    first, cpu = time.perf_counter() - start, time.process_time() - cpu
    for _ in range(10):
        call()
    times = []
    for _ in range(10):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    print(json.dumps({"first": first, "cpu": cpu, "then": min(times), "before": before}), flush=True)
    sys.stdin.readline()
    print(pss(), flush=True)
    sys.stdin.readline()


def start(what: str, folder: Path, threads: int) -> subprocess.Popen[str]:
    """Start a worker."""
    command = [sys.executable, __file__, "--worker", what, "--folder", str(folder), "--threads", str(threads)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def ask(process: subprocess.Popen[str]) -> Any:
    """Return the next line that a worker says."""
    assert process.stdout
    return json.loads(process.stdout.readline())


def go_on(process: subprocess.Popen[str]) -> None:
    """Let a worker go on."""
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


def measure(what: str, folder: Path, threads: int, rounds: int) -> dict[str, float]:
    """Return the figures of a format."""
    single = []
    for _ in range(rounds):
        process = start(what, folder, threads)
        single.append(ask(process))
        process.kill()
        process.wait()
    workers, before = [], []
    for _ in range(WORKERS):
        workers.append(start(what, folder, threads))
        before.append(ask(workers[-1])["before"])
    for process in workers:
        go_on(process)
    after = [ask(process) for process in workers]
    for process in workers:
        process.kill()
        process.wait()
    return {
        "first": statistics.median(s["first"] for s in single),
        "cpu": statistics.median(s["cpu"] for s in single),
        "then": min(s["then"] for s in single),
        "memory": statistics.mean(after) / MIB,
        "before": statistics.mean(before) / MIB,
        "file": sum(f.stat().st_size for f in folder.glob(f"{what}*")) / MIB,
    }


def main() -> None:
    """Print a table per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet50", "bert_base"])
    parser.add_argument("--formats", nargs="+", choices=SAVE, default=list(SAVE))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments.worker, arguments.folder, arguments.threads)
    warnings.simplefilter("ignore")
    for name in arguments.models:
        print(f"\n{name}, {arguments.threads} threads, torch {torch.__version__}")
        titles = ("first, s", "CPU, s", "then, ms", "memory, MiB", "before load", "file, MiB")
        print(f"{'':12}" + "".join(f"{title:>12}" for title in titles))
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            torch.save(plain_model(name)[1], Path(folder) / "inputs")
            for what in arguments.formats:
                if what == "onnxruntime" and importlib.util.find_spec("onnxruntime") is None:
                    print(f"{what:12} left out: not installed")
                    continue
                try:
                    SAVE[what](name, Path(folder))
                except Exception as error:
                    print(f"{what:12} left out: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
                    continue
                found = measure(what, Path(folder), arguments.threads, arguments.rounds)
                cells = (
                    f"{found['first']:.3f}",
                    f"{found['cpu']:.3f}",
                    f"{found['then'] * 1e3:.1f}",
                    *(f"{found[key]:.0f}" for key in ("memory", "before", "file")),
                )
                print(f"{what:12}" + "".join(f"{cell:>12}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
