"""Binding and running: memories that fit, results in place, and that nothing leaks."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.errors import InvalidArgumentsError, UnimplementedError
from tests.dnnl.caches import clear_descs, clear_primitives
from tests.dnnl.running import DIMS, LAYOUTS, assert_close, conv, desc, packed, poisoned, random, relu

PLAIN = dnnl.MemoryDesc


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


# What is left behind.


def owned() -> dict[str, int]:
    """Live handles without those of caches."""
    clear_descs()
    clear_primitives()
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
