"""Tensors for numpy and for other libraries: their own memory wherever those can address it."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocklayout.errors import ExportError
from blocklayout.layout_events import is_watched, report
from blocklayout.tensor.reading import plain_view
from blocklayout.tensor.tensor_class import Tensor


def as_numpy(tensor: Tensor, dtype: Any, *, copy: bool | None) -> np.ndarray:
    """The array for numpy's ``__array__``: a view unless blocks, another type or the caller demand a copy.

    Raises:
        ExportError: No copy is allowed, and none can be avoided.
    """
    desc = tensor.desc
    if desc.is_plain:
        view = plain_view(tensor)
        if dtype is None or np.dtype(dtype) == view.dtype:
            return view.copy() if copy else view
        if copy is False:
            raise ExportError(f"{desc} cannot become an array of {np.dtype(dtype)} without a copy")
        return view.astype(dtype)
    if copy is False:
        raise ExportError(f"{desc} cannot become an array without a copy: {_ways()}")
    array = tensor.numpy()
    if copy is None and is_watched():
        report("copy", "Tensor.__array__", (desc,), nbytes=2 * desc.nbytes, reason="numpy has no blocks")
    return array if dtype is None else array.astype(dtype, copy=False)


def exported(tensor: Tensor) -> np.ndarray:
    """An array over the memory, which exports itself through DLPack.

    Raises:
        ExportError: In blocks, or of a data type that numpy does not export.
    """
    if not tensor.desc.is_plain:
        raise ExportError(f"DLPack knows strides but no blocks, and this is {tensor.desc}: {_ways()}")
    if tensor.dtype == "bf16":
        raise ExportError(f"numpy exports no bf16 through DLPack, and this is {tensor.desc}: .astype('f32') gets there")
    return plain_view(tensor)


def _ways() -> str:
    return ".to(memory_format=bl.contiguous_format) or .numpy() gets there"


def with_arrays(given: Any) -> Any:
    """Arguments of one of numpy's functions, with an array in the place of each Tensor."""
    if isinstance(given, Tensor):
        return np.asarray(given)
    if isinstance(given, dict):
        return {name: with_arrays(each) for name, each in given.items()}
    return type(given)(map(with_arrays, given)) if type(given) in (tuple, list) else given
