"""Many shapes through one session: a bounded number of plans, shared weights, flat memory."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.model import model_file, tensors
from blocklayout.plan import prepack
from tests import nets

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20
WARM_UP = 15
MAX_GROWTH_NBYTES = 24 * MIB
"""Bytes that more shapes may add to the resident set after the first 15.

15 add up to 7 MiB, and 150 up to 15; if every plan were kept, 34 and 340.
"""


def _run(session: bl.Session, size: int, batch: int = 1) -> np.ndarray:
    return np.asarray(session(nets.random_input((batch, 3, size, size))))


@pytest.mark.parametrize("policy", ["plain", "nhwc", "blocked"])
def test_plans_share_packed_weights(policy: str) -> None:
    session = bl.load(nets.free_model(), layout=policy)
    _run(session, 16)
    one = session.memory()
    for size in (17, 18, 20):
        _run(session, size)
    assert session.memory().n_plans == 4
    readies = [kept.ready for kept in session._book._plans.values()]
    packs = {tuple((item.constant, item.desc) for item in ready.plan.constants) for ready in readies}
    kinds = {pack for each in packs for pack in each}
    assert session.memory().packed_nbytes == sum(desc.nbytes for _, desc in kinds)
    if len(packs) == 1:
        assert session.memory().packed_nbytes == one.packed_nbytes


def test_packs_go_with_the_last_plan_that_has_them() -> None:
    session = bl.load(nets.free_model(), max_plans=1)
    weights = session._book.maker.weights  # type: ignore[attr-defined]

    def held_nbytes() -> int:
        packed = (pack.packed() for packs in weights._packs.values() for pack in packs)
        return sum(array.nbytes for array in packed if array is not None)

    for size in (8, 40, 9, 41):
        _run(session, size)
        gc.collect()
        assert held_nbytes() == session.memory().packed_nbytes > 0
    while session._book._plans:
        session._book._remove(next(iter(session._book._plans)))
    gc.collect()
    assert held_nbytes() == 0


def test_shapes_that_come_back_are_right() -> None:
    session, many = bl.load(nets.free_model(), max_plans=2), bl.load(nets.free_model(), max_plans=100)
    for size, batch in ((8, 1), (11, 2), (30, 1), (8, 1), (11, 2), (5, 3), (8, 1)):
        np.testing.assert_allclose(_run(session, size, batch), _run(many, size, batch), rtol=1e-4, atol=1e-4)
        assert session.memory().n_plans <= 2
    assert many.memory().n_plans == 4


@pytest.mark.parametrize("policy", ["auto"])
def test_no_object_outlives_its_plan(policy: str) -> None:
    session = bl.load(nets.free_model(), layout=policy, max_plans=2)
    kinds = ("memory", "primitive", "primitive_desc", "primitive_attr", "post_ops")
    counts = []
    for size in (8, 9, 10, 8, 9, 10, 8, 9, 10):
        _run(session, size)
        gc.collect()
        live = dnnl.live_handles()
        counts.append(tuple(live[kind] for kind in kinds))
    assert counts[-3:] == counts[-6:-3]


def test_one_plan_of_many_leaves_no_code_behind() -> None:
    session = bl.load(nets.free_model(), max_plans=2)
    for size in range(8, 14):
        _run(session, size)
    specs = [step.spec for kept in session._book._plans.values() for step in kept.ready.plan.steps]
    assert not any(dnnl.leaves_code_behind(spec) for spec in specs if isinstance(spec, dnnl.Spec))


@pytest.mark.parametrize("max_plans", [0, -1, 2.0, True, "8"])
def test_the_number_of_plans_is_positive(max_plans: object) -> None:
    with pytest.raises(bl.InputError, match=r"max_plans=.*give a positive number"):
        bl.load(nets.free_model(), max_plans=max_plans)  # type: ignore[arg-type]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no resident set to read on this platform")
@pytest.mark.parametrize("n_shapes", [30, pytest.param(200, marks=pytest.mark.full_size)])
def test_random_shapes_in_flat_memory(n_shapes: int, tree_environ: dict[str, str]) -> None:
    script = [str(ROOT / "bench" / "shapes_memory.py"), "--worker", "8", "--shapes", str(n_shapes)]
    done = subprocess.run(
        [sys.executable, *script], env=tree_environ, check=True, stdout=subprocess.PIPE, timeout=300, text=True
    )
    curve = json.loads(done.stdout)
    unheld = [point["rss_nbytes"] - point["held_nbytes"] for point in curve]  # plans for large images hold more
    assert max(unheld[WARM_UP:]) - unheld[WARM_UP - 1] < MAX_GROWTH_NBYTES
    assert all(point["n_plans"] <= 8 for point in curve)
    weights = [point["packed_nbytes"] for point in curve]
    assert max(weights) < 4 * weights[0]


def test_further_extents_neither_read_the_network_nor_pack_weights_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(nets.free_model(), tmp_path / "free.onnx")
    session = bl.load(tmp_path / "free.onnx", layout="blocked")
    expected = [_run(bl.load(nets.free_model()), size) for size in (17, 30)]
    _run(session, 16)
    taken: list[int] = []
    for module, name in ((model_file, "open_contents"), (prepack, "_packed")):
        function = getattr(module, name)

        def noted(contents: Any, *rest: Any, _function: Any = function) -> Any:
            taken.append(memoryview(contents).nbytes)
            return _function(contents, *rest)

        monkeypatch.setattr(module, name, noted)
    for size, y in zip((17, 30), expected, strict=True):
        np.testing.assert_allclose(_run(session, size), y, rtol=1e-4, atol=1e-4)
    first, *others = (
        {(item.constant, item.desc) for item in kept.ready.plan.constants} for kept in session._book._plans.values()
    )
    assert sum(nbytes >= tensors.MIN_NBYTES for nbytes in taken) == sum(
        desc.nbytes >= tensors.MIN_NBYTES for _, desc in set().union(*others) - first
    )
    assert session.memory().originals_nbytes < tensors.MIN_NBYTES  # what is small
