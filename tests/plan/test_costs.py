"""What is measured costs what was measured; the rest is estimated on the same scale."""

from __future__ import annotations

import pytest

from blocklayout import dnnl
from blocklayout.dnnl import MemoryDesc, Spec
from blocklayout.ir import HostSpec, copy_spec
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.costs.model import CostModel

MODEL = CostModel(Machine("avx2", 2))


def relu(extent: int, impl: str = "jit:avx2") -> Spec:
    desc = MemoryDesc((1, 16, extent, extent))
    return dnnl.eltwise(desc, desc, algorithm="relu", n_threads=2).replace(impl=impl)


def costs(ratios: dict[Spec, float]) -> CostModel:
    """Each takes so many times as long as the model thinks."""
    return MODEL.knowing({spec: ratio * MODEL.step_ns(spec) for spec, ratio in ratios.items()})


def is_measured(known: CostModel, spec: Spec | HostSpec) -> bool:
    return known.price(spec).source == "measured"


def is_reorder_measured(known: CostModel, src: MemoryDesc, dst: MemoryDesc) -> bool:
    return is_measured(known, dnnl.reorder(src, dst, n_threads=2))


def test_what_is_measured_costs_that() -> None:
    known = MODEL.knowing({relu(8): 1234.0})
    assert known.step_ns(relu(8)) == 1234.0
    assert is_measured(known, relu(8))
    assert known.machine == MODEL.machine


def test_nothing_measured_is_the_model() -> None:
    known = MODEL.knowing({})
    src, dst = MemoryDesc((1, 16, 8, 8)), MemoryDesc((1, 16, 8, 8), "f32", "nhwc")
    assert known.step_ns(relu(8)) == MODEL.step_ns(relu(8))
    assert known.reorder_ns(src, dst) == MODEL.reorder_ns(src, dst)
    assert not is_measured(known, relu(8))
    assert not is_reorder_measured(known, src, dst)


def scale(known: CostModel, spec: Spec) -> float:
    """How many times as long as the model thinks."""
    return known.step_ns(spec) / MODEL.step_ns(spec)


def test_the_median_of_the_same_implementation_scales_the_rest() -> None:
    fast, slow = (
        {relu(extent, impl): ratio for extent in range(50)} for impl, ratio in (("jit:avx2", 2.0), ("a", 7.0))
    )
    known = costs({**fast, **slow, relu(60): 500.0})
    assert scale(known, relu(70)) == pytest.approx(2.0, rel=0.1)
    assert scale(known, relu(70, "a")) == pytest.approx(7.0, rel=0.1)


def test_an_implementation_nobody_measured_is_scaled_as_its_kind_and_a_kind_as_all() -> None:
    known = costs({relu(8): 2.0, relu(9): 3.0, relu(10, "ref:any"): 5.0})
    softmax = dnnl.softmax(MemoryDesc((2, 10)), MemoryDesc((2, 10)), n_threads=2).replace(impl="jit:avx2")
    assert 1 < scale(known, softmax) < scale(known, relu(20, "jit:sse41")) < 3


def test_few_primitives_are_believed_less_than_many_about_the_rest_of_their_implementation() -> None:
    others = {relu(extent): 2.0 for extent in range(8, 12)}
    known = [costs({**others, **{relu(20 + i, "ref:any"): 0.01 for i in range(n)}}) for n in (0, 1, 2, 20)]
    found = [scale(each, relu(99, "ref:any")) for each in known]
    assert found == sorted(found, reverse=True)
    assert found[1] > 0.1
    assert found[3] < 0.02


def test_an_unmeasured_candidate_does_not_win_by_a_hopeful_model() -> None:
    known = costs({relu(extent): 4.0 for extent in (8, 9, 10, 16)})
    assert known.step_ns(relu(12)) > known.step_ns(relu(8))


def test_reorders_are_looked_up_as_constructed() -> None:
    plain, last, blocked = (MemoryDesc((1, 16, 8, 8), "f32", tag) for tag in ("nchw", "nhwc", "nChw8c"))
    mover = dnnl.reorder(plain, last, n_threads=2)
    known = MODEL.knowing({mover: 2 * MODEL.reorder_ns(plain, last)})
    assert is_reorder_measured(known, plain, last)
    assert known.reorder_ns(plain, last) == 2 * MODEL.reorder_ns(plain, last)
    assert 1 < known.reorder_ns(plain, blocked) / MODEL.reorder_ns(plain, blocked) < 2
    assert not is_reorder_measured(known, last, plain)


def test_a_reorder_of_other_threads_or_attributes_says_nothing_of_ours() -> None:
    plain, last = (MemoryDesc((1, 16, 8, 8), "f32", tag) for tag in ("nchw", "nhwc"))
    adding = dnnl.reorder(plain, last, attr=dnnl.Attr(post_ops=(dnnl.Sum(),)), n_threads=2)
    known = MODEL.knowing({dnnl.reorder(plain, last, n_threads=1): 7.0, adding: 8.0})
    assert not is_reorder_measured(known, plain, last)


def test_host_steps_cost_what_the_model_says() -> None:
    copy = copy_spec(MemoryDesc((2, 3), "s64"), MemoryDesc((2, 3), "s64", "ba"))
    known = costs({relu(8): 2.0})
    assert known.step_ns(copy) == MODEL.step_ns(copy)
    assert not is_measured(known, copy)


def test_the_order_of_measurements_does_not_matter() -> None:
    ratios = {relu(extent): float(extent) for extent in (8, 9, 10, 11)}
    backwards = dict(reversed(ratios.items()))
    assert costs(ratios).step_ns(relu(20)) == costs(backwards).step_ns(relu(20))
