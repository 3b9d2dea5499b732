"""64 callers of one module, with inputs of many shapes: a sample of what `make threads` does in full."""

import pytest

from threads.many_threads import CALLERS, build_program, run


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build_program(tmp_path_factory.mktemp("many_threads"))


@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_those_of_one_thread_and_memory_stays(tmp_path, program, threads):
    done = run([program], tmp_path, CALLERS, 400 // threads, threads)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 wrong, " in done.stdout


def test_a_callback_throws_closes_and_drops_its_pool(tmp_path, program):
    done = run([program.with_name("closing_pool")], tmp_path, 0, 0)
    assert (done.returncode, done.stdout) == (0, "throws 1, closes 1, drops 1\n"), done.stderr
