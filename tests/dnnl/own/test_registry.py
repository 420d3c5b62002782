"""Implementations of our own are found by their names, and nobody names one."""

from __future__ import annotations

import pytest

from blocklayout.dnnl import own
from tests.structure.tree import imports, modules, relative


def test_nobody_imports_an_implementation_of_ours() -> None:
    found = {
        f"{relative(path)}:{each.line}"
        for path in modules()
        for each in imports(path)
        if each.target.startswith("blocklayout.dnnl.own.")
    }
    assert not found, f"ask blocklayout.dnnl.own, which finds it: {found}"


@pytest.mark.parametrize("impl", ["", "brgconv:avx2", "ref:any", "own", "__init__:avx2"])
def test_the_librarys_implementations_are_not_ours(impl: str) -> None:
    assert own.implementation(impl) is None
