"""Arrays that another thread changes during a run: the answer is anybody's guess, and nothing else goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

import blocklayout as bl
from blocklayout.dnnl import roi_align
from blocklayout.dnnl._abi import ffi
from blocklayout.ops import indexing

if TYPE_CHECKING:
    import pytest


def _gathering(op_type: str, n_coordinates: tuple[int, ...] = ()) -> bl.Session:
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", "i"], ["y"])],
        op_type,
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, (8, 4)),
            helper.make_tensor_value_info("i", TensorProto.INT64, (8, *(n_coordinates or (4,)))),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    return bl.load(model.SerializeToString(), tune="model", threads=1)


def test_indices_may_change_once_they_were_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """``numpy.take`` finds its way back from a place far beyond by subtracting the extent, again and again."""
    check, given = indexing.check_places, np.ones((8, 4), np.int64)

    def check_and_change(places: np.ndarray, extent: int) -> None:
        check(places, extent)
        given[:] = 2**62

    monkeypatch.setattr(indexing, "check_places", check_and_change)
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    [found] = _gathering("Gather").run(None, {"x": x, "i": given})
    assert (found == x[1]).all()
    assert (given == 2**62).all()


def test_indices_are_followed_in_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    along = indexing._along

    def see(places: np.ndarray, axis: int, shape: tuple[int, ...]) -> object:
        seen.append(places)
        return along(places, axis, shape)

    monkeypatch.setattr(indexing, "_along", see)
    given = np.ones((8, 4), np.int64)
    _gathering("GatherElements").run(None, {"x": np.ones((8, 4), np.float32), "i": given})
    assert seen
    assert not any(np.may_share_memory(given, places) for places in seen)


def test_images_of_regions_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """C follows them where they were checked before."""
    given = [np.zeros(2, np.int64) for _ in range(3)]
    taken: list[object] = []

    class _Code:
        def bl_region_means(self, *arguments: object) -> None:
            taken.extend(arguments)

    monkeypatch.setattr(roi_align, "native", _Code)
    monkeypatch.setattr(roi_align, "team", lambda: None)
    weights = [np.ones((2, 1, 1), np.float32)] * 2
    pixels, results = np.ones((1, 4, 4, 3), np.float32), np.empty((2, 3, 1, 1), np.float32)
    assert roi_align.write_region_means(pixels, given[0], given[1:], weights, results)
    addresses = {each.ctypes.data for each in given}
    places = [ffi.cast("uintptr_t", each) for each in taken[2:5]]
    assert not addresses & {int(place) for place in places}
