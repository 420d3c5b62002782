"""Faults of the file of measured costs, and their remedies."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from blocklayout.errors import CostStoreWarning
from blocklayout.plan.costs.file import SchemaError

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE = "BLOCKLAYOUT_CACHE_DIR"
"""Environment variable that names the folder to keep things in, instead of the user's cache folder."""

_reported: set[Path] = set()


def _remedy(error: Exception) -> str | None:
    """Remedy of an error; ``None`` for errors that are no fault of the file."""
    elsewhere = f"set {VARIABLE} to another folder"
    if isinstance(error, SchemaError):
        return f"delete it if nothing else needs it, or {elsewhere}"
    if isinstance(error, OSError):
        return f"see to its permissions, or {elsewhere}"
    if isinstance(error, ImportError):
        return "this Python was built without sqlite3: install one that has it"
    return _sqlite_remedy(error, elsewhere)


def _sqlite_remedy(error: Exception, elsewhere: str) -> str | None:
    import sqlite3

    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return "it is damaged: delete it, and it will be made anew"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"another process holds it: end that, or {elsewhere}"
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return f"see whether its disk is full, or {elsewhere}"
    return f"see to its permissions, delete it if it is not ours, or {elsewhere}"


def report(path: Path, error: Exception) -> None:
    """Warn once of what is wrong with a file.

    Raises:
        Exception: The error, where it is none of the file's.
    """
    remedy = _remedy(error)
    if remedy is None:
        raise error
    if path in _reported:
        return
    _reported.add(path)
    message = f"measured costs cannot be kept in {path}: {error}; {remedy}. This process goes on without the file."
    warnings.warn(message, CostStoreWarning, stacklevel=4)
