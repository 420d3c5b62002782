"""Resolving, rebuilding, binding and running: what is kept, what is refused, and that nothing leaks."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dnnl import c_desc, numpy_call, resolution
from blocklayout.errors import DnnlError, InvalidArgumentsError, UnimplementedError
from tests.dnnl.running import LAYOUTS, assert_close, convolve, desc, packed, poisoned, random

ANY = dnnl.AnyDesc
PLAIN = dnnl.MemoryDesc
DIMS = (2, 17, 5, 4)


def conv(n_threads: int = 1, dtype: str = "f32") -> dnnl.Spec:
    src, weights = ANY((1, 17, 8, 8), dtype), ANY((19, 17, 3, 3), dtype)
    return dnnl.convolution(src, weights, None, ANY((19,), dtype), pads=1, n_threads=n_threads)


def relu(layout: str = "plain") -> dnnl.Spec:
    return dnnl.eltwise(desc(DIMS, layout), None, "relu", n_threads=1)


def test_a_resolved_spec_lists_every_argument_with_its_layout() -> None:
    resolved = dnnl.resolve(conv()).spec
    assert resolved.is_resolved
    assert [name for name, _ in resolved.descs] == ["src", "weights", "bias", "dst"]
    assert all(isinstance(found, PLAIN) for _, found in resolved.descs)
    assert resolved.impl


def test_identical_specs_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = dnnl.resolve(conv())
    monkeypatch.setattr(resolution, "create_pd", lambda _: pytest.fail("asked again"))
    assert dnnl.resolve(conv()) is first
    again = dnnl.Spec.from_dict(conv().to_dict())
    assert dnnl.resolve(again) is first


def test_refusals_are_remembered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = conv().replace(algorithm="convolution_winograd")
    with pytest.raises(UnimplementedError) as first:
        dnnl.resolve(spec)
    monkeypatch.setattr(resolution, "create_pd", lambda _: pytest.fail("asked again"))
    with pytest.raises(UnimplementedError) as second:
        dnnl.resolve(spec)
    assert str(first.value) == str(second.value)
    assert first.value.status == 3


def test_every_implementation_can_be_had_again() -> None:
    offered = list(dnnl.implementations(conv()))
    assert len({resolved.spec.impl for resolved in offered}) > 1
    assert dnnl.resolve(conv()) == offered[0]
    for resolved in offered:
        assert dnnl.resolve(resolved.spec) == resolved
        assert dnnl.resolve(dnnl.Spec.from_dict(resolved.spec.to_dict())) == resolved
        assert dnnl.Primitive(resolved.spec).spec == resolved.spec


def test_every_implementation_computes_the_same() -> None:
    x, w, b = random(1, 17, 8, 8), random(19, 17, 3, 3), random(19)
    expected = convolve(x, w, (1, 1), (1,) * 4, (0, 0)) + b.reshape(19, 1, 1)
    for resolved in dnnl.implementations(conv()):
        assert_close(one(dnnl.Primitive(resolved.spec)(src=x, weights=w, bias=b)), expected)


def one(result: np.ndarray | dict[str, np.ndarray]) -> np.ndarray:
    assert isinstance(result, np.ndarray)
    return result


def test_an_implementation_may_be_named_before_its_layouts() -> None:
    last = list(dnnl.implementations(conv()))[-1].spec
    assert dnnl.resolve(conv().replace(impl=last.impl)).spec == last


def test_an_implementation_that_is_not_offered_is_refused_with_those_that_are() -> None:
    with pytest.raises(UnimplementedError, match=r"named jit:avx1024 among those oneDNN offers: .*ref:any"):
        dnnl.resolve(conv().replace(impl="jit:avx1024"))


def test_a_resolved_spec_is_refused_where_the_library_says_otherwise() -> None:
    src = desc(DIMS, "plain")
    resolved = dnnl.resolve(dnnl.pooling(src, None, "max", 2, n_threads=1, prop_kind="forward_training")).spec
    workspace = resolved.memory_desc("workspace")
    other = tuple((n, workspace.with_dtype("s32") if n == "workspace" else d) for n, d in resolved.descs)
    assert workspace.dtype == "u8"
    with pytest.raises(DnnlError, match="has other descriptors"):
        dnnl.resolve(resolved.replace(descs=other))
    with pytest.raises(DnnlError, match="has other descriptors"):
        dnnl.Primitive(resolved.replace(descs=other))


def test_layouts_keep_the_names_their_owner_gave_them() -> None:
    n1hw = PLAIN((2, 1, 5, 4), "f32", "nhwc")
    resolved = dnnl.resolve(dnnl.eltwise(n1hw, PLAIN((2, 1, 5, 4), "f32", "nchw"), "relu", n_threads=1)).spec
    assert (resolved.memory_desc("src").tag, resolved.memory_desc("dst").tag) == ("nhwc", "nchw")


def test_what_the_library_chose_prints_by_its_role() -> None:
    w = dnnl.resolve(conv(1).replace(prop_kind="forward_training")).spec.memory_desc("weights")
    assert set(w.tag.lower()) >= set("oihw")


def test_an_invalid_spec_reaches_no_c() -> None:
    broken = conv().replace(params=(("strides", (0, 0)), ("dilations", (0, 0)), ("pads", (0,) * 4)))
    for use in (dnnl.resolve, dnnl.Primitive, lambda spec: list(dnnl.implementations(spec))):
        with pytest.raises(InvalidArgumentsError, match="strides"):
            use(broken)


def test_bf16_is_unimplemented_where_the_cpu_has_none() -> None:
    if dnnl.has_bf16():
        pytest.skip("this CPU computes in bf16")
    with pytest.raises(UnimplementedError, match="bf16"):
        dnnl.resolve(conv(dtype="bf16"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_part_of_a_larger_buffer_is_read_and_written_in_place(layout: str) -> None:
    whole = desc((2, 32, 5, 4), layout)
    half = whole.submemory((2, 16, 5, 4), (0, 16, 0, 0))
    x = random(2, 16, 5, 4)
    dst = dnnl.Memory(whole, whole.pack(np.ones(whole.dims, np.float32)))
    assert isinstance(dst.buffer, np.ndarray)
    spec = dnnl.reorder(desc(x.shape, "plain"), half, n_threads=1)
    assert dnnl.resolve(spec).spec.desc("dst") is half
    memories = {"src": packed(desc(x.shape, "plain"), x), "dst": dnnl.Memory(half, dst.buffer)}
    dnnl.Primitive(spec).bind(memories).run()
    got = whole.unpack(dst.buffer)
    assert np.array_equal(got[:, 16:], x)
    assert (got[:, :16] == 1).all()


def test_running_again_reads_what_is_there_now() -> None:
    x, memory = random(*DIMS), packed(desc(DIMS, "plain"), random(*DIMS))
    dst = poisoned(desc(DIMS, "plain"))
    execution = dnnl.Primitive(relu()).bind({"src": memory, "dst": dst})
    for values in (x, -x):
        memory.rebind(np.ascontiguousarray(values))
        execution.run()
        assert isinstance(dst.buffer, np.ndarray)
        assert np.array_equal(dst.desc.unpack(dst.buffer), np.maximum(values, 0))


def test_an_execution_keeps_what_it_runs_on() -> None:
    execution = dnnl.Primitive(relu()).bind({n: poisoned(desc(DIMS, "plain")) for n in ("src", "dst")})
    gc.collect()
    execution.run()
    assert set(execution.memories) == {"src", "dst"}


def test_results_are_there_when_a_run_returns() -> None:
    """The stream is in order and the run synchronous: there is nothing to wait for."""
    x = random(1, 64, 56, 56)
    src = PLAIN(x.shape)
    buffers = [dnnl.Memory.empty(src) for _ in range(9)]
    step = dnnl.Primitive(dnnl.eltwise(src, None, "linear", 1, 1))
    executions = [
        step.bind({"src": a, "dst": b}) for a, b in zip([packed(src, x), *buffers[:-1]], buffers, strict=True)
    ]

    def run() -> np.ndarray:
        for execution in executions:
            execution.run()
        assert isinstance(buffers[-1].buffer, np.ndarray)
        return src.unpack(buffers[-1].buffer).copy()

    assert_close(dnnl.run_parallel(run, dnnl.default_threads()), x + 9)


def test_scratchpads_are_the_callers_or_made() -> None:
    candidates = (
        resolved
        for prop_kind in ("forward_inference", "forward_training")
        for resolved in dnnl.implementations(conv().replace(prop_kind=prop_kind))
    )
    resolved = next((found for found in candidates if found.scratchpad_nbytes), None)
    assert resolved is not None
    primitive = dnnl.Primitive(resolved.spec)
    assert primitive.scratchpad_nbytes == resolved.scratchpad_nbytes
    memories = {name: poisoned(primitive.spec.memory_desc(name)) for name, _ in primitive.spec.descs}
    assert primitive.bind(memories).memories["scratchpad"].nbytes == primitive.scratchpad_nbytes
    small = dnnl.Memory.empty(PLAIN((primitive.scratchpad_nbytes - 1,), "u8"))
    with pytest.raises(InvalidArgumentsError, match="scratchpad has"):
        primitive.bind({**memories, "scratchpad": small})
    mine = dnnl.Memory.empty(PLAIN((primitive.scratchpad_nbytes,), "u8"))
    assert primitive.bind({**memories, "scratchpad": mine}).memories["scratchpad"] is mine


@pytest.mark.parametrize(
    ("memories", "message"),
    [
        (lambda: {"src": poisoned(desc(DIMS, "plain"))}, "dst is missing; give a Memory of f32 2x17x5x4"),
        (lambda: {n: poisoned(desc(DIMS, "plain")) for n in ("src", "dst", "bias")}, "no argument 'bias'"),
        (
            lambda: {"src": poisoned(desc(DIMS, "blocked8")), "dst": poisoned(desc(DIMS, "plain"))},
            "src is a Memory of f32 2x17x5x4 aBcd8b; it takes .*reorder it first",
        ),
    ],
)
def test_memories_that_do_not_fit_are_refused(memories: Callable[[], dict[str, dnnl.Memory]], message: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=message):
        dnnl.Primitive(relu()).bind(memories())


def test_memories_of_another_spelling_fit() -> None:
    src = PLAIN((2, 1, 5, 4), "f32", "nhwc")
    primitive = dnnl.Primitive(dnnl.eltwise(src, None, "relu", n_threads=1))
    memory = dnnl.Memory.empty(PLAIN((2, 1, 5, 4), "f32", "nchw"))
    primitive.bind({"src": memory, "dst": memory}).run()


# Called with numpy arrays.


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
    monkeypatch.setattr(numpy_call, "_copy_to", lambda *_: pytest.fail("copied"))
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
    "no type": (lambda: {"src": np.zeros(DIMS, bool)}, "oneDNN has no data type"),
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


# What is left behind.


def owned() -> dict[str, int]:
    """Live handles without those of caches."""
    c_desc.clear_cache()
    numpy_call.clear_cache()
    gc.collect()
    return {kind: n for kind, n in dnnl.live_handles().items() if kind not in ("engine", "stream")}


def test_nothing_is_left_behind() -> None:
    before = owned()
    x, w, b = random(1, 17, 8, 8), random(19, 17, 3, 3), random(19)
    primitive = dnnl.Primitive(conv().replace(attr=dnnl.Attr((dnnl.Eltwise("relu"), dnnl.Prelu(2)))))
    primitive(src=x, weights=w, bias=b, post_op_1_weights=random(1, 19, 1, 1))
    execution = dnnl.Primitive(relu()).bind({n: poisoned(desc(DIMS, "plain")) for n in ("src", "dst")})
    execution.run()
    list(dnnl.implementations(conv()))
    with pytest.raises(UnimplementedError):
        dnnl.resolve(conv().replace(impl="none"))
    assert owned() != before
    del primitive, execution
    assert owned() == before


def test_a_primitive_goes_when_it_is_told_to() -> None:
    before = owned()
    primitive = dnnl.Primitive(relu())
    assert owned()["primitive"] == before["primitive"] + 1
    primitive.destroy()
    assert owned()["primitive"] == before["primitive"]


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
