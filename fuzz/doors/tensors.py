"""Tensor files: one Tensor's, several ones', and safetensors files of others."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

import blocklayout as bl
from blocklayout.tensor.tensor_file import open_tensors, write_tensors
from fuzz.choices import Choices

SUMMARY = "tensor files"
NBYTES, SECONDS = 256 << 20, 5.0


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    x = np.arange(2 * 17 * 3 * 3, dtype=np.float32).reshape(2, 17, 3, 3)
    one, several = folder / "one", folder / "several"
    bl.reorder(x, "nChw16c").save(one)
    bl.save({"a": bl.reorder(x, "nChw8c"), "b": x[0], "c": x.astype(np.float16)}, several)
    file = open_tensors(one)
    record, tensors = json.loads(file.text), {name: np.array(each) for name, each in file.tensors.items()}
    path = folder / "given.tensors"

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        path.unlink(missing_ok=True)
        kind = choices.below(4)
        if kind == 0:
            path.write_bytes(choices.spoilt(choices.pick((one, several)).read_bytes()))
        elif kind == 1:
            write_tensors(path, json.dumps(choices.spoilt_json(record)), tensors)
        else:
            path.write_bytes(_with_header(choices.pick((one, several)).read_bytes(), choices))
        with bl.limits(nbytes=NBYTES, seconds=SECONDS):
            found = {"": bl.Tensor.load(path)} if kind < 2 and choices.below(2) else bl.load_tensors(path)
            for tensor in found.values():
                tensor.numpy().sum()
                str(tensor)

    return attempt


def _with_header(content: bytes, choices: Choices) -> bytes:
    """A safetensors file with something else in its header."""
    (length,) = struct.unpack_from("<Q", content)
    header = json.dumps(choices.spoilt_json(json.loads(content[8 : 8 + length]))).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + length :]
