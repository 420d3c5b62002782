"""Primitives called with numpy arrays, from one thread and from several."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dnnl import primitive as primitives
from blocklayout.errors import InvalidArgumentsError, RefusedError
from tests.dnnl.caches import clear_primitives
from tests.dnnl.running import DIMS, assert_close, conv, convolve, desc, packed, poisoned, random, relu

PLAIN = dnnl.MemoryDesc


def one(result: np.ndarray | dict[str, np.ndarray]) -> np.ndarray:
    assert isinstance(result, np.ndarray)
    return result


def test_arrays_of_any_strides_and_byte_order_are_taken() -> None:
    x = random(2, 34, 10, 4)
    primitive = dnnl.Primitive(relu("blocked8"))
    for view in (
        x[:, ::2, ::2],
        x[:, 33:16:-1, :5],
        np.asfortranarray(x[:, :17, :5]),
        x[:, :17, :5].astype(">f4"),
        np.broadcast_to(x[:1, :17, :1], DIMS),
    ):
        view.flags.writeable = False
        assert np.array_equal(one(primitive(src=view)), np.maximum(view, 0))


def test_lists_and_numbers_are_taken() -> None:
    src = PLAIN((2, 3))
    spec = dnnl.reorder(src, src, attr=dnnl.Attr(scales=(("src", 0),)), n_threads=1)
    assert one(dnnl.Primitive(spec)(src=[[1, 2, 3], [4, 5, 6]], scale_src=2)).tolist() == [[2, 4, 6], [8, 10, 12]]


def test_an_array_in_the_right_layout_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primitives, "_copy_to", lambda *_: pytest.fail("copied"))
    x = random(*DIMS)
    assert np.array_equal(one(dnnl.Primitive(relu())(src=x)), np.maximum(x, 0))


def test_results_are_fresh() -> None:
    primitive, x = dnnl.Primitive(relu()), random(*DIMS)
    first = one(primitive(src=x))
    kept = first.copy()
    second = one(primitive(src=-x))
    assert np.array_equal(first, kept)
    assert not np.shares_memory(first, second)
    assert first.flags.writeable
    assert first.flags.c_contiguous


def test_memories_come_and_go_in_the_primitives_own_layout() -> None:
    x = random(*DIMS)
    primitive = dnnl.Primitive(relu("blocked8"))
    found = primitive.compute(src=x)["dst"]
    assert found.desc == primitive.spec.desc("dst")
    assert np.array_equal(one(primitive(src=found)), np.maximum(x, 0))
    mine = poisoned(primitive.spec.memory_desc("dst"))
    assert primitive.compute(src=found, dst=mine)["dst"] is mine
    elsewhere = packed(desc(DIMS, "channels_last"), x)
    assert np.array_equal(one(primitive(src=elsewhere)), np.maximum(x, 0))


def test_no_elements_give_no_elements() -> None:
    empty = PLAIN((0, 17, 5, 4))
    assert (
        one(
            dnnl.Primitive(dnnl.eltwise(empty, None, "relu", n_threads=1))(src=np.empty((0, 17, 5, 4), np.float32))
        ).size
        == 0
    )


CALL_MISTAKES: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "missing": (dict, r"src is missing; give an array of f32 \(2, 17, 5, 4\)"),
    "unknown": (lambda: {"x": random(*DIMS)}, "no argument 'x'; it takes src, dst"),
    "shape": (lambda: {"src": random(2, 17, 5, 5)}, r"src has shape \(2, 17, 5, 5\); it takes \(2, 17, 5, 4\)"),
    "type": (lambda: {"src": random(*DIMS).astype(np.float64)}, r"src is f64; it takes f32: .*astype\(np.float32\)"),
    "no type": (lambda: {"src": np.zeros(DIMS, complex)}, "no data type"),
    "result": (lambda: {"src": random(*DIMS), "dst": random(*DIMS)}, "dst is a result; leave it out"),
    "extents": (lambda: {"src": dnnl.Memory.empty(PLAIN((2, 17)))}, "src has extents"),
    "text": (lambda: {"src": "abc"}, "src is no array"),
}


@pytest.mark.parametrize("name", CALL_MISTAKES)
def test_a_wrong_call_names_argument_and_rule(name: str) -> None:
    given, message = CALL_MISTAKES[name]
    with pytest.raises(InvalidArgumentsError, match=message):
        dnnl.Primitive(relu())(**given())


def test_a_sum_post_op_needs_what_it_adds_to() -> None:
    spec = conv().replace(attr=dnnl.Attr((dnnl.Sum(),)))
    x, w, b = random(1, 17, 8, 8), random(19, 17, 3, 3), random(19)
    with pytest.raises(InvalidArgumentsError, match="dst is missing, and the sum post-op adds to it"):
        dnnl.Primitive(spec)(src=x, weights=w, bias=b)
    held = random(1, 19, 8, 8)
    kept = held.copy()
    got = one(dnnl.Primitive(spec)(src=x, weights=w, bias=b, dst=held))
    assert_close(got, convolve(x, w, (1, 1), (1,) * 4, (0, 0)) + b.reshape(19, 1, 1) + kept)
    assert np.array_equal(held, kept), "the caller's array is not written"


def test_primitives_are_called_from_several_threads() -> None:
    primitive, arrays = dnnl.Primitive(relu("blocked8")), [random(*DIMS, seed=i) for i in range(8)]
    wrong: list[int] = []

    def work(index: int) -> None:
        expected = np.maximum(arrays[index], 0)
        wrong.extend(index for _ in range(20) if not np.array_equal(one(primitive(src=arrays[index])), expected))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_refused_creation_spoils_no_other() -> None:
    """The code generator of oneDNN 3.2 notes an error for its thread, and refuses everything from then on."""
    rows = PLAIN((2, 19, 17, 13), "s8", "aBcd16b")
    refused = dnnl.softmax(rows, rows, axis=1, n_threads=2)
    for offered in [*dnnl.implementations(refused)]:
        with suppress(RefusedError):  # by AVX-512, which offers it for bytes
            dnnl.Primitive(offered.spec)
    for extent in range(40, 44):  # of no other test, so that they are created now
        found = next(dnnl.implementations(dnnl.eltwise(PLAIN((3, extent)), algorithm="relu", n_threads=1)))
        x = random(3, extent)
        assert np.array_equal(one(dnnl.Primitive(found.spec)(src=x)), np.maximum(x, 0))
    parts = [PLAIN((2, 7, 3, 4), "s8"), PLAIN((2, 7, 3, 4), "s8", "aBcd8b")]
    ones = np.ones(parts[0].dims, np.int8)
    total = one(dnnl.Primitive(dnnl.sum(parts, n_threads=1))(src_0=ones, src_1=ones))
    assert (total == 2).all()


def test_a_primitive_is_shared_while_anybody_has_it() -> None:
    spec = dnnl.resolve(relu()).spec
    first = weakref.ref(dnnl.primitive_of(spec))
    gc.collect()
    assert first() is None
    held = dnnl.primitive_of(spec)
    assert dnnl.primitive_of(spec) is held
    assert dnnl.primitive_of(spec.replace(n_threads=2)) is not held
    assert dnnl.Primitive(spec) is not held


def test_code_that_is_never_freed_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = dnnl.resolve(relu()).spec
    monkeypatch.setattr(primitives, "leaves_code_behind", lambda _: True)
    kept = dnnl.primitive_of(spec)
    assert dnnl.primitive_of(spec) is kept
    x = random(*DIMS)
    clear_primitives()
    assert np.array_equal(one(kept(src=x)), np.maximum(x, 0))
    assert dnnl.primitive_of(spec) is not kept
    clear_primitives()
