"""Tensors in files: one as its bytes and descriptor, or several by their names, a state dict.

A state dict's elements are stored row by row under their logical extents and data type in every format: so other tools
read them, and the file does not depend on the machine that wrote it. The formats stand in the header, and tensors are
brought to them when they are read; so padding is never in such a file, and always zero.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.atomic_write import replacing
from blocklayout.dnnl.memory import ALIGNMENT
from blocklayout.errors import InputError, LayoutError, ModelError
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.regular_file import open_regular
from blocklayout.tensor.creating import from_array
from blocklayout.tensor.formats import contiguous_format
from blocklayout.tensor.interop import as_tensor, plain_view
from blocklayout.tensor.moving import compact
from blocklayout.tensor.tensor_class import Tensor
from blocklayout.tensor.tensor_file import TEXT, open_tensors, write_tensors

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


VERSION, STATE_VERSION = 1, 1
"""Of files of one Tensor, and of several: bump on incompatible format changes."""

_KIND = "tensor"


def save(tensor: Tensor, path: str | os.PathLike[str]) -> None:
    """See :meth:`Tensor.save`."""
    own = compact(tensor)
    text = json.dumps({"kind": _KIND, "version": VERSION, "desc": own.desc.to_dict()})
    try:
        write_tensors(Path(path), text, {_KIND: own.buffer})
    except OSError as error:
        raise ModelError(f"no Tensor can be saved as {path}: {error.strerror or error}") from error


def load(path: str | os.PathLike[str]) -> Tensor:
    """See :meth:`Tensor.load`."""
    try:
        file = open_tensors(Path(path), is_mapped=False)
        desc = _desc_of(file.text)
        buffer = _bytes_of(desc, file.tensors)
        file.verify()
        return Tensor.restored(desc, buffer)
    except OSError as error:
        raise ModelError(f"no Tensor can be read from {path}: {error.strerror or error}") from error
    except (LayoutError, ModelError) as error:
        raise ModelError(f"{path}: {error}") from error


def is_tensor_text(text: str) -> bool:
    """Whether this is the text of a Tensor's file.

    Example:
        >>> is_tensor_text('{"kind": "tensor", "version": 1}'), is_tensor_text("[]")
        (True, False)
    """
    return _record_of(text) is not None


def _desc_of(text: str) -> MemoryDesc:
    record = _record_of(text)
    if record is None:
        raise ModelError("the file holds no Tensor; bl.load reads models and sessions")
    if record.get("version") != VERSION:
        raise ModelError(f"a Tensor of version {record.get('version')}; this package reads {VERSION}")
    desc = record.get("desc")
    if not isinstance(desc, dict):
        raise ModelError("the header has no descriptor")
    try:
        return MemoryDesc.from_dict(desc)
    except (TypeError, AttributeError, KeyError) as error:
        raise ModelError(f"the header's descriptor is damaged: {error}") from None


def _bytes_of(desc: MemoryDesc, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    buffer = tensors.get(_KIND)
    if len(tensors) != 1 or buffer is None or not desc.nbytes <= buffer.nbytes < desc.nbytes + ALIGNMENT:
        raise ModelError(f"it does not hold the {desc.nbytes} bytes of {desc}")
    return buffer[: desc.nbytes]


def _record_of(text: str) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.get("kind") == _KIND else None


MAX_BLOCK = 4096
"""Elements in a block, as many as the largest of the library's: a small file must not take gigabytes of padding."""

_KEY = "blocklayout.tensors"
_RESERVED = "__metadata__"


