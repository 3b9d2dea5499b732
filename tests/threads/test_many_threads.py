"""64 threads on one module, with inputs of many shapes: a sample of what `make threads` does in full."""

from threads.many_threads import THREADS, build_program, run


def test_results_are_those_of_one_thread_and_memory_stays(tmp_path):
    done = run([build_program(tmp_path / "build")], tmp_path, THREADS, calls=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 wrong, " in done.stdout
