"""Warming up: what a first run does besides, done before anybody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.errors import InputError
from blocklayout.runtime.inputs import InputInfo, check_mapping

if TYPE_CHECKING:
    from blocklayout.runtime.streams import Streams

_one_at_a_time = threading.Lock()
"""Two that wait for all streams of one session would wait for each other."""


def feed_of_zeros(
    infos: Sequence[InputInfo], shapes: Mapping[str, Sequence[int]] | None, contents: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Something that a session can be fed.

    Args:
        infos: Its inputs.
        shapes: Extents by name, as the caller's arrays have them; by default those declared, a free first one being 1.
        contents: Arrays that are fed in place of zeros.

    Raises:
        InputError: An unknown name, or extents that are left free.
    """
    given, arrays = dict(shapes or {}), dict(contents or {})
    for name, mapping in (("shapes", given), ("contents", arrays)):
        check_mapping(name, mapping, "{'x': ...}")
        unknown = mapping.keys() - {info.name for info in infos}
        if unknown:
            raise InputError(
                f"{name}: no input {', '.join(sorted(unknown))}; there are {', '.join(i.name for i in infos)}"
            )
    return {info.name: arrays.get(info.name, _zeros(info, given.get(info.name))) for info in infos}


def _zeros(info: InputInfo, shape: Sequence[int] | None) -> np.ndarray:
    extents: Sequence[Any] = info.shape or () if shape is None else shape
    if shape is None and extents and not isinstance(extents[0], int):
        extents = (1, *extents[1:])
    try:
        return np.zeros([index(extent) for extent in extents], info.numpy_dtype)
    except (TypeError, ValueError):
        rule = "give shapes={'" + info.name + "': (1, 3, 224, 224)} or the like"
        raise InputError(f"extents of input {info.name!r} are {list(extents)}: {rule}") from None


def on_every_stream(streams: Streams, call: Callable[[], object]) -> None:
    """Call it on all streams at once; on the calling thread alone, if that is the only one or a stream itself."""
    if streams.n == 1 or streams.is_here:
        streams.call(call)
        return
    all_are_here = threading.Barrier(streams.n)

    def together() -> None:
        all_are_here.wait()
        call()

    with _one_at_a_time:
        futures = []
        try:
            futures += [streams.submit(together) for _ in range(streams.n)]
        except BaseException:
            all_are_here.abort()  # those that were closed out will not come
            raise
        wait(futures)
    for future in futures:
        future.result()
