"""What whoever loads a model says of its plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.errors import LayoutError, PlanError
from blocklayout.layout import FormatTag
from blocklayout.plan.plan import FREE

if TYPE_CHECKING:
    from blocklayout.plan.plan import Plan


class Terms(Struct, frozen=True):
    """What whoever loads a model says of its plan; ``None`` where nothing.

    Attributes:
        dtype: Data type of activations inside.
        layout: The policy.
        threads: Threads of a run.
        streams: Runs at a time, of which a plan knows nothing.
        io_layout: Formats of inputs and outputs that are not row-major at the border, by name.
    """

    dtype: str | None = None
    layout: str | None = None
    threads: int | None = None
    io_layout: Mapping[str, str] | None = None
    streams: int = 1

    def check(self, plan: Plan) -> None:
        """Refuse a plan that was made on other terms.

        Raises:
            PlanError: The message names the term.
        """
        pairs: dict[str, tuple[object, object]] = {
            "dtype": (self.dtype, plan.dtype),
            "layout": (self.layout, plan.policy),
            "threads": (self.threads, plan.n_threads),
            "io_layout": (None if self.io_layout is None else _formats(self.io_layout), _formats(dict(plan.io_layout))),
        }
        for name, (asked, given) in pairs.items():
            if asked is not None and asked != given:
                each = f" for each of {self.streams} streams" if name == "threads" and self.streams > 1 else ""
                raise PlanError(f"the plan was made with {name}={given!r}, and {name}={asked!r} is asked for{each}")

    @classmethod
    def of(cls, plan: Plan) -> Terms:
        """Those a plan was made on."""
        return cls(plan.dtype, plan.policy, plan.n_threads, dict(plan.io_layout))


def _formats(io_layout: Mapping[str, str]) -> dict[str, str]:
    """Formats in one spelling, without those that say row-major."""
    try:
        tags = {name: FormatTag.parse(text) for name, text in io_layout.items() if text != FREE}
    except LayoutError as error:
        raise PlanError(f"io_layout: {error}") from error
    plain = {name for name, tag in tags.items() if not tag.inner_blks and tag.order == tuple(range(tag.ndims))}
    free = {name: FREE for name, text in io_layout.items() if text == FREE}
    return free | {name: tag.canonical for name, tag in tags.items() if name not in plain}
