"""Expand against ONNX's reference, in every layout."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.ir import Wish
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case

IMAGE = (2, 17, 3, 5)


def expand(src: tuple[int, ...], *shape: int) -> OpCase:
    return OpCase("Expand", (src, np.array(shape, np.int64)))


CASES = [
    expand((2, 17, 1, 1), *IMAGE),
    expand((1, 17, 1, 1), *IMAGE),
    expand((17, 1, 1), *IMAGE),
    expand((2, 1, 3, 5), *IMAGE),
    expand((1, 1, 3, 5), *IMAGE),
    expand((2, 1, 1, 5), *IMAGE),
    expand((3, 5), *IMAGE),
    expand((), *IMAGE),
    expand((1,), 7),
    expand((3, 1), 3, 4),
    expand((2, 17, 1), 1, 17, 9),
    expand((1, 17, 1, 1, 4), 2, 17, 2, 3, 4),
    expand((2, 1, 3, 1, 2, 1), 2, 4, 3, 2, 1, 5),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    ran = check_case(case)
    assert not any("ref" in impl for impl in ran.values())


@st.composite
def expansions(draw: st.DrawFn) -> OpCase:
    shape = [draw(st.sampled_from([1, 2, 3, 8, 17])) for _ in range(draw(st.integers(1, 5)))]
    src = [draw(st.sampled_from([1, extent])) for extent in shape][draw(st.integers(0, len(shape) - 1)) :]
    return expand(tuple(src), *shape)


@settings(max_examples=30)
@given(expansions())
def test_any_expansion_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


@pytest.mark.parametrize("case", CASES[:4], ids=str)
def test_images_expand_in_every_layout(case: OpCase) -> None:
    assert {"plain", "channels_last", "blocked8", "blocked16"} <= set(check_case(case))


def test_the_same_elements_are_a_view() -> None:
    assert expand((17, 3, 5), 1, 17, 3, 5).lowered().operator.role == "view"


def test_it_takes_no_post_ops() -> None:
    lowered = CASES[0].lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, IMAGE), Wish("plain", "plain"), attr) is None
