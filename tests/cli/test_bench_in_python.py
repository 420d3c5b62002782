"""``bl.bench``: the measurements that ``blocklayout bench`` prints, in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout.zoo import digits

if TYPE_CHECKING:
    from pathlib import Path

    from blocklayout.commands.bench import Benchmark


@pytest.fixture(scope="module")
def found() -> Benchmark:
    return bl.bench(digits.model_bytes(), {"image": np.ones((3, 1, 8, 8), np.float32)}, layouts=["plain"], rounds=2)


def test_it_prints_what_the_command_prints(found: Benchmark) -> None:
    first, *_ = str(found).splitlines()
    assert first.startswith("best ")
    assert "digits: 2 rounds, each policy in turn with auto" in str(found)


def test_its_records_are_measurements(found: Benchmark) -> None:
    assert [record["policy"] for record in found.records] == ["auto", "plain"]
    assert all(record["time_ms"]["low"] > 0 for record in found.records)
    assert found.records[1]["difference"] < 1e-4


def test_its_frame_has_a_column_for_each_number(found: Benchmark) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    assert found.frame()["time_ms.median"].min() > 0


def test_its_page_has_its_charts(found: Benchmark, tmp_path: Path) -> None:
    found.save(tmp_path / "bench.html")
    assert "Time of a run" in (tmp_path / "bench.html").read_text(encoding="utf-8")
    assert "<iframe" in found._repr_html_()


@pytest.mark.parametrize("kind", ["path", "bytes", "proto", "builder", "zoo"])
def test_every_source_runs_beside_a_saved_session(kind: str, tmp_path: Path) -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (1, 16, 8, 8)).relu())
    bl.save(b, path := tmp_path / "model.onnx")
    sources: dict[str, Any] = {
        "path": path,
        "bytes": path.read_bytes(),
        "proto": onnx.load(path),
        "builder": b,
        "zoo": "zoo:squeezenet1_1",
    }
    given: dict[str, Any] = {"shapes": {"x": (1, 3, 64, 64)}} if kind == "zoo" else {}
    found = bl.bench(sources[kind], against=[], rounds=1, **given)
    assert [record["name"] for record in found.records] == ["blocklayout", "blocklayout (saved)"]


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"layouts": ["nhcw8"]}, bl.PlanError, "no layout policy 'nhcw8'"),
        ({"rounds": 0}, bl.InputError, "rounds=0: give a positive number"),
        ({"dtype": "f31"}, bl.PlanError, "dtype='f31': activations are computed in"),
        ({"against": "tensorrt"}, bl.InputError, "no runtime 'tensorrt'; there are onnxruntime"),
        ({"feed": {"picture": np.ones((1, 1, 8, 8), np.float32)}}, bl.InputError, "no input 'picture'"),
        ({"shapes": {"image": (1, 3, 8, 8)}}, bl.InputError, "image"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else None,
)
def test_a_wrong_argument_is_named(options: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        bl.bench(digits.model_bytes(), **options)
