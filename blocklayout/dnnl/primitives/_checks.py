"""Checks that the rules of all kinds are made of; each raises InvalidArgumentsError."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import Binary, PostOp, Prelu, Sum
from blocklayout.dnnl.spec import Spec
from blocklayout.dtypes import ITEMSIZES, itemsize
from blocklayout.errors import InvalidArgumentsError
from blocklayout.layout import MemoryDesc

MAX_NDIMS = 12
MAX_ELEMENTS = 2**59
"""Beyond, addresses in bytes overflow."""

MAX_COUNTED = 2**30
"""Of an extent where there are weights: the library counts those in 32 bits, rounds up to blocks, and divides."""

MAX_INTEGER = 2**31 - 1
"""Of parameters; the library holds some in 32 bits."""

_ATTRIBUTE_ARGUMENTS = ("scale_", "zero_point_", "post_op_")


def invalid(kind: str, argument: str, rule: str) -> InvalidArgumentsError:
    """The error that names the argument, the rule and a right value."""
    return InvalidArgumentsError(f"{kind}: {argument} {rule}")


def require(holds: object, spec: Spec, argument: str, rule: str) -> None:
    """Raise unless the rule holds."""
    if not holds:
        raise invalid(spec.kind, argument, rule)


def check_descs(
    spec: Spec,
    needed: Sequence[str],
    optional: Sequence[str] = (),
    others: Sequence[str] = (),
    most: int = MAX_ELEMENTS,
) -> None:
    """Refuse missing, unknown, repeated and impossible arguments, and extents above ``most``."""
    names = [name for name, _ in spec.descs]
    for name in needed:
        if name not in names:
            raise invalid(spec.kind, name, f"is missing; it takes {', '.join(needed)}")
    for name, desc in spec.descs:
        if name not in needed and name not in optional and not name.startswith(_ATTRIBUTE_ARGUMENTS):
            raise invalid(spec.kind, name, f"is no argument of it; there are {', '.join([*needed, *optional])}")
        _check_desc(spec, name, desc, (*ITEMSIZES, *others))
        if max(desc.dims) > most:
            raise invalid(spec.kind, name, f"has extents {tuple(desc.dims)}; {spec.kind} takes up to {most} of each")
    if len(set(names)) != len(names):
        raise invalid(spec.kind, "descs", f"names an argument twice among {', '.join(names)}")


def _check_desc(spec: Spec, name: str, desc: Desc, dtypes: Sequence[str]) -> None:
    if min(desc.dims, default=0) < 0:
        raise invalid(spec.kind, name, f"has extents {desc.dims}; none may be negative")
    if desc.dtype not in dtypes:
        raise invalid(spec.kind, name, f"is {desc.dtype!r}; oneDNN knows {', '.join(dtypes)}")
    if not 1 <= len(desc.dims) <= MAX_NDIMS:
        raise invalid(spec.kind, name, f"has {len(desc.dims)} dimensions; oneDNN takes 1 to {MAX_NDIMS}")
    if math.prod(max(extent, 1) for extent in desc.dims) > MAX_ELEMENTS:
        raise invalid(spec.kind, name, f"has extents {desc.dims}; addresses count at most {MAX_ELEMENTS} elements")


def check_concrete(spec: Spec, *names: str) -> None:
    """Refuse arguments without layout where the primitive has no favourite."""
    for name in names:
        desc = spec.desc(name)
        if not isinstance(desc, MemoryDesc):
            right = f"give MemoryDesc({tuple(desc.dims)}, {desc.dtype!r})"
            raise invalid(spec.kind, name, f"has no layout and {spec.kind} has no favourite; {right}")


def check_ndims(spec: Spec, name: str, least: int, most: int) -> int:
    """The rank of an argument, refused outside of the range."""
    ndims = len(spec.desc(name).dims)
    if not least <= ndims <= most:
        ranks = f"{least}" if least == most else f"{least} to {most}"
        raise invalid(spec.kind, name, f"has {ndims} dimensions; {spec.kind} takes {ranks}")
    return ndims


def check_dims(spec: Spec, name: str, dims: Iterable[int], why: str) -> None:
    """Refuse an argument whose extents are not ``dims``."""
    given, right = tuple(spec.desc(name).dims), tuple(dims)
    if given != right:
        raise invalid(spec.kind, name, f"has extents {given}; {why} makes them {right}")


def check_broadcast(spec: Spec, name: str, given: Sequence[int], right: Sequence[int], whose: str) -> None:
    """Refuse extents that are neither those of another argument, the ``whose``, nor 1."""
    fits = len(given) == len(right) and all(extent in (1, other) for extent, other in zip(given, right, strict=True))
    require(fits, spec, name, f"has extents {given}; each must be the {whose}'s {right}, or 1")


def check_dtype(spec: Spec, name: str, allowed: Sequence[str], why: str) -> None:
    """Refuse an argument whose data type is not among the allowed."""
    dtype = spec.desc(name).dtype
    if dtype not in allowed:
        raise invalid(spec.kind, name, f"is {dtype}; {why} takes {' or '.join(dict.fromkeys(allowed))}")


def check_weights_dtype(spec: Spec, src: str = "src", weights: str = "weights") -> None:
    """Weights have the data type of the source; s8 where the source is quantised."""
    dtype = spec.desc(src).dtype
    right = "s8" if dtype in {"u8", "s8"} else dtype
    check_dtype(spec, weights, (right,), f"a source of {dtype}")


def check_float(spec: Spec, name: str) -> float:
    """A parameter that is a finite number."""
    value = spec.param(name)
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    require(number, spec, name, f"is {value!r}; give a finite number")
    return float(value)


def check_choice(spec: Spec, name: str, choices: Sequence[str]) -> None:
    """Refuse a field that is not among the choices."""
    value = getattr(spec, name)
    require(value in choices, spec, name, f"{value!r} does not exist here; give one of {', '.join(choices)}")


def check_integer(spec: Spec, name: str, least: int, below: int | None = None) -> int:
    """A parameter that is an integer of a range."""
    value = spec.param(name)
    whole = isinstance(value, int) and not isinstance(value, bool)
    fits = whole and least <= value <= MAX_INTEGER and (below is None or value < below)
    where = f"at least {least}" if below is None else f"from {least} to {below - 1}"
    require(fits, spec, name, f"is {value!r}; give an integer {where}")
    return int(value)


def check_no_attributes(spec: Spec) -> None:
    """Refuse post-ops, scales and zero points: gradients take none."""
    attr = spec.attr
    require(not (attr.post_ops or attr.scales or attr.zero_points), spec, "attr", "is given; gradients take none")


def broadcast(kind: str, name: str, first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """Extents of an operation over both: equal, or one of them 1.

    Example:
        >>> broadcast("binary", "src_1", (2, 17, 1), (1, 17, 5))
        (2, 17, 5)
    """
    if len(first) != len(second):
        rule = f"has {len(second)} dimensions; as many as the other operand's {len(first)} would be right"
        raise invalid(kind, name, f"{rule} (put extents of 1 in front)")
    for one, other in zip(first, second, strict=True):
        if one != other and 1 not in (one, other):
            rule = f"has extents {tuple(second)}; against {tuple(first)} each must be equal, or one of the two 1"
            raise invalid(kind, name, rule)
    return tuple(other if one == 1 else one for one, other in zip(first, second, strict=True))


def normal_axis(kind: str, axis: int, ndims: int) -> int:
    """The axis counted from the front.

    Example:
        >>> normal_axis("softmax", -1, 4)
        3
    """
    if not -ndims <= axis < ndims:
        raise invalid(kind, "axis", f"is {axis!r}; {ndims} dimensions make it {-ndims} to {ndims - 1}")
    return axis % ndims


def source_names(kind: str, srcs: Sequence[Desc]) -> dict[str, Desc]:
    """The sources by argument, refused where there is none or they are no sequence of descriptors."""
    if not isinstance(srcs, list | tuple) or not srcs:
        raise invalid(kind, "srcs", f"is {type(srcs).__name__}; give a list of one descriptor or more")
    for index, src in enumerate(srcs):
        if src is None:
            raise invalid(kind, f"srcs[{index}]", "is None; give a MemoryDesc or an AnyDesc")
    return {f"src_{index}": src for index, src in enumerate(srcs)}


def check_attributes(spec: Spec, post_ops: tuple[type[PostOp], ...]) -> None:
    """Refuse scales of arguments it has not, and post-ops that its kind or its destination does not take."""
    for what, masks in (("scales", spec.attr.scales), ("zero_points", spec.attr.zero_points)):
        for name, mask in masks:
            names = ", ".join(argument for argument, _ in spec.descs)
            require(spec.has(name), spec, f"attr.{what}", f"names {name!r}; its arguments are {names}")
            _check_mask(spec, f"attr.{what}", mask, spec.desc(name).dims)
    if not spec.attr.post_ops:
        return
    require(spec.has("dst"), spec, "attr.post_ops", "are given; only forward primitives, which write dst, take them")
    names = ", ".join(taken.__name__ for taken in post_ops) or "none"
    for index, post_op in enumerate(spec.attr.post_ops):
        where = f"attr.post_ops[{index}]"
        require(isinstance(post_op, post_ops), spec, where, f"is {type(post_op).__name__}; {spec.kind} takes {names}")
    if spec.attr.depthwise is None:  # behind one, the destination has other extents until it is resolved
        for index, post_op in enumerate(spec.attr.post_ops):
            _check_post_op(post_op, spec, f"attr.post_ops[{index}]", spec.desc("dst"))


def _check_mask(spec: Spec, where: str, mask: int, dims: Sequence[int]) -> None:
    below = 1 << len(dims)
    require(mask < below, spec, where, f"has mask {mask}; {len(dims)} dimensions make it below {below}")


def _check_post_op(post_op: PostOp, spec: Spec, where: str, dst: Desc) -> None:
    if isinstance(post_op, Sum):
        fits = itemsize(post_op.dtype or dst.dtype) == itemsize(dst.dtype)
        require(fits, spec, where, f"reads dst as {post_op.dtype}; a type as wide as its {dst.dtype} would be right")
    elif isinstance(post_op, Prelu):
        _check_mask(spec, where, post_op.mask, dst.dims)
    elif isinstance(post_op, Binary) and post_op.src1 is not None:
        check_broadcast(spec, f"{where}.src1", post_op.src1.dims, dst.dims, "destination")
