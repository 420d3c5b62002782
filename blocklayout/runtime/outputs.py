"""Outputs: which are asked for, and the arrays that a caller wants them in."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.dtypes import from_numpy
from blocklayout.errors import InputError
from blocklayout.layout import MemoryDesc
from blocklayout.layout_events import is_watched
from blocklayout.plan.plan import FREE
from blocklayout.runtime.inputs import check_mapping
from blocklayout.show.events import report_copied
from blocklayout.tensor import Tensor, reorder

if TYPE_CHECKING:
    from blocklayout.runtime.inputs import OutputInfo
    from blocklayout.runtime.workspace import ReadyPlan


def check_wanted(names: Any, outputs: Sequence[OutputInfo]) -> list[OutputInfo]:
    """The outputs that are asked for, in that order."""
    by_name = {info.name: info for info in outputs}
    if isinstance(names, str | bytes | Mapping) or not isinstance(names, Iterable):
        given = repr(names) if isinstance(names, str) else f"a {type(names).__name__}"
        raise InputError(f"output_names is {given}; give a list of names, such as {[*by_name]}, or None for all")
    for name in names:
        if not isinstance(name, str) or name not in by_name:
            raise InputError(f"the model has no output {name!r}; it has {', '.join(by_name)}")
    return [by_name[name] for name in names]


def check_given(given: Mapping[str, Any], wanted: Sequence[OutputInfo], extents: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse arrays that outputs, whose arrays have these extents, cannot be written to."""
    infos = {info.name: info for info in wanted}
    check_mapping("out", given, f"{{{next(iter(infos), 'y')!r}: array}}")
    for name, array in given.items():
        info = infos.get(name)
        if info is None:
            raise InputError(f"out={name!r} is none of the outputs that are asked for: {', '.join(infos)}")
        if info.is_blocked or info.is_free:
            raise InputError(f"out: {name} is a Tensor, whose format is not that of an array; leave it out")
        fitting = f"an array of shape {extents[name]} and type {info.numpy_dtype}"
        if not isinstance(array, np.ndarray):
            raise InputError(f"out: {name} is a {type(array).__name__}; give {fitting}")
        if array.shape != extents[name] or array.dtype != info.numpy_dtype:
            raise InputError(f"out: {name} has shape {array.shape} and type {array.dtype}; give {fitting}")
        if not array.flags.writeable:
            raise InputError(f"out: {name} is read-only; give {fitting} that may be written to")


def bindable(given: Mapping[str, np.ndarray], read: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays that steps may write to themselves: row by row without holes, and apart from all others."""
    found: dict[str, np.ndarray] = {}
    for name, array in given.items():
        others = [*read, *(other for other_name, other in given.items() if other_name != name)]
        is_apart = not any(np.may_share_memory(array, other) for other in others)
        if is_apart and array.flags.c_contiguous and array.flags.aligned:
            found[name] = array
    return found


def constant(info: OutputInfo, ready: ReadyPlan) -> np.ndarray | Tensor:
    """An output that no step computes, as fresh as the others."""
    array = ready.constants[info.name]
    if (info.name, FREE) in ready.plan.config.io_layout or info.is_blocked:
        desc = MemoryDesc(array.shape or (1,), info.dtype or from_numpy(array.dtype), info.layout)
        return reorder(array, desc, threads=ready.plan.config.n_threads)
    return np.array(array if info.order is None else array.transpose(info.order), order="C")


def deliver(name: str, result: Any, array: np.ndarray | None) -> Any:
    """An output, in the caller's array if there is one."""
    if array is None or result is array:
        return result
    start = time.monotonic_ns()
    array[...] = result
    if is_watched():
        report_copied(name, result, array, time.monotonic_ns() - start)
    return array
