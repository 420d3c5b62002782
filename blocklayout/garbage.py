"""No search for garbage while there is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY_OBJECTS = 5_000
"""Objects that the garbage collector looks through in a fraction of a millisecond."""


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Look for no garbage: modules, models and candidates are many objects, and looking takes a tenth of the time.

    Afterwards they count as old. As young ones, all of them would be looked through at once, which is worth preventing
    where they are many: to count the objects that the caller has frozen takes time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            is_worth_it = gc.get_count()[0] > MANY_OBJECTS
            if is_worth_it and not gc.get_freeze_count():  # else thawing would thaw the caller's frozen objects
                gc.freeze()
                gc.unfreeze()
            gc.enable()
