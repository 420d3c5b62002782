"""Generates ``blocklayout/dnnl/_abi.py`` from the declarations beside this script.

Run ``python cdefs/build.py`` after changing a declaration and commit what it writes. The generated
module holds the parsed declarations, so importing it needs neither a C compiler nor a C parser.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "blocklayout" / "dnnl" / "_abi.py"
MODULE = "blocklayout.dnnl._abi"
_OWN_NAMES = (
    "describe executor team winograd depthwise max_pooling copying region_means group_normalization widening "
    "requantizing grouped direct functions byte_pooling byte_products byte_sums interleaving "
    "dynamic_lstm dynamic_quantization"
)
OWN = tuple(HERE / "executor" / f"{name}.h" for name in _OWN_NAMES.split())

SHARED = ("status", "library", "engine", "memory", "primitive", "attributes", "openmp")
"""Files the others depend on, in the order of their dependencies."""


def declaration_paths() -> list[Path]:
    """Every file of oneDNN's declarations, dependencies first."""
    shared = [HERE / f"{name}.h" for name in SHARED]
    return shared + sorted(path for path in HERE.glob("*.h") if path not in shared)


def make_ffi() -> FFI:
    """An FFI that has parsed every declaration, of oneDNN and of our own C."""
    ffi = FFI()
    for path in [*declaration_paths(), *OWN]:
        ffi.cdef(path.read_text(encoding="utf-8"))
    return ffi


def generate() -> str:
    """The text of the generated module."""
    ffi = make_ffi()
    ffi.set_source(MODULE, None)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "_abi.py"
        ffi.emit_python_code(str(path))
        return path.read_text(encoding="utf-8")


if __name__ == "__main__":
    TARGET.write_text(generate(), encoding="utf-8")
