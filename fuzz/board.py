"""What a child process is at, in a file that both map: it is there when the child is not any more."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

MAX_INPUT_NBYTES = 1 << 16

_HEAD = struct.Struct("<QQQ")


class Board:
    """Counts of inputs, and the last of them.

    Args:
        path: Of the file, which is made where there is none.

    Attributes:
        n_tried: Inputs that were begun.
        n_refused: Those of them that ended in a ``BlockLayoutError``.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_HEAD.size + MAX_INPUT_NBYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.n_tried, self.n_refused, _ = _HEAD.unpack_from(self._map)

    def begin(self, data: bytes) -> None:
        """Note an input before it is tried."""
        self.n_tried += 1
        self._map[_HEAD.size : _HEAD.size + len(data)] = data
        _HEAD.pack_into(self._map, 0, self.n_tried, self.n_refused, len(data))

    def read(self) -> bytes:
        """The counts as another process left them, and its last input."""
        self.n_tried, self.n_refused, nbytes = _HEAD.unpack_from(self._map)
        return bytes(self._map[_HEAD.size : _HEAD.size + nbytes])
