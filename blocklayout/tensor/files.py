"""Tensors in files: their bytes as they are, and their descriptor."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from blocklayout.dnnl.memory import ALIGNMENT
from blocklayout.errors import LayoutError, ModelError
from blocklayout.layout import MemoryDesc
from blocklayout.tensor.moving import compact
from blocklayout.tensor.tensor_class import Tensor
from blocklayout.tensor.tensor_file import open_tensors, write_tensors

VERSION = 1
"""Goes up when a file of before can no longer be read."""

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
    record = _parsed(text)
    return isinstance(record, dict) and record.get("kind") == _KIND


def _desc_of(text: str) -> MemoryDesc:
    record = _parsed(text)
    if not isinstance(record, dict) or record.get("kind") != _KIND:
        raise ModelError("the file holds no Tensor; bl.load reads models and sessions")
    if record.get("version") != VERSION:
        raise ModelError(f"a Tensor of version {record.get('version')}; this package reads {VERSION}")
    desc = record.get("desc")
    if not isinstance(desc, dict):
        raise ModelError("the header has no descriptor")
    try:
        found = MemoryDesc.from_dict(desc)
    except (TypeError, AttributeError, KeyError) as error:
        raise ModelError(f"the header's descriptor is damaged: {error}") from None
    return found


def _bytes_of(desc: MemoryDesc, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    buffer = tensors.get(_KIND)
    if len(tensors) != 1 or buffer is None or not desc.nbytes <= buffer.nbytes < desc.nbytes + ALIGNMENT:
        raise ModelError(f"it does not hold the {desc.nbytes} bytes of {desc}")
    return buffer[: desc.nbytes]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