def save_all(tensors: Mapping[str, ArrayLike | Tensor], path: str | os.PathLike[str]) -> None:
    """Write Tensors to a safetensors file, there as a whole or as it was before; errors of :func:`blocklayout.save`."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    given = {_checked_name(name): _as_tensor(name, each) for name, each in tensors.items()}
    arrays = {name: _row_major(each) for name, each in given.items()}
    record = {
        "version": STATE_VERSION,
        "formats": {name: _checked_blocks(each.desc.format_tag).text for name, each in given.items()},
        "crc32": {name: _checksum(array) for name, array in arrays.items()},
    }
    try:
        with replacing(Path(path)) as beside:
            save_file(arrays, beside, {_KEY: json.dumps(record)})
    except (OSError, SafetensorError) as error:
        raise ModelError(f"no Tensors can be saved as {path}: {getattr(error, 'strerror', None) or error}") from error


def load_all(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name: in the formats they were saved in, row-major if another tool wrote it.

    A ModelError where it cannot be read, is damaged, or holds a tensor that no Tensor can be.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with open_regular(path), safe_open(path, framework="numpy") as file:
            described = _described(file.metadata() or {}, list(file.keys()))
            return {name: _tensor(file, name, *each) for name, each in described.items()}
    except OSError as error:
        raise ModelError(f"no Tensors can be read from {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise ModelError(f"{path} is damaged, or no safetensors file: {error}") from error
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or name == _RESERVED:
        raise InputError(f"a tensor is saved by a name, a string other than {_RESERVED!r}, not {name!r:.60}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"the name {name!r:.60} cannot be written in UTF-8") from None
    return name


def _as_tensor(name: str, given: Any) -> Tensor:
    try:
        return as_tensor(given, "save")
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _row_major(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(plain_view(tensor)) if tensor.desc.is_plain else tensor.numpy()


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(array.view(np.uint8).data if array.size else b"")


def _described(metadata: Mapping[str, str], names: list[str]) -> dict[str, tuple[str | None, int | None]]:
    """Format and checksum of each tensor, from the header; ``None`` in another tool's file."""
    if TEXT in metadata:
        raise ModelError("the file holds one Tensor, or a session: bl.Tensor.load or bl.load reads it")
    if _KEY not in metadata:
        return dict.fromkeys(names, (None, None))
    try:
        record = json.loads(metadata[_KEY])
        version, formats, sums = record["version"], record["formats"], record["crc32"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(f"the header is damaged: {error!r:.80} under {_KEY}") from None
    if version != STATE_VERSION:
        raise ModelError(f"Tensors of version {version!r:.20}; this package reads {STATE_VERSION}")
    for each, kind in ((formats, str), (sums, int)):
        kinds = {name: type(value) for name, value in each.items()} if isinstance(each, dict) else None
        if kinds != dict.fromkeys(names, kind):
            raise ModelError(f"the header is damaged: it does not describe each tensor under {_KEY}")
    return {name: (text, sums[name]) for name, text in formats.items()}


def _checked_blocks(tag: FormatTag) -> FormatTag:
    if prod(tag.inner_blks) > MAX_BLOCK:
        raise LayoutError(f"blocks of {tag} have {prod(tag.inner_blks)} elements; files have at most {MAX_BLOCK}")
    return tag


def _tensor(file: Any, name: str, memory_format: str | None, checksum: int | None) -> Tensor:
    if file.get_slice(name).get_dtype() == "BF16":
        import ml_dtypes  # noqa: F401 - names bfloat16 to numpy
    try:
        array = np.asarray(file.get_tensor(name))
    except (AttributeError, TypeError, KeyError) as error:  # numpy has no such type
        raise ModelError(f"tensor {name}: {error}") from None
    if checksum is not None and _checksum(array) != checksum:
        raise ModelError(f"tensor {name} is damaged: its checksum is not {checksum}")
    return formatted(name, array, memory_format)


def formatted(name: str, array: np.ndarray, memory_format: str | None) -> Tensor:
    """A Tensor of the elements that a file holds, in the format that it says they had; row-major if it says none.

    A ModelError where there is no such format, or its blocks have more than 4096 elements.
    """
    try:
        if memory_format is None:
            return from_array(array, contiguous_format)
        return from_array(array, _checked_blocks(FormatTag.parse(memory_format)))
    except (InputError, LayoutError) as error:
        raise ModelError(f"tensor {name}: {error}") from None
