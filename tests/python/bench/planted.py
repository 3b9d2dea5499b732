"""Backends that the benchmark must see through."""

import os

from ipex.bench.backends.backend import Backend
from ipex.bench.backends.stock import Eager


class Wrong(Eager):
    """Off by 1 %."""

    name, title = "planted:Wrong", "wrong"

    def prepare(self, job):
        call = super().prepare(job)
        return lambda: call() * 1.01


class WrongLater(Eager):
    """Right at first."""

    name, title = "planted:WrongLater", "wrong later"

    def prepare(self, job):
        call = super().prepare(job)
        self.times_entered = 0
        return lambda: call() * (1.01 if self.times_entered > 2 else 1)

    def context(self):  # entered to warm up, to check, then for each round
        self.times_entered += 1
        return super().context()


class Crashing(Eager):
    """Ends its process at the first call."""

    name, title = "planted:Crashing", "crashing"

    def prepare(self, job):
        return lambda: os.abort()


class Failing(Backend):
    """Does not take the model."""

    name, title = "planted:Failing", "failing"

    def prepare(self, job):
        raise RuntimeError("no such op")


class Missing(Backend):
    """Is not installed."""

    name, title = "planted:Missing", "missing"
    packages = ("no_package_has_this_name",)
