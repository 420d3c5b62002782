"""Request for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from blocklayout.dtypes import PRIMITIVE_FLOATS

if TYPE_CHECKING:
    from blocklayout.plan.report.runs import LossMode

DTYPES = PRIMITIVE_FLOATS
"""Data types of activations."""

TuneMode = Literal["cached", "model", "measure"]
TUNE_MODES = ("cached", "model", "measure")

TUNE_SECONDS = 60.0
"""Default time limit of measuring, in seconds."""


class Request(Struct, frozen=True):
    """Request for a plan.

    Attributes:
        policy: ``auto``, one of the simple policies, or a oneDNN tag.
        dtype: Data type of activations inside: one of :data:`DTYPES`.
        io_layout: Formats of inputs and outputs that are not row-major at the border, by name.
        pins: Formats of results that are forced, by kernel, node or value.
        expected: Formats that values must come in, by name.
        on_layout_loss: What to do where an operator drops a blocked or channels-last run to plain.
        is_frugal: Whether it is one plan of many, and should do without primitives that take memory for good.
        winograd: Whether convolutions may be computed by Winograd's method.
    """

    policy: str = "auto"
    dtype: str = "f32"
    io_layout: Mapping[str, str] = field(default_factory=dict)
    pins: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)
    on_layout_loss: LossMode | None = None
    is_frugal: bool = False
    winograd: bool = True

    @property
    def without(self) -> frozenset[str]:
        """Implementations of our own that may not be used, by name."""
        return frozenset() if self.winograd else frozenset({"winograd"})
