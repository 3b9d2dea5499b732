"""Backends that the benchmark must see through."""

import os
import threading
import time

from ipex.bench.backends.backend import Backend
from ipex.bench.backends.stock import Eager


class Wrong(Eager):
    """Off by 1 %."""

    name, title = "planted:Wrong", "wrong"

    def prepare(self, job):
        call = super().prepare(job)
        return lambda: call() * 1.01


class Later(Eager):
    """Right at first; `context` is entered to warm up, to check, and then for each round."""

    def __init__(self):
        self.times_entered = 0

    def context(self):
        self.times_entered += 1
        return super().context()

    @property
    def is_late(self):
        return self.times_entered > 2


class WrongLater(Later):
    """Off by 1 % from the first round on."""

    name, title = "planted:WrongLater", "wrong later"

    def prepare(self, job):
        call = super().prepare(job)
        return lambda: call() * (1.01 if self.is_late else 1)


class Crashing(Later):
    """Ends its process in the first round."""

    name, title = "planted:Crashing", "crashing"

    def prepare(self, job):
        call = super().prepare(job)
        return lambda: os.abort() if self.is_late else call()


class Failing(Backend):
    """Does not take the model."""

    name, title = "planted:Failing", "failing"

    def prepare(self, job):
        raise RuntimeError("no such op")


class Missing(Backend):
    """Is not installed."""

    name, title = "planted:Missing", "missing"
    packages = ("no_package_has_this_name",)


class Spinning(Eager):
    """Goes on for a while after its last call, and has a file as long as it does."""

    name, title = "planted:Spinning", "spinning"

    def prepare(self, job):
        file = job.folder / "spinning"
        call = super().prepare(job)

        def spin():
            while time.perf_counter() < self.end:
                pass
            file.unlink()

        def call_and_spin():
            self.end = time.perf_counter() + 0.3
            if not file.exists():
                file.touch()
                threading.Thread(target=spin).start()
            return call()

        return call_and_spin
