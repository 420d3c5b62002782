"""No search for garbage while there is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY_OBJECTS = 5_000
"""Objects that the garbage collector looks through in a fraction of a millisecond."""

_frozen_by_others = False


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Look for no garbage: modules, models and candidates are many objects, and looking takes a tenth of the time.

    Afterwards they count as old. As young ones, all of them would be looked through at once, which is worth preventing
    where they are many: to count the objects that the caller has frozen takes time. Who froze some is thought to keep
    them so.
    """
    global _frozen_by_others  # noqa: PLW0603 - a process has one collector
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            is_worth_it = gc.get_count()[0] > MANY_OBJECTS
            if is_worth_it and not _frozen_by_others:
                _frozen_by_others = gc.get_freeze_count() > 0
                if not _frozen_by_others:  # else thawing would thaw the caller's frozen objects
                    gc.freeze()
                    gc.unfreeze()
            gc.enable()
