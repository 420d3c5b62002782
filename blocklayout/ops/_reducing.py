"""Reducing dense tensors in the order in which their bytes lie, one run of digits after the other.

The library reduces rows of a plain matrix fast, and nothing else. What lies between digits that are kept is the
window of a channels-last pooling; where there is no such pooling, a reorder makes rows of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from msgspec import Struct, field

from blocklayout import dnnl
from blocklayout.ir import RecipeStep
from blocklayout.layout import MemoryDesc
from blocklayout.ops._mixed_radix import Run

_POOLINGS: Mapping[str, str] = {
    "reduction_max": "pooling_max",
    "reduction_mean": "pooling_avg_include_padding",
    "reduction_sum": "pooling_avg_include_padding",
}


class Steps(Struct):
    """Primitives in a row, each reading what the one before wrote; the last one writes ``dst``.

    Attributes:
        dtype: Data type of all of them.
        n_threads: Threads they will run on.
        source: The operand the next one reads.
        done: Those there are; the results of all are temporaries until :meth:`finished`.
    """

    dtype: str
    n_threads: int
    source: str = "src"
    done: list[RecipeStep] = field(default_factory=list)

    def add(self, spec: dnnl.Spec, reads: str = "src", others: tuple[tuple[str, str], ...] = ()) -> None:
        """Append a primitive.

        Args:
            spec: It writes its argument ``dst``.
            reads: The argument that takes what the primitive before it wrote.
            others: Its other arguments with their operands.
        """
        result = f"partial_{len(self.done)}"
        self.done.append(RecipeStep(spec, (("dst", result), (reads, self.source), *others)))
        self.source = result

    def finished(self) -> tuple[tuple[RecipeStep, ...], tuple[tuple[str, MemoryDesc], ...]]:
        """The steps, and the temporaries between them."""
        *before, last = self.done
        temporaries = tuple((f"partial_{index}", step.spec.memory_desc("dst")) for index, step in enumerate(before))
        operands = tuple((arg, "dst" if arg == "dst" else operand) for arg, operand in last.operands)
        return (*before, RecipeStep(last.spec, operands)), temporaries

    def add_eltwise(self, n: int, function: dnnl.Eltwise) -> None:
        """Append a function of each of ``n`` elements."""
        desc = self._rows(n)
        alpha, beta = function.alpha, function.beta
        self.add(dnnl.eltwise(desc, desc, function.algorithm, alpha=alpha, beta=beta, n_threads=self.n_threads))

    def add_reduction(self, found: Sequence[Run], algorithm: str, functions: tuple[dnnl.Eltwise, ...]) -> None:
        """Append the reduction of all marked runs, the innermost first.

        Args:
            found: Runs of digits, at least one of them marked.
            algorithm: The library's name of it.
            functions: Of each result.
        """
        extents = [run.extent for run in found]
        marked = [index for index, run in enumerate(found) if run.is_marked]
        for index in reversed(marked):
            lead, window, inner = prod(extents[:index]), extents[index], prod(extents[index + 1 :])
            extents[index] = 1
            self._reduce(lead, window, inner, algorithm, functions if index == marked[0] else ())

    def _reduce(self, lead: int, window: int, inner: int, algorithm: str, functions: tuple[dnnl.Eltwise, ...]) -> None:
        if inner != 1 and algorithm in _POOLINGS:
            self._pool(lead, window, inner, algorithm, functions)
            return
        if inner != 1:
            turned = MemoryDesc((lead, inner, window), self.dtype, strides=(window * inner, 1, inner))
            self.add(dnnl.reorder(turned, self._rows(lead, inner, window), n_threads=self.n_threads))
        src, dst = self._rows(lead * inner, window), self._rows(lead * inner, 1)
        self.add(dnnl.reduction(src, dst, algorithm, attr=dnnl.Attr(functions), n_threads=self.n_threads))

    def _pool(self, lead: int, window: int, inner: int, algorithm: str, functions: tuple[dnnl.Eltwise, ...]) -> None:
        """A window of the whole height, with the digits behind it as channels."""
        if algorithm == "reduction_sum":
            functions = (dnnl.Eltwise("linear", window), *functions)
        src = MemoryDesc((lead, inner, window, 1), self.dtype, "nhwc")
        dst = MemoryDesc((lead, inner, 1, 1), self.dtype, "nhwc")
        attr = dnnl.Attr(functions)
        self.add(dnnl.pooling(src, dst, _POOLINGS[algorithm], kernel=(window, 1), attr=attr, n_threads=self.n_threads))

    def _rows(self, *extents: int) -> MemoryDesc:
        return MemoryDesc(extents, self.dtype)
