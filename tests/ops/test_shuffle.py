"""Channel shuffle against Reshape, Transpose and Reshape, in every layout."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pytest

from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.ir import NodeInfo, Value
from tests.ops.cases import OpCase, bind
from tests.ops.harness import check_case, in_narrow_floats


class ShuffleCase(OpCase):
    """No node of ONNX, so the case says itself what comes out."""

    @cached_property
    def expected(self) -> np.ndarray:
        (x,) = self.feeds.values()
        n, c, *spatial = x.shape
        groups = self.attrs["groups"]
        return x.reshape(n, groups, c // groups, *spatial).swapaxes(1, 2).reshape(x.shape)

    @cached_property
    def feeds(self) -> dict[str, np.ndarray]:
        (x,) = self.arrays
        assert x is not None
        return {"in_0": x}

    @cached_property
    def node(self) -> NodeInfo:
        (shape,) = self.inputs
        assert isinstance(shape, tuple)
        return self.node_with(shape)


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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_interleaves_the_groups(case: ShuffleCase) -> None:
    check_case(case)


@in_narrow_floats
@pytest.mark.parametrize("case", CASES, ids=str)
def test_interleaves_the_groups_in_narrow_floats(case: ShuffleCase, dtype: str) -> None:
    check_case(case, dtype)


def test_no_layout_falls_to_a_reference_kernel() -> None:
    ran = check_case(CASES[0])
    assert {"plain", "channels_last", "blocked8"} <= ran.keys()
    assert not any("ref" in impl for impl in ran.values())


def test_groups_that_do_not_divide_the_channels_are_refused() -> None:
    with pytest.raises(ModelError, match="divide the 24 channels"):
        ShuffleCase("ChannelShuffle", ((2, 24, 3, 5),), {"groups": 5}).lowered()


def test_integers_are_refused() -> None:
    value = Value("x", (1, 4, 2, 2), "s64")
    with pytest.raises(UnsupportedError, match="s64"):
        bind(NodeInfo("tested", "ChannelShuffle", {"groups": 2}, (value,), (value,), 17))
