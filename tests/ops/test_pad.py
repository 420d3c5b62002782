"""Pad against ONNX's reference, in every mode and layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.ir import Wish
from tests.ops.cases import OpCase, problem_of
from tests.ops.harness import check_case

IMAGE = (2, 17, 3, 5)
FRAME = [0, 0, 1, 2, 0, 0, 2, 1]
ALL_LAYOUTS = {"plain", "channels_last", "blocked8", "blocked16"}


def pad(shape: tuple[int, ...], pads: list[int], value: float | None = None, **attrs: Any) -> OpCase:
    number = () if value is None else (np.array(value, np.float32),)
    # The reference does not cut.
    is_wrong = min(pads) < 0
    return OpCase("Pad", (shape, np.array(pads, np.int64), *number), attrs, opset=19, is_reference_wrong=is_wrong)


MODES = [pad(IMAGE, FRAME, mode=mode) for mode in ("constant", "edge", "reflect", "wrap")]
CASES = [
    *MODES,
    pad(IMAGE, FRAME, 2.5),
    OpCase("Pad", (IMAGE, np.array(FRAME, np.int64), ()), opset=19),
    OpCase("Pad", (IMAGE, np.array([0, 8, 0, 0, 0, 0, 0, 1], np.int64), (1,)), opset=13, is_reference_wrong=True),
    pad(IMAGE, [0, 0, 0, 0, 0, 0, 0, 3], 1.0),
    pad(IMAGE, [1, 0, 0, 0, 0, 0, 0, 0], 1.0),
    pad(IMAGE, [0, 0, -1, -2, 0, 0, -1, 0]),
    pad(IMAGE, [0, 0, -1, 2, 0, 0, 1, -3], 3.0),
    pad(IMAGE, [0, 8, 0, 0, 0, 3, 0, 0]),
    pad(IMAGE, [0, 8, 1, 1, 0, 0, 1, 1], 3.0),
    pad(IMAGE, [0, -8, 0, 0, 0, -3, 0, 0]),
    pad(IMAGE, [0, 3, 0, 0, 0, 4, 0, 0], mode="edge"),
    pad((2, 16, 3, 5), [0, 16, 0, 0, 0, 16, 0, 0], 1.0),
    pad((2, 17, 9), [0, 0, 2, 0, 0, 2], mode="reflect"),
    pad((2, 17, 2, 3, 4), [0, 0, 1, 1, 1, 0, 0, 1, 1, 1], mode="edge"),
    pad((2, 17, 1, 1), FRAME, mode="edge"),
    pad((4, 10), [1, 2, 3, 4]),
    pad((2, 50), [0, 40, 1, 49], mode="reflect"),
    pad((7,), [3, 3], mode="wrap"),
    OpCase("Pad", (IMAGE, np.array([1, 2, 2, 1], np.int64), None, np.array([2, -1], np.int64)), opset=18),
    OpCase("Pad", (IMAGE,), {"pads": FRAME, "value": 1.5}, opset=2, is_reference_wrong=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    ran = check_case(case)
    assert not any("ref" in impl for impl in ran.values())


@st.composite
def pads_of_images(draw: st.DrawFn) -> OpCase:
    mode = draw(st.sampled_from(["constant", "edge", "reflect", "wrap"]))
    shape = (
        draw(st.integers(1, 2)),
        draw(st.sampled_from([1, 8, 17])),
        draw(st.integers(1, 5)),
        draw(st.integers(1, 5)),
    )
    least = -1 if mode == "constant" else 0
    numbers = [draw(st.sampled_from([0, 8, 1] if dim % 4 == 1 else [0, least, 1, 2, 3])) for dim in range(8)]
    room = [(extent - 1 if mode == "reflect" else extent) for extent in shape]
    assume(mode in ("constant", "edge") or all(n <= room[dim % 4] for dim, n in enumerate(numbers)))
    assume(all(shape[dim] + min(numbers[dim], 0) + min(numbers[dim + 4], 0) > 0 for dim in range(4)))
    assume(any(numbers))
    return pad(shape, numbers, draw(st.sampled_from([None, 1.5])) if mode == "constant" else None, mode=mode)


@settings(max_examples=40)
@given(pads_of_images())
def test_any_pads_agree_with_the_reference(case: OpCase) -> None:
    check_case(case)


@pytest.mark.parametrize("case", CASES[:5], ids=str)
def test_frames_stay_in_every_layout(case: OpCase) -> None:
    assert set(check_case(case)) >= ALL_LAYOUTS


def test_whole_blocks_of_channels_stay_in_blocks() -> None:
    assert "blocked8" in check_case(pad(IMAGE, [0, 8, 0, 0, 0, 3, 0, 0]))
    assert "blocked16" in check_case(pad((2, 16, 3, 5), [0, 16, 0, 0, 0, 16, 0, 0], 1.0))


@pytest.mark.parametrize("case", [pad(IMAGE, [0, 3, 0, 0, 0, 0, 0, 0]), pad(IMAGE, [0, 0, 0, 0, 0, 1, 0, 0], 1.0)])
def test_parts_of_blocks_do_not(case: OpCase) -> None:
    assert set(check_case(case)) & ALL_LAYOUTS == {"plain", "channels_last"}


def test_infinity_is_a_value() -> None:
    case = pad(IMAGE, FRAME, float("-inf"))
    [y] = bl.load(case.model, layout="blocked").run(None, case.feeds)
    np.testing.assert_array_equal(y, case.expected)


def test_no_pads_are_a_view() -> None:
    assert pad(IMAGE, [0] * 8).lowered().operator.role == "view"


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (pad(IMAGE, [0, 0, -1, 0, 0, 0, 0, 1], mode="edge"), "Slice"),
        (pad(IMAGE, [0, 0, 3, 0, 0, 0, 0, 0], mode="reflect"), "at most"),
        (pad(IMAGE, [0, 0, 4, 0, 0, 0, 0, 0], mode="wrap"), "at most"),
        (pad(IMAGE, [0, 0, -3, 0, 0, 0, 1, 0]), "one element"),
    ],
    ids=str,
)
def test_what_no_copies_give_is_unsupported(case: OpCase, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        case.lowered()


def test_pads_computed_at_run_time_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="pads"):
        OpCase("Pad", ((7,), (2,)), opset=13).uninferred((9,))


def test_a_value_that_is_no_scalar_is_refused() -> None:
    with pytest.raises(ModelError, match="scalar"):
        OpCase("Pad", ((7,), np.array([1, 1]), np.zeros(2, np.float32)), opset=13).uninferred((9,))


def test_it_takes_no_post_ops() -> None:
    lowered = CASES[0].lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    problem = problem_of(lowered, CASES[0].expected.shape)
    assert lowered.operator.lower(problem, Wish("plain", "plain"), attr) is None
