"""Parts of matrices beside a diagonal, and diagonals alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocklayout import ir


class Trilu(ir.Facts, frozen=True):
    """The upper or the lower triangle; zeros elsewhere."""

    op_types = ("Trilu",)
    is_quick_on_arrays = True

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        op, others, upper = call.bl.op, call.sources[1:], call.node.int_attr("upper", 1)
        return (lambda grad: op("Trilu", grad, *others, upper=upper),)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        is_upper = bool(node.int_attr("upper", 1))

        def keep(x: np.ndarray, diagonal: np.ndarray | None = None, *, out: np.ndarray) -> None:
            k = 0 if diagonal is None else int(diagonal.item())
            lower = np.tri(x.shape[-2], x.shape[-1], k - is_upper, dtype=bool)
            np.copyto(out, x)
            np.copyto(out, out.dtype.type(0), where=lower if is_upper else ~lower)

        return keep


class EyeLike(ir.Facts, frozen=True):
    """Ones on a diagonal of a matrix of the source's extents."""

    op_types = ("EyeLike",)
    elements_read = ()

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        k = node.int_attr("k", 0)
        return lambda _, out: np.copyto(out, np.eye(out.shape[0], out.shape[1], k), casting="unsafe")
