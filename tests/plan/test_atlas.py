"""Recorded times: what is in an atlas, what it says of primitives that are not, and files that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.dnnl import MemoryDesc, Spec
from blocklayout.plan import Pricing
from blocklayout.plan.costs.atlas import FOLDER, Atlas, fitting, in_steps
from blocklayout.plan.costs.machine import Machine, peak_flops
from blocklayout.plan.costs.model import CostModel
from blocklayout.plan.costs.traits import NUMBERS, spec_class, spec_numbers

MACHINE = Machine("avx2", 2)
MODEL = CostModel(MACHINE)
KIND, OTHER = "Maker family 1", "Other family 1"


def relu(extent: int, impl: str = "jit:avx2", tag: str = "nhwc") -> Spec:
    desc = MemoryDesc((1, 16, extent, extent), "f32", tag)
    return dnnl.eltwise(desc, desc, algorithm="relu", n_threads=2).replace(impl=impl)


def atlas(times: dict[Spec, float], kind: str = KIND) -> Atlas:
    recorded = [(spec_class(spec, "avx2"), spec_numbers(spec), ns) for spec, ns in times.items()]
    return Atlas.of(f"Fast CPU ({kind}): made up", 2, recorded)


def costs(times: dict[Spec, float], n_threads: int = 2) -> CostModel:
    return CostModel(Machine("avx2", n_threads), atlas=atlas(times))


GROWING = {relu(extent): 100.0 * extent**2 for extent in (8, 16, 32, 64)}


def test_what_was_recorded_costs_that() -> None:
    recorded = costs(GROWING)
    for spec, ns in GROWING.items():
        assert recorded.step_ns(spec) == pytest.approx(ns, rel=1e-5)
        assert recorded.price(spec).source == "recorded"


def test_what_lies_between_costs_something_between() -> None:
    recorded = costs(GROWING)
    assert GROWING[relu(16)] < recorded.step_ns(relu(24)) < GROWING[relu(32)]


def test_other_layouts_and_implementations_are_priced_by_wider_classes() -> None:
    recorded = costs(GROWING)
    for other in (relu(24, tag="nChw8c"), relu(24, "jit:sse41")):
        assert recorded.price(other).source == "recorded"


def test_f16_costs_what_f32_does_for_half_the_bytes() -> None:
    recorded = costs(GROWING)
    half = MemoryDesc((1, 16, 64, 64), "f16", "nhwc")
    spec = dnnl.eltwise(half, half, algorithm="relu", n_threads=2).replace(impl="jit:avx512_core_fp16")
    assert 0 < recorded.step_ns(spec) < recorded.step_ns(relu(64))


def conv(extent: int, impl: str, dtype: str = "bf16") -> Spec:
    src, dst = (MemoryDesc((1, 64, extent, extent), dtype, "nhwc") for _ in range(2))
    return dnnl.convolution(src, MemoryDesc((64, 64, 3, 3), dtype), dst, pads=1, n_threads=2).replace(impl=impl)


def test_an_instruction_set_that_was_not_recorded_is_faster_by_its_peak() -> None:
    recorded = costs({conv(extent, "brgconv:avx512_core_bf16"): 1e4 * extent**2 for extent in (28, 56, 112)})
    ratio = recorded.step_ns(conv(56, "brgconv:avx512_core_bf16")) / recorded.step_ns(
        conv(56, "brgconv:avx512_core_amx")
    )
    peaks = [peak_flops("", isa, "bf16") for isa in ("avx512_core_amx", "avx512_core_bf16")]
    assert ratio == pytest.approx(peaks[0] / peaks[1], rel=0.1)


def test_blocks_that_channels_fill_in_part_are_a_class_of_their_own() -> None:
    plain, blocked = ([MemoryDesc((1, n, 28, 28), "f32", tag) for n in (112, 116)] for tag in ("nchw", "nChw8c"))
    full, part = (spec_class(dnnl.reorder(*pair, n_threads=2), "avx2") for pair in zip(plain, blocked, strict=True))
    assert (full.layouts, part.layouts) == ("first first8", "first first8+")
    assert not set(full.wider()[:2]) & set(part.wider()[:2])


def test_few_of_other_layouts_do_not_pass_for_recorded_ones() -> None:
    recorded = costs({relu(8, tag="nchw"): 5000.0} | GROWING)
    assert recorded.step_ns(relu(8, tag="nchw")) == pytest.approx(5000.0, rel=1e-5)
    assert recorded.step_ns(relu(8, tag="nChw8c")) != pytest.approx(5000.0, rel=1e-5)


def test_references_and_what_is_like_nothing_recorded_are_the_models() -> None:
    recorded = costs(GROWING)
    softmax = dnnl.softmax(MemoryDesc((2, 10)), MemoryDesc((2, 10)), n_threads=2).replace(impl="jit:avx2")
    for spec in (softmax, relu(8, "ref:any")):
        assert recorded.step_ns(spec) == MODEL.step_ns(spec)
        assert recorded.price(spec).source == "modelled"


def test_reorders_are_recorded_as_the_planner_asks_for_them() -> None:
    plain, last = (MemoryDesc((1, 16, 8, 8), "f32", tag) for tag in ("nchw", "nhwc"))
    recorded = costs({dnnl.reorder(plain, last, n_threads=2): 7000.0} | GROWING)
    assert recorded.reorder_ns(plain, last) == pytest.approx(7000.0, rel=1e-5)


def test_on_more_threads_all_but_the_start_is_shared_out() -> None:
    twice = costs(GROWING, n_threads=4)
    ns, start_ns = GROWING[relu(64)], MACHINE.step_ns
    assert twice.step_ns(relu(64)) == pytest.approx(start_ns + (ns - start_ns) / 2, rel=1e-4)


@pytest.mark.parametrize(("asked", "is_recorded"), [("bf16", False), ("f16", True), ("f32", True)])
def test_an_atlas_without_the_data_type_asked_for_prices_nothing(
    asked: str, monkeypatch: pytest.MonkeyPatch, *, is_recorded: bool
) -> None:
    monkeypatch.setattr("blocklayout.plan.costs.atlas.fitting", lambda *_: atlas(GROWING))
    priced = Pricing.of(2, "model", 1.0, lambda _: None).recorded(asked)
    assert (KIND in priced.source) == is_recorded


def test_times_may_be_moved_towards_those_in_place() -> None:
    alone = atlas(GROWING)
    own = spec_class(relu(64), "avx2"), in_steps(spec_numbers(relu(64)))
    placed = CostModel(MACHINE, atlas=alone.slowed([1.5 if key == own else 1.0 for key in alone.keys]))
    assert placed.step_ns(relu(64)) == pytest.approx(1.5 * GROWING[relu(64)], rel=1e-5)
    assert placed.step_ns(relu(8)) == pytest.approx(GROWING[relu(8)], rel=1e-5)


@given(st.permutations(list(GROWING.items())))
def test_the_order_in_which_times_were_recorded_does_not_matter(times: list[tuple[Spec, float]]) -> None:
    ordered, shuffled = atlas(GROWING), atlas(dict(times))
    for spec in (relu(24), relu(100), relu(8, tag="nchw")):
        told = (spec_class(spec, "avx2"), spec_numbers(spec))
        assert ordered.ns_of(*told) == shuffled.ns_of(*told)


def test_an_atlas_outlives_its_process(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    made = atlas(GROWING)
    made.save(path)
    opened = Atlas.open(path)
    told = (spec_class(relu(24), "avx2"), spec_numbers(relu(24)))
    assert opened.ns_of(*told) == made.ns_of(*told)
    assert (opened.origin, opened.n_threads, opened.classes) == (made.origin, made.n_threads, made.classes)


def test_shipped_atlases_are_small_and_name_their_origin() -> None:
    paths = [*FOLDER.glob("*.npz")]
    assert sum(path.stat().st_size for path in paths) < 300_000
    for path in paths:
        for word in ("threads", "oneDNN 3.2", "times that", "resnet50"):
            assert word in Atlas.open(path).origin


@pytest.mark.parametrize(
    ("kind", "of"),
    [("AMD family 26", "AMD family 26"), ("AMD family 23", "AMD family 26"), ("Intel family 6", "Intel family 6")],
)
@pytest.mark.parametrize("isa", ["avx2", "avx512_core_vnni", "avx512_core_bf16", "avx512_core_amx"])
def test_shipped_atlases_serve_their_makers(kind: str, of: str, isa: str) -> None:
    assert fitting(kind, isa).is_of(of)


def test_the_atlas_of_the_kind_fits_best_then_the_makers_then_that_with_the_instruction_set(tmp_path: Path) -> None:
    wide = {relu(8, "jit:avx512_core"): 1e3}
    for name, times, kind in (
        ("own", GROWING, KIND),
        ("newer", wide | GROWING, "Maker family 2"),
        ("other", wide, OTHER),
    ):
        atlas(times, kind).save(tmp_path / f"{name}.npz")
    assert fitting(KIND, "avx512_core", tmp_path).is_of(KIND)
    assert fitting("Maker family 3", "avx512_core", tmp_path).is_of("Maker family 2")
    assert fitting("Other family 2", "avx2", tmp_path).is_of(OTHER)
    (tmp_path / "newer.npz").unlink()
    assert fitting("A third", "avx512_core", tmp_path).is_of(OTHER)
    assert fitting("A third", "avx2", tmp_path).is_of(KIND)


def test_a_file_that_is_no_atlas_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    for content in (b"", b"noise", b"PK\x03\x04 and more"):
        path.write_bytes(content)
        with pytest.raises(bl.PlanError, match=r"mine\.npz is no atlas.*bench/atlas\.py"):
            Atlas.open(path)


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("format", np.int32(0), "format 3"),
        ("n_threads", np.int32(0), "n_threads not positive"),
        ("ns", np.full(4, -1.0, np.float32), "ns not positive"),
        ("ns", np.full(3, 1.0, np.float32), "of_class, numbers of another type or shape"),
        ("ns", np.array(["a"] * 4), "ns of another type"),
        ("of_class", np.full(4, 9, np.uint16), "no class"),
        ("numbers", np.zeros((4, len(NUMBERS) + 1), np.int16), "numbers of another"),
    ],
)
def test_an_atlas_with_what_no_recording_gives_is_refused(
    tmp_path: Path, name: str, value: np.ndarray, fault: str
) -> None:
    path = tmp_path / "mine.npz"
    atlas(GROWING).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **(arrays | {name: value}))
    with pytest.raises(bl.PlanError, match=fault):
        Atlas.open(path)


def test_a_deconvolution_that_nobody_recorded_is_priced_as_the_convolution_that_does_its_work() -> None:
    """Not by the model, next to which everything that was recorded is dear."""

    def weighted(kind: str, extent: int, weights: int, **params: int) -> Spec:
        src, dst = (MemoryDesc((1, 16, each, each), "f32", "nhwc") for each in (extent, 16))
        taps = MemoryDesc((16, 16, weights, weights))
        spec: Spec = getattr(dnnl, kind)(src, taps, dst, pads=1, n_threads=2, **params)
        return spec.replace(impl="brgconv:avx2" if kind == "convolution" else "brg_conv:avx2+brgconv_strided:avx2")

    strided = weighted("deconvolution", 8, 4, strides=2)
    recorded = costs({weighted("convolution", 16, 3): 1e6, weighted("convolution", 18, 5): 2e6, **GROWING})
    assert recorded.step_ns(strided) == MODEL.step_ns(strided)  # of too few
    recorded = costs({weighted("convolution", 13 + k, k): 1e5 * k * k for k in (3, 5, 7)})
    assert 1e5 < recorded.step_ns(strided) < 9e5
    own = strided.replace(impl="jit_deconvolution:avx2")
    assert recorded.step_ns(own) == MODEL.step_ns(own)  # by no convolution's kernel
