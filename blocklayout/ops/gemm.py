"""Gemm: an inner product where its second matrix is constant, else a matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from blocklayout import dnnl
from blocklayout.kernels import BaseOperator, Lowered, NodeInfo, Problem, Recipe, Role, Value, Wish
from blocklayout.ops._descs import argument, plain_if_any
from blocklayout.ops._reading import (
    bound,
    flag_attr,
    float_attr,
    optional,
    require_float,
    required,
    result,
    unsupported,
    wrong,
)
from blocklayout.ops.matmul import MatMul

_REMEDY = "write it as Transpose, MatMul, Mul and Add"


@dataclass(frozen=True)
class InnerProduct(BaseOperator):
    """Every row of the source times the constant weights, plus a bias."""

    op_types: ClassVar[tuple[str, ...]] = ("Gemm",)
    role: ClassVar[Role] = Role.CHOOSER

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        gemm = _Gemm.read(node)
        if gemm.is_inner_product:
            weights = np.transpose(gemm.array(gemm.b, gemm.alpha, is_transposed=gemm.is_b_transposed))
            arrays = {"weights": weights} | gemm.bias((weights.shape[0],))
            return bound(cls(), {"src": gemm.a}, arrays)
        return gemm.as_matmul()

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        weights = argument(problem, "weights")
        spec = dnnl.inner_product(
            wish.src_desc(argument(problem, "src")),
            dnnl.AnyDesc(weights.dims, weights.dtype),
            wish.dst_desc(problem.dst),
            plain_if_any(problem, "bias"),
            prop_kind=wish.prop_kind,
            attr=attr,
            n_threads=problem.n_threads,
        )
        return Recipe.single(spec)


@dataclass(frozen=True, eq=False)
class _Gemm:
    """``alpha * A * B + beta * C`` as the node says it."""

    node: NodeInfo
    a: Value
    b: Value
    c: Value | None
    alpha: float
    beta: float
    is_a_transposed: bool
    is_b_transposed: bool

    @classmethod
    def read(cls, node: NodeInfo) -> _Gemm:
        a, b = (require_float(node, required(node, index, name)) for index, name in enumerate("AB"))
        alpha, beta = float_attr(node, "alpha", 1.0), float_attr(node, "beta", 1.0)
        c = optional(node, 2) if beta != 0 else None
        gemm = cls(node, a, b, c, alpha, beta, flag_attr(node, "transA"), flag_attr(node, "transB"))
        gemm.check()
        return gemm

    def check(self) -> None:
        """Compare the extents of all four matrices."""
        node, dst = self.node, result(self.node).shape
        if len(self.a.shape) != 2 or len(self.b.shape) != 2:
            raise wrong(node, f"A has extents {list(self.a.shape)} and B {list(self.b.shape)}", "both must be matrices")
        m, k = self.a.shape[::-1] if self.is_a_transposed else self.a.shape
        k_of_b, n = self.b.shape[::-1] if self.is_b_transposed else self.b.shape
        if k != k_of_b or dst != (m, n):
            what = f"A is {m}x{k} and B {k_of_b}x{n} after transposition"
            raise wrong(node, what, f"they must multiply to the output's {list(dst)}")
        if self.c is not None and not _broadcasts(self.c.shape, dst):
            raise wrong(node, f"C has extents {list(self.c.shape)}", f"they must broadcast to {list(dst)}")

    @property
    def is_inner_product(self) -> bool:
        if self.a.is_constant or not self.b.is_constant or self.is_a_transposed:
            return False
        c = self.c
        return c is None or (c.is_constant and (len(c.shape) < 2 or c.shape[0] == 1))

    def array(self, value: Value, scale: float, *, is_transposed: bool) -> np.ndarray:
        """A constant matrix as it takes part in the product; a view unless it is scaled."""
        if value.data is None:
            raise TypeError(f"{value.name} is no constant")
        array = value.data.T if is_transposed else value.data
        return array if scale == 1 else (array * scale).astype(array.dtype)

    def bias(self, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        """The constant ``beta * C`` with these extents, if there is a C."""
        if self.c is None or self.c.data is None:
            return {}
        scaled = self.array(self.c, self.beta, is_transposed=False)
        if len(shape) == 1:
            return {"bias": np.broadcast_to(scaled.reshape(-1), shape)}
        return {"bias": scaled.reshape((1,) * (2 - scaled.ndim) + scaled.shape)}

    def as_matmul(self) -> Lowered:
        """The general case, as far as operands computed at run time can be taken as they are."""
        arrays = self.bias(result(self.node).shape)
        alpha = self.alpha
        for name, value, is_transposed in (
            ("src", self.a, self.is_a_transposed),
            ("weights", self.b, self.is_b_transposed),
        ):
            if value.is_constant:
                arrays[name], alpha = self.array(value, alpha, is_transposed=is_transposed), 1.0
            elif is_transposed:
                raise unsupported(self.node, f"{value.name} is computed at run time and transposed", _REMEDY)
        if alpha != 1:
            raise unsupported(self.node, f"alpha is {alpha} and both matrices are computed at run time", _REMEDY)
        if self.c is not None and not self.c.is_constant and (self.beta != 1 or len(self.c.shape) != 2):
            what = f"C is computed at run time, has rank {len(self.c.shape)} and beta is {self.beta}"
            raise unsupported(self.node, what, _REMEDY)
        return bound(MatMul(), {"src": self.a, "weights": self.b, "bias": self.c}, arrays)


def _broadcasts(shape: tuple[int, ...], dst: tuple[int, ...]) -> bool:
    if len(shape) > len(dst):
        return False
    return all(a in (1, b) for a, b in zip(shape[::-1], dst[::-1], strict=False))
