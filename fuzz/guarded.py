"""Buffers that end where memory does: whoever reads or writes behind one ends the process there and then."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

ALIGNMENT = 64
_libc = ctypes.CDLL(None, use_errno=True)


def guarded_empty(nbytes: int) -> np.ndarray:
    """Zeros at an address that is a multiple of 64, and less than 64 bytes behind them a page that nobody may touch."""
    room = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    region = mmap.mmap(-1, room + mmap.PAGESIZE)
    pages = np.frombuffer(region, np.uint8)
    address = pages.ctypes.data
    if _libc.mprotect(ctypes.c_void_p(address + room), ctypes.c_size_t(mmap.PAGESIZE), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    start = (room - nbytes) // ALIGNMENT * ALIGNMENT
    return pages[start : start + nbytes]
