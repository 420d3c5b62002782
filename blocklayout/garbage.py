"""No search for garbage while there is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Look for no garbage: modules, models and candidates are many objects, and looking takes a tenth of the time.

    Afterwards they count as old. As young ones, all of them would be looked through at once.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():  # else thawing would thaw what the caller has frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
