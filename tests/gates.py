"""An operator at which a run stands still, until a test lets it go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import blocklayout as bl
from tests import nets

SHAPE = (1, 17, 12, 12)
PATIENCE_S = 20.0


class _Gates:
    """Events of the gates that are closed now; an open one is passed."""

    entered = threading.Semaphore(0)
    may_go_on: threading.Event | None = None


@bl.register_operator("tests.gates", "Gate")
class Gate:
    """The source itself, once the gate is open."""

    keeps_zeros = True

    def compute(self, result: bl.Tensor, x: bl.Tensor) -> None:
        event = _Gates.may_go_on
        if event is not None:
            _Gates.entered.release()
            assert event.wait(PATIENCE_S)
        result.physical()[:] = x.physical()


@contextmanager
def closed() -> Iterator[threading.Event]:
    """Runs stand still at their gate, until the event is set or the block ends."""
    _Gates.may_go_on = event = threading.Event()
    try:
        yield event
    finally:
        _Gates.may_go_on = None
        event.set()
        while _Gates.entered.acquire(blocking=False):
            pass


def wait_for_a_run() -> None:
    """Until a run has come to a gate."""
    assert _Gates.entered.acquire(timeout=PATIENCE_S)


def gated() -> bl.Builder:
    """Steps of the library, a gate, and steps of the library."""
    rng = np.random.default_rng(3)
    b = bl.Builder()
    x = b.input("x", SHAPE).conv(nets.he(rng, 17, 17, 3, 3), pads=1).relu()
    b.output("y", b.op("tests.gates.Gate", x).conv(nets.he(rng, 17, 17, 3, 3), pads=1).relu())
    return b
