"""Times are positive whatever the primitive, on data that a network could have, and nothing is left behind."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dnnl import AnyDesc, Attr, Binary, Eltwise, MemoryDesc, Prelu, Spec, Sum
from blocklayout.errors import DisturbedError, UnimplementedError
from blocklayout.plan.costs import measuring, repeating
from blocklayout.plan.costs.measuring import SpecTimer, cold_nbytes
from blocklayout.plan.costs.random_data import Tape, random_bytes, random_elements

NO_ATTR = Attr()
KINDS = ("memory", "primitive", "primitive_desc", "primitive_attr", "post_ops")


def image(channels: int, layout: str = "nchw", dtype: str = "f32", extent: int = 9) -> MemoryDesc:
    return MemoryDesc((2, channels, extent, extent), dtype, layout)


def convolution(layout: str, dtype: str = "f32", attr: Attr = NO_ATTR) -> Spec:
    src, dst = image(17, layout, dtype), image(19, layout, dtype)
    weights = AnyDesc((19, 17, 3, 3), dtype)
    return dnnl.convolution(src, weights, dst, bias=AnyDesc((19,), dtype), pads=1, attr=attr, n_threads=2)


def grouped(channels: int, groups: int, layout: str) -> Spec:
    per_group = channels // groups
    weights = AnyDesc((groups, per_group, per_group, 3, 3))
    return dnnl.convolution(image(channels, layout), weights, image(channels, layout), pads=1, n_threads=2)


def with_post_ops(layout: str) -> Spec:
    dst = image(19, layout)
    post_ops = (Sum(), Eltwise("relu"), Binary("add", dst), Binary("mul", MemoryDesc((1, 19, 1, 1))), Prelu(0))
    return convolution(layout, attr=Attr(post_ops=post_ops))


SPECS = {
    **{f"convolution {layout}": convolution(layout) for layout in ("nchw", "nhwc", "nChw8c")},
    **{f"post-ops {layout}": with_post_ops(layout) for layout in ("nhwc", "nChw8c")},
    "grouped": grouped(32, 4, "nhwc"),
    "depthwise": grouped(17, 17, "nChw8c"),
    "pooling": dnnl.pooling(image(17, "nChw8c"), kernel=2, strides=2, algorithm="max", n_threads=2),
    "eltwise": dnnl.eltwise(image(17, "nChw8c"), algorithm="relu", n_threads=1),
    "binary": dnnl.binary(image(17, "nChw8c"), image(17, "nChw8c"), algorithm="add", n_threads=2),
    "broadcast": dnnl.binary(image(17), MemoryDesc((1, 17, 1, 1)), algorithm="mul", n_threads=2),
    "reorder": dnnl.reorder(image(17), image(17, "nChw8c"), n_threads=2),
    "to integers": dnnl.reorder(image(17), image(17, "nhwc", "s8"), n_threads=2),
    "from integers": dnnl.reorder(image(17, dtype="u8"), image(17), n_threads=2),
    "matmul": dnnl.matmul(MemoryDesc((3, 64)), AnyDesc((64, 100)), n_threads=2),
    "concat": dnnl.concat([image(17), image(5)], axis=1, n_threads=2),
    "softmax": dnnl.softmax(MemoryDesc((2, 1000)), n_threads=2),
    "part of a tensor": dnnl.reorder(
        image(32).submemory((1, 8, 9, 9), (1, 8, 0, 0)), MemoryDesc((1, 8, 9, 9), "f32", "nhwc"), n_threads=1
    ),
    "normalisation": dnnl.batch_normalization(
        image(17, "nChw8c"), flags=("use_global_stats", "use_scale", "use_shift"), n_threads=2
    ),
}


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run on busy machines too."""
    monkeypatch.setattr(repeating, "_n_switches", lambda: 0)


@pytest.fixture(scope="module")
def timer() -> SpecTimer:
    return SpecTimer()


@pytest.mark.parametrize("name", SPECS)
def test_a_time_is_positive(name: str, timer: SpecTimer) -> None:
    assert timer.time(dnnl.resolve(SPECS[name]).spec) > 0


