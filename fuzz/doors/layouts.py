"""Tags, descriptors and their texts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import blocklayout as bl
from blocklayout.layout import FormatTag
from fuzz.choices import Choices

SUMMARY = "tags and descriptors"
NBYTES, SECONDS = 64 << 20, 5.0
TAGS = (
    *(
        "nchw",
        "nhwc",
        "nChw16c",
        "nChw8c",
        "OIhw16i16o",
        "gOIhw8i8o",
        "aBcd16b",
        "ABcd4b16a4b",
        "abcdefghijkl",
        "a",
        "x",
    ),
    *(
        "channels_last",
        "contiguous_format",
        "nCdhw16c",
        "OIhw4i16o4i",
        "any",
        "ba",
        "NCHW16n16c",
        "Abc16a",
        "tnc",
        "ldigo",
    ),
)
DTYPES = ("f32", "bf16", "f16", "s8", "u8", "s32", "f64", "s64", "bool", "float32", "", "c64", None, 7)


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    del folder
    records = [
        bl.MemoryDesc((2, 17, 5, 4), "f32", "nChw16c").to_dict(),
        bl.MemoryDesc((2, 17, 5, 4), "bf16", strides=(400, 20, 4, 1)).to_dict(),
        bl.MemoryDesc((17, 33, 3, 3), "s8", "OIhw4i16o4i").to_dict(),
    ]

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        kind = choices.below(4)
        with bl.limits(nbytes=NBYTES, seconds=SECONDS):
            if kind == 0:
                str(FormatTag.parse(choices.spoilt_text(choices.pick(TAGS), TAGS)))
            elif kind == 1:
                _ask(
                    bl.MemoryDesc.from_dict(choices.spoilt_json(json.loads(json.dumps(choices.pick(records))))), choices
                )
            else:
                _ask(_made(choices), choices)

    return attempt


def _made(choices: Choices) -> bl.MemoryDesc:
    dims: Any = _extents(choices)
    dtype: Any = choices.pick(DTYPES) if choices.chance(4) else "f32"
    if choices.chance(3):
        return bl.MemoryDesc(dims, dtype, strides=_extents(choices), offset=choices.integer())
    tag = choices.pick(TAGS)
    return bl.MemoryDesc(dims, dtype, choices.spoilt_text(tag, TAGS) if choices.chance(3) else tag)


def _extents(choices: Choices) -> tuple[int, ...]:
    return tuple(choices.integer() if choices.chance(6) else choices.extent() for _ in range(choices.below(7)))


def _ask(desc: bl.MemoryDesc, choices: Choices) -> None:
    """Ask a descriptor most of what it answers."""
    other = bl.MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    questions: tuple[Callable[[], object], ...] = (
        lambda: (str(desc), repr(desc), desc.tag, desc.canonical_tag, desc.nbytes, desc.padded_dims, desc.dim_order),
        lambda: (desc.is_plain, desc.is_dense, desc.repeats, desc.memory_format, desc.canonical, desc.n_padding),
        lambda: bl.MemoryDesc.from_dict(json.loads(json.dumps(desc.to_dict()))) == desc or _unequal(desc),
        lambda: desc.offset(*_extents(choices)),
        lambda: desc.index(choices.integer()),
        lambda: desc.permuted(_extents(choices)),
        lambda: desc.reshaped(_extents(choices)),
        lambda: desc.viewed_as(_extents(choices)),
        lambda: desc.submemory(_extents(choices), _extents(choices)),
        lambda: desc.resized(_extents(choices)),
        lambda: (desc.readable_as(other), other.readable_as(desc), desc.physically_equal(other)),
        lambda: desc.is_contiguous(choices.spoilt_text(choices.pick(TAGS), TAGS)),
        desc.offsets,
        lambda: _repacked(desc, choices),
    )
    for question in questions[:3]:
        question()
    for _ in range(1 + choices.below(3)):
        choices.pick(questions)()


def _repacked(desc: bl.MemoryDesc, choices: Choices) -> None:
    n_elements = math.prod(filter(None, desc.dims))  # numpy refuses some arrays without elements, too
    if max(desc.nbytes, 4 * n_elements) < NBYTES:  # of overlapping elements the array holds each
        desc.unpack(desc.pack(np.zeros(desc.dims if choices.below(4) else (2, 3), np.float32)))


def _unequal(desc: bl.MemoryDesc) -> None:
    raise AssertionError(f"{desc!r} comes back from JSON as another one")
