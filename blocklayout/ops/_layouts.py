"""The layouts under which primitives see an operator's arguments.

Addresses of a dense layout are mixed-radix numbers: its *digits*, in the order in which bytes lie. A primitive that is
fast on plain tensors runs on any dense layout, padding included, if it sees the bytes under these extents: a tensor
``nChw8c`` of 17 channels is a plain (N, 3, H, W, 8), one in ``nhwc`` a plain (N, H, W, C).

The library is fast on padded channels only where zeros stay zeros. Where they do not, as with exp(0) = 1, it runs on a
tensor of the padded extents, and the padded lanes are zeroed after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from math import prod

from msgspec import Struct

from blocklayout import dnnl, ir
from blocklayout.errors import LayoutError
from blocklayout.layout import MemoryDesc


def argument(problem: ir.Problem, name: str) -> ir.TensorInfo:
    """An argument's extents and data type, whether it is computed or constant."""
    return problem.sources.get(name) or problem.constants[name]


def has_argument(problem: ir.Problem, name: str) -> bool:
    """Whether an optional argument is there."""
    return name in problem.sources or name in problem.constants


def plain(info: ir.TensorInfo) -> MemoryDesc:
    """Row-major, as vectors are kept."""
    return MemoryDesc(info.dims, info.dtype)


def plain_if_any(problem: ir.Problem, name: str) -> MemoryDesc | None:
    """An optional vector argument, such as a bias."""
    return plain(argument(problem, name)) if has_argument(problem, name) else None


def like(desc: MemoryDesc, info: ir.TensorInfo) -> MemoryDesc:
    """A tensor of other extents in the layout of ``desc``."""
    if desc.dims == info.dims and desc.dtype == info.dtype:
        return desc
    return desc.resized(info.dims, info.dtype)


def followed(problem: ir.Problem, wish: ir.Wish, info: ir.TensorInfo) -> tuple[MemoryDesc, MemoryDesc] | None:
    """A follower's source as wished, and its destination in that layout; ``None`` if it is wished for in no one."""
    src = wish.src_desc(info)
    if not isinstance(src, MemoryDesc):
        return None
    dst = like(src, problem.dst)
    wished = wish.dst_desc(problem.dst)
    if isinstance(wished, MemoryDesc) and not wished.physically_equal(dst):
        return None
    return src, dst


class Follower(ir.BaseOperator, frozen=True):
    """An operator whose result lies as its source ``src`` does."""

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        return None if descs is None else self.lower_between(*descs, problem, attr)

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        """The primitives that compute ``dst`` of ``src``; ``None`` if there are none."""
        raise NotImplementedError


