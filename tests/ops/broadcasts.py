"""Pairs of inputs that broadcast against each other, for functions of two tensors and more."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.ops.cases import Input, OpCase, Weights

IMAGE = (2, 17, 3, 5)


@st.composite
def broadcasts(draw: st.DrawFn, op_types: Sequence[str]) -> OpCase:
    """One of ``op_types`` over an image and a constant or computed operand of some of its extents, in either order."""
    shape = [
        draw(st.integers(1, 3)),
        draw(st.sampled_from([1, 3, 8, 17])),
        *(draw(st.integers(1, 4)) for _ in range(2)),
    ]
    other = tuple(draw(st.sampled_from([1, extent])) for extent in shape)
    inputs: list[Input] = [tuple(shape), Weights(other[draw(st.integers(0, 3)) :], 0.5)]
    if draw(st.booleans()):
        inputs[1] = other
    if draw(st.booleans()):
        inputs.reverse()
    return OpCase(draw(st.sampled_from(op_types)), tuple(inputs), low=0.5)