@pytest.mark.needs_bf16
@pytest.mark.parametrize("layout", ["nhwc", "nChw16c"])
def test_a_time_in_bf16_is_positive(layout: str, timer: SpecTimer) -> None:
    assert timer.time(dnnl.resolve(convolution(layout, "bf16")).spec) > 0


def test_specs_are_timed_in_turn(timer: SpecTimer) -> None:
    outcomes = timer.time_in_turn([dnnl.resolve(spec).spec for spec in SPECS.values() if spec.n_threads == 2])
    assert all(isinstance(outcome, float) and outcome > 0 for outcome in outcomes)
    assert timer.time_in_turn([]) == []


def test_one_that_cannot_be_made_does_not_stop_the_others(timer: SpecTimer) -> None:
    good = dnnl.resolve(SPECS["softmax"]).spec
    first, second, third = timer.time_in_turn([good, good.replace(impl="jit:of_another_library"), good])
    assert isinstance(first, float)
    assert isinstance(second, UnimplementedError)
    assert isinstance(third, float)


def test_when_there_is_no_time_nothing_is_timed(timer: SpecTimer) -> None:
    [outcome] = timer.time_in_turn([dnnl.resolve(SPECS["softmax"]).spec], lambda: False)
    assert isinstance(outcome, DisturbedError)


def test_handles_are_back_where_they_were() -> None:
    resolved = [dnnl.resolve(spec).spec for spec in SPECS.values()]
    timer = SpecTimer()
    timer.time(resolved[0])
    gc.collect()
    before = dnnl.live_handles()
    for spec in resolved:
        timer.time(spec)
    gc.collect()
    after = dnnl.live_handles()
    assert {kind: after[kind] for kind in KINDS} == {kind: before[kind] for kind in KINDS}


@pytest.mark.usefixtures("no_garbage")
def test_handles_are_let_go_where_binding_fails(timer: SpecTimer, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dnnl.live_handles()["memory"]
    with monkeypatch.context() as patch:
        patch.setattr(dnnl.Primitive, "bind", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            timer.time(SPECS["softmax"])
    gc.collect()
    assert dnnl.live_handles()["memory"] == before


def test_what_cannot_be_made_says_so(timer: SpecTimer) -> None:
    with pytest.raises(UnimplementedError):
        timer.time(SPECS["softmax"].replace(impl="jit:of_another_library"))


# What is measured on.


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64", "s32", "s8", "u8"])
def test_data_are_no_zeros_and_no_denormals(dtype: str) -> None:
    values = random_elements(dtype).astype(np.float64)
    assert np.isfinite(values).all()
    assert np.count_nonzero(values) > 0.95 * values.size
    if dtype in ("f32", "bf16", "f64"):
        assert np.abs(values[values != 0]).min() > 1e-30


def test_variances_are_positive() -> None:
    assert random_elements("f32", is_positive=True).min() >= 0.5


def test_what_results_are_added_to_is_no_zeros_either() -> None:
    buffer = random_bytes(3_000_001, random_elements("f32"))
    assert buffer.nbytes == 3_000_004
    assert np.count_nonzero(buffer.view(np.float32)) == buffer.nbytes // 4


def test_constants_are_met_again_only_after_all_others() -> None:
    tape = Tape(random_elements("f32"))
    tape.reserve(1 << 20)
    places = [tape.piece(1000).ctypes.data for _ in range(tape.nbytes // 1024)]
    assert len(set(places)) == len(places)
    assert all(place % 64 == 0 for place in places)
    assert tape.piece(1000).ctypes.data == places[0]


def test_only_what_stays_from_inference_to_inference_is_cold() -> None:
    spec = dnnl.resolve(with_post_ops("nhwc")).spec
    assert measuring._constants(spec) == {"weights", "bias", "post_op_3_src_1", "post_op_4_weights"}
    assert measuring._constants(dnnl.resolve(SPECS["binary"]).spec) == set()
    assert measuring._constants(dnnl.resolve(SPECS["broadcast"]).spec) == {"src_1"}


def test_cold_is_beyond_the_caches_within_bounds() -> None:
    assert 8 << 20 <= cold_nbytes(1) <= cold_nbytes(64) <= 64 << 20
