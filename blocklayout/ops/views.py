"""Views: operators that give other extents or another order to the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from blocklayout import ir
from blocklayout.errors import LayoutError
from blocklayout.ir.result_format import row_major
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm, identity, inverse
from blocklayout.ops._answers import always, has_one_output
from blocklayout.ops._gradients import same


def same_if_same_shape(node: ir.NodeInfo) -> int | None:
    """The answer of an operator that computes nothing where extents and type stay as they are."""
    source, result = node.inputs[0], node.outputs[0]
    is_same = source is not None and result is not None and (source.shape, source.dtype) == (result.shape, result.dtype)
    return 0 if is_same else None


def same_if_alone(node: ir.NodeInfo) -> int | None:
    """The answer of an operator that combines sources: of one alone it computes nothing."""
    return 0 if len(node.inputs) == 1 else None


class Reshape(ir.BaseOperator, frozen=True):
    """The same elements in logical order with the extents ``shape``; ``source`` are the former ones, if known."""

    op_types = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
    is_quick_on_arrays = True
    extents_read = (1,)
    role = ir.Role.VIEW

    shape: tuple[int, ...]
    source: tuple[int, ...] = ()

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        src = node.required(0, "data")
        return cls(node.result.dims, src.dims).bind({"src": src})

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        if node.op_type != "Reshape":
            return None
        copies = not node.flag_attr("allowzero")

        def reshape(x: np.ndarray, target: np.ndarray) -> np.ndarray:
            wanted = [
                x.shape[axis] if extent == 0 and copies and axis < x.ndim else int(extent)
                for axis, extent in enumerate(target)
            ]
            try:
                return x.reshape(wanted)
            except ValueError:
                what = f"its input has extents {list(x.shape)} and its target is {target.tolist()}"
                raise node.wrong(what, "they must have equally many elements") from None

        return reshape

    same_as = staticmethod(same_if_same_shape)

    keeps_rows = staticmethod(lambda node, rows: rows == {0} and node.shape(0)[:1] == node.result.shape[:1] != ())

    @classmethod
    def transposed(cls, node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
        before, after = node.shape(0), node.result.shape
        if 0 in before or not after:
            return None
        return _regrouped(before, after, perm) or _flattened(before, after, perm)

    backward = staticmethod(always((same,)))
    selects = staticmethod(always((0,)))
    not_negative_if = staticmethod(always((0,)))
    result_format = staticmethod(row_major)

    def through(self, desc: MemoryDesc) -> MemoryDesc | None:
        return _reshaped(desc, self.shape)

    def back(self, desc: MemoryDesc) -> MemoryDesc | None:
        return _reshaped(desc, self.source) if self.source else None


def _reshaped(desc: MemoryDesc, dims: tuple[int, ...]) -> MemoryDesc | None:
    try:
        return desc.reshaped(dims)
    except LayoutError:
        return None


class Group(Struct, frozen=True):
    """Dimensions before and after a Reshape that hold the same elements."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def groups_of(before: Sequence[int], after: Sequence[int]) -> list[Group]:
    """The smallest groups of dimensions that a Reshape of extents without a 0 keeps apart, without extents of 1.

    Example:
        >>> groups_of((2, 4, 5, 6), (2, 20, 1, 3, 2))
        [Group(before=(0,), after=(0,)), Group(before=(1, 2), after=(1,)), Group(before=(3,), after=(3, 4))]
    """
    olds = [dim for dim, extent in enumerate(before) if extent != 1]
    news = [dim for dim, extent in enumerate(after) if extent != 1]
    groups: list[Group] = []
    while olds:
        old, new = [olds.pop(0)], [news.pop(0)]
        n_old, n_new = before[old[0]], after[new[0]]
        while n_old != n_new:
            if n_old < n_new:
                old.append(olds.pop(0))
                n_old *= before[old[-1]]
            else:
                new.append(news.pop(0))
                n_new *= after[new[-1]]
        groups.append(Group(tuple(old), tuple(new)))
    return groups


def _regrouped(before: Sequence[int], after: Sequence[int], perm: Perm) -> ir.Transposed | None:
    """The Reshape of the original: its groups stay where they are, and the result is permuted as a whole.

    Dimensions to be merged that are not adjacent in the original are brought together first, which moves no more than
    to transpose the whole. Where the result would not be permuted then, nothing is gained.
    """
    groups = groups_of(before, after)
    groups.sort(key=lambda group: min(perm[dim] for dim in group.before))
    ones = (dim for dim, extent in enumerate(after) if extent == 1)
    dims = (*ones, *(dim for group in groups for dim in group.after))
    result, extents = inverse(dims), np.array([after[dim] for dim in dims], np.int64)
    order = [dim for group in groups for dim in group.before]
    if sorted(perm[dim] for dim in order) == [perm[dim] for dim in order]:
        return ir.Transposed(result, {}, {1: extents}, op_type="Reshape")
    if result == identity(len(result)):
        return None
    others = sorted((dim for dim in range(len(perm)) if dim not in order), key=lambda dim: perm[dim])
    return ir.Transposed(result, {}, {1: extents}, source=inverse((*others, *order)), op_type="Reshape")


