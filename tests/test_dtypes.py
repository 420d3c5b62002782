"""Data types are given by name here, by numpy's name, or as numpy's and ml_dtypes' types, wherever one is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl

ARRAY = np.zeros((2, 3), np.float32)

TAKERS: dict[str, Callable[[Any], str]] = {
    "MemoryDesc": lambda dtype: bl.MemoryDesc((2, 3), dtype).dtype,
    "MemoryDesc.with_dtype": lambda dtype: bl.MemoryDesc((2, 3)).with_dtype(dtype).dtype,
    "MemoryDesc.resized": lambda dtype: bl.MemoryDesc((2, 3)).resized((3, 4), dtype).dtype,
    "AnyDesc": lambda dtype: dnnl.AnyDesc((2, 3), dtype).dtype,
    "Builder.input": lambda dtype: bl.Builder().input("x", (2, 3), dtype).dtype,
    "reorder": lambda dtype: bl.reorder(ARRAY, bl.MemoryDesc((2, 3), dtype)).dtype,
    "from_array": lambda dtype: bl.from_array(ARRAY, dtype=dtype).dtype,
    "zeros": lambda dtype: bl.zeros((2, 3), dtype).dtype,
    "empty": lambda dtype: bl.empty((2, 3), dtype).dtype,
    "full": lambda dtype: bl.full((2, 3), 1, dtype).dtype,
    "ones_like": lambda dtype: bl.ones_like(ARRAY, dtype).dtype,
    "cast": lambda dtype: bl.cast(ARRAY, dtype).dtype,
    "astype": lambda dtype: bl.from_array(ARRAY).astype(dtype).dtype,
    "to": lambda dtype: bl.from_array(ARRAY).to(dtype=dtype).dtype,
}
NAMES: list[tuple[Any, str]] = [
    ("s8", "s8"),
    ("int8", "s8"),
    (np.int8, "s8"),
    (np.dtype(np.int8), "s8"),
    (np.float16, "f16"),
    (ml_dtypes.bfloat16, "bf16"),
    (np.dtype(ml_dtypes.bfloat16), "bf16"),
    ("bfloat16", "bf16"),
    ("fp16", "f16"),
    ("float16", "f16"),
]


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize(("given", "name"), NAMES, ids=str)
def test_a_type_is_taken_in_every_spelling(taker: str, given: Any, name: str) -> None:
    assert TAKERS[taker](given) == name


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("given", ["fp17", "floot32", 3, ["f32"], {}, complex, object, "U5"], ids=str)
def test_what_is_none_is_one_error(taker: str, given: Any) -> None:
    with pytest.raises(bl.BlockLayoutError, match="no data type"):
        TAKERS[taker](given)


def test_the_closest_is_named() -> None:
    with pytest.raises(bl.LayoutError, match=r"no data type 'bf17'; .*did you mean 'bf16'"):
        bl.MemoryDesc((2, 3), "bf17")


def test_descriptors_of_one_type_are_one() -> None:
    assert bl.MemoryDesc((2, 3), np.int8) == bl.MemoryDesc((2, 3), "s8")
    assert hash(bl.MemoryDesc((2, 3), np.int8)) == hash(bl.MemoryDesc((2, 3), "s8"))
