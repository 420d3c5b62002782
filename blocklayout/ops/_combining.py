"""Functions of two tensors that broadcast, in every dense layout.

The library is fast where only its second source is broadcast, along one stretch of the dimensions, and where zeros in
padding stay zeros. Everything else is brought to that: the bytes are seen under extents in which the broadcast
dimensions lie together, a first source is spread out before, and padding is zeroed behind.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.ir import Problem, RecipeStep, TensorInfo, Wish, zero_padding_step
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import like
from blocklayout.ops._mixed_radix import broadcast_views, digits
from blocklayout.ops._padded import are_eltwise, keep_zero, n_lanes, with_padding
from blocklayout.ops.expand import Expand

COMMUTATIVE = frozenset({"binary_add", "binary_mul", "binary_min", "binary_max"})
_NEGATED = dnnl.Eltwise("linear", -1.0)
_SPREAD = "spread"


class Operand(Struct, frozen=True):
    """One of two sources, or the result.

    Attributes:
        name: What it is called among the recipe's operands.
        dims: Its extents, with the result's rank; each the result's, or 1.
    """

    name: str
    dims: tuple[int, ...]


class Combination(Struct, frozen=True):
    """One function of two operands, computed into ``dst``.

    Attributes:
        algorithm: The library's name of it.
        dst: The result's layout, which the operands share as far as their extents go.
        attr: Post-ops of the result.
        n_threads: Threads it will run on.
    """

    algorithm: str
    dst: MemoryDesc
    attr: dnnl.Attr
    n_threads: int

    def steps(self, first: Operand, second: Operand) -> list[RecipeStep] | None:
        """The primitives; the operand ``spread``, where one of them reads it, is a temporary like ``dst``."""
        if not are_eltwise(self.attr.post_ops) or digits(self.dst) is None:
            return [self.step(self.dst, self._desc(second), first, second)] if self._is_full(first) else None
        is_zeroed = not self._keeps_zero(first, second)
        before: list[RecipeStep] = []
        function = self
        if not self._is_full(first) and self._is_full(second) and self._is_reversible:
            function, first, second = self._reversed(), second, first
        if not self._is_full(first):
            before += self._spread(first, "dst")
            first = Operand("dst", self.dst.dims)
        views = self._views(second)
        if views is None:
            before += self._spread(second, _SPREAD)
            second = Operand(_SPREAD, self.dst.dims)
            views = self._views(second) or (self.dst, self.dst)
        after = [zero_padding_step(self.dst)] if is_zeroed else []
        return [*before, function.step(*views, first, second), *after]

    def _is_full(self, operand: Operand) -> bool:
        return operand.dims == self.dst.dims

    def _desc(self, operand: Operand) -> MemoryDesc:
        return like(self.dst, TensorInfo(operand.dims, self.dst.dtype))

    @property
    def _is_reversible(self) -> bool:
        return self.algorithm in COMMUTATIVE or self.algorithm == "binary_sub"

    def _reversed(self) -> Combination:
        """The same function with its operands exchanged: a - b is -(b - a)."""
        if self.algorithm in COMMUTATIVE:
            return self
        return replace(self, attr=replace(self.attr, post_ops=(_NEGATED, *self.attr.post_ops)))

    def _keeps_zero(self, first: Operand, second: Operand) -> bool:
        padded = [dim for dim, n in enumerate(self.dst.dims) if self.dst.padded_dims[dim] != n]
        if not padded:
            return True
        both = all(operand.dims[dim] == self.dst.dims[dim] for dim in padded for operand in (first, second))
        return both and self.algorithm != "binary_div" and keep_zero(self.attr.post_ops)

    def _spread(self, operand: Operand, name: str) -> list[RecipeStep]:
        """Copies of a broadcast operand to all the elements of ``name``."""
        infos = TensorInfo(operand.dims, self.dst.dtype), TensorInfo(self.dst.dims, self.dst.dtype)
        problem = Problem({"src": infos[0]}, {}, infos[1], self.n_threads)
        recipe = Expand().lower(problem, Wish(self.dst, self.dst), dnnl.Attr())
        names = {"src": operand.name, "dst": name}
        steps = recipe.steps if recipe else ()
        return [replace(step, operands=tuple((arg, names[own]) for arg, own in step.operands)) for step in steps]

    def _views(self, second: Operand) -> tuple[MemoryDesc, MemoryDesc] | None:
        """The result and the second source under extents the library is fast on, where there are some."""
        is_blocked = self.dst.inner_idxs == (1,) and self.dst.inner_blks == (n_lanes(),) and n_lanes() >= 8
        if is_blocked and second.dims[1] > 1 and all(extent == 1 for extent in second.dims[2:]):
            return with_padding(self.dst), with_padding(self._desc(second))  # (C/8, pixels, 8) takes ten times as long
        views = broadcast_views(self.dst, second.dims, _PATTERNS)
        return views and (MemoryDesc(views[0], self.dst.dtype), MemoryDesc(views[1], self.dst.dtype))

    def step(self, dst: MemoryDesc, src_1: MemoryDesc, first: Operand, second: Operand) -> RecipeStep:
        """The primitive alone, on a first source and a result seen as ``dst``."""
        spec = dnnl.binary(dst, src_1, dst, self.algorithm, attr=self.attr, n_threads=self.n_threads)
        return RecipeStep(spec, (("dst", "dst"), ("src_0", first.name), ("src_1", second.name)))


_PATTERNS: Mapping[tuple[bool, ...], tuple[int, ...]] = {
    (): (-1, -1),
    (True,): (-1, 0),
    (False,): (-1, 0),
    (False, True): (0, 1),
    (True, False): (-1, 0, 1),
    (False, True, False): (0, 1, 2),
    (True, False, True): (0, 1, 2),
}
"""The extents to see, by whether the second source varies along each run of digits: the run (-1: an extent of 1)."""


def whole_of(dst: MemoryDesc, operands: Mapping[str, tuple[int, ...]]) -> tuple[tuple[str, MemoryDesc], ...]:
    """The layouts of the result and of sources of these extents, for a recipe."""
    named = {name: like(dst, TensorInfo(dims, dst.dtype)) for name, dims in operands.items()}
    return (*named.items(), ("dst", dst))


def temporaries_of(dst: MemoryDesc, steps: list[RecipeStep]) -> tuple[tuple[str, MemoryDesc], ...]:
    """The temporaries that the steps use."""
    is_spread = any(operand == _SPREAD for step in steps for _, operand in step.operands)
    return ((_SPREAD, dst),) if is_spread else ()
