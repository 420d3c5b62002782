"""Importing is cheap: nothing is loaded that was not asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from blocklayout import Builder, save

HEAVY = ("cffi", "ml_dtypes", "onnx", "onnxruntime", "pydantic", "rich", "torch")

REPORT = f"""
import sys
from pathlib import Path
maps = Path("/proc/self/maps")
loaded = [name for name in {HEAVY!r} if name in sys.modules]
loaded += ["libdnnl"] if maps.exists() and "libdnnl" in maps.read_text() else []
print(*loaded, sep=",", file=sys.stderr)
"""

INSPECT = """
import sys
sys.argv = ["blocklayout", "inspect", "nChw16c", "1x17x5x4", "--json"]
from blocklayout.cli import main
try:
    status = main()
except SystemExit as exit:
    status = exit.code
assert not status, status
"""

# What is run, and what of the heavy things it may load.
CASES = {
    "import": ("import blocklayout", set[str]()),
    "descriptor": ("import blocklayout as bl; bl.MemoryDesc((1, 17, 5, 4), 'f32', 'nChw16c').nbytes", set[str]()),
    "tensor": ("import blocklayout as bl; bl.Tensor, bl.from_array, bl.reorder, bl.channels_last", set[str]()),
    "inspect": (INSPECT, set[str]()),
}


def run_python(code: str, environ: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env=environ,
        cwd=folder,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.strip()


@pytest.mark.parametrize(("code", "allowed"), CASES.values(), ids=CASES.keys())
def test_nothing_heavy_is_loaded(code: str, allowed: set[str], tree_environ: dict[str, str], tmp_path: Path) -> None:
    loaded = run_python(code + REPORT, tree_environ, tmp_path)
    assert set(filter(None, loaded.split(","))) <= allowed


def test_the_facade_loads_nothing_of_ours(tree_environ: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys, blocklayout; "
        "print(*[name for name in sys.modules if name.split('.')[0] in ('blocklayout', 'numpy')], file=sys.stderr)"
    )
    assert run_python(code, tree_environ, tmp_path) == "blocklayout"


def test_a_load_imports_the_parts_of_onnx_that_it_takes(tree_environ: dict[str, str], tmp_path: Path) -> None:
    b = Builder()
    b.output("y", b.input("x", (1, 2)).relu())
    save(b, tmp_path / "relu.onnx")
    code = (
        "import sys, blocklayout; blocklayout.load('relu.onnx'); assert 'onnx.compose' not in sys.modules\n"
        "assert 'pydantic' not in sys.modules\n"
        "import onnx; assert onnx.load('relu.onnx').graph.output[0].name == 'y' and onnx.compose.merge_models\n"
        "print(type(onnx).__name__, onnx.__version__, file=sys.stderr)"
    )
    assert run_python(code, tree_environ, tmp_path) == f"module {version('onnx')}"
