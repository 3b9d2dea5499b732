import threading
import time

from ipex.bench import machine


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
