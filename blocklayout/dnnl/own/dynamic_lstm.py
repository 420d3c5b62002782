"""LSTMs of bytes in C of our own beside the executor: one step in place of sixteen for each place of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.own import Implementation
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc

_TAGS = {"weights_iter": "aCB16b32c2b"}
"""By ``BL_COLUMNS`` in C; all else is row-major."""

_MOST = 1 << 14
"""Channels whose products with bytes, each less its zero point, are integers of 32 bits in any order."""

_PRODUCTS_PER_NS, _STATES_PER_NS = 40.0, 0.2
"""Of a thread, on Zen 3: multiplications of bytes in a nanosecond, and states with all their functions."""

_ARGUMENTS = (
    *("src", "src_1", "weights_iter", "scale", "zero_point", "src_iter", "src_iter_c"),
    *("dst", "dst_iter", "dst_iter_c", "scratchpad"),
)


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes any number of places, sequences and channels, but none of 0."""
    wanted = {name: MemoryDesc(desc.dims, desc.dtype, _TAGS.get(name)) for name, desc in spec.descs}
    are_some = 0 not in spec.desc("dst").dims and spec.desc("dst").dims[-1] <= _MOST
    return dict(spec.descs) if are_some and wanted == dict(spec.descs) else None


def _fields(spec: Spec) -> Mapping[str, Any]:
    n_places, n_sides, batch, size = spec.desc("dst").dims
    names = {"n_places": n_places, "n_sides": n_sides, "batch": batch, "size": size}
    return {"n_threads": spec.n_threads, "is_reverse": spec.param("is_reverse"), **names}


def multiply_adds(spec: Spec) -> int:
    """One for each weight of a direction, of each of its states."""
    *_, size = spec.desc("dst").dims
    return 4 * size * prod(spec.desc("dst").dims)


def _compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Each direction is computed by one thread."""
    del peak_flops
    dims = spec.desc("dst").dims
    return (multiply_adds(spec) / _PRODUCTS_PER_NS + prod(dims) / _STATES_PER_NS) / min(n_threads, dims[1])


OURS = Implementation(
    kinds=("dynamic_lstm",),
    isas=lambda _: ("avx2",),
    offer=_offer,
    fields=_fields,
    arguments=lambda _: _ARGUMENTS,
    compute_ns=_compute_ns,
    multiply_adds=multiply_adds,
)
