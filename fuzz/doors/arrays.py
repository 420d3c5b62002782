"""Arrays of odd strides and types, and DLPack capsules, fed to sessions, reorders and operators."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import blocklayout as bl
from fuzz.choices import Choices
from fuzz.doors import _networks

SUMMARY = "arrays and DLPack capsules"
NBYTES, SECONDS = 256 << 20, 5.0
DTYPES = (
    "<f4",
    ">f4",
    "<f2",
    "<f8",
    "i1",
    "u1",
    "<i4",
    "<i8",
    ">i8",
    "?",
    "<u2",
    "<c8",
    "S3",
    "O",
    "M8[s]",
    "V4",
    "U2",
)
TAGS = ("nchw", "nhwc", "nChw16c", "aBcd8b", "ba", "a", "abc", "channels_last", "Ab16a", "xx")


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)

_NBYTES = 1 << 16


class _Foreign:
    """A tensor of another library, as it says itself; its memory is as large as that says."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.memory = (ctypes.c_uint8 * _NBYTES)()

    def __dlpack_device__(self) -> Any:
        return self.choices.pick(((1, 0), (1, 0), (1, 0), (2, 0), (1, 7), "x", None))

    def __dlpack__(self, **kwargs: Any) -> Any:
        choices = self.choices
        match choices.below(12):
            case 0:
                raise choices.pick((ValueError, TypeError, BufferError, RuntimeError))("no")
            case 1:
                return choices.pick((None, 7, "x", object()))
        shape = choices.extents(5)
        code, bits = choices.pick(
            ((2, 32), (2, 32), (2, 16), (2, 64), (4, 16), (0, 8), (1, 8), (0, 64), (6, 8), (9, 3), (5, 64))
        )
        strides = None
        if choices.below(2):
            strides = (ctypes.c_int64 * max(1, len(shape)))(*(choices.below(9) for _ in shape))
        lanes = choices.pick((1, 1, 1, 1, 2, 0))
        fits = len(shape) * 8 * bits * max(1, prod(shape)) <= _NBYTES
        self.shape = (ctypes.c_int64 * max(1, len(shape)))(*(shape if fits else (1,) * len(shape)))
        self.strides = strides
        device = choices.pick((1, 1, 1, 2, 3, 0))
        tensor = _DLTensor(
            ctypes.addressof(self.memory), device, 0, len(shape), code, bits, lanes, self.shape, strides, 0
        )
        self.managed = _DLManagedTensor(tensor, None, None)
        name = choices.pick((b"dltensor", b"dltensor", b"dltensor", b"used_dltensor", b"x"))
        return _new_capsule(ctypes.addressof(self.managed), name, None)


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    del folder
    session = bl.load(_networks.convolutions(), tune="model", threads=1)
    free = bl.load(_networks.convolutions(), tune="model", threads=1, io_layout={"x": "any", "image": "nChw8c"})
    alive: list[Any] = []  # numpy keeps no capsule's owner

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        given = _Foreign(choices) if choices.below(4) == 0 else _array(choices)
        alive.append(given)
        del alive[:-64]
        with bl.limits(nbytes=NBYTES, seconds=SECONDS), np.errstate(all="ignore"):
            match choices.below(6):
                case 0:
                    session.run(None, {"x": given})
                case 1:
                    free.run(None, {"x": given})
                case 2:
                    bl.reorder(given, choices.pick(TAGS)).numpy()
                case 3:
                    tensor = bl.as_tensor(given)
                    str(tensor)
                    np.asarray(tensor).sum()
                case 4:
                    out = _array(choices)
                    session.run(None, {"x": np.ones((1, 3, 12, 12), np.float32)}, out={"image": out})
                case _:
                    bl.as_tensor(given).relu().numpy()

    return attempt


def _array(choices: Choices) -> Any:
    """An array over a buffer that is as large as its strides reach."""
    dtype = np.dtype(choices.pick(DTYPES) if choices.below(3) == 0 else "<f4")
    shape = (1, 3, 12, 12) if choices.below(3) else choices.extents()
    if dtype.hasobject:
        return choices.pick((None, "x", [], [[1], [2, 3]], {}, object(), 1.0, np.array([None, 1])))
    buffer = np.zeros(1 << 16, np.uint8)
    reach = buffer.nbytes - 16
    if prod(shape) * dtype.itemsize > reach or choices.below(3) == 0:
        return np.zeros(tuple(min(extent, 4) for extent in shape), dtype)
    strides, start = [], choices.pick((0, 0, 1, 2, 4))
    low = high = 0
    for extent in shape:
        most = (reach - dtype.itemsize - (high - low)) // max(1, extent - 1)
        step = choices.pick((0, 1, dtype.itemsize, 4 * dtype.itemsize, -dtype.itemsize, choices.below(400) - 200))
        step = max(-most, min(most, step))
        strides.append(step)
        low += min(0, step) * max(0, extent - 1)
        high += max(0, step) * max(0, extent - 1)
    found = np.ndarray(shape, dtype, buffer, start - low, tuple(strides))
    found.flags.writeable = bool(choices.below(4))
    return found
