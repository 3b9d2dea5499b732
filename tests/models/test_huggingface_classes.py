"""A handful of the classes that `make huggingface` draws."""

import pytest

pytest.importorskip("transformers")
import huggingface_classes


@pytest.mark.filterwarnings("ignore")
def test_each_works_or_says_why_not(capsys):
    assert huggingface_classes.run(count=4, seed=2) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert "jit_optimize: 4 classes: " in out


def test_what_is_none_of_the_two():
    def fails():
        raise RuntimeError("an internal assert\nand more")

    assert huggingface_classes.outcome(None, fails, {}, {}) == "FAILS: RuntimeError: an internal assert"
