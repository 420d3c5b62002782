"""Channel shuffle against Reshape, Transpose and Reshape, in every layout."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.ir import NodeInfo, Value, Wish
from blocklayout.layout import MemoryDesc
from tests.ops.cases import OpCase, bind, problem_of
from tests.ops.harness import check_alternatives, check_case, in_narrow_floats


class ShuffleCase(OpCase):
    """No node of ONNX, so the case says itself what comes out."""

    @cached_property
    def expected(self) -> np.ndarray:
        x = np.concatenate([*self.feeds.values()], 1)
        n, c, *spatial = x.shape
        groups, parts = self.attrs["groups"], self.attrs.get("parts", 1)
        shuffled = x.reshape(n, groups, c // groups, *spatial).swapaxes(1, 2).reshape(x.shape)
        return shuffled if parts == 1 else shuffled.reshape(n, parts, c // parts, *spatial)

    @cached_property
    def feeds(self) -> dict[str, np.ndarray]:
        return {f"in_{index}": x for index, x in enumerate(self.arrays) if x is not None}

    @cached_property
    def node(self) -> NodeInfo:
        return self.node_with(self.expected.shape)


CASES = [
    ShuffleCase("ChannelShuffle", (shape,), {"groups": groups})
    for shape, groups in [
        ((2, 24, 3, 5), 3),
        ((2, 24, 3, 5), 8),
        ((1, 18, 4, 4), 2),
        ((1, 58, 7, 7), 2),
        ((2, 6), 3),
        ((2, 34, 5), 17),
        ((1, 32, 2, 3, 4), 4),
        ((1, 16, 2, 2), 1),
        ((1, 16, 2, 2), 16),
    ]
]


CASES += [
    ShuffleCase("ChannelShuffle", (shape,) * groups, {"groups": groups} | ({"parts": parts} if parts > 1 else {}))
    for shape, groups, parts in [
        ((2, 24, 3, 5), 2, 1),
        ((2, 24, 3, 5), 3, 1),
        ((1, 58, 7, 7), 2, 2),
        ((3, 12, 4, 4), 2, 3),
        ((2, 8, 5), 4, 2),
    ]
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_interleaves_the_groups(case: ShuffleCase) -> None:
    check_case(case)


@in_narrow_floats
@pytest.mark.parametrize("case", CASES, ids=str)
def test_interleaves_the_groups_in_narrow_floats(case: ShuffleCase, dtype: str) -> None:
    check_case(case, dtype)


@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=pytest.mark.needs_bf16)])
@pytest.mark.parametrize("case", [case for case in CASES if len(case.inputs) > 1], ids=str)
def test_groups_apart_are_interleaved_at_once(case: ShuffleCase, dtype: str) -> None:
    assert {"plain", "channels_last"} <= check_alternatives(case, dtype).keys()


def test_a_part_is_dense_whatever_the_batch() -> None:
    case = ShuffleCase("ChannelShuffle", ((3, 12, 4, 4),) * 2, {"groups": 2, "parts": 2})
    problem, wish = problem_of(case.lowered(), case.expected.shape, "f32"), Wish("channels_last", "channels_last")
    recipe = case.lowered().operator.lower(problem, wish, dnnl.Attr())
    assert recipe is not None
    part = dict(recipe.whole)["dst"].submemory((3, 1, 12, 4, 4), (0, 1, 0, 0, 0)).reshaped((3, 12, 4, 4))
    assert part.at_offset(0) == MemoryDesc((3, 12, 4, 4), "f32", "nhwc")


def test_no_layout_falls_to_a_reference_kernel() -> None:
    ran = check_case(CASES[0])
    assert {"plain", "channels_last", "blocked8"} <= ran.keys()
    assert not any("ref" in impl for impl in ran.values())


def test_groups_that_do_not_divide_the_channels_are_refused() -> None:
    value = Value("x", (2, 24, 3, 5), "f32")
    with pytest.raises(ModelError, match="divide the 24 channels"):
        bind(NodeInfo("tested", "ChannelShuffle", {"groups": 5}, (value,), (value,), 17))


def test_integers_are_refused() -> None:
    value = Value("x", (1, 4, 2, 2), "s64")
    with pytest.raises(UnsupportedError, match="s64"):
        bind(NodeInfo("tested", "ChannelShuffle", {"groups": 2}, (value,), (value,), 17))
