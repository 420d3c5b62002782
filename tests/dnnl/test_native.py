"""Loading the C of our own, on systems without an OpenMP runtime too."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import blocklayout
from blocklayout.dnnl import native

if TYPE_CHECKING:
    from tests.dnnl.conftest import RunPython


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


def test_an_older_build_beside_it_is_passed_over(run_python: RunPython, tmp_path: Path) -> None:
    package = tmp_path / "blocklayout"
    package.mkdir()
    for each in Path(blocklayout.__file__).parent.iterdir():
        (package / each.name).symlink_to(each)
    old = package / f"_executor{sysconfig.get_config_var('EXT_SUFFIX')}"
    old.write_bytes(b"no library")
    code = "import blocklayout; from blocklayout import dnnl; print(blocklayout.__file__, dnnl.has_native_executor())"
    assert run_python(code) == f"{package / '__init__.py'} {native.has_native_executor()}"
