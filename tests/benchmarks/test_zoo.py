"""The zoo sees what is wrong: with planted models, and with a few real ones that are drawn anew in every run."""

from __future__ import annotations

import os
import random
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import ipex
from benchmarks.zoo import __main__ as command
from benchmarks.zoo import catalogue, shares, table
from benchmarks.zoo import examine as module_of_examine
from benchmarks.zoo.examine import Effort, examine
from benchmarks.zoo.model import LeftOut, OnlyTensors
from benchmarks.zoo.progress import outcome
from benchmarks.zoo.row import Row, append_row, read_rows
from benchmarks.zoo.weights import draw
from benchmarks.zoo.worker import Worker
from ipex.bench.process import WorkerFailed


class Small(nn.Module):
    """A tiny network."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 40, 3, padding=1), nn.BatchNorm2d(40)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"y": x, "z": [self.norm(self.convolution(x)).relu()]}


class Planted(nn.Module):
    """The same with a mistake."""

    def __init__(self, model: nn.Module, mistake) -> None:
        super().__init__()
        self.model, self.mistake = model, mistake

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, z = self.model(x)
        return self.mistake(x, y, z)


def change_the_input(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    y = y.clone()
    x += 1
    return y, z


MISTAKES = {
    "ok": lambda x, y, z: (y, z),
    "wrong values": lambda x, y, z: (y, z * 1.001),
    "wrong strides": lambda x, y, z: (y, z.contiguous(memory_format=torch.channels_last)),
    "wrong dtypes": lambda x, y, z: (y, z.double()),
    "wrong shapes": lambda x, y, z: (y, z[:, :-1]),
    "changed its inputs": change_the_input,
}


def worker_of(monkeypatch, model: nn.Module) -> Worker:
    inputs = (torch.randn(1, 3, 8, 8),)
    monkeypatch.setattr(catalogue, "make", lambda *_, **__: (OnlyTensors(model.eval()), inputs))
    return Worker()


@pytest.mark.parametrize("status", MISTAKES)
def test_a_mistake_is_seen(monkeypatch, status):
    worker = worker_of(monkeypatch, Small())
    with torch.no_grad():
        assert worker.build("planted/small", 0, torch.get_num_threads()) == {"parameters": 3 * 40 * 9 + 3 * 40}
        planted = Planted(worker.model, MISTAKES[status])
        traced = torch.jit.trace(planted, (torch.randn(1, 3, 8, 8),), check_trace=False)
        monkeypatch.setattr(ipex, "jit_optimize", lambda _: traced)
        answer = worker.optimise()
    assert answer["status"] == status
    assert (answer["error"] is not None) == (status == "wrong values")  # then eager was held against float64


def test_a_real_optimisation_is_timed_and_profiled(monkeypatch):
    worker = worker_of(monkeypatch, Small())
    with torch.no_grad():
        worker.build("planted/small", 0, torch.get_num_threads())
        assert worker.optimise()["status"] == "ok"
        assert worker.time(0.01).keys() == {"frozen_seconds", "ipex_seconds", "ratio"}
        assert worker.profile().keys() == {"conversions", "in_aten", "leftovers"}


class Random(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.rand_like(x)


class Refuses(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("expected\nwords")


class Chaotic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1e6))

    def forward(self, x: Tensor) -> Tensor:
        return (self.scale * x).sin()


class Overflows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 0


class Says(nn.Module):
    def forward(self, x: Tensor) -> str:
        return "hello"


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Random(), "gives other results in each call"),
        (Refuses(), "ValueError: expected words"),
        (Says(), "returns no tensor"),
        (Overflows(), "overflows"),
        (Chaotic(), "chaotic: weights changed by 1e-06 change its results by"),
    ],
)
def test_what_is_no_use_is_left_out(monkeypatch, model, why):
    worker = worker_of(monkeypatch, model)
    with torch.no_grad():
        answer = worker.build("planted/x", 0, torch.get_num_threads())
    assert answer["status"] == "left out"
    assert answer["note"].startswith(why)


def test_a_large_model_is_left_out_before_it_takes_memory():
    made = []
    models = SimpleNamespace(build=lambda name: made.append(nn.Linear(10_000, 10_000)) or made[-1])
    with pytest.raises(LeftOut, match="100 M parameters"):
        catalogue.refuse_large(models, "large")
    assert [linear.weight.device.type for linear in made] == ["meta"]


def test_weights_have_zeros_and_no_tiny_scales():
    model = Small().eval()
    draw(model)
    norm = model.norm
    dead = norm.weight == 0
    assert 0 < dead.sum() < len(dead)
    assert (norm.running_mean == 0).any()
    assert (norm.running_var == 0).any()
    assert (norm.weight[norm.running_var == 0] == 0).all()
    draw(scales := nn.ParameterList([nn.Parameter(torch.full((5,), 1e-6)), nn.Parameter(torch.zeros(()))]))
    assert all((scale >= 0.5).all() for scale in scales)


def test_conversions_are_told_from_what_is_left():
    matrix = torch.randn(300, 300)
    found = shares.times_of_ops(lambda: matrix.t().contiguous().relu())
    assert {"aten::copy_", "aten::clamp_min"} <= found.keys()
    assert sum(found.values()) == pytest.approx(1)
    left = shares.in_aten(found)
    assert "aten::clamp_min" in left
    assert "aten::copy_" not in left
    assert shares.conversions(found) >= found["aten::copy_"]
    assert shares.conversions(found) + sum(left.values()) <= 1 + 1e-9


def test_a_seed_draws_from_each_library_in_turn(monkeypatch):
    libraries = {"one": [f"{i}" for i in range(9)], "two": ["a", "b"]}
    monkeypatch.setattr(catalogue, "models_of", lambda library: SimpleNamespace(names=lambda: libraries[library]))
    names = catalogue.in_order(list(libraries), seed=3)
    assert [name[:3] for name in names] == ["one", "two", "one", "two", *["one"] * 7]
    assert sorted(names) == sorted(catalogue.in_order(list(libraries), seed=None))
    assert names == catalogue.in_order(list(libraries), seed=3)
    assert names != catalogue.in_order(list(libraries), seed=4)


def test_a_run_goes_on_where_it_was(monkeypatch, tmp_path):
    examined = []

    def plant(name: str, effort: Effort) -> Row:
        examined.append(name)
        return Row(name, effort.threads, effort.seed, status="left out" if name == "x/b" else "ok")

    monkeypatch.setattr(command, "examine", plant)
    monkeypatch.setattr(catalogue, "models_of", lambda _: SimpleNamespace(LEFT_OUT={"c": "quantised"}))
    effort = Effort(1, 0, None, 10, (), tmp_path / "log")
    names, results = ["x/a", "x/b", "x/c", "x/d", "x/e"], tmp_path / "new" / "rows"
    for sample in (1, 2, 2):
        command.run(names, sample, effort, results)
    assert examined == ["x/a", "x/b", "x/d"]  # b and c do not count
    command.run(names, None, effort, results)
    assert examined == ["x/a", "x/b", "x/d", "x/e"]
    rows = read_rows(results)
    assert [row.name for row in rows] == names
    assert rows[2].note == "quantised"


@pytest.mark.parametrize(
    ("row", "is_answer"),
    [
        (Row("x", 2, 7, ratio=1.0, peers={"openvino": None}), True),
        (Row("x", 2, 7, status="left out"), True),
        (Row("x", 2, 7, peers={"openvino": None}), False),
        (Row("x", 2, 7, ratio=1.0), False),
        (Row("x", 1, 7, ratio=1.0, peers={"openvino": None}), False),
        (Row("x", 2, 8, ratio=1.0, peers={"openvino": None}), False),
    ],
)
def test_a_row_answers_what_it_was_asked(row, is_answer):
    assert row.answers(threads=2, seed=7, timed=True, peers=("openvino",)) == is_answer


@pytest.mark.parametrize(("order", "status"), [("build", "left out"), ("optimise", "failed"), ("time", "failed")])
def test_a_process_that_dies_is_blamed_on_what_it_did(monkeypatch, tmp_path, order, status):
    class Dying:
        def __init__(self, *_, worker: str) -> None:
            assert worker == "benchmarks.zoo.worker"

        def ask(self, asked: str, _: float, **__: object) -> dict[str, object]:
            if asked == order:
                raise WorkerFailed("the process ended: SIGSEGV")
            return {}

        def end(self, at_once: bool) -> None:
            pass

    monkeypatch.setattr(module_of_examine, "Process", Dying)
    row = examine("x/y", Effort(1, 0, 0.1, 10, (), tmp_path / "log"))
    assert (row.status, row.note) == (status, f"{order}: the process ended: SIGSEGV")


def test_the_page(tmp_path):
    append_row(tmp_path / "rows", Row("one/a", 2, 0, ratio=2.0, conversions=0.25, leftovers=[("aten::cat", 0.5)]))
    append_row(tmp_path / "rows", Row("one/b", 2, 0, ratio=0.5, peers={"openvino": 1.5}))
    append_row(tmp_path / "rows", Row("two/c", 2, 0, status="left out", note="100 M parameters"))
    rows = read_rows(tmp_path / "rows")
    text = table.page(rows, "python -m benchmarks.zoo")
    assert "| one | 2 | 0 | 1.00 | 0.50 | 1 | 25.0 % | 1.50 |" in text
    assert "| two | 1 | 100 M parameters |" in text
    assert "`cat` 50%" in text
    assert text.index("one/b") < text.index("one/a")  # the slowest first
    assert "Wrong or failed\n" not in text
    assert "| two/d | wrong strides |" in table.page([*rows, Row("two/d", 2, 0, status="wrong strides")], "")


MODELS = 1  # of each library


@pytest.mark.parametrize("library", catalogue.LIBRARIES)
def test_a_sample_matches_eager(library, tmp_path):
    if catalogue.missing(library):
        pytest.skip(f"{catalogue.missing(library)}: `make zoo` installs it")
    seed = int(os.environ.get("IPEX_ZOO_SEED", random.SystemRandom().randrange(10**6)))
    print(f"IPEX_ZOO_SEED={seed}")
    effort = Effort(1, seed, None, 300, (), tmp_path / "log")
    command.run(catalogue.in_order([library], seed), MODELS, effort, tmp_path / "rows")
    rows = read_rows(tmp_path / "rows")
    print(*(f"{row.name} {outcome(row)}" for row in rows), sep="\n")
    assert [row.name for row in rows if row.is_bad] == [], f"IPEX_ZOO_SEED={seed}"
    assert sum(row.status == "ok" for row in rows) == MODELS
