"""Many requests for one model at once: docs/how_to/streams.md."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import torch

from ._adapter import Adapter, adapter_of
from ._inputs import arguments, in_order
from ._load_extension import _C
from ._script_module import cpp_module


class StreamPool:
    """Calls one optimised model on several streams, each with threads on cores of its own.

    `streams` and `threads_per_stream` say how many; by default the cores that the process may use are shared out, one
    thread to a stream. With `pin` each thread stays on a core of its own, unless there are more threads than CPUs. At
    most `max_queue` requests wait, by default 16 for each stream; then `submit` waits.

    All streams share the packed weights. They compute without gradients and without the GIL. Nothing changes for the
    threads of the caller: neither where they run, nor what `torch.set_num_threads` says. Where streams have several
    threads, the idle OpenMP team of the caller ends; its next parallel op makes a new one.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    >>> x = torch.randn(2, 8)
    >>> with ipex.StreamPool(ipex.jit_optimize(model, x), streams=2) as pool:
    ...     answers = [pool.submit(x) for _ in range(4)]
    ...     shapes = {answer.result().shape for answer in answers}
    >>> shapes
    {torch.Size([2, 4])}
    """

    streams: int
    threads_per_stream: int
    cpus: tuple[tuple[int, ...], ...]
    """The CPUs of each stream's threads; empty where they are not pinned."""

    def __init__(
        self,
        optimized: torch.jit.ScriptModule,
        *,
        streams: int | None = None,
        threads_per_stream: int | None = None,
        pin: bool = True,
        max_queue: int | None = None,
    ) -> None:
        for name, number in (
            ("streams", streams),
            ("threads_per_stream", threads_per_stream),
            ("max_queue", max_queue),
        ):
            if number is not None and (not isinstance(number, int) or number < 1):
                raise ValueError(f"ipex.StreamPool: expected {name} to be a positive number or None, got {number!r}.")
        cpp = cpp_module(optimized, "StreamPool")
        if not cpp._has_method("forward"):
            raise TypeError("ipex.StreamPool: expected a module with a method forward, got one without.")
        self._module = optimized
        self._pool = _C.StreamPool(cpp, streams or 0, threads_per_stream or 0, pin, max_queue or 0)
        self.streams, self.threads_per_stream, cpus = self._pool.plan()
        self.cpus = tuple(map(tuple, cpus))
        # At the end of the process too: a stream must not answer when Python is gone.
        self._close = weakref.finalize(self, self._pool.close)

    def submit(self, *inputs: Any, **named: Any) -> Future[Any]:
        """Queue a call of the model, and return a future of its result. Waits where the queue is full.

        What forward raises is raised by the future's `result()`. In asyncio, await `asyncio.wrap_future(future)`. A
        request that is queued can't be cancelled.
        """
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        adapter = adapter_of(self._module)
        if adapter is not None or named:
            inputs = in_order(self._module, inputs, named, "StreamPool")
        self._pool.submit(future if adapter is None else _Adapted(future, adapter), *inputs)
        return future

    def map(self, inputs: Iterable[Any]) -> Iterator[Any]:
        """Call the model with each of `inputs`, each as `ipex.verify` takes them; yield results in their order.

        Takes no more of `inputs` than the queue holds, so that they may be endless.
        """
        waiting: collections.deque[Future[Any]] = collections.deque()
        most = 2 * self.streams
        for given in inputs:
            args, kwargs = arguments(given, "StreamPool.map")
            waiting.append(self.submit(*args, **kwargs))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Call the model on a stream, and wait for the result."""
        return self.submit(*inputs, **named).result()

    def close(self) -> None:
        """Wait for all requests, and end the streams. Then `submit` raises."""
        self._close()

    def __enter__(self) -> StreamPool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Adapted:
    """A future that gets the model's result, of the trace's."""

    def __init__(self, future: Future[Any], adapter: Adapter) -> None:
        self._future = future
        self._adapter = adapter
        self.set_exception = future.set_exception

    def set_result(self, result: Any) -> None:
        self._future.set_result(self._adapter.from_trace(result))
