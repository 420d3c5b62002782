"""Group normalisation by all threads together, however few groups there are, in C of our own beside the executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, prod
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import Binary
from blocklayout.dnnl.own import Implementation, Tail, lanes_of
from blocklayout.dnnl.spec import Spec
from blocklayout.layout import MemoryDesc

_MAX_VECTORS = 8
"""``BL_MAX_VECTORS`` in C."""

_TOGETHER_PER_NS, _ALTERNATING_PER_NS, _COEFFICIENTS_PER_NS, _TASK_NS = 12.0, 4.0, 4.0, 60.0
"""Elements that a thread computes in a nanosecond, memory aside, where those of a group lie together and where groups
alternate; coefficients that it works out; and the rest of a task's time."""

_ELEMENTS_OF_TASK, _LANES_OF_TASK = 16384, 1024
"""``BL_AT_ONCE`` and ``BL_LONGEST_PATTERN`` in C."""


class _Extents(Struct, frozen=True):
    """A tensor's extents as its elements lie, the outermost first; a channel is a lane of a block."""

    images: int
    blocks: int
    pixels: int
    lanes: int

    @classmethod
    def of(cls, desc: MemoryDesc) -> _Extents | None:
        """``None`` where there is no code for the layout."""
        (n, c, *spatial), pixels = desc.dims, prod(desc.dims[2:])
        order = [dim for dim in desc.dim_order if desc.padded_dims[dim] > 1]
        if not desc.is_dense or desc.offset0 or desc.padded_dims != (n, desc.padded_dims[1], *spatial):
            return None
        if 0 in order and order.pop(0) != 0:
            return None
        if desc.inner_blks:
            (block, *others), n_blocks = desc.inner_blks, desc.padded_dims[1] // desc.inner_blks[0]
            is_usual = not others and desc.inner_idxs == (1,) and (n_blocks == 1 or order[0] == 1)
            return cls(n, n_blocks, pixels, block) if is_usual else None
        if pixels == 1 or order[-1:] == [1]:
            return cls(n, 1, pixels, c)
        return cls(n, c, pixels, 1) if c == 1 or order[0] == 1 else None

    def are_together(self, spec: Spec) -> bool:
        """Whether the elements of a group lie side by side."""
        n_channels = spec.desc("src").dims[1]
        return n_channels % self.lanes == 0 and n_channels // spec.param("n_groups") % self.lanes == 0


class _Vector(Struct, frozen=True):
    """An argument that normal elements are multiplied with, or that is added to them.

    Its extents are (N or 1, C or groups or 1, 1...).
    """

    name: str
    desc: MemoryDesc
    is_added: bool


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes f32 and bf16, row-major, channels-last and in blocks of channels.

    Behind it products with numbers for each channel, and sums, then a (leaky) ReLU or a clip that leaves 0 as it is.
    """
    src, dst = spec.memory_desc("src"), spec.desc("dst")
    if src.dtype not in ("f32", "bf16") or 0 in src.dims or _Extents.of(src) is None:
        return None
    if not isinstance(dst, MemoryDesc):
        dst = src.resized(dst.dims)
    vectors = list(_vectors(spec))
    if not dst.physically_equal(src) or None in vectors or len(vectors) > _MAX_VECTORS or _tail(spec) is None:
        return None
    found = {name: dst if name == "dst" else desc for name, desc in spec.descs}
    return found | {vector.name: vector.desc for vector in vectors if vector is not None}


def _compute_ns(spec: Spec, peak_flops: float, n_threads: int) -> float:
    """Elements, and each task's coefficients."""
    del peak_flops
    src = spec.memory_desc("src")
    extents = _Extents.of(src)
    if extents is None:
        return inf
    per_ns = _TOGETHER_PER_NS if extents.are_together(spec) else _ALTERNATING_PER_NS
    lanes = min(extents.lanes, _LANES_OF_TASK)
    n_patterns = extents.images * extents.blocks * -(-extents.pixels * lanes // _ELEMENTS_OF_TASK)
    n_coefficients, n_tasks = n_patterns * extents.lanes, n_patterns * -(-extents.lanes // lanes)
    task_ns = n_tasks * _TASK_NS + n_coefficients / _COEFFICIENTS_PER_NS
    return (src.n_elements / per_ns + task_ns) / n_threads


def _vectors(spec: Spec) -> Iterator[_Vector | None]:
    """The operands in order; ``None`` for one that there is no code for."""
    for name in ("scale", "shift"):
        if spec.has(name):
            yield _vector(spec, name, spec.desc(name), is_added=name == "shift")
    for index, post_op in enumerate(spec.attr.post_ops):
        if isinstance(post_op, Binary):
            is_known = post_op.algorithm in ("binary_mul", "binary_add")
            is_added = post_op.algorithm == "binary_add"
            name = f"post_op_{index}_src_1"
            yield _vector(spec, name, post_op.src1, is_added=is_added) if is_known else None


def _vector(spec: Spec, name: str, desc: object, *, is_added: bool) -> _Vector | None:
    if not isinstance(desc, MemoryDesc) or desc.dtype not in ("f32", "bf16") or max(desc.dims[2:], default=1) > 1:
        return None
    is_plain = desc.is_contiguous() and not desc.inner_blks and desc.offset0 == 0
    is_for_channels = desc.dims[1] in (1, spec.param("n_groups"), spec.desc("src").dims[1])
    return _Vector(name, desc, is_added) if is_plain and is_for_channels else None


def _tail(spec: Spec) -> Tail | None:
    """The function behind the products and sums; ``None`` where there is no code for it."""
    functions = [post_op for post_op in spec.attr.post_ops if not isinstance(post_op, Binary)]
    if not functions:
        return Tail()
    return Tail.of(functions[0]) if list(spec.attr.post_ops[-1:]) == functions else None


def _fields(spec: Spec) -> Mapping[str, Any]:
    src, tail = spec.memory_desc("src"), _tail(spec)
    extents, vectors = _Extents.of(src), [vector for vector in _vectors(spec) if vector is not None]
    if extents is None or tail is None:
        raise TypeError(f"{spec} was not settled here")
    n_channels = src.dims[1]
    return {
        "itemsize": src.itemsize,
        "lanes_at_once": lanes_of(spec.impl),
        "n_threads": spec.n_threads,
        "n_images": extents.images,
        "n_blocks": extents.blocks,
        "n_pixels": extents.pixels,
        "n_lanes": extents.lanes,
        "n_channels": n_channels,
        "group": n_channels // spec.param("n_groups"),
        "is_together": extents.are_together(spec),
        "epsilon": spec.param("epsilon"),
        **asdict(tail),
        "n_vectors": len(vectors),
        "vectors": [
            {
                "is_added": vector.is_added,
                "is_bf16": vector.desc.dtype == "bf16",
                "image": vector.desc.dims[1] if vector.desc.dims[0] > 1 else 0,
                "per": n_channels // vector.desc.dims[1],
            }
            for vector in vectors
        ],
    }


def _arguments(spec: Spec) -> list[str]:
    return ["src", "dst", "scratchpad", *(vector.name for vector in _vectors(spec) if vector is not None)]


OURS = Implementation(
    kinds=("group_normalization",), offer=_offer, fields=_fields, arguments=_arguments, compute_ns=_compute_ns
)
