"""Runtimes as their throughput is compared: many runs under way, in as many streams as given, or as each prefers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from blocklayout.commands.against.runtimes import OURS, RUNTIMES, Runtime

if TYPE_CHECKING:
    from blocklayout.commands.against.runtimes import Arrays, Run

N_RUNS = 32
"""Runs that are timed together, from when the first is submitted until the last is done."""

_STREAMS = " x"


def ours_in_streams(n_streams: int) -> Runtime:
    """Ours, with so many runs at a time; ``run`` is :data:`N_RUNS` of them."""
    return RUNTIMES[OURS]._replace(name=f"{OURS}{_STREAMS}{n_streams}", open=partial(_open_ours, n_streams))


def openvino_by_hint() -> Runtime:
    """OpenVINO with its hint for throughput, which chooses the number of streams; ``run`` is likewise many."""
    return RUNTIMES["openvino"]._replace(name=f"openvino{_STREAMS}?", open=_open_openvino)


def runtime_named(name: str) -> Runtime:
    """The runtime of that name: one of ``RUNTIMES``, or one of these."""
    plain, is_streamed, streams = name.partition(_STREAMS)
    if not is_streamed:
        return RUNTIMES[plain]
    return ours_in_streams(int(streams)) if plain == OURS else openvino_by_hint()


def _open_ours(n_streams: int, module: Any, path: str, n_threads: int, dtype: str) -> Run:
    session = module.load(path, threads=n_threads, streams=n_streams, dtype=dtype)

    def run(feeds: Arrays) -> list[Any]:
        futures = [session.submit(feeds) for _ in range(N_RUNS)]
        return [list(future.result()) for future in futures][-1]

    return run


def _open_openvino(module: Any, path: str, n_threads: int, dtype: str) -> Run:
    settings = {
        "PERFORMANCE_HINT": "THROUGHPUT",
        "INFERENCE_NUM_THREADS": n_threads,
        "INFERENCE_PRECISION_HINT": dtype,
    }
    queue = module.AsyncInferQueue(module.Core().compile_model(path, "CPU", settings))
    last: list[Any] = []

    def keep(request: Any, _: object) -> None:
        last[:] = [tensor.data.copy() for tensor in request.output_tensors]  # the next run writes there

    queue.set_callback(keep)

    def run(feeds: Arrays) -> list[Any]:
        for _ in range(N_RUNS):
            queue.start_async(dict(feeds), share_inputs=True)
        queue.wait_all()
        return list(last)

    return run
