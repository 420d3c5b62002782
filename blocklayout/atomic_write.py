"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from blocklayout.errors import InputError

_SUFFIX = ".blocklayout"
"""Of files on their way; those of a process that was killed stay behind."""

_ABANDONED_S = 86_400.0


@contextlib.contextmanager
def replacing(target: Path, *, outlasts_power: bool = True) -> Iterator[Path]:
    """Path of a new file beside ``target``, which takes its place when it is written; an OSError where it cannot be.

    Only within a file system one file takes another's place at once, so it lies in the same folder. Where writing
    fails, it goes, and ``target`` is as it was. With ``outlasts_power`` it waits some milliseconds until the disk has
    it.
    """
    beside = beside_of(target)
    try:
        beside.touch(exist_ok=False)
        status = beside.stat()
        _remove_abandoned(target.parent, status.st_mtime - _ABANDONED_S)
        yield beside
        beside.chmod(status.st_mode)  # the writer may have made a file of its own there
        if outlasts_power:
            with beside.open("rb") as file:
                os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def save_text(path: str | os.PathLike[str], text: str, kind: str = "page") -> None:
    """Write a page, or a text of another kind, never half of it; an InputError where that cannot be."""
    target = Path(path)
    try:
        with replacing(target) as beside:
            beside.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"the {kind} cannot be written to {target}: {reason}") from error


def beside_of(target: Path) -> Path:
    """A new name in the folder of a file that is to be written; files that killed processes left there go after a day.

    An IsADirectoryError where there is a folder of the file's name.
    """
    if target.is_dir():
        raise IsADirectoryError(0, "it is a folder")
    return target.with_name(f".{target.name}.{os.urandom(4).hex()}{_SUFFIX}")


def _remove_abandoned(folder: Path, before: float) -> None:
    """Remove files that processes left half written, by the time of the file system that they are on."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(_SUFFIX) and entry.stat().st_mtime < before:
                Path(entry).unlink()
