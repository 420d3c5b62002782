"""The kinds of primitive, one module each: arguments, rules, constructors, and the order in which C takes them.

A module is found by the name of its kind, when that is first needed, and has ``KIND``. Modules whose names start with
an underscore are no kinds.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from msgspec import Struct, field

from blocklayout.dnnl import own
from blocklayout.dnnl.any_desc import AnyDesc, Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, PostOp
from blocklayout.dnnl.cpus import default_threads
from blocklayout.dnnl.enums import ALGORITHMS, full_algorithm
from blocklayout.dnnl.primitives import _checks
from blocklayout.dnnl.primitives._speeds import bandwidth_share_by_name, peak_share_by_name
from blocklayout.dnnl.primitives._speeds import function_flops as function_flops
from blocklayout.dnnl.spec import Spec
from blocklayout.errors import InvalidArgumentsError
from blocklayout.layout import MemoryDesc

Extents = Callable[[Desc], Sequence[int]]
"""The extents of a descriptor, with or without padding."""

FORWARD = ("forward_inference", "forward_training")

_MAX_VALID = 4096
_NO_PARAMS: Mapping[str, Any] = {}
_valid: set[tuple[object, ...]] = set()
"""Specs that were found to be valid, layouts aside: a network asks for the same in many of them."""


class Direction(Struct, frozen=True):
    """One way to run a kind of primitive: forward, or one of its gradients.

    Attributes:
        c_order: The arguments of the C function that creates the primitive descriptor, in order and by name:
            descriptors (``src|dst`` is the first of them that there is), parameters, ``prop_kind``, ``algorithm``,
            ``engine``, ``attr``, ``n_srcs`` and ``srcs`` of a kind with many sources, and ``hint``, the forward
            primitive descriptor that a gradient is derived from. Empty where the library has none: implementations
            are all our own.
        arguments: Execution arguments, besides those of the attributes.
        results: The arguments among them that it writes.
        optional: The arguments among them that a Spec may leave out.
        laid_out: The arguments among them that must have a layout, as the primitive has no favourite.
        keeps_extents: Whether the destination has the source's extents.
        hint: The gradient's argument for each argument of the forward primitive in the hint; by default the one of the
            same name, or else its gradient.
        prop_kinds: The propagations that run in it; without a say where it is the only direction.
        validate: Further rules of this direction, where they are others than its kind's.
        family: The kind's name in the C function, where it is another.
    """

    c_order: str
    arguments: tuple[str, ...] = ("src", "dst")
    results: tuple[str, ...] = ("dst",)
    optional: tuple[str, ...] = ()
    laid_out: tuple[str, ...] = ("src",)
    keeps_extents: bool = False
    hint: Mapping[str, str] = field(default_factory=dict)
    prop_kinds: tuple[str, ...] = FORWARD
    validate: Callable[[Spec], object] | None = None
    family: str = ""


class Kind(Struct, frozen=True, kw_only=True):
    """A kind of primitive.

    Attributes:
        directions: By its name in the C function: ``forward``, ``backward``, ``backward_data``, ``backward_weights``;
            empty where the kind has but one.
        validate: Raises an error if a Spec, sound by all that directions and kinds state, breaks a further rule.
        ranks: The least and the highest rank of its first argument.
        most: The largest extent.
        other_dtypes: Data types of arguments beside the library's.
        post_ops: Types of post-ops that it takes. The library accepts some others and computes something else: a sum
            behind a pooling is lost. Source: "Post-ops and Attributes" of each primitive, oneDNN developer guide, v3.2.
        multiply_adds: Counts multiplications, each with an addition; ``None`` for kinds that mostly move bytes.
        peak_share: Estimates the share of the machine's peak that the arithmetic of a resolved Spec reaches.
        bandwidth_share: Estimates the share of the machine's bandwidth at which its bytes are moved.
        has_many_sources: Whether its sources are ``src_0``, ``src_1``, ... as many as there are.
        adjusted: A direction as a Spec's flags or algorithm make it: without the arguments and results that they switch
            off, and with the C function that they choose.
        fault: Why a resolved Spec's implementation is passed over: a bug of the library; ``None`` where it is not.
        for_c: Converts a Spec where the library takes other descriptors than we do.
    """

    directions: Mapping[str, Direction]
    validate: Callable[[Spec], object] = lambda _: None
    ranks: tuple[int, int] = (1, _checks.MAX_NDIMS)
    most: int = _checks.MAX_ELEMENTS
    other_dtypes: tuple[str, ...] = ()
    post_ops: tuple[type[PostOp], ...] = ()
    multiply_adds: Callable[[Spec, Extents], int] | None = None
    peak_share: Callable[[Spec], float] = peak_share_by_name
    bandwidth_share: Callable[[Spec], float] = bandwidth_share_by_name
    has_many_sources: bool = False
    adjusted: Callable[[Spec, Direction], Direction] | None = None
    fault: Callable[[Spec], str | None] | None = None
    for_c: Callable[[Spec], Spec] | None = None

    def direction(self, prop_kind: str) -> str:
        """The key among its directions of a propagation, such as ``forward_inference``."""
        if "" in self.directions:
            return ""
        return prop_kind if prop_kind in self.directions else prop_kind.partition("_")[0]


@cache
def kinds() -> tuple[str, ...]:
    """The kinds of primitive there are.

    Example:
        >>> "convolution" in kinds()
        True
    """
    return tuple(sorted(name for _, name, _ in pkgutil.iter_modules(__path__) if not name.startswith("_")))


@cache
def kind_of(name: str) -> Kind:
    """A kind of primitive by its name; an InvalidArgumentsError where there is none."""
    if name not in kinds():
        raise InvalidArgumentsError(f"no kind of primitive {name!r}; there are {', '.join(kinds())}")
    kind: Kind = importlib.import_module(f"{__name__}.{name}").KIND
    return kind


def direction_of(spec: Spec) -> Direction:
    """The direction in which a valid Spec runs, with the arguments that it has there."""
    kind = kind_of(spec.kind)
    direction = kind.directions[kind.direction(spec.prop_kind)]
    return kind.adjusted(spec, direction) if kind.adjusted else direction


def has_library_primitive(spec: Spec) -> bool:
    """Whether the library has primitives of its kind, and not only we."""
    return bool(direction_of(spec).c_order)


def draft(
    kind: str,
    descs: Mapping[str, Desc | None],
    params: Mapping[str, Any] = _NO_PARAMS,
    *,
    attr: Attr = NO_ATTR,
    n_threads: int | None,
    algorithm: str = "",
    prop_kind: str = "",
) -> Spec:
    """A Spec not yet checked, and perhaps without its destination; absent arguments are dropped."""
    for name, desc in descs.items():
        if desc is not None and not isinstance(desc, MemoryDesc | AnyDesc):
            raise _checks.invalid(kind, name, f"is a {type(desc).__name__}; give a MemoryDesc or an AnyDesc")
    return Spec(
        kind=kind,
        descs=tuple((name, desc) for name, desc in descs.items() if desc is not None),
        algorithm=full_algorithm(kind, algorithm) if kind in ALGORITHMS else algorithm,
        prop_kind=prop_kind,
        params=tuple(params.items()),
        attr=attr,
        n_threads=default_threads() if n_threads is None else n_threads,
    )


def finish(spec: Spec, dst: Desc | None, dims: Iterable[int], *, dtype: str = "", name: str = "dst") -> Spec:
    """The draft with its destination, checked; without one its layout is the primitive's choice, its extents ``dims``.

    Of a gradient that is ``diff_src``. An InvalidArgumentsError where it is against the rules of its kind.
    """
    desc = AnyDesc(tuple(dims), dtype or spec.descs[0][1].dtype) if dst is None else dst
    return validate(spec.replace(descs=(*spec.descs, (name, desc))))


def validate(spec: Spec) -> Spec:
    """Check a Spec against the rules of its kind, and return it.

    Raises:
        InvalidArgumentsError: The message names the argument, the rule and a right value.

    Example:
        >>> from blocklayout import dnnl
        >>> spec = dnnl.eltwise(dnnl.MemoryDesc((2, 17)), algorithm="relu", n_threads=1)
        >>> validate(spec.replace(kind="relu"))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        blocklayout.errors.InvalidArgumentsError: no kind of primitive 'relu'; there are batch_normalization, ...
    """
    if spec.is_checked:
        return spec
    question = _without_layouts(spec)
    if question not in _valid:
        _check(spec, kind_of(spec.kind))
        if len(_valid) >= _MAX_VALID:
            _valid.clear()
        _valid.add(question)
    return spec.checked()


def _check(spec: Spec, kind: Kind) -> None:
    if spec.kind in ALGORITHMS:
        _checks.check_choice(spec, "algorithm", ALGORITHMS[spec.kind])
    if "" not in kind.directions:
        _checks.check_choice(spec, "prop_kind", [each for way in kind.directions.values() for each in way.prop_kinds])
    direction = kind.directions[kind.direction(spec.prop_kind)]
    _check_arguments(spec, kind, direction)
    (direction.validate or kind.validate)(spec)
    _checks.check_attributes(spec, kind.post_ops)


def _check_arguments(spec: Spec, kind: Kind, direction: Direction) -> None:
    sources = spec.counted_sources if kind.has_many_sources else ()
    is_fed = sources or not kind.has_many_sources
    _checks.require(is_fed, spec, "src_0", "is missing; it takes src_0, src_1, ... and dst")
    needed = (*sources, *(name for name in direction.arguments if name not in direction.optional))
    _checks.check_descs(spec, needed, direction.optional, kind.other_dtypes, kind.most)
    _checks.check_ndims(spec, needed[0], *kind.ranks)
    _checks.check_concrete(spec, *sources, *filter(spec.has, direction.laid_out))
    if direction.keeps_extents:
        _checks.check_dims(spec, "dst", spec.desc("src").dims, "the source")


def _without_layouts(spec: Spec) -> tuple[object, ...]:
    """The part of a Spec that rules look at: whether an argument has a layout, and never which.

    Parameters as text, since 1, 1.0 and True are equal, and not equally right.
    """
    descs = tuple((name, type(desc), desc.dims, desc.dtype) for name, desc in spec.descs)
    attr = "" if spec.attr is NO_ATTR else repr(spec.attr)
    return spec.kind, descs, spec.algorithm, spec.prop_kind, repr(spec.params), attr


def multiply_adds(spec: Spec, *, padded: bool = False) -> int:
    """Multiplications that a primitive does, each with an addition; 0 for kinds that mostly move bytes.

    Args:
        spec: Resolved or not.
        padded: Count those on padding as well.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights = dnnl.AnyDesc((1, 3, 8, 8), "f32"), dnnl.AnyDesc((16, 3, 3, 3), "f32")
        >>> multiply_adds(dnnl.convolution(src, weights, n_threads=1)) == 16 * 6 * 6 * 3 * 3 * 3
        True
    """
    if ours := own.implementation(spec.impl):
        return ours.multiply_adds(spec)
    of_kind = kind_of(spec.kind).multiply_adds
    return of_kind(spec, _padded_dims if padded else attrgetter("dims")) if of_kind else 0


def _padded_dims(desc: Desc) -> Sequence[int]:
    return desc.padded_dims if isinstance(desc, MemoryDesc) else desc.dims