def _flattened(before: Sequence[int], after: Sequence[int], perm: Perm) -> ir.Transposed | None:
    """The rows of images as they are, their elements in another order."""
    if perm[0] != 0 or len(after) != 2 or after[0] != before[0]:
        return None
    places = np.arange(after[1]).reshape(before[1:])
    order = places.transpose([dim - 1 for dim in inverse(perm)[1:]]).reshape(-1)
    return ir.Transposed(identity(2), {}, {1: np.array(after, np.int64)}, op_type="Reshape", order=order)


class Transpose(ir.BaseOperator, frozen=True):
    """The dimensions in another logical order: ``perm`` has for each dimension of the result the source's."""

    op_types = ("Transpose",)
    is_quick_on_arrays = True
    role = ir.Role.VIEW

    perm: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        src, perm = node.required(0, "data"), cls.permutation(node)
        if perm is None:
            what = f"attribute perm is {node.attrs['perm']!r}"
            raise node.wrong(what, f"it must order the dimensions 0 to {len(src.shape) - 1}")
        return cls(perm).bind({"src": src})

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        perm = cls.permutation(node)
        return rows == {0} and perm is not None and perm[:1] == (0,)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        order = inverse(cls.permutation(call.node) or ())
        return (lambda grad: grad.transpose(order),)

    selects = staticmethod(always((0,)))

    @classmethod
    def permutation(cls, node: ir.NodeInfo) -> Perm | None:
        dims = identity(len(node.shape(0)))
        perm = tuple(node.attrs.get("perm") or dims[::-1])
        return perm if tuple(sorted(perm)) == dims else None

    @classmethod
    def same_as(cls, node: ir.NodeInfo) -> int | None:
        perm = cls.permutation(node)
        return 0 if perm is not None and perm == identity(len(perm)) else None

    def through(self, desc: MemoryDesc) -> MemoryDesc | None:
        return desc.permuted(self.perm)

    def back(self, desc: MemoryDesc) -> MemoryDesc | None:
        return desc.permuted(inverse(self.perm))


_FIRST_OPSET_OF_TRAINING_INPUT = 12


def _is_training(node: ir.NodeInfo) -> bool:
    """Whether a Dropout drops elements, or may do so."""
    if node.op_type != "Dropout" or node.opset < _FIRST_OPSET_OF_TRAINING_INPUT or not node.has_input(2):
        return False
    training = node.constant(2)
    return training is None or bool(training.any())


def _is_inference(node: ir.NodeInfo) -> ir.Refusal | None:
    if not _is_training(node):
        return None
    return node.refused("training_mode is true or computed at run time", "only inference is computed: false")


class Identity(ir.BaseOperator, frozen=True):
    """The same tensor; Dropout is one once training is over."""

    op_types = ("Identity", "Dropout")
    is_quick_on_arrays = True
    role = ir.Role.VIEW
    needs = (has_one_output("the mask"), _is_inference)
    is_elementwise = True

    same_as = staticmethod(lambda node: None if _is_training(node) else 0)
    keeps_rows = staticmethod(lambda node, rows: rows == {0} and not _is_training(node))

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        is_inference = not _is_training(call.node) and len(call.results) == 1
        return (same,) if is_inference else "what it drops is not kept; use dropout2d, or multiply with a mask"

    not_negative_if = staticmethod(always((0,)))

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        return cls().bind({"src": node.required(0, "input")})

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        seed, may_drop = node.attrs.get("seed"), _is_training(node)

        def drop(x: np.ndarray, ratio: ir.Given = None, training: ir.Given = None, *, out: Any) -> None:
            result, mask = out if isinstance(out, tuple) else (out, None)
            share = 0.5 if ratio is None else float(ratio.item())
            is_dropping = may_drop and share and training is not None and bool(training.item())
            kept = np.random.RandomState(seed).random_sample(x.shape) >= share if is_dropping else np.ones((), bool)
            if mask is not None:
                mask[...] = kept
            if result is not None:
                factor = kept * (1 / (1 - share)) if is_dropping else x.dtype.type(1)
                np.multiply(x, factor, out=result, casting="unsafe")

        return drop if node.op_type == "Dropout" else None

    def through(self, desc: MemoryDesc) -> MemoryDesc | None:
        return desc

    back = through


class Blocks(ir.Facts, frozen=True):
    """Elements moved between channels and the places of an image."""

    op_types = ("DepthToSpace", "SpaceToDepth")
    rounds = staticmethod(always(False))
    selects = staticmethod(always((0,)))

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        node, op, (n, c, h, w) = call.node, call.bl.op, call.sources[0].shape
        size, is_columns_first = node.int_attr("blocksize", 1), node.string_attr("mode", ("DCR", "CRD")) == "DCR"
        if node.op_type == "SpaceToDepth":
            return (lambda grad: op("DepthToSpace", grad, blocksize=size),)
        order = (0, 3, 5, 1, 2, 4) if is_columns_first else (0, 1, 3, 5, 2, 4)
        parts = (n, c // size**2, h, size, w, size)
        return (lambda grad: grad.reshape(parts).transpose(order),)


class Extents(ir.Facts, frozen=True):
    """The extents of a tensor, or the number of its elements."""

    op_types = ("Shape", "Size")
    is_quick_on_arrays = True
    elements_read = ()
