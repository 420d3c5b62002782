"""Local response normalisation."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from blocklayout import dnnl, ir
from blocklayout.dtypes import to_numpy
from blocklayout.layout import MemoryDesc
from blocklayout.ops._answers import is_source, of_source, per_channel
from blocklayout.ops._layouts import Follower, Run, digits, is_padded, n_lanes, over_padding, runs, with_padding

_USUAL_SIZE, _USUAL_BETA = 5, 0.75


class LRN(Follower, frozen=True):
    """Each element divided by the energy of ``size`` channels around it: (``bias`` + ``alpha`` * mean) ** beta."""

    op_types = ("LRN",)
    needs = (is_source(2, 5),)

    size: int
    alpha: float
    beta: float
    bias: float

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        src, size = node.required(0, "X"), node.int_attr("size", 1)
        if size < 1:
            raise node.wrong(f"attribute size is {size}", "it must be at least 1")
        usual = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
        return cls(size, *(node.float_attr(*each) for each in usual.items())).bind({"src": src})

    keeps_rows = staticmethod(of_source)
    transposed = staticmethod(per_channel)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        """With the sums over neighbours as a pointwise convolution, which computes in every layout."""
        x, y, lrn = call.sources[0], call.results[0], cls.from_onnx(call.node).operator
        assert isinstance(lrn, LRN)  # noqa: S101 - for mypy
        distances = np.arange(x.shape[1]) - np.arange(x.shape[1])[:, None]  # from each channel to each that it reads
        band = (-((lrn.size - 1) // 2) <= distances) & (distances <= lrn.size // 2)
        matrix, share = band.astype(to_numpy(x.dtype)), lrn.alpha / lrn.size

        def summed(t: Any, matrix: np.ndarray) -> Any:
            return t.conv(matrix.reshape(*matrix.shape, *(1,) * (t.ndim - 2))) if t.ndim > 2 else t @ matrix.T

        def gradient(grad: Any) -> Any:
            energy = summed(x * x, matrix) * share + lrn.bias
            through = summed(grad * y / energy, np.ascontiguousarray(matrix.T))
            return grad * energy**-lrn.beta - x * through * (2 * share * lrn.beta)

        return (gradient,)

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops:
            return None
        found = runs(digits(src) or (), {1})
        if is_padded(src, {1}) or len([run for run in found if run.is_marked]) > 1:
            # The extra neighbour of an even size is the one before for oneDNN and the one behind for ONNX.
            if self.size % 2 == 0:
                return None
            return over_padding(self._spec(with_padding(src), problem.n_threads), {"src": src, "dst": dst})
        # For the sizes of the first networks, the library has more than a reference kernel.
        is_usual = (self.size, self.beta, src.ndims) == (_USUAL_SIZE, _USUAL_BETA, len("nchw"))
        if (is_usual and src.dims[1] % n_lanes() == 0 and src.dims[1] >= 2 * n_lanes()) or not found:
            return ir.Recipe.single(self._spec(src, problem.n_threads)) if self.size % 2 else None
        steps = self._steps(found, src.dtype, problem.n_threads)
        return ir.Recipe(steps, (("squares", with_padding(src)),), (("src", src), ("dst", dst)))

    def _spec(self, src: MemoryDesc, n_threads: int) -> dnnl.Spec:
        return dnnl.lrn(
            src, src, local_size=self.size, alpha=self.alpha, beta=self.beta, k=self.bias, n_threads=n_threads
        )

    def _steps(self, found: tuple[Run, ...], dtype: str, n_threads: int) -> tuple[ir.RecipeStep, ...]:
        """Squares, their mean over neighbours as a pooling along the channels, and the product."""
        at = next((index for index, run in enumerate(found) if run.is_marked), len(found))
        extents = [run.extent for run in found]
        lead, channels, inner = prod(extents[:at]), prod(extents[at : at + 1]), prod(extents[at + 1 :])
        image, row = MemoryDesc((lead, inner, channels, 1), dtype, "nhwc"), MemoryDesc((1, prod(extents)), dtype)
        before = (self.size - 1) // 2
        factor = (dnnl.Eltwise("linear", self.alpha, self.bias), dnnl.Eltwise("pow", 1.0, -self.beta))
        square = dnnl.eltwise(row, row, "square", n_threads=n_threads)
        around: Any = {"kernel": (self.size, 1), "pads": (before, 0, self.size - 1 - before, 0), "n_threads": n_threads}
        mean = dnnl.pooling(image, image, "pooling_avg_include_padding", **around, attr=dnnl.Attr(factor))
        product = dnnl.binary(row, row, row, "mul", n_threads=n_threads)
        return (
            ir.RecipeStep(square, (("dst", "squares"), ("src", "src"))),
            ir.RecipeStep(mean, (("dst", "dst"), ("src", "squares"))),
            ir.RecipeStep(product, (("dst", "dst"), ("src_0", "dst"), ("src_1", "src"))),
        )
