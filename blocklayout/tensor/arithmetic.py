"""Python's operators on Tensors."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blocklayout.tensor.tensor_class import Tensor

OPERATORS = "blocklayout.eager"
"""The module whose functions compute them: it lies above, and is looked up by name when one is first used."""


class Arithmetic:
    """``+ - * / ** @``, ``-x`` and ``abs(x)``: the functions of the same names in :mod:`blocklayout.eager`."""

    __slots__ = ()

    __array_ufunc__ = None
    """Makes numpy hand ``array + tensor`` over to ``__radd__``."""

    def __add__(self, other: Any) -> Tensor:
        return _called("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _called("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _called("sub", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _called("sub", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _called("mul", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _called("mul", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _called("div", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _called("div", other, self)

    def __pow__(self, exponent: Any) -> Tensor:
        return _called("pow", self, exponent)

    def __rpow__(self, base: Any) -> Tensor:
        return _called("pow", base, self)

    def __matmul__(self, other: Any) -> Tensor:
        return _called("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return _called("matmul", other, self)

    def __neg__(self) -> Tensor:
        return _called("neg", self)

    def __pos__(self) -> Tensor:
        return _called("identity", self)

    def __abs__(self) -> Tensor:
        return _called("abs", self)


@cache
def _function(name: str) -> Any:
    return getattr(importlib.import_module(OPERATORS), name)


def _called(name: str, *operands: Any) -> Tensor:
    result: Tensor = _function(name)(*operands)
    return result
