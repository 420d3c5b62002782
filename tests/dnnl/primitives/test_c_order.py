"""The order in which C takes a primitive's fields, against the declared functions."""

from __future__ import annotations

from typing import Any

import pytest

from blocklayout import dnnl
from blocklayout.dnnl import library
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.primitives import kind_of


@pytest.mark.parametrize("kind", dnnl.kinds())
def test_every_direction_has_a_function_that_takes_as_many_arguments(kind: str) -> None:
    c_library: Any = library.load()
    for name, direction in kind_of(kind).directions.items():
        if not direction.c_order:  # all implementations are our own
            continue
        function = "_".join(filter(None, ("dnnl", direction.family or kind, name, "primitive_desc_create")))
        names = direction.c_order.split()
        n_pads = names.count("pads")  # in front and behind, by two arguments
        assert len(ffi.typeof(getattr(c_library, function)).args) == 1 + len(names) + n_pads


@pytest.mark.parametrize("kind", dnnl.kinds())
def test_results_are_arguments(kind: str) -> None:
    for direction in kind_of(kind).directions.values():
        assert set(direction.results) <= set(direction.arguments)
