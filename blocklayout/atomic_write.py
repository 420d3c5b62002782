"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(target: Path, *, outlasts_power: bool = True) -> Iterator[Path]:
    """Gives the path of a new file beside ``target``, which takes its place when it is written.

    Only within a file system one file takes another's place at once, so it lies in the same folder. Where writing
    fails, it goes, and ``target`` is as it was.

    Args:
        target: The file that is written.
        outlasts_power: Whether to wait until the disk has it: some milliseconds, which what can be made anew is not
            worth.

    Raises:
        OSError: It cannot be written.
    """
    if target.is_dir():
        raise IsADirectoryError(0, "it is a folder")
    beside = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    try:
        beside.touch(exist_ok=False)
        mode = beside.stat().st_mode
        yield beside
        beside.chmod(mode)  # the writer may have made a file of its own there
        if outlasts_power:
            with beside.open("rb") as file:
                os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
