"""Stop: how other threads, or a deadline, end a run between two of its steps."""

from __future__ import annotations

import time

from blocklayout.dnnl._abi import ffi
from blocklayout.errors import DeadlineExceededError, StoppedError


class Stop:
    """Whether a run is to end before its next step: since somebody asked for it, or since its deadline has passed.

    Attributes:
        c: The executor's own.
        deadline_ns: By the monotonic clock; 0 if there is none.
    """

    def __init__(self, deadline_ns: int = 0) -> None:
        self.c = ffi.new("bl_stop_t *", (0, deadline_ns))
        self.deadline_ns = deadline_ns

    def ask(self) -> None:
        """Have the run end before its next step."""
        self.c.is_asked = 1

    @property
    def is_asked(self) -> bool:
        """Whether somebody has asked."""
        return bool(self.c.is_asked)

    @property
    def is_overdue(self) -> bool:
        """Whether the deadline has passed."""
        return 0 < self.deadline_ns <= time.monotonic_ns()

    def check(self) -> None:
        """Raise a StoppedError if somebody has asked, a DeadlineExceededError if the deadline has passed."""
        if self.c.is_asked:
            raise StoppedError("the run was stopped before its last step")
        if self.is_overdue:
            raise DeadlineExceededError("the deadline passed before the run was done")
