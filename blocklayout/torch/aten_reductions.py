"""Reductions, and what runs along a dimension: softmax, sums so far, sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, integers, lowers


@lowers("aten.mean.dim")
def _mean(w: NodeWriter, x: BuildValue, dim: Sequence[int] | None, keepdim: bool = False, dtype: Any = None) -> Any:
    del dtype
    return w.op("ReduceMean", w.cast(x, w.dtype), integers(dim) if dim else None, keepdims=int(keepdim))
