"""What `ipex.optim` and `ipex.optimize` show of themselves."""

from __future__ import annotations

import inspect
import sys
import typing

import pytest

import ipex


def test_optim_shows_what_is_public():
    assert dir(ipex.optim) == ["Lamb", "Lars"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python keeps no overloads")
def test_the_types_of_optimize_know_all_arguments():
    overloads = typing.get_overloads(ipex.optimize)
    assert [f.__annotations__["return"] for f in overloads] == ["Model", "tuple[Model, Optimizer]"]
    own = list(inspect.signature(ipex.optimize).parameters)
    assert [list(inspect.signature(f).parameters) for f in overloads] == [own, own]
