"""A run that was made before is a few frames of Python, and one call into C."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.runtime import workspace
from tests import nets

MAX_RUN_FRAMES = 12
MAX_EAGER_FRAMES = 8

ORDERS = ((0, 2, 3, 1), (1, 0, 2, 3), (2, 0, 3, 1), (3, 2, 1, 0))

needs_team = pytest.mark.skipif(dnnl.threads_name() != "own team", reason="runs are handed to a thread of libgomp's")


def frames_of(call: Callable[[], object]) -> list[str]:
    """The functions in Python that are entered by a call, itself not counted.

    Those of garbage are not the call's: what other tests left is not collected meanwhile.
    """
    entered: list[str] = []

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call":
            entered.append(frame.f_code.co_qualname)

    call()
    gc.disable()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return entered[1:]


@needs_team
@pytest.mark.parametrize("kind", ["array", "transposed", "Tensor"])
def test_a_run_enters_few_functions(kind: str) -> None:
    b = nets.chain()
    session = bl.load(b)
    x = nets.feed_of(session)["x"]
    fed = {
        "array": x,
        "transposed": np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
        "Tensor": bl.reorder(x, "nhwc"),
    }[kind]
    feed = {"x": fed}
    found = frames_of(lambda: session.run(None, feed))
    assert len(found) <= MAX_RUN_FRAMES, ", ".join(found)


@needs_team
def test_a_call_on_a_tensor_enters_few_functions() -> None:
    x = bl.reorder(nets.random_input((1, 16, 8, 8)), "nChw8c")
    found = frames_of(lambda: bl.relu(x))
    assert len(found) <= MAX_EAGER_FRAMES, ", ".join(found)


def test_arrays_of_other_layouts_share_all_but_what_reads_them() -> None:
    session = bl.load(nets.chain(batch=2), layout="nhwc")
    x = nets.random_input((2, 17, 12, 12))
    expected = session(x)
    [kept] = session._book._plans.values()
    before, primitives = session.memory(), dnnl.live_handles()["primitive"]
    arrays = [np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order)) for order in ORDERS]
    for array in arrays:
        np.testing.assert_allclose(session(array), expected, rtol=1e-5, atol=1e-5)
    after = session.memory()
    assert (after.arena_nbytes, after.scratchpad_nbytes) == (before.arena_nbytes, before.scratchpad_nbytes)
    assert after.packed_nbytes == before.packed_nbytes
    assert dnnl.live_handles()["primitive"] <= primitives + len(ORDERS)
    assert len(kept.workspaces[0]._executables) == 1 + len(ORDERS)


def test_executables_of_a_plan_are_bounded() -> None:
    b = bl.Builder()
    b.output("y", b.input("x", (2, 3)).relu())
    session = bl.load(b)
    wide = np.arange(600, dtype=np.float32).reshape(2, 300) - 300
    for step in (*range(1, 60), 1):
        x = wide[:, : 3 * step : step]
        np.testing.assert_array_equal(session(x), np.maximum(x, 0))
    [kept] = session._book._plans.values()
    assert len(kept.workspaces[0]._executables) == workspace.MAX_EXECUTABLES


def test_unaligned_and_foreign_arrays_are_right_each_time() -> None:
    session = bl.load(nets.chain())
    x = nets.feed_of(session)["x"]
    expected = session(x)
    shifted = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    for array in (x, shifted, x.astype(">f4"), x[::-1, ::-1][::-1, ::-1], x.view(_Array), shifted, x):
        np.testing.assert_allclose(session(array), expected, rtol=1e-5, atol=1e-5)


class _Array(np.ndarray):
    """An array of a kind of its own."""


def test_any_mapping_may_be_fed() -> None:
    session = bl.load(nets.chain())
    feed = nets.feed_of(session)
    np.testing.assert_array_equal(session.run(None, MappingProxyType(feed))[0], session.run(None, feed)[0])
    with pytest.raises(bl.InputError, match="feed is a list"):
        session.run(None, ["y"])  # type: ignore[arg-type]
