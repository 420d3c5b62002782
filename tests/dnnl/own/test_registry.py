"""Implementations of our own are found by their names."""

from __future__ import annotations

import pytest

from blocklayout.dnnl import own


@pytest.mark.parametrize("impl", ["", "brgconv:avx2", "ref:any", "own", "__init__:avx2"])
def test_the_librarys_implementations_are_not_ours(impl: str) -> None:
    assert own.implementation(impl) is None
