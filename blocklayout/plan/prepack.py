"""Pack constants: each is reordered once, when the plan is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from blocklayout import dnnl
from blocklayout.dtypes import from_numpy
from blocklayout.errors import LayoutError
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from blocklayout.plan.plan import Plan

_Key = tuple[int, tuple[int, ...], tuple[int, ...], MemoryDesc]


@dataclass
class PackedWeights:
    """Packed constants by (memory, layout), shared among the plans of one model."""

    _packed: dict[_Key, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    def pack(self, plan: Plan, constants: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
        """Every packed constant of a plan as raw bytes, by buffer; packs those not packed before."""
        return {item.buffer: self._one(constants[item.constant], item.desc, plan.n_threads) for item in plan.constants}

    def _one(self, array: np.ndarray, desc: MemoryDesc, n_threads: int) -> np.ndarray:
        key = (array.__array_interface__["data"][0], array.shape, array.strides, desc)
        if key not in self._packed:
            # The array is kept so that its address, which is the key, is not given to another.
            self._packed[key] = (array, _packed_bytes(array, desc, n_threads))
        return self._packed[key][1]


def _packed_bytes(array: np.ndarray, desc: MemoryDesc, n_threads: int) -> np.ndarray:
    source, src = _readable(array)
    packed = dnnl.aligned_empty(desc.nbytes)

    def run() -> None:
        primitive = dnnl.Primitive(dnnl.reorder(src, desc, n_threads=n_threads))
        primitive.bind({"src": dnnl.Memory(src, source), "dst": dnnl.Memory(desc, packed)}).run()

    if desc.n_elements:
        dnnl.run_parallel(run, n_threads)
    return packed


def _readable(array: np.ndarray) -> tuple[np.ndarray, MemoryDesc]:
    """The array as oneDNN can read it; float64 and float16 constants are computed with as f32."""
    if array.dtype in (np.float64, np.float16):
        array = array.astype(np.float32)
    try:
        from_numpy(array.dtype)
        return array, MemoryDesc.from_array(array)
    except LayoutError:
        array = np.ascontiguousarray(array)
        return array, MemoryDesc.from_array(array)
