"""Serves an optimised model on many machines with Ray Serve: the Python sibling of examples/cpp/server.

    pip install "ray[serve]"
    serve run ray_serve:app model=/models/model.pt shape=3,224,224

A request is a POST of an array in NumPy's .npy format; so is the answer. Requests are joined to batches. A replica has
as many threads as Ray gives it CPUs. When too many requests wait, Ray answers 503.
"""

from __future__ import annotations

import io
from typing import Any

import numpy
import torch
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

import ipex

THREADS = 2
MOST_ROWS = 8


class Model:
    """One copy of the model, in a process of its own."""

    def __init__(self, path: str, shape: tuple[int, ...]) -> None:
        torch.set_num_threads(THREADS)
        self.shape = shape
        self.model = ipex.load(path)
        for rows in (1, MOST_ROWS):
            for _ in range(3):  # the first calls pack weights and compile
                self._run(torch.zeros(rows, *shape))

    def _run(self, x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return self.model(x)  # type: ignore[no-any-return]

    @serve.batch(max_batch_size=MOST_ROWS, batch_wait_timeout_s=0.002)
    async def predict(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Run requests that came together as one batch."""
        return list(self._run(torch.cat(inputs)).split([len(x) for x in inputs]))

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        try:
            array = numpy.load(io.BytesIO(await request.body()), allow_pickle=False)
        except (ValueError, EOFError) as error:
            return Response(f"expected an array in NumPy's .npy format, got other bytes: {error}\n", 400)
        if array.dtype != numpy.float32 or array.shape[1:] != self.shape or len(array) == 0:
            expected = f"float32 of [*, {', '.join(map(str, self.shape))}]"
            return Response(f"expected {expected}, got {array.dtype} of {list(array.shape)}\n", 400)
        result = await self.predict(torch.from_numpy(array))
        file = io.BytesIO()
        numpy.save(file, result.numpy())
        return Response(file.getvalue(), media_type="application/x-npy")


def app(arguments: dict[str, str]) -> Any:
    """Build the application from the words of the command line."""
    deployment = serve.deployment(
        num_replicas=1,  # or "auto"
        ray_actor_options={"num_cpus": THREADS},
        max_ongoing_requests=2 * MOST_ROWS,
        max_queued_requests=64,
    )(Model)
    return deployment.bind(arguments["model"], tuple(int(size) for size in arguments["shape"].split(",")))
