"""Pack constants: each is reordered once, when the plan is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.dtypes import from_numpy
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
            given = from_numpy(array.dtype)
            # The library has no reorder from f64, and f16's needs a CPU that has it.
            source = array.astype(np.float32) if given in ("f64", "f16") and desc.dtype != given else array
            # The array is kept so that its address, which is the key, is not given to another.
            self._packed[key] = (array, reorder(source, desc, threads=n_threads).buffer)
        return self._packed[key][1]
