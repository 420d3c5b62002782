"""A user's function on raw elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blocklayout.dtypes import from_numpy
from blocklayout.errors import InputError
from blocklayout.layout.padding import clear_padding, fill_padding
from blocklayout.tensor.moving import compact
from blocklayout.tensor.tensor_class import Tensor


def mapped(tensor: Tensor, f: Callable[[np.ndarray], np.ndarray]) -> Tensor:
    """See :meth:`Tensor.map`."""
    from blocklayout import dnnl

    own = compact(tensor)
    elements = own.physical()
    if own.desc.n_padding and own.desc.n_elements:
        # What the function does to zeros might warn, or raise, where no element does.
        elements = elements.copy()
        fill_padding(elements, own.desc, elements[own.desc.offset(*(0,) * own.ndim)])
    given = elements.view()
    given.flags.writeable = False
    result = f(given)
    if not isinstance(result, np.ndarray):
        raise InputError(f"map: the function gave {type(result).__name__}; it must give an array")
    if result.shape != given.shape:
        raise InputError(f"map: the function gave shape {result.shape} for {given.shape}; it must be elementwise")
    desc = own.desc.with_dtype(from_numpy(result.dtype))
    made = Tensor(desc, dnnl.aligned_empty(desc.nbytes))
    target = made.physical()
    target[:] = result
    clear_padding(target, desc)
    return made
