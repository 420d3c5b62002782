"""Random numbers."""

from __future__ import annotations

import numpy as np

from blocklayout import ir


class RandomNumbers(ir.Facts, frozen=True):
    """The same numbers in each run where the node has a seed, those of ``onnx.reference``; others in each run else."""

    op_types = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
    is_random = True

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        seed = int(node.float_attr("seed", 0.0)) if "seed" in node.attrs else None
        low, mean = node.float_attr("low", 0.0), node.float_attr("mean", 0.0)
        span, scale = node.float_attr("high", 1.0) - low, node.float_attr("scale", 1.0)

        def draw(*sources: np.ndarray, out: np.ndarray) -> None:
            state = np.random.RandomState(seed)
            if node.op_type == "Bernoulli":
                out[...] = state.binomial(1, sources[0])
            elif node.op_type == "Multinomial":
                out[...] = _classes(sources[0], state.random_sample(out.shape))
            elif node.op_type.startswith("RandomNormal"):
                _write_scaled(state.standard_normal(out.shape), scale, mean, out)
            else:
                _write_scaled(state.random_sample(out.shape), span, low, out)

        return draw


def _write_scaled(numbers: np.ndarray, factor: float, shift: float, out: np.ndarray) -> None:
    out[...] = numbers
    out *= out.dtype.type(factor)
    out += out.dtype.type(shift)


def _classes(logarithms: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Classes by the logarithms of their weights, a row of them for each row of numbers from 0 to below 1."""
    weights = np.exp(logarithms.astype(np.float64) - logarithms.max(axis=1, keepdims=True))
    ends = np.cumsum(weights, axis=1)
    ends /= ends[:, -1:]
    rows = np.arange(len(ends))[:, None]  # as integer parts they make one ascending row of all
    found = np.searchsorted((ends + rows).ravel(), (numbers + rows).ravel(), side="right").reshape(numbers.shape)
    classes: np.ndarray = found - rows * ends.shape[1]
    return classes
