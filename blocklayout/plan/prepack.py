"""Pack constants: each is reordered once, when the plan is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.layout import MemoryDesc
from blocklayout.tensor import reorder

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
            is_converted = array.dtype in (np.float64, np.float16)  # they are computed with in f32
            source = array.astype(np.float32) if is_converted else array
            # The array is kept so that its address, which is the key, is not given to another.
            self._packed[key] = (array, reorder(source, desc, threads=n_threads).buffer)
        return self._packed[key][1]
