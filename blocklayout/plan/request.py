"""Request for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from msgspec import Struct, field

from blocklayout import dnnl
from blocklayout.dtypes import named
from blocklayout.errors import LayoutError, PlanError, UnsupportedError, did_you_mean
from blocklayout.ir import Demanded
from blocklayout.plan.runs import LossMode

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

ComputedDtype: TypeAlias = Literal["f32", "bf16", "f16"]
DTYPES: tuple[str, ...] = get_args(ComputedDtype)
"""Data types that activations may be computed in."""

TuneMode = Literal["cached", "model", "measure"]
TUNE_MODES = get_args(TuneMode)

TUNE_SECONDS = 60.0
"""Default time limit of measuring, in seconds."""


class Request(Struct, frozen=True):
    """Request for a plan.

    Attributes:
        policy: ``auto``, one of the simple policies, or a oneDNN tag.
        dtype: Data type of activations inside: one of :data:`DTYPES`.
        io_layout: Formats of inputs and outputs that are not row-major at the border, by name.
        carried: Outputs by the inputs as which they come in the next run, both left to the plan: they have one format.
        demanded: Formats and data types that single kernels and values must have.
        on_layout_loss: ``warn`` or ``raise`` where an operator drops a blocked or channels-last run to plain.
        is_frugal: Whether it is one plan of many, and should do without primitives that take memory for good.
        without: Implementations of our own that are not to be used, by name.
    """

    policy: str = "auto"
    dtype: str = "f32"
    io_layout: Mapping[str, str] = field(default_factory=dict)
    carried: Mapping[str, str] = field(default_factory=dict)
    demanded: Demanded = field(default_factory=Demanded)
    on_layout_loss: LossMode | None = None
    is_frugal: bool = False
    without: frozenset[str] = frozenset()


def computed_dtype(dtype: DTypeLike, said: str | None = None) -> str:
    """The data type that activations are computed in, by name, numpy's or ml_dtypes' type.

    A message begins with ``said``, or with the option of that name.

    Raises:
        PlanError: Nothing computes in it.
        UnsupportedError: This CPU does not.

    Example:
        >>> import numpy as np
        >>> computed_dtype(np.float32)
        'f32'
    """
    said = said or f"dtype={dtype!r}"
    try:
        name = named(dtype)
    except LayoutError:
        name = ""
    if name not in DTYPES:
        close = did_you_mean(dtype, DTYPES) if isinstance(dtype, str) else ""
        raise PlanError(f"{said}: activations are computed in one of {', '.join(DTYPES)}{close}")
    if missing := dnnl.missing_isa(name):
        raise UnsupportedError(f"{said} {missing}")
    return name
