"""Pooling of norms."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from blocklayout import dnnl
from blocklayout.ir import (
    BaseOperator,
    Lowered,
    NodeInfo,
    NumpyFunction,
    Problem,
    Recipe,
    RecipeStep,
    Refusal,
    Transposed,
    Window,
    Wish,
)
from blocklayout.layout.permutation import Perm
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._needs import is_source
from blocklayout.ops._rows import of_source
from blocklayout.ops._transposing import per_channel
from blocklayout.ops._window import combined
from blocklayout.ops.pooling import pooling_windows, windows_of


def _exponent(node: NodeInfo) -> float:
    p = node.float_attr("p", 2)
    if p <= 0:
        raise node.wrong(f"attribute p is {p}", "it must be above 0")
    return p


class LpPooling(BaseOperator, frozen=True):
    """The norm of every window: the root of the sum of its elements' powers.

    Attributes:
        window: Its extents and how it slides.
        p: The exponent.
    """

    op_types = ("GlobalLpPool", "LpPool")
    needs = (is_source(3, 5),)

    window: Window
    p: float

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        src = node.required(0, "X")
        windows = pooling_windows(node, src)
        return windows if isinstance(windows, Refusal) else cls(windows[1], _exponent(node)).bind({"src": src})

    keeps_rows = staticmethod(of_source)

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction:
        p, (_, window) = _exponent(node), windows_of(node, node.required(0, "X"))

        def norm(x: np.ndarray, out: np.ndarray) -> None:
            powers = np.abs(x.astype(np.result_type(x.dtype, np.float32), copy=False)) ** p
            out[...] = combined(powers, window, out.shape[2:], np.add, 0) ** (1 / p)

        return norm

    @classmethod
    def transposed(cls, node: NodeInfo, perm: Perm) -> Transposed | None:
        return per_channel(node, perm) if node.op_type == "GlobalLpPool" else None

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        if descs is None:
            return None
        src, dst = descs
        source, steps = "src", []
        for function in self._powers():
            power = dnnl.eltwise(
                src, src, function.algorithm, alpha=function.alpha, beta=function.beta, n_threads=problem.n_threads
            )
            steps.append(RecipeStep(power, (("dst", "powers"), ("src", source))))
            source = "powers"
        # The mean counts pads, which are zeros, so that it is the sum over as many elements everywhere.
        total = dnnl.Eltwise("linear", math.prod(self.window.kernel))
        mean = dnnl.pooling(
            src,
            dst,
            "pooling_avg_include_padding",
            kernel=self.window.kernel,
            strides=self.window.strides,
            pads=self.window.pads,
            dilations=self.window.dnnl_dilations,
            attr=dnnl.Attr((total, *self._roots(), *attr.post_ops)),
            n_threads=problem.n_threads,
        )
        steps.append(RecipeStep(mean, (("dst", "dst"), ("src", source))))
        return Recipe(tuple(steps), (("powers", src),))

    def _powers(self) -> Iterator[dnnl.Eltwise]:
        if self.p == 2:
            yield dnnl.Eltwise("square")
            return
        yield dnnl.Eltwise("abs")
        if self.p != 1:
            yield dnnl.Eltwise("pow", 1.0, self.p)

    def _roots(self) -> Iterator[dnnl.Eltwise]:
        if self.p == 2:
            yield dnnl.Eltwise("sqrt")
        elif self.p != 1:
            yield dnnl.Eltwise("pow", 1.0, 1 / self.p)