def as_one_image(*descs: MemoryDesc) -> tuple[MemoryDesc, ...] | None:
    """Tensors whose channels lie outermost (chwn) as one image each of all pixels; ``None`` where not all lie so.

    Example:
        >>> as_one_image(MemoryDesc((8, 3, 5, 4), "f32", "chwn"))
        (MemoryDesc((1, 3, 160), 'f32', 'abc'),)
    """
    order = descs[0].dim_order
    if order[0] != 1 or not all(desc.dim_order == order and _is_whole(desc) for desc in descs):
        return None
    return tuple(MemoryDesc((1, desc.dims[1], desc.n_elements // desc.dims[1]), desc.dtype) for desc in descs)


def with_roles_swapped(*descs: MemoryDesc) -> tuple[MemoryDesc, ...] | None:
    """Tensors whose images lie innermost, as channels: chwn is channels-last then. ``None`` where they lie otherwise.

    Example:
        >>> with_roles_swapped(MemoryDesc((8, 3, 5, 4), "f32", "chwn"))
        (MemoryDesc((3, 8, 5, 4), 'f32', 'acdb'),)
    """
    ndims = descs[0].ndims
    order = (1, *range(2, ndims), 0)
    if not all(desc.dim_order == order and _is_whole(desc) for desc in descs):
        return None
    return tuple(desc.permuted((1, 0, *range(2, ndims))) for desc in descs)


def _is_whole(desc: MemoryDesc) -> bool:
    return desc.is_dense and not desc.inner_blks and desc.offset0 == 0 and desc.n_elements > 0


class Digit(Struct, frozen=True):
    """Neighbouring steps along one dimension: how many, padding included, and elements from one to the next."""

    dim: int
    extent: int
    stride: int


class Run(Struct, frozen=True):
    """Adjacent digits that are all marked, or none of them; and the number of their elements."""

    is_marked: bool
    extent: int


def digits(desc: MemoryDesc, kept: Collection[int] = ()) -> tuple[Digit, ...] | None:
    """The digits of a dense layout, outermost first, of extent 1 only along ``kept``; ``None`` if it is not dense.

    Example:
        >>> [(digit.dim, digit.extent) for digit in digits(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"))]
        [(0, 2), (1, 3), (2, 5), (3, 4), (1, 8)]
    """
    if not desc.is_dense or desc.offset0 or not desc.n_elements:
        return None
    blocks, strides = desc.layout.blocks, desc.layout.strides
    outer = [Digit(dim, desc.padded_dims[dim] // blocks[dim], strides[dim]) for dim in desc.dim_order]
    blocked = enumerate(zip(desc.inner_idxs, desc.inner_blks, strict=True), start=1)
    inner = [Digit(dim, extent, prod(desc.inner_blks[behind:])) for behind, (dim, extent) in blocked]
    return tuple(digit for digit in [*outer, *inner] if digit.extent != 1 or digit.dim in kept)


def runs(parts: Sequence[Digit], marked: Collection[int]) -> tuple[Run, ...]:
    """Adjacent digits of dimensions in ``marked``, and of those that are not, put together.

    Example:
        >>> nhwc = digits(MemoryDesc((2, 17, 5, 4), "f32", "nhwc"))
        >>> [(run.is_marked, run.extent) for run in runs(nhwc, {2, 3})]
        [(False, 2), (True, 20), (False, 17)]
    """
    groups = groupby(parts, lambda part: part.dim in marked)
    return tuple(Run(is_marked, n_elements(list(group))) for is_marked, group in groups)


def as_rows(found: Sequence[Run]) -> tuple[int, int] | None:
    """How many rows there are and how long, marked digits being a row; ``None`` where those are not the innermost.

    Example:
        >>> as_rows([Run(False, 6), Run(True, 20)]), as_rows([Run(True, 20)]), as_rows([Run(True, 20), Run(False, 6)])
        ((6, 20), (1, 20), None)
    """
    if [run.is_marked for run in found] not in ([], [False], [True], [False, True]):
        return None
    length = found[-1].extent if found and found[-1].is_marked else 1
    return prod(run.extent for run in found) // length, length


def as_row_desc(src: MemoryDesc, axes: Collection[int]) -> MemoryDesc | None:
    """A tensor as rows along some dimensions, in any order; ``None`` where padding, or others, lie among them.

    Example:
        >>> as_row_desc(MemoryDesc((2, 17, 5, 4), "f32", "nhwc"), (1,))
        MemoryDesc((40, 17), 'f32', 'ab')
    """
    parts = None if is_padded(src, axes) else digits(src)
    rows = None if parts is None else as_rows(runs(parts, axes))
    return None if rows is None else MemoryDesc(rows, src.dtype)


def paired(src: MemoryDesc, dst: MemoryDesc, changed: Collection[int]) -> list[tuple[Digit, Digit]] | None:
    """Digits of a source and a result in the same places, other ones along ``changed``; ``None`` if they do not pair.

    Example:
        >>> src, dst = (MemoryDesc((2, 16, extent, 4), "f32", "nChw8c") for extent in (5, 3))
        >>> [(given.extent, made.extent) for given, made in paired(src, dst, {2})]
        [(2, 2), (2, 2), (5, 3), (4, 4), (8, 8)]
    """
    given, made = digits(src, kept=changed), digits(dst, kept=changed)
    if given is None or made is None or any(src.layout.blocks[dim] != 1 for dim in changed):
        return None
    if [digit.dim for digit in given] != [digit.dim for digit in made]:
        return None
    return list(zip(given, made, strict=True))


def broadcast_views(
    whole: MemoryDesc, dims: Sequence[int], patterns: Mapping[tuple[bool, ...], Sequence[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Plain extents under which a primitive sees a dense tensor and its broadcast operand; ``None`` if no pattern fits.

    Args:
        whole: The tensor's layout.
        dims: Extents of the operand, with the tensor's rank; each the tensor's, or 1.
        patterns: The runs of digits to see (-1: an extent of 1), by whether the operand varies along each run.
    """
    parts = digits(whole)
    if parts is None:
        return None
    found = runs(parts, {dim for dim, (n, extent) in enumerate(zip(dims, whole.dims, strict=True)) if n == extent})
    places = patterns.get(tuple(run.is_marked for run in found))
    if places is None:
        return None
    seen = [(found[place].extent, found[place].is_marked) if place >= 0 else (1, True) for place in places]
    return tuple(extent for extent, _ in seen), tuple(extent if varies else 1 for extent, varies in seen)


def copy_spec(src: MemoryDesc, dst: MemoryDesc, backwards: tuple[int, ...], n_threads: int) -> dnnl.Spec:
    """A copy of digits, along some of them backwards."""
    if backwards:
        return dnnl.reversal(src, dst, backwards, n_threads=n_threads)
    return dnnl.reorder(src, dst, n_threads=n_threads)


def n_elements(parts: Sequence[Digit]) -> int:
    """How many elements the digits count, padding included."""
    return prod(part.extent for part in parts)


def is_padded(desc: MemoryDesc, dims: Collection[int]) -> bool:
    """Whether blocks reach past the extents of some of these dimensions.

    Example:
        >>> is_padded(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), {1, 2})
        True
    """
    return any(desc.padded_dims[dim] != desc.dims[dim] for dim in dims)


def seen_as(desc: MemoryDesc, dims: Sequence[int]) -> MemoryDesc | None:
    """The same bytes under other extents, elements in the same order; ``None`` if the library has no such descriptor.

    Example:
        >>> seen_as(MemoryDesc((2, 16, 1, 1), "f32", "nChw8c"), (2, 16))
        MemoryDesc((2, 16), 'f32', 'ab')
        >>> seen_as(MemoryDesc((2, 17, 1, 1), "f32", "nChw8c"), (2, 17)) is None
        True
    """
    try:
        made = desc.reshaped(dims)
    except LayoutError:
        return None
    if dnnl.is_expressible(made):
        return made
    return MemoryDesc(dims, desc.dtype) if desc.physically_equal(MemoryDesc(desc.dims, desc.dtype)) else None


_KEEP_ZERO = frozenset(
    f"eltwise_{name}"
    for name in ("abs", "elu", "gelu_erf", "gelu_tanh", "hardswish", "relu", "round", "sqrt", "square", "swish", "tanh")
)


def with_padding(desc: MemoryDesc) -> MemoryDesc:
    """The same bytes with every lane an element.

    Example:
        >>> with_padding(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"))
        MemoryDesc((2, 24, 5, 4), 'f32', 'nChw8c')
    """
    return desc.resized(desc.padded_dims)


def keeps_zero(function: dnnl.Eltwise) -> bool:
    """Whether f(0) = 0.

    Example:
        >>> keeps_zero(dnnl.Eltwise("relu")), keeps_zero(dnnl.Eltwise("exp")), keeps_zero(dnnl.Eltwise("clip", 1, 2))
        (True, False, False)
    """
    if function.algorithm == "eltwise_clip":
        return function.alpha <= 0 <= function.beta
    if function.algorithm == "eltwise_linear":
        return function.beta == 0
    if function.algorithm == "eltwise_pow":
        return function.beta > 0
    return function.algorithm in _KEEP_ZERO


def are_eltwise(post_ops: Iterable[dnnl.PostOp]) -> bool:
    """Whether post-ops read no tensor: then they run under any extents."""
    return all(isinstance(post_op, dnnl.Eltwise) for post_op in post_ops)


def keep_zero(post_ops: Iterable[dnnl.PostOp]) -> bool:
    """Whether a chain of functions keeps zero; those that read a tensor may not."""
    return all(isinstance(post_op, dnnl.Eltwise) and keeps_zero(post_op) for post_op in post_ops)


def over_padding(spec: dnnl.Spec, whole: Mapping[str, MemoryDesc]) -> ir.Recipe:
    """A primitive that sees padding as elements, and the zeros that it overwrote; ``whole`` are the usual layouts."""
    after = (ir.zero_padding_step(whole["dst"]),) if whole["dst"].n_padding else ()
    return ir.Recipe((*ir.Recipe.single(spec).steps, *after), (), tuple(whole.items()))


def n_lanes() -> int:
    """Elements of f32 in a vector register: the block of channels that the library is fast on.

    Example:
        >>> n_lanes() in (4, 8, 16)
        True
    """
    isa = dnnl.isa()
    if isa.startswith("avx512"):
        return 16
    return 8 if isa.startswith("avx2") else 4
