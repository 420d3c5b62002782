"""Loading the C of our own, on systems without an OpenMP runtime too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from blocklayout.dnnl import native

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def needing(compile_library: Any) -> tuple[Path, Path]:
    """A library, and one that it needs, where no loader looks."""
    needed = compile_library("int f(void) { return 1; }", "libneeded.so.1", "-Wl,-soname,libneeded.so.1")
    library = compile_library("int f(void); int g(void) { return f(); }", "libneeding.so", str(needed))
    return library, needed


def test_a_runtime_that_the_system_lacks_is_the_packages_own(
    needing: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, needed = needing
    monkeypatch.setattr(native, "OPENMP", needed)
    opened = native.opened(str(library))
    assert opened is not None


def test_without_either_there_is_no_c(needing: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    library, needed = needing
    monkeypatch.setattr(native, "OPENMP", needed.with_name("missing"))
    assert native.opened(str(library)) is None
