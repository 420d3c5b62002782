"""Pooling against ONNX's reference, in every layout; what the library does differently is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.ir import Wish
from blocklayout.layout import MemoryDesc
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case
from tests.ops.in_numpy import Case, check, computed, floats, integers

CASES = [
    OpCase("MaxPool", ((1, 17, 8, 8),), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    OpCase("MaxPool", ((2, 3, 7, 6),), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    OpCase("MaxPool", ((1, 8, 8, 8),), {"kernel_shape": [3, 3], "dilations": [2, 2]}),
    OpCase("MaxPool", ((1, 8, 9, 9),), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    OpCase(
        "MaxPool",
        ((1, 8, 8, 8),),
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
        is_reference_wrong=True,
    ),
    OpCase("MaxPool", ((1, 8, 8, 8),), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "VALID"}),
    OpCase("MaxPool", ((1, 8, 9),), {"kernel_shape": [2], "storage_order": 1}),
    OpCase(
        "MaxPool",
        ((1, 3, 4, 5, 6),),
        {"kernel_shape": [2, 2, 2], "pads": [0, 1, 0, 1, 0, 1]},
        low=-2,
        high=-1,
        is_reference_wrong=True,
    ),
    OpCase("AveragePool", ((1, 17, 8, 8),), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    OpCase("AveragePool", ((1, 9, 8, 8),), {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2], "count_include_pad": 1}),
    OpCase("AveragePool", ((1, 8, 7, 7),), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    OpCase(
        "AveragePool",
        ((1, 8, 8, 8),),
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1},
    ),
    OpCase("AveragePool", ((1, 4, 7, 7),), {"kernel_shape": [2, 2], "dilations": [2, 2]}, opset=19),
    OpCase("AveragePool", ((1, 4, 8),), {"kernel_shape": [3], "auto_pad": "SAME_UPPER", "strides": [2]}),
    OpCase("GlobalAveragePool", ((2, 17, 7, 5),)),
    OpCase("GlobalAveragePool", ((1, 5, 4, 3, 2),)),
    OpCase("GlobalMaxPool", ((2, 17, 7, 5),), low=-2, high=-1),
    OpCase("GlobalMaxPool", ((1, 8, 9),), is_reference_wrong=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


@st.composite
def poolings(draw: st.DrawFn) -> OpCase:
    op_type = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    kernel = [draw(st.integers(1, 3)) for _ in range(2)]
    dilations = [draw(st.integers(1, 3)) for _ in range(2)]
    attrs = {
        "dilations": dilations,
        "kernel_shape": kernel,
        "strides": [draw(st.integers(1, 3)) for _ in range(2)],
        "pads": [draw(st.integers(0, k - 1)) for k in kernel * 2],
        "ceil_mode": draw(st.integers(0, 1)),
    }
    if op_type == "AveragePool":
        attrs["count_include_pad"] = draw(st.integers(0, 1))
    spatial = ((k - 1) * d + 1 + draw(st.integers(0, 5)) for k, d in zip(kernel, dilations, strict=True))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 17)), *spatial)
    # ONNX's reference fails where the pads are not alike on all sides.
    return OpCase(op_type, (shape,), attrs, opset=19, is_reference_wrong=True)


@settings(max_examples=30)
@given(poolings())
def test_any_pooling_agrees_with_the_reference_or_is_refused(case: OpCase) -> None:
    try:
        case.lowered()
    except UnsupportedError:
        assume(False)
    check_case(case)


INCOMPLETE = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1, "count_include_pad": 1}


@pytest.mark.parametrize("attrs", [INCOMPLETE, INCOMPLETE | {"pads": [0, 0, 0, 0]}, INCOMPLETE | {"dilations": [2, 1]}])
def test_incomplete_windows_count_pads_and_nothing_behind_them(attrs: dict[str, object]) -> None:
    check_case(OpCase("AveragePool", ((1, 17, 8, 8),), attrs, opset=19, is_reference_wrong=True))


@pytest.mark.parametrize("kernel", [(3, 1, 1), (3, 2, 1), (1, 2, 1)])
@pytest.mark.parametrize("shape", [(1, 3, 10, 8, 8), (3, 10, 5, 8, 8)])
def test_last_dimensions_that_windows_leave_alone_are_channels(shape: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    case = OpCase("AveragePool", (shape,), {"kernel_shape": list(kernel), "strides": [2, 1, 1]})
    check_case(case)
    b = bl.Builder()
    b.output("y", b.input("in_0", shape).average_pool(kernel, (2, 1, 1)))
    session = bl.load(b)
    [found] = session.run(None, case.feeds)
    assert np.allclose(found, case.expected, atol=1e-6)
    assert not session.plan.reorders
    assert not any(step.spec.impl.startswith("simple") for step in session.plan.steps)


def test_what_follows_incomplete_windows_comes_last() -> None:
    lowered = OpCase("AveragePool", ((1, 8, 8, 8),), INCOMPLETE).lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    recipe = lowered.operator.lower(problem_of(lowered, (1, 8, 5, 5)), Wish("plain", "plain"), attr)
    assert recipe is not None
    assert [step.spec.attr.post_ops for step in recipe.steps] == [(), attr.post_ops]


def test_a_last_window_of_nothing_but_pads_is_refused() -> None:
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    with pytest.raises(UnsupportedError, match="at least one element"):
        OpCase("MaxPool", ((1, 8, 7, 7),), attrs).lowered()


def test_pads_as_large_as_the_window_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="pads"):
        OpCase("MaxPool", ((1, 8, 7, 7),), {"kernel_shape": [2, 2], "pads": [2, 2, 2, 2]}).lowered()


def test_a_missing_kernel_shape_is_named() -> None:
    with pytest.raises(ModelError, match="kernel_shape is missing"):
        OpCase("MaxPool", ((1, 8, 7, 7),)).uninferred((1, 8, 6, 6))


def test_extents_that_the_window_does_not_give_are_refused() -> None:
    with pytest.raises(ModelError, match=r"\[6, 6\]"):
        OpCase("MaxPool", ((1, 8, 7, 7),), {"kernel_shape": [2, 2]}).uninferred((1, 8, 7, 7))


def test_the_destination_follows_a_descriptor() -> None:
    case = OpCase("MaxPool", ((1, 17, 8, 8),), {"kernel_shape": [2, 2], "strides": [2, 2]})
    lowered = case.lowered()
    problem = problem_of(lowered, case.expected.shape)
    src = MemoryDesc((1, 17, 8, 8), "f32", "nChw8c")
    recipe = lowered.operator.lower(problem, Wish(src, "any"), dnnl.Attr())
    assert recipe is not None
    assert recipe.steps[0].spec.memory_desc("dst") == MemoryDesc((1, 17, 4, 4), "f32", "nChw8c")
    assert lowered.operator.lower(problem, Wish(src, "plain"), dnnl.Attr()) is None
    assert lowered.operator.lower(problem, Wish("any", "any"), dnnl.Attr()) is None


WIDE = {"kernel_shape": [3, 2], "pads": [4, 4, 4, 4]}
LONG = {"kernel_shape": [3], "strides": [3], "pads": [3, 3], "ceil_mode": 1}
IN_NUMPY = [
    Case("AveragePool", (floats(1, 3, 8, 9),), WIDE),
    Case("AveragePool", (floats(1, 3, 8, 9),), WIDE | {"count_include_pad": 1}),
    Case("AveragePool", (floats(1, 3, 8, 9),), WIDE | {"dilations": [2, 3]}),
    Case("AveragePool", (floats(1, 3, 8),), LONG),
    Case("AveragePool", (floats(1, 3, 8),), LONG | {"count_include_pad": 1}),
    Case("AveragePool", (floats(2, 3, 3, 4, 5, 6),), {"kernel_shape": [2, 2, 1, 3]}),
    Case("AveragePool", (floats(2, 3, 3, 4, dtype="float64"),), {"kernel_shape": [2, 2]}),
    Case("GlobalAveragePool", (floats(2, 3, 3, 4, dtype="float64"),)),
    Case("GlobalMaxPool", (floats(2, 3, 3, 4, dtype="float64"),)),
    Case("MaxPool", (integers(1, 3, 8, 8, dtype="int8"),), {"kernel_shape": [3, 3], "dilations": [2, 1]}),
    Case("MaxPool", (integers(1, 3, 8, 8, low=0, dtype="uint8"),), {"kernel_shape": [3, 3], "strides": [2, 1]}),
    Case("MaxPool", (floats(1, 3, 8, 8, dtype="float64"),), {"kernel_shape": [3, 3], "dilations": [2, 2]}),
    Case("LpPool", (floats(1, 3, 8, 9),), WIDE | {"p": 3}),
]


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize("case", IN_NUMPY, ids=str)
def test_numpy_computes_what_no_primitive_does(case: Case) -> None:
    check(case)


def test_the_largest_of_nothing_is_the_lowest() -> None:
    for source, lowest in ((floats(1, 1, 4), -np.inf), (integers(1, 1, 4, dtype="int8"), -128)):
        result = np.empty((1, 1, 8), source.dtype)
        found = computed(Case("MaxPool", (source,), {"kernel_shape": [1], "pads": [2, 2]}), [result])
        assert found is not None
        np.testing.assert_array_equal(found[0][0, 0], [*2 * [lowest], *source[0, 0], *2 * [lowest]])


def test_pads_are_never_made() -> None:
    """A window of one element in the middle of pads that no memory holds."""
    attrs = {"kernel_shape": [1], "strides": [2**40], "pads": [2**41, 2**41]}
    found = computed(Case("AveragePool", (np.full((1, 1, 1), 7, np.float32),), attrs), [np.empty((1, 1, 5), "f4")])
    assert found is not None
    np.testing.assert_array_equal(found[0][0, 0], [np.nan, np.nan, 7, np.nan, np.nan])
