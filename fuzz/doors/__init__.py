"""The doors, one module each: ``SUMMARY``, and ``opened(folder)``, which gives the function that tries an input.

That function returns where the library did its work or raised a ``BlockLayoutError``, which it may raise as well;
anything else is a find. Files that it writes for a case are called ``given*``: they are kept with a find. Where one is
``given.label``, finds in one place of the library with other labels are others.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Try = Callable[[bytes], None]


def names() -> list[str]:
    """The doors there are, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def module_of(name: str) -> Any:
    """The module of a door."""
    return importlib.import_module(f"{__name__}.{name}")


def opened(name: str, folder: Path) -> Try:
    """What tries an input at a door; it may write below ``folder`` only."""
    found: Try = module_of(name).opened(folder)
    return found
