"""Checking: padding proven zero, and values finite, wherever a run has written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from math import prod
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from blocklayout.dtypes import FLOATS
from blocklayout.errors import CheckError, InputError, did_you_mean
from blocklayout.layout.packing import elements_of, unpack
from blocklayout.layout.padding import first_dirty_lane
from blocklayout.layout_events import tensor_text

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc

CheckMode = Literal["padding", "padding-only"]

check_mode: ContextVar[CheckMode | None] = ContextVar("blocklayout_check_mode", default=None)
"""The mode of the innermost block around the calling code that is checked."""


def checking(mode: CheckMode = "padding") -> AbstractContextManager[None]:
    """Prove padding zero and values finite in a block: of each tensor that is given, and after each step.

    Operators on Tensors, their gradients, and runs of sessions are checked, in every layout and by every executor. A
    block covers its own thread, requests that are submitted to a session in it, and asyncio tasks started in it. Steps
    run one by one and everything is read, so a run takes several times as long; outside it costs nothing.

    Args:
        mode: ``padding``: padding is zero, and floating-point values are finite. ``padding-only``: padding is zero, and
            values may be infinite or NaN, as for a model that masks by adding ``-inf``.

    Raises:
        InputError: No such mode.
        CheckError: From inside of the block: the first tensor that is not so, with the step that wrote it.

    Example:
        >>> import blocklayout as bl
        >>> x = bl.from_array(np.full((1, 3, 2, 2), 1e30, np.float32), "nChw8c")
        >>> with bl.checking():
        ...     y = x * x
        Traceback (most recent call last):
        ...
        blocklayout.errors.CheckError: mul: step ... of mul, ... has inf at (0, 0, 0, 0): ...
    """
    return _block(checked_mode(mode))


@contextmanager
def _block(mode: CheckMode) -> Iterator[None]:
    token = check_mode.set(mode)
    try:
        yield
    finally:
        check_mode.reset(token)


def checked_mode(mode: Any) -> CheckMode:
    """A mode, if it is one; else an InputError."""
    names = get_args(CheckMode)
    if mode in names:
        return mode  # type: ignore[no-any-return]
    close = did_you_mean(mode, names) if isinstance(mode, str) else ""
    raise InputError(f"check={mode!r}: give one of {', '.join(map(repr, names))}{close}")


def prove(
    what: str, tensor: str, desc: MemoryDesc, buffer: np.ndarray, mode: CheckMode, step: int | None = None
) -> None:
    """Refuse dirty padding and, where the mode says so, values that are not finite.

    The CheckError begins with ``what``, the kind of tensor or the name of the ``step`` that wrote it, and names the
    tensor, the index and the number. The buffer has its bytes, or is an array that begins with its first element.
    """
    if 0 in desc.dims:
        return
    elements = elements_of(buffer, desc)
    text = f"{what} {tensor} ({tensor_text(desc)})"
    dirty = first_dirty_lane(elements, desc)
    if dirty is not None:
        index, found = dirty
        rule = f"padding, which is all beyond {desc.dims}, must hold zeros"
        rule += "; Tensor.zero_padding() writes them" if step is None else ""
        raise CheckError(f"{text} has dirty padding, {found} at {index}: {rule}", "dirty padding", index, tensor, step)
    if mode == "padding-only" or desc.dtype not in FLOATS:
        return
    in_place = elements[desc.offset0 :][: prod(desc.padded_dims)] if desc.is_dense else unpack(elements, desc)
    if np.isfinite(in_place).all():
        return
    values = unpack(elements, desc)
    index = tuple(map(int, np.argwhere(~np.isfinite(values))[0]))
    found = float(values[index])
    kind = "NaN" if np.isnan(found) else "infinity"
    rule = "values must be finite; 'padding-only' checks padding alone"
    raise CheckError(f"{text} has {found} at {index}: {rule}", kind, index, tensor, step)
