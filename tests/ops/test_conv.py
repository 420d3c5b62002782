"""Convolution against ONNX's reference, in every layout."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.encoding import to_data
from blocklayout.errors import ModelError
from blocklayout.ir import LAYOUT_NAMES, Problem, TensorInfo, Window, Wish
from blocklayout.ops.conv import Conv
from tests.ops.cases import OpCase, Weights, problem_of
from tests.ops.harness import check_alternatives, check_case, in_narrow_floats

CASES = [
    OpCase("Conv", ((2, 3, 8, 7), Weights((16, 3, 3, 3)), Weights((16,))), {"pads": [1, 1, 1, 1]}),
    OpCase("Conv", ((1, 17, 5, 5), Weights((9, 17, 1, 1)))),
    OpCase("Conv", ((1, 8, 9, 9), Weights((8, 1, 3, 3)), Weights((8,))), {"group": 8, "strides": [2, 2]}),
    OpCase("Conv", ((1, 16, 6, 6), Weights((32, 8, 3, 3))), {"group": 2, "kernel_shape": [3, 3]}),
    OpCase("Conv", ((1, 4, 9, 8), Weights((8, 4, 3, 3))), {"dilations": [2, 3], "pads": [2, 3, 1, 0]}),
    OpCase("Conv", ((1, 4, 8, 8), Weights((8, 4, 3, 3))), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    OpCase("Conv", ((1, 4, 8, 8), Weights((8, 4, 3, 3))), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    OpCase("Conv", ((1, 4, 8, 8), Weights((8, 4, 3, 3))), {"auto_pad": "VALID", "strides": [2, 3]}),
    OpCase("Conv", ((2, 5, 11), Weights((6, 5, 3)), Weights((6,))), {"pads": [0, 2]}),
    OpCase("Conv", ((1, 3, 4, 5, 6), Weights((8, 3, 2, 3, 3)), Weights((8,))), {"pads": [0, 1, 1, 1, 1, 1]}),
    OpCase("Conv", ((1, 2, 3, 3), Weights((4, 2, 3, 3))), {"pads": [3, 3, 3, 3]}),
    OpCase("Conv", ((1, 2, 5, 5), (4, 2, 3, 3), (4,))),
    OpCase("Conv", ((1, 16, 6, 6), (32, 8, 3, 3)), {"group": 2}),
    OpCase("Conv", ((1, 8, 9), (8, 1, 3), (8,)), {"group": 8}),
    OpCase("Conv", ((1, 4, 5, 5, 5), (4, 2, 3, 3, 3)), {"group": 2}),
    OpCase("Conv", ((2, 20, 9), Weights((20, 1, 3)), Weights((20,))), {"group": 20, "dilations": [3], "pads": [3, 2]}),
    OpCase("Conv", ((1, 16, 9), Weights((16, 1, 3))), {"group": 16, "strides": [2], "pads": [1, 0]}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


@in_narrow_floats
@pytest.mark.parametrize("case", CASES[:4], ids=str)
def test_agrees_with_the_reference_in_narrow_floats(case: OpCase, dtype: str) -> None:
    check_case(case, dtype)


@st.composite
def convolutions(draw: st.DrawFn) -> OpCase:
    n_spatial = draw(st.integers(1, 2))
    n_groups = draw(st.sampled_from([1, 1, 2, 8]))
    channels = n_groups * draw(st.integers(1, 9 if n_groups == 1 else 2))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(n_spatial))
    dilations = [draw(st.integers(1, 2)) for _ in range(n_spatial)]
    # Of images of one element the library proposes layouts that it does not take itself.
    least = max(2, *((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)))
    spatial = tuple(draw(st.integers(least, least + 3)) for _ in range(n_spatial))
    weights = (n_groups * draw(st.integers(1, 9 if n_groups == 1 else 2)), channels // n_groups, *kernel)
    attrs = {
        "group": n_groups,
        "dilations": dilations,
        "strides": [draw(st.integers(1, 3)) for _ in range(n_spatial)],
        "pads": [draw(st.integers(0, 2)) for _ in range(2 * n_spatial)],
    }
    bias = Weights(weights[:1]) if draw(st.booleans()) else None
    return OpCase("Conv", ((draw(st.integers(1, 2)), channels, *spatial), Weights(weights), bias), attrs)


@settings(max_examples=25)
@given(convolutions())
def test_any_convolution_agrees_with_the_reference(case: OpCase) -> None:
    check_case(case)


def test_grouped_weights_are_a_view_with_the_groups_in_front() -> None:
    case = OpCase("Conv", ((1, 16, 6, 6), Weights((32, 8, 3, 3))), {"group": 2})
    weights = case.lowered().constants["weights"]
    assert weights.shape == (2, 16, 8, 3, 3)
    assert np.shares_memory(weights, case.arrays[1])


def test_absent_bias_is_no_argument() -> None:
    lowered = OpCase("Conv", ((1, 2, 5, 5), Weights((4, 2, 3, 3)))).lowered()
    assert set(lowered.sources) == {"src"}
    assert set(lowered.constants) == {"weights"}


def test_any_leaves_all_layouts_but_the_bias_to_the_primitive() -> None:
    case = OpCase("Conv", ((1, 2, 5, 5), Weights((4, 2, 3, 3)), Weights((4,))))
    lowered = case.lowered()
    recipe = lowered.operator.lower(problem_of(lowered, case.expected.shape), Wish("any", "any"), dnnl.Attr())
    assert recipe is not None
    spec = recipe.steps[0].spec
    assert {name for name, desc in spec.descs if isinstance(desc, dnnl.AnyDesc)} == {"src", "weights", "dst"}


@pytest.mark.parametrize(("dilation", "extents"), [(1, (1, 32, 1, 40)), (7, (1, 32, 40, 1))])
def test_depthwise_lines_are_seen_as_images(dilation: int, extents: tuple[int, ...]) -> None:
    """Of lines the library has no kernel that computes each channel on its own: tens of times slower."""
    attrs = {"group": 32, "dilations": [dilation], "pads": [dilation, dilation]}
    lowered = OpCase("Conv", ((1, 32, 40), Weights((32, 1, 3)), Weights((32,))), attrs).lowered()
    problem = problem_of(lowered, (1, 32, 40))
    recipe = lowered.operator.lower(problem, Wish("blocked8", "blocked8"), dnnl.Attr())
    assert recipe is not None
    descs = dict(recipe.steps[0].spec.descs)
    assert descs["src"].dims == descs["dst"].dims == extents
    assert dict(recipe.whole)["src"].dims == (1, 32, 40)


def test_prop_kind_is_passed_on() -> None:
    case = OpCase("Conv", ((1, 2, 5, 5), Weights((4, 2, 3, 3))))
    lowered = case.lowered()
    wish = Wish("any", "any", "forward_training")
    recipe = lowered.operator.lower(problem_of(lowered, case.expected.shape), wish, dnnl.Attr())
    assert recipe is not None
    assert to_data(recipe.steps[0].spec)["prop_kind"] == "forward_training"


@pytest.mark.parametrize(
    ("inputs", "attrs", "message"),
    [
        (((1, 2, 5, 5), Weights((4, 3, 3, 3))), {}, "channels"),
        (((1, 3, 5, 5), Weights((4, 3, 3, 3)), Weights((3,))), {}, "bias"),
        (((1, 3, 5, 5), Weights((4, 3, 3, 3))), {"group": 0}, "group"),
        (((1, 4, 5, 5), Weights((3, 2, 3, 3))), {"group": 2}, "group"),
        (((1, 3, 5, 5), Weights((4, 3, 3, 3))), {"kernel_shape": [2, 2]}, "kernel_shape"),
        (((1, 3, 5, 5), Weights((4, 3, 3, 3))), {"strides": [0, 1]}, "strides"),
        (((1, 3, 5, 5), Weights((4, 3, 3, 3))), {"strides": [1, 1, 1]}, "strides"),
        (((1, 3, 5, 5), Weights((4, 3, 3, 3))), {"pads": [0, 0, 0, -1]}, "pads"),
        (((1, 3, 5, 5), Weights((4, 3, 3, 3))), {"auto_pad": "ALL"}, "auto_pad"),
        (((1, 3, 2, 2), Weights((4, 3, 3, 3))), {}, "extents"),
    ],
)
def test_contradictions_name_node_and_attribute(
    inputs: tuple[tuple[int, ...] | Weights, ...], attrs: dict[str, object], message: str
) -> None:
    case = OpCase("Conv", inputs, attrs)
    with pytest.raises(ModelError, match=f"'tested'.*{message}"):
        case.uninferred((1, 4, 3, 3))


def alike(*problems: tuple[int, int, int, int]) -> list[tuple[Conv, Problem]]:
    """Convolutions with 3x3 windows of some source channels, result channels, groups and pixels a side."""
    found = []
    for n_src, n_dst, n_groups, side in problems:
        dims = (n_dst, n_src, 3, 3) if n_groups == 1 else (n_groups, n_dst // n_groups, n_src // n_groups, 3, 3)
        src, dst = TensorInfo((1, n_src, side, side), "f32"), TensorInfo((1, n_dst, side, side), "f32")
        window = Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
        found.append((Conv(window, n_groups), Problem({"src": src}, {"weights": TensorInfo(dims, "f32")}, dst, 1)))
    return found


@pytest.mark.parametrize(
    "problems",
    [
        ((16, 64, 1, 7), (48, 80, 1, 20)),
        ((3, 24, 1, 9), (3, 40, 1, 12)),
        ((32, 32, 32, 5), (96, 96, 96, 14)),
        ((32, 16, 1, 1), (64, 48, 1, 1)),
    ],
)
def test_between_which_layouts_there_are_implementations_depends_on_likeness_alone(
    problems: tuple[tuple[int, int, int, int], ...],
) -> None:
    found = alike(*problems)
    assert len({operator.likeness(problem) for operator, problem in found}) == 1
    for src, dst in permutations([name for name in LAYOUT_NAMES if name != "any"], 2):
        offered = set()
        for operator, problem in found:
            recipe = operator.lower(problem, Wish(src, dst), dnnl.Attr())
            assert recipe is not None
            [step] = recipe.steps
            assert isinstance(step.spec, dnnl.Spec)
            offered.add(dnnl.has_optimised(step.spec))
        assert len(offered) == 1


def test_a_single_pixel_is_like_no_image() -> None:
    (pixel, one), (image, many) = alike((32, 16, 1, 1), (32, 16, 1, 2))
    assert pixel.likeness(one) != image.likeness(many)


def of_one_channel(shape: tuple[int, ...], weights: tuple[int, ...], **attrs: object) -> OpCase:
    return OpCase("Conv", (shape, Weights(weights), Weights(weights[:1])), attrs)


IN_STEPS = [
    of_one_channel((2, 1, 400), (17, 1, 80), strides=[4], pads=[38, 38]),
    of_one_channel((1, 1, 400), (32, 1, 80), strides=[16], pads=[39, 37]),
    of_one_channel((3, 1, 64), (16, 1, 16), strides=[8], pads=[8, 8]),
    of_one_channel((1, 1, 60), (16, 1, 10), strides=[5]),
    of_one_channel((1, 1, 60), (16, 1, 3), strides=[5], pads=[1, 0]),
    of_one_channel((1, 1, 60), (16, 1, 1), strides=[6]),
    of_one_channel((2, 1, 9, 12), (16, 1, 5, 7), strides=[3, 2], pads=[2, 3, 1, 3], dilations=[2, 1]),
    of_one_channel((1, 1, 5, 6, 8), (16, 1, 2, 3, 4), strides=[1, 2, 4], pads=[0, 1, 2, 1, 1, 3]),
    OpCase("Conv", ((1, 1, 40), Weights((16, 1, 8))), {"auto_pad": "SAME_UPPER", "strides": [4]}),
]


@pytest.mark.parametrize("case", IN_STEPS, ids=str)
def test_one_channel_is_also_convolved_step_by_step(case: OpCase) -> None:
    assert "channels_last" in check_alternatives(case)
    check_case(case)


@in_narrow_floats
@pytest.mark.parametrize("case", IN_STEPS[:4], ids=str)
def test_one_channel_is_also_convolved_step_by_step_in_narrow_floats(case: OpCase, dtype: str) -> None:
    check_alternatives(case, dtype)


@pytest.mark.parametrize(
    "case",
    [
        of_one_channel((1, 1, 402), (16, 1, 80), strides=[4], pads=[38, 38]),
        of_one_channel((1, 1, 400), (16, 1, 80), pads=[38, 38]),
        of_one_channel((1, 1, 400), (16, 1, 8), strides=[4], dilations=[2]),
        of_one_channel((1, 2, 400), (16, 2, 8), strides=[4]),
        of_one_channel((1, 2, 400), (16, 1, 8), strides=[4], group=2),
        OpCase("Conv", ((1, 1, 40), (16, 1, 8)), {"strides": [4]}),
    ],
    ids=str,
)
def test_there_are_no_steps_where_rows_are_none_of_them_or_weights_unknown(case: OpCase) -> None:
    assert check_alternatives(case) == {}


@pytest.mark.parametrize("is_saved", [False, True])
def test_functions_and_sums_follow_what_is_convolved_step_by_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_saved: bool
) -> None:
    monkeypatch.setattr(Conv, "lower", lambda *_: None)
    rng = np.random.default_rng(0)
    x, residual = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 1, 4000), (2, 64, 1000)))
    b = bl.Builder()
    weights, bias = rng.standard_normal((64, 1, 80)).astype(np.float32), rng.standard_normal(64).astype(np.float32)
    y = b.input("x", x.shape).conv(weights, bias, strides=4, pads=38, name="steps")
    b.output("y", (y + b.input("residual", residual.shape)).relu())
    session = bl.load(b, tune="model", threads=2)
    assert bl.Plan.from_json(session.plan.to_json()) == session.plan
    expected = OpCase("Conv", (x.shape, weights, bias), {"strides": [4], "pads": [38, 38]})
    expected.feeds["in_0"][...] = x
    if is_saved:
        session.save(tmp_path / "saved")
        session = bl.load(tmp_path / "saved")
    [result] = session.run(None, {"x": x, "residual": residual})
    np.testing.assert_allclose(result, np.maximum(expected.expected + residual, 0), atol=1e-4)
    [step] = [each.spec for each in session.plan.steps if each.spec.kind == "convolution"]
    assert step.memory_desc("src").dims[1] == 4
