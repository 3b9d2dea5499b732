import threading
import time
from pathlib import Path

from ipex.bench import machine
from ipex.bench.process import Process


def _spin(seconds: float) -> threading.Thread:
    def spin() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    return thread


def test_waits_for_a_thread_that_spins():
    thread = _spin(0.3)
    machine.wait_until_idle(limit_seconds=30)
    assert not thread.is_alive()


def test_waits_no_longer_than_the_limit():
    thread = _spin(1.5)
    machine.wait_until_idle(limit_seconds=0.1)
    assert thread.is_alive()
    thread.join()


def test_an_answer_means_that_the_process_is_idle(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    process = Process(threads=1, folder=tmp_path, log=tmp_path / "log")
    try:
        process.ask("reference", 60, name="tiny_mlp", batch=1, inputs=[], folder=str(tmp_path))
        process.ask("prepare", 60, backend="planted:Spinning", folder=str(tmp_path), threads=1)
        assert not (tmp_path / "spinning").exists()
    finally:
        process.end(at_once=True)
