"""Bytes in files: safetensors whose tensors are aligned, mapped rather than read, so that processes share them."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from blocklayout.atomic_write import replacing
from blocklayout.dnnl.memory import ALIGNMENT, aligned_empty
from blocklayout.errors import ModelError
from blocklayout.regular_file import open_regular
from blocklayout.side_by_side import side_by_side

_LENGTH_NBYTES = 8
_MAX_HEADER_NBYTES = 1 << 28
_N_READERS = 2  # checksums are taken without Python's lock

TEXT = "blocklayout"
"""Key of the header's metadata: the writer's description of the tensors."""

_METADATA, _TEXT_SUM, _SUMS = "__metadata__", "blocklayout.crc32", "crc32"


class TensorFile(Struct, frozen=True):
    """Contents of a tensor file.

    Attributes:
        text: Its writer's description of the tensors.
        tensors: Raw bytes by name, read-only and aligned; where they are mapped, none is read before it is used.
        checksums: Of each tensor, as its writer took it.
    """

    text: str
    tensors: Mapping[str, np.ndarray]
    checksums: Mapping[str, int]

    def verify(self) -> None:
        """Compare every byte with the checksums: a ModelError where a tensor is not as it was written."""
        with self.verifying():
            pass

    @contextmanager
    def verifying(self) -> Iterator[None]:
        """The same while something else is done; the error comes at the end."""
        with side_by_side(self.verify_one, self.checksums, 1 + _N_READERS):
            yield

    def verify_one(self, name: str) -> None:
        """The same of one tensor."""
        if _checksum(self.tensors[name]) != self.checksums[name]:
            raise ModelError(f"tensor {name} is damaged: its checksum is not {self.checksums[name]}")


def write_tensors(path: Path, text: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write bytes to a safetensors file, which is there as a whole, or as it was before; an OSError where it cannot be.

    Tensors are raw bytes by name, filled up with zeros to a multiple of 64 bytes, and begin at one. ``text`` describes
    them.
    """
    entries: dict[str, Any] = {}
    sums, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes + _n_missing(tensor.nbytes)
        entries[name] = {"dtype": "U8", "shape": [end - begin], "data_offsets": [begin, end]}
        sums[name] = zlib.crc32(bytes(_n_missing(tensor.nbytes)), _checksum(tensor))
    metadata = {TEXT: text, _TEXT_SUM: str(zlib.crc32(text.encode())), _SUMS: json.dumps(sums)}
    header = json.dumps({_METADATA: metadata, **entries}).encode()
    header += b" " * _n_missing(_LENGTH_NBYTES + len(header))
    with replacing(path) as beside, beside.open("wb") as file:
        file.write(len(header).to_bytes(_LENGTH_NBYTES, "little") + header)
        for tensor in tensors.values():
            file.write(tensor.data)
            file.write(bytes(_n_missing(tensor.nbytes)))


def is_tensor_file(path: Path) -> bool:
    """Whether a file begins as a safetensors file does; an OSError where it cannot be read."""
    with open_regular(path) as file:
        start = file.read(_LENGTH_NBYTES + 1)
    return start[_LENGTH_NBYTES:] == b"{" and int.from_bytes(start[:_LENGTH_NBYTES], "little") <= _MAX_HEADER_NBYTES


def open_tensors(
    path: Path, *, is_mapped: bool = True, wanted: Callable[[str], Mapping[str, str] | None] | None = None
) -> TensorFile:
    """Open a file that :func:`write_tensors` wrote. Everything but the tensors' bytes is checked.

    Another file may take its place meanwhile. A mapped file that is altered alters its tensors, and where it is
    truncated, to look at them ends the process; where it is not mapped they are read now. ``wanted`` is called with
    the writer's description, for the names of those that are wanted, by the names that they are to have; ``None`` for
    all by their own. Bytes of others are not looked at.

    Raises:
        ModelError: It is no such file, or truncated, or lacks a tensor that is wanted; the message says where.
        OSError: It cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(_LENGTH_NBYTES), "little")
        if length > min(_MAX_HEADER_NBYTES, size - _LENGTH_NBYTES):
            raise ModelError(f"the header has {length} bytes, and the file {size}: it is truncated, or no such file")
        header = _parsed(file.read(length))
        metadata = header.pop(_METADATA, None)
        if not isinstance(metadata, dict) or not isinstance(metadata.get(TEXT), str):
            raise ModelError(f"the header says nothing under {TEXT}: bl.load_tensors reads other safetensors files")
        if metadata.get(_TEXT_SUM) != str(zlib.crc32(metadata[TEXT].encode())):
            raise ModelError(f"the header is damaged: its checksum is not {metadata.get(_TEXT_SUM)}")
        places = _places(header, _LENGTH_NBYTES + length, size)
        checksums = _parsed(metadata.get(_SUMS, ""))
        if {name: type(value) for name, value in checksums.items()} != dict.fromkeys(places, int):
            raise ModelError("the header has not a checksum for each tensor")
        names = None if wanted is None else wanted(metadata[TEXT])
        if names is None:
            names = {name: name for name in places}
        missing = sorted({*names.values()} - {*places})
        if missing:
            raise ModelError(f"there is no tensor {missing[0]}")
        contents = _contents(file, {name: places[name] for name in names.values()}, is_mapped=is_mapped)
    return TensorFile(
        metadata[TEXT],
        {name: contents[place] for name, place in names.items()},
        {name: checksums[place] for name, place in names.items()},
    )


def _contents(file: BufferedReader, places: Mapping[str, tuple[int, int]], *, is_mapped: bool) -> dict[str, np.ndarray]:
    """The bytes at some places of a file, read-only, each at a multiple of 64."""
    if is_mapped and places:
        mapped = np.memmap(file, np.uint8, "r")
        return {name: mapped[start:end] for name, (start, end) in places.items()}
    data = aligned_empty(sum(end - start for start, end in places.values()))
    found, done = {}, 0
    for name, (start, end) in places.items():
        file.seek(start)
        found[name] = data[done : done + end - start]
        if file.readinto(found[name].data) != end - start:
            raise ModelError(f"tensor {name} ended at byte {end}, and the file was truncated while it was read")
        done += end - start
        found[name].flags.writeable = False
    return found


def _checksum(tensor: np.ndarray) -> int:
    return zlib.crc32(tensor.data)


def _n_missing(nbytes: int) -> int:
    """Bytes by which so many are short of a multiple of 64."""
    return -nbytes % ALIGNMENT


def _parsed(text: str | bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the header is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ModelError("the header is no JSON object")
    return found


def _places(header: Mapping[str, Any], start: int, size: int) -> dict[str, tuple[int, int]]:
    """Where each tensor begins and ends in the file: one behind the other, without holes, to the very end."""
    if start % ALIGNMENT:
        raise ModelError(f"tensors begin at byte {start}, which is no multiple of {ALIGNMENT}")
    found = {}
    for name, entry in header.items():
        match entry:
            case {"dtype": "U8", "shape": [int(extent)], "data_offsets": [int(begin), int(end)]} if (
                0 <= begin <= end and end - begin == extent and not extent % ALIGNMENT
            ):
                found[name] = (start + begin, start + end)
            case _:
                raise ModelError(f"tensor {name} is described by {entry!r:.80}")
    expected = start
    for name, (begin, end) in sorted(found.items(), key=lambda item: item[1]):
        if begin != expected:
            raise ModelError(f"tensor {name} begins at byte {begin}, and the one before ends at {expected}")
        expected = end
    if expected != size:
        raise ModelError(f"the tensors end at byte {expected}, and the file at {size}: it is truncated, or longer")
    return found
