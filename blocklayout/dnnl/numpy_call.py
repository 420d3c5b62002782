"""Calling a primitive with numpy arrays: into its layouts, and back to plain."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.dnnl import arguments
from blocklayout.dnnl.memory import Memory
from blocklayout.dnnl.primitives.reorder import reorder
from blocklayout.dnnl.threads import run_parallel
from blocklayout.dtypes import from_numpy, to_numpy
from blocklayout.errors import InvalidArgumentsError
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blocklayout.dnnl.primitive import Primitive

_NARROW_FLOATS = ("bf16", "f16")
_MAX_REORDERS = 64


def call_with_arrays(primitive: Primitive, given: Mapping[str, Any]) -> np.ndarray | dict[str, np.ndarray]:
    """The results as fresh row-major arrays, a single one as itself."""
    spec = primitive.spec
    memories = compute(primitive, given)
    arrays = {name: _to_plain(memory, spec.n_threads) for name, memory in memories.items()}
    return next(iter(arrays.values())) if len(arrays) == 1 else arrays


def compute(primitive: Primitive, given: Mapping[str, Any]) -> dict[str, Memory]:
    """The results in the primitive's layouts."""
    spec = primitive.spec
    results = arguments.results(spec)
    _check_names(primitive, given, results)

    def run() -> dict[str, Memory]:
        memories = {name: _argument(primitive, name, given, results) for name, _ in spec.descs}
        primitive.bind(memories).run()
        return {name: memories[name] for name in results}

    return run_parallel(run, spec.n_threads)


def _check_names(primitive: Primitive, given: Mapping[str, Any], results: tuple[str, ...]) -> None:
    spec = primitive.spec
    names = [name for name, _ in spec.descs]
    for name in given:
        if name not in names:
            raise InvalidArgumentsError(f"{spec.kind}: no argument {name!r}; it takes {', '.join(names)}")
    for name in names:
        desc = spec.memory_desc(name)
        if name not in results and name not in given:
            raise InvalidArgumentsError(f"{spec.kind}: {name} is missing; give an array of {desc.dtype} {desc.dims}")
    if spec.attr.has_sum and "dst" not in given:
        desc = spec.memory_desc("dst")
        rule = f"is missing, and the sum post-op adds to it; give an array of {desc.dtype} {desc.dims}"
        raise InvalidArgumentsError(f"{spec.kind}: dst {rule}")


def _argument(primitive: Primitive, name: str, given: Mapping[str, Any], results: tuple[str, ...]) -> Memory:
    spec = primitive.spec
    desc, value = spec.memory_desc(name), given.get(name)
    if name not in results:
        return _to_memory(spec.kind, name, value, desc, spec.n_threads)
    if value is None:
        return Memory.empty(desc)
    if isinstance(value, Memory):
        return value
    if name == "dst" and spec.attr.has_sum:
        return _copy_to(desc, _to_memory(spec.kind, name, value, desc, spec.n_threads), spec.n_threads)
    raise InvalidArgumentsError(f"{spec.kind}: {name} is a result; leave it out, or give a Memory of {desc} to hold it")


def _to_memory(kind: str, name: str, value: Any, desc: MemoryDesc, n_threads: int) -> Memory:
    """The argument in the layout ``desc``: without a copy where it is in it."""
    memory = value if isinstance(value, Memory) else _of_array(kind, name, value, desc)
    if memory.desc.dims != desc.dims:
        raise InvalidArgumentsError(f"{kind}: {name} has extents {memory.desc.dims}; it takes {desc.dims}")
    if memory.desc.physically_equal(desc):
        return memory
    return _copy_to(desc, memory, n_threads)


def _of_array(kind: str, name: str, value: Any, desc: MemoryDesc) -> Memory:
    array = value if isinstance(value, np.ndarray) else _as_array(kind, name, value, desc)
    _check_dtype(kind, name, array, desc)
    if array.shape != desc.dims:
        if not array.size == math.prod(desc.dims) == 1:
            raise InvalidArgumentsError(f"{kind}: {name} has shape {array.shape}; it takes {desc.dims}")
        array = array.reshape(desc.dims)
    if not array.dtype.isnative or min(array.strides, default=0) < 0 or not _is_whole(array):
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return Memory(MemoryDesc.from_array(array), array)


def _as_array(kind: str, name: str, value: Any, desc: MemoryDesc) -> np.ndarray:
    try:
        return np.asarray(value, to_numpy(desc.dtype))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentsError(f"{kind}: {name} is no array of {desc.dtype} {desc.dims}: {error}") from error


def _is_whole(array: np.ndarray) -> bool:
    """Whether no element is there twice, and strides are whole elements."""
    repeats = any(stride == 0 and extent > 1 for stride, extent in zip(array.strides, array.shape, strict=True))
    return not repeats and all(stride % array.itemsize == 0 for stride in array.strides)


def _check_dtype(kind: str, name: str, array: np.ndarray, desc: MemoryDesc) -> None:
    try:
        dtype = from_numpy(array.dtype)
    except ValueError as error:
        raise InvalidArgumentsError(f"{kind}: {name}: {error}") from error
    if dtype == desc.dtype or (dtype == "f32" and desc.dtype in _NARROW_FLOATS):
        return
    wanted = "ml_dtypes.bfloat16" if desc.dtype == "bf16" else f"np.{to_numpy(desc.dtype).name}"
    raise InvalidArgumentsError(f"{kind}: {name} is {dtype}; it takes {desc.dtype}: convert it with .astype({wanted})")


def _copy_to(desc: MemoryDesc, memory: Memory, n_threads: int) -> Memory:
    copy = Memory.empty(desc)
    if math.prod(desc.dims):
        _reorder(memory.desc, desc, n_threads).bind({"src": memory, "dst": copy}).run()
    return copy


@lru_cache(maxsize=_MAX_REORDERS)
def _reorder(src: MemoryDesc, dst: MemoryDesc, n_threads: int) -> Primitive:
    from blocklayout.dnnl.primitive import Primitive

    return Primitive(reorder(src, dst, n_threads=n_threads))


def clear_cache() -> None:
    """Lets go of the reorders that calls have needed."""
    _reorder.cache_clear()


def _to_plain(memory: Memory, n_threads: int) -> np.ndarray:
    desc = memory.desc
    plain = MemoryDesc(desc.dims, desc.dtype)
    if not (desc.physically_equal(plain) and isinstance(memory.buffer, np.ndarray)):
        memory = run_parallel(lambda: _copy_to(plain, memory, n_threads), n_threads)
    buffer = memory.buffer
    if not isinstance(buffer, np.ndarray):
        raise TypeError(f"{memory} was bound to an address; give it an array")
    return buffer.view(np.uint8).reshape(-1)[: plain.nbytes].view(to_numpy(desc.dtype)).reshape(desc.dims)
