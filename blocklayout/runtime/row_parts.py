"""Rows in parts: a batch that runs as several smaller ones, one after the other, in the memory of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from blocklayout.plan.plan import all_rows
from blocklayout.runtime.inputs import Feed
from blocklayout.runtime.workspace import ReadyPlan, Room, Workspace
from blocklayout.tensor import as_memory

if TYPE_CHECKING:
    from blocklayout import dnnl
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan import Plan
    from blocklayout.tensor import Tensor
    from blocklayout.value_checks import CheckMode


def workspace_of(ready: ReadyPlan, room: Room | None = None) -> Workspace:
    """The workspace of a plan, for all its rows."""
    return Workspace(ready, room=room) if ready.plan.parts == 1 else PartsWorkspace(ready, room=room)


def part_feeds(plan: Plan, feeds: Mapping[str, Feed]) -> dict[str, Feed]:
    """Each input, described for the first part of its rows, as executables of the plan's workspace take it.

    A Tensor in blocks of rows becomes a row-major array.
    """
    if plan.parts == 1:
        return dict(feeds)
    return {
        name: replace(whole, desc=desc.submemory((desc.dims[0] // plan.parts, *desc.dims[1:]), (0,) * desc.ndims))
        for name, feed in feeds.items()
        for whole in [feed if 0 not in feed.desc.inner_idxs else Feed(*as_memory(feed.contents()), feed.shape)]
        for desc in [whole.desc]
    }


class PartsWorkspace(Workspace):
    """A workspace that runs its plan once for each part of the rows; each writes its rows of the same outputs.

    Other runs of this workspace may come between two parts.
    """

    def __init__(self, ready: ReadyPlan, *, room: Room | None = None) -> None:
        super().__init__(ready, room=room)
        parts = ready.plan.parts
        self.results = tuple(
            replace(each, desc=all_rows(each.desc, parts), extents=(parts * each.extents[0], *each.extents[1:]))
            for each in self.results
        )

    def caller(self, executable: dnnl.Executable, names: Sequence[str]) -> None:
        """A run is several."""

    def run(
        self,
        executable: dnnl.Executable,
        buffers: Sequence[np.ndarray],
        out: Mapping[str, np.ndarray] | None = None,
        times: list[int] | None = None,
        check: CheckMode | None = None,
        stop: dnnl.Stop | None = None,
    ) -> dict[str, np.ndarray | Tensor]:
        given = out or {}
        written = {
            each.name: given[each.name] if each.name in given else np.empty(each.extents, each.dtype)
            for each in self.results
        }
        descs, n_parts = self._fed[executable].values(), self._plan.parts
        parts = {name: np.split(array, n_parts) for name, array in written.items()}
        for part in range(n_parts):
            read = [_rows(buffer, desc, part) for buffer, desc in zip(buffers, descs, strict=True)]
            rows = {name: own[part] for name, own in parts.items()}
            super().run(executable, read, rows, times, check, stop)
        return {**written}


def each_part(plan: Plan, times: Sequence[int]) -> Iterator[Sequence[int]]:
    """The times of a run's entries and steps, part by part."""
    n_timed = len(times) // plan.parts
    return (times[part * n_timed : (part + 1) * n_timed] for part in range(plan.parts))


def _rows(buffer: np.ndarray, desc: MemoryDesc, part: int) -> np.ndarray:
    """Where the rows of a part begin: in an array of the caller's, or in the bytes of a Tensor."""
    n_rows = desc.dims[0]
    if buffer.ndim > 1:
        return buffer[part * n_rows :]
    return buffer.view(np.uint8)[part * n_rows * desc.strides[0] * desc.itemsize :]
