"""A model behind Ray Serve: replicas on as many CPUs as there are, each a session with its own queue.

    pip install blocklayout "ray[serve]"
    python ray_serve.py model.onnx

    curl --data-binary @x.npy localhost:8000/ -o y.npy

Give replicas a saved session (``session.save``) in place of an ONNX file: they share its weights' pages.
"""

from __future__ import annotations

import asyncio
import io
import sys
from typing import Any

import numpy as np
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

import blocklayout as bl

CPUS_OF_A_REPLICA = 1
DEADLINE_S = 2.0


@serve.deployment(ray_actor_options={"num_cpus": CPUS_OF_A_REPLICA}, max_ongoing_requests=64)
class Model:
    """One replica. Its queue is bounded, so that Ray's router is told when there is too much to do."""

    def __init__(self, path: str, **options: Any) -> None:
        """Load and warm up the model; options are those of ``bl.load``."""
        self._served = bl.Served(path, **{"threads": CPUS_OF_A_REPLICA, "max_waiting": 32, **options})

    async def __call__(self, request: Request) -> Response:
        """Take a tensor as .npy, and give the first output as .npy."""
        try:
            array = np.load(io.BytesIO(await request.body()), allow_pickle=False)
            [answer, *_] = await self.predict(array)
        except bl.QueueFullError as error:
            return Response(str(error), 503, {"Retry-After": "1"})
        except bl.DeadlineExceededError as error:
            return Response(str(error), 504)
        except (bl.InputError, ValueError, EOFError, MemoryError) as error:  # numpy's
            return Response(str(error), 400)
        file = io.BytesIO()
        np.save(file, answer)
        return Response(file.getvalue(), media_type="application/x-npy")

    async def predict(self, array: np.ndarray) -> list[np.ndarray]:
        """What other deployments call: ``await handle.predict.remote(array)``."""
        [info] = self._served.session.get_inputs()
        return await asyncio.wrap_future(self._served.submit({info.name: array}, deadline=DEADLINE_S))

    async def metrics(self) -> str:
        """For Prometheus."""
        return self._served.stats().prometheus(replica=serve.get_replica_context().replica_id.unique_id)

    async def reconfigure(self, config: dict[str, str]) -> None:
        """Ray calls this where ``user_config`` is changed: another model takes over, and no request is lost."""
        if "path" in config:
            await asyncio.to_thread(self._served.replace, config["path"])

    def check_health(self) -> None:
        """Ray replaces a replica that raises here."""
        self._served.session.check_open()


def app(path: str, **options: Any) -> serve.Application:
    """What ``serve.run`` takes."""
    return Model.bind(path, **options)


if __name__ == "__main__":
    serve.run(app(sys.argv[1]), blocking=True)
