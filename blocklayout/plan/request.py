"""Request for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from blocklayout import dnnl
from blocklayout.errors import PlanError, UnsupportedError
from blocklayout.ir import Demanded

if TYPE_CHECKING:
    from blocklayout.plan.report.runs import LossMode

DTYPES = ("f32", "bf16")

TuneMode = Literal["cached", "model", "measure"]
TUNE_MODES = ("cached", "model", "measure")

TUNE_SECONDS = 60.0
"""Default time limit of measuring, in seconds."""


class Request(Struct, frozen=True):
    """Request for a plan.

    Attributes:
        policy: ``auto``, one of the simple policies, or a oneDNN tag.
        dtype: Data type of activations inside: ``f32`` or ``bf16``.
        io_layout: Formats of inputs and outputs that are not row-major at the border, by name.
        demanded: Formats and data types that single kernels and values must have.
        on_layout_loss: What to do where an operator drops a blocked or channels-last run to plain.
        is_frugal: Whether it is one plan of many, and should do without primitives that take memory for good.
        winograd: Whether convolutions may be computed by Winograd's method.
    """

    policy: str = "auto"
    dtype: str = "f32"
    io_layout: Mapping[str, str] = field(default_factory=dict)
    demanded: Demanded = field(default_factory=Demanded)
    on_layout_loss: LossMode | None = None
    is_frugal: bool = False
    winograd: bool = True

    @property
    def without(self) -> frozenset[str]:
        """Implementations of our own that may not be used, by name."""
        return frozenset() if self.winograd else frozenset({"winograd"})


def check_dtype(dtype: str, said: str) -> None:
    """Refuse a data type that activations cannot be computed in here.

    Args:
        dtype: The data type.
        said: The option that names it, which begins the message.

    Raises:
        PlanError: Nothing computes in it.
        UnsupportedError: This CPU does not.
    """
    if dtype not in DTYPES:
        raise PlanError(f"{said}: activations are computed in one of {', '.join(DTYPES)}")
    if dtype == "bf16" and not dnnl.has_bf16():
        raise UnsupportedError(f"{said} needs a CPU with AVX-512 (avx512_core); this one runs {dnnl.isa()}")
