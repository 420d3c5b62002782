"""Random numbers."""

from __future__ import annotations

import numpy as np

from blocklayout.ir import Facts, NodeInfo, NumpyFunction


class RandomNumbers(Facts, frozen=True):
    """The same numbers in each run where the node has a seed; others in each run else, which no plan computes."""

    op_types = (
        *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    )
    is_random = True

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        if "seed" not in node.attrs or not node.op_type.startswith("Random"):
            return None
        seed = int(node.float_attr("seed", 0.0))
        is_normal = node.op_type.startswith("RandomNormal")
        if is_normal:
            factor, shift = node.float_attr("scale", 1.0), node.float_attr("mean", 0.0)
        else:
            shift = node.float_attr("low", 0.0)
            factor = node.float_attr("high", 1.0) - shift

        def draw(*_: np.ndarray, out: np.ndarray) -> None:
            state = np.random.RandomState(seed)  # as the reference does
            out[...] = (state.standard_normal if is_normal else state.random_sample)(out.shape)
            out *= out.dtype.type(factor)
            out += out.dtype.type(shift)

        return draw
