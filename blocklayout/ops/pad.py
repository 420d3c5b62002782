"""Pad: a tensor inside a larger one, or a part of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from blocklayout import dnnl, ir
from blocklayout.dtypes import PRIMITIVE_FLOATS, to_numpy
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm, inverse
from blocklayout.ops._answers import MOVED, always, in_order, is_known, is_source
from blocklayout.ops._gradients import along
from blocklayout.ops._layouts import Digit, Follower, copy_spec, digits
from blocklayout.ops.views import Identity

Pads = tuple[tuple[int, int], ...]
_FIRST_OPSET_OF_BYTES = 11
_MODES = ("constant", "reflect", "edge", "wrap")


class Pad(Follower, frozen=True):
    """Copies of the source's elements, or one number, around the source.

    Attributes:
        pads: For each dimension how many are added before and behind; negative to cut some off.
        value: The number, in the mode ``constant``; ``None`` if it is computed at run time.
    """

    op_types = ("Pad",)
    is_quick_on_arrays = True
    needs = (is_source(1, 12, MOVED), is_known(1, "pads"), is_known(3, "axes"))
    rounds = staticmethod(always(False))

    mode: str
    pads: Pads
    value: float | None

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src = node.required(0, "data")
        mode, pads = node.string_attr("mode", _MODES), _pads(node, len(src.shape))
        if not any(number for pair in pads for number in pair):
            return Identity().bind({"src": src})
        if refusal := _not_by_copies(node, mode, src.shape, pads):
            return refusal
        if mode != "constant":
            return cls(mode, pads, 0.0).bind({"src": src})
        given = node.input(2)
        if given is not None and given.data is None:
            return cls(mode, pads, None).bind({"src": src, "fill": _scalar(node, given)})
        value = node.float_attr("value", 0.0)
        if given is not None:
            value = float(node.known(_scalar(node, given), "constant_value").reshape(()))
        dtype = np.dtype(np.float32) if src.dtype in PRIMITIVE_FLOATS else to_numpy(src.dtype)
        return cls(mode, pads, value).bind({"src": src}, {"fill": np.full(1, value, dtype)})

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        mode = node.string_attr("mode", _MODES)
        return partial(_padded, mode, node.attrs)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        node, bl = call.node, call.bl
        matrices: dict[int, np.ndarray] = {}
        if any(node.has_input(index) and node.constant(index) is None for index in (1, 3)):
            return "its pads are computed; give numbers"
        pads, mode = _pads(node, len(node.shape(0))), node.string_attr("mode", _MODES)
        if mode == "constant":
            back = [-number for side in zip(*pads, strict=True) for number in side]
            return (lambda grad: bl.pad(grad, back),)
        for dim, (extent, pair) in enumerate(zip(node.shape(0), pads, strict=True)):
            taken = np.pad(np.arange(extent), [max(n, 0) for n in pair], mode)  # type: ignore[call-overload]  # a str
            taken = taken[max(-pair[0], 0) : len(taken) - max(-pair[1], 0)]  # the element that is at each place
            matrices |= {dim: (taken == np.arange(extent)[:, None]).astype(np.float32)} if any(pair) else {}
        return (lambda grad: along(bl, grad, matrices),)

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        is_known = all(node.constant(index) is not None for index in (1, 3) if node.has_input(index))
        return rows == {0} and is_known and not any(_pads(node, len(node.shape(0)))[0])

    @classmethod
    def selects(cls, node: ir.NodeInfo) -> tuple[int, ...] | None:
        if node.opset < _FIRST_OPSET_OF_BYTES:
            return None
        return (0, 2) if node.string_attr("mode", _MODES) == "constant" else (0,)

    @classmethod
    def transposed(cls, node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
        axes = node.constant(3)
        if node.has_input(3):
            turned = None if axes is None else np.array([perm[axis] for axis in axes], np.int64)
            return None if turned is None else ir.Transposed(perm, node.attrs, {3: turned})
        pads = np.asarray(node.attrs["pads"]) if "pads" in node.attrs else node.constant(1)
        if pads is None:
            return None
        turned = in_order(pads, inverse(perm))
        if "pads" in node.attrs:
            return ir.Transposed(perm, {**node.attrs, "pads": tuple(map(int, turned))})
        return ir.Transposed(perm, node.attrs, {1: turned})

    @classmethod
    def padding(cls, node: ir.NodeInfo) -> ir.Padding | None:
        is_known = all(node.constant(index) is not None for index in (1, 2, 3) if node.has_input(index))
        if node.attrs.get("mode", "constant") != "constant" or not is_known:
            return None
        begin, end = zip(*_pads(node, len(node.shape(0))), strict=True)
        value = node.constant(2)
        number = node.attrs.get("value", 0.0) if value is None or not value.size else value.reshape(-1)[0]
        return ir.Padding(begin, end, float(number))

    @classmethod
    def same_as(cls, node: ir.NodeInfo) -> int | None:
        pads = node.constant(1) if len(node.inputs) > 1 else np.asarray(node.attrs.get("pads", (1,)))
        return 0 if pads is not None and not np.any(pads) else None

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        found = self._lines(src, dst)
        if found is None or attr.post_ops:
            return None
        kept = tuple(line.n_kept for line in found)
        inner = MemoryDesc((line.src for line in found), src.dtype).submemory(kept, (line.skipped for line in found))
        place = MemoryDesc((line.dst for line in found), src.dtype).submemory(kept, (line.begin for line in found))
        steps = [self._step(inner, place, "src", problem.n_threads)]
        copies = [copy for index, line in enumerate(found) for copy in _copies(self.mode, index, line)]
        for copy, source, target in _borders(found, copies, src.dtype, repeats=self.mode == "edge"):
            operand, backwards = "fill" if copy.source is None else "dst", (copy.line,) * (self.mode == "reflect")
            steps.append(self._step(source, target, operand, problem.n_threads, backwards))
        cuts_blocks = any(min(pair) < 0 and dst.layout.blocks[dim] != 1 for dim, pair in enumerate(self.pads))
        if dst.n_padding and (self.value != 0 or cuts_blocks):  # something else than the source's own zeros
            steps.append(ir.zero_padding_step(dst))
        fill = (("fill", MemoryDesc((1,), src.dtype)),) if self.mode == "constant" else ()
        return ir.Recipe(tuple(steps), (), (("src", src), ("dst", dst), *fill))

    def _step(
        self, source: MemoryDesc, target: MemoryDesc, operand: str, n_threads: int, backwards: tuple[int, ...] = ()
    ) -> ir.RecipeStep:
        return ir.RecipeStep(copy_spec(source, target, backwards, n_threads), (("dst", "dst"), ("src", operand)))

    def _lines(self, src: MemoryDesc, dst: MemoryDesc) -> list[_Line] | None:
        changed = {dim: pair for dim, pair in enumerate(self.pads) if any(pair)}
        parts, results = digits(src, kept=changed), digits(dst, kept=changed)
        if parts is None or results is None:
            return None
        for dim, (before, behind) in changed.items():
            block = src.layout.blocks[dim]
            if block == 1:
                continue
            # What follows the source must begin where its last block ends, or be zero.
            fits = behind <= 0 or src.dims[dim] % block == 0 or self.value == 0
            if before % block or self.mode != "constant" or not fits:
                return None
            changed[dim] = before // block, (dst.padded_dims[dim] - src.padded_dims[dim] - before) // block
        return _lines(parts, results, changed)


class _Line(Struct, frozen=True):
    """One digit of a tensor put in a larger one, or cut: behind ``skipped``, ``n_kept`` lie from ``begin`` on."""

    src: int
    dst: int
    begin: int = 0
    skipped: int = 0
    n_kept: int = 0

    @property
    def end(self) -> int:
        """Behind the last one kept, in the destination."""
        return self.begin + self.n_kept

    @property
    def is_whole(self) -> bool:
        """Whether nothing is added or cut off."""
        return self.n_kept == self.src == self.dst


class _Copy(Struct, frozen=True):
    """Along one line, ``n`` elements from ``source`` on in the destination, or one repeated; ``None``: a constant."""

    line: int
    begin: int
    n: int
    source: int | None


def _lines(src: Sequence[Digit], dst: Sequence[Digit], padded: dict[int, tuple[int, int]]) -> list[_Line] | None:
    """Changes of digits, unchanged neighbours joined; ``padded`` has steps before and behind, by dimension."""
    if [digit.dim for digit in src] != [digit.dim for digit in dst]:
        return None
    found: list[_Line] = []
    seen: set[int] = set()
    for given, made in zip(src, dst, strict=True):
        before, behind = (0, 0) if given.dim in seen else padded.get(given.dim, (0, 0))
        seen.add(given.dim)
        skipped = max(-before, 0)
        n_kept = given.extent - skipped - max(-behind, 0)
        line = _Line(given.extent, made.extent, max(before, 0), skipped, n_kept)
        if found and line.is_whole and found[-1].is_whole:
            merged = found.pop().src * line.src
            line = _Line(merged, merged, n_kept=merged)
        found.append(line)
    return found


def _borders(
    of: Sequence[_Line], copies: Sequence[_Copy], dtype: str, *, repeats: bool
) -> Iterator[tuple[_Copy, MemoryDesc, MemoryDesc]]:
    """Each copy, its source (in the destination, or one element) and its target, the innermost lines first."""
    whole = MemoryDesc((line.dst for line in of), dtype)
    for copy in sorted(copies, key=lambda each: -each.line):
        box = [line.n_kept if index < copy.line else line.dst for index, line in enumerate(of)]
        place = [line.begin if index < copy.line else 0 for index, line in enumerate(of)]
        box[copy.line] = copy.n
        place[copy.line] = copy.begin
        target = whole.submemory(box, place)
        if copy.source is None:
            yield copy, MemoryDesc(box, dtype, strides=(0,) * len(box)), target
            continue
        place[copy.line] = copy.source
        once = [1 if repeats and index == copy.line else n for index, n in enumerate(box)]
        source = whole.submemory(once, place)
        strides = tuple(0 if repeats and index == copy.line else s for index, s in enumerate(source.strides))
        yield copy, MemoryDesc(box, dtype, strides=strides, offset=source.offset0), target


def _padded(mode: str, attrs: Mapping[str, Any], x: np.ndarray, *inputs: ir.Given, out: np.ndarray) -> None:
    given, value, axes = (*inputs, None, None, None)[:3]
    numbers = np.reshape(attrs["pads"] if given is None else given, (2, -1))
    pads = np.zeros((2, x.ndim), np.int64)
    pads[:, slice(None) if axes is None else axes] = numbers
    cut = [slice(max(-before, 0), n + min(behind, 0)) for n, before, behind in zip(x.shape, *pads, strict=True)]
    x, pads = x[tuple(cut)], np.maximum(pads, 0)
    if mode != "constant":
        np.copyto(out, np.pad(x, pads.T, mode))  # type: ignore[call-overload]  # one of ONNX's, which are numpy's
        return
    out[...] = attrs.get("value", 0) if value is None else value
    out[tuple(slice(before, before + n) for before, n in zip(pads[0], x.shape, strict=True))] = x


def _copies(mode: str, index: int, line: _Line) -> list[_Copy]:
    behind = line.dst - line.end
    sources = {
        "constant": (None, None),
        "edge": (line.begin, line.end - 1),
        "reflect": (line.begin + 1, line.end - 1 - behind),
        "wrap": (line.end - line.begin, line.begin),
    }[mode]
    places = (0, line.begin), (line.end, behind)
    return [_Copy(index, begin, n, source) for (begin, n), source in zip(places, sources, strict=True) if n]


def _pads(node: ir.NodeInfo, ndims: int) -> Pads:
    numbers, axes = node.integers(1, "pads") or (), node.integers(3, "axes")
    axes = tuple(range(ndims)) if axes is None else axes
    pads = [(0, 0)] * ndims
    for index, axis in enumerate(axes):
        pads[axis % ndims] = numbers[index], numbers[index + len(axes)]
    return tuple(pads)


def _scalar(node: ir.NodeInfo, value: ir.Value) -> ir.Value:
    if math.prod(value.shape) != 1 or len(value.shape) > 1:
        raise node.wrong(f"constant_value has extents {list(value.shape)}", "it must be a scalar")
    return value


def _not_by_copies(node: ir.NodeInfo, mode: str, dims: tuple[int, ...], pads: Pads) -> ir.Refusal | None:
    """Refuses a result that is not made of copies of the source."""
    kept = [n + min(before, 0) + min(behind, 0) for n, (before, behind) in zip(dims, pads, strict=True)]
    if min(kept) < 1:
        return node.refused(f"of extents {list(dims)} pads {pads} keep {kept}", "one element at least must be left")
    if mode == "constant":
        return None
    if min(number for pair in pads for number in pair) < 0:
        return node.refused(f"mode {mode} with negative pads {pads}", "cut first, with a Slice")
    room = [n - (mode == "reflect") for n in dims]
    if mode != "edge" and any(max(pair) > most for pair, most in zip(pads, room, strict=True)):
        return node.refused(f"mode {mode} with pads {pads} of extents {list(dims)}", f"at most {room} are one copy")
    return None
