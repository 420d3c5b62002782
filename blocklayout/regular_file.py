"""Files that have an end: a pipe would be waited for, and some devices read for ever."""

from __future__ import annotations

import os
import stat
from io import BufferedReader


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A regular file, opened for reading; links are followed. An OSError of directories, pipes, sockets and devices."""
    return open(os.fspath(path), "rb", opener=_descriptor)


def _descriptor(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe may have nobody who writes
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind in (stat.S_IFREG, stat.S_IFDIR):  # that it is a directory, open will say
        return descriptor
    os.close(descriptor)
    raise OSError("it is a pipe or a device, not a regular file")
