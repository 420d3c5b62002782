"""Sums and products of all elements up to each one, along one dimension."""

from __future__ import annotations

import numpy as np

from blocklayout import ir


class Cumulative(ir.Facts, frozen=True):
    """With or without the element itself, from either end."""

    op_types = ("CumProd", "CumSum")
    is_quick_on_arrays = True

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        axis = node.constant(1)
        return rows == {0} and axis is not None and int(axis.item()) % len(node.shape(0)) != 0

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        function, nothing = (np.add, 0) if node.op_type == "CumSum" else (np.multiply, 1)
        is_exclusive, is_reversed = node.flag_attr("exclusive"), node.flag_attr("reverse")

        def accumulate(x: np.ndarray, axis: np.ndarray, out: np.ndarray) -> None:
            src, dst = (np.moveaxis(array, int(axis.item()), 0)[:: -1 if is_reversed else 1] for array in (x, out))
            if is_exclusive:
                dst[:1] = nothing
                src, dst = src[:-1], dst[1:]
            if src.size:
                function.accumulate(src, axis=0, dtype=out.dtype, out=dst)

        return accumulate
