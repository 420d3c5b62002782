"""Resolving: asking oneDNN which implementation, layouts and scratchpad a Spec gets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from operator import eq

from blocklayout.dnnl import known_bugs, own
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.enums import WINOGRAD_DOMAIN
from blocklayout.dnnl.handles import Handle
from blocklayout.dnnl.primitive_desc import (
    UNIMPLEMENTED,
    Resolved,
    create_pd,
    impl_name,
    impl_names,
    is_reference,
    walk,
)
from blocklayout.dnnl.primitives import has_library_primitive, validate
from blocklayout.dnnl.spec import Spec
from blocklayout.dnnl.threads import run_parallel
from blocklayout.errors import DnnlError, OutOfMemoryError, RefusedError, UnimplementedError
from blocklayout.layout import MemoryDesc

_MAX_CACHED = 2048
_ROUGHER = "convolution_winograd"


def resolve(spec: Spec) -> Resolved:
    """The Spec with everything settled: implementation, every descriptor, and its scratchpad's size.

    Answers are kept, so asking again is free. A Spec that names an implementation gets that one,
    and a resolved one exactly its own descriptors.

    Raises:
        UnimplementedError: oneDNN offers nothing for it on this CPU, or not the implementation it names.
        DnnlError: The implementation it names now has other descriptors.
        InvalidArgumentsError: It contradicts the rules of its kind.
        UnsupportedError: oneDNN cannot express one of its descriptors.

    Example:
        >>> from blocklayout import dnnl
        >>> plain = dnnl.MemoryDesc((2, 17, 4, 4))
        >>> resolved = resolve(dnnl.eltwise(plain, algorithm="relu", n_threads=1))
        >>> resolved.spec.is_resolved, resolved.spec.desc("dst") == plain
        (True, True)
    """
    outcome = _ask(spec)
    if isinstance(outcome, Resolved):
        return _as_asked(outcome, spec)
    raise UnimplementedError(outcome, UNIMPLEMENTED)


def implementations(spec: Spec) -> Iterator[Resolved]:
    """Every implementation oneDNN offers, its own favourite first, also those that the Spec does not name.

    Raises:
        UnimplementedError: There is none on this CPU.

    Example:
        >>> from blocklayout import dnnl
        >>> spec = dnnl.eltwise(dnnl.MemoryDesc((2, 17)), algorithm="relu", n_threads=1)
        >>> any(resolved.spec.impl.startswith("ref") for resolved in implementations(spec))
        True
    """
    validate(spec)
    found = run_parallel(lambda: list(walk(create_pd(spec), spec)), spec.n_threads)
    if not found:
        raise _refusal(spec.replace(impl=""))
    yield from found
    yield from _ours(spec.replace(impl=""))


def favourite(spec: Spec) -> Resolved:
    """The library's first, or one of ours that precedes it and was not refused; it may be a reference.

    Raises:
        UnimplementedError: There is none on this CPU.

    Example:
        >>> from blocklayout import dnnl
        >>> spec = dnnl.eltwise(dnnl.MemoryDesc((2, 16)), algorithm="relu", n_threads=1)
        >>> favourite(spec) == optimised(spec)[0]
        True
    """
    preceding = (ours for ours in _ours(spec) if own.is_favourite(ours.spec))
    return next(preceding, None) or resolve(spec)


def rougher(spec: Spec) -> tuple[Resolved, ...]:
    """Implementations of ours, of the same by an algorithm that rounds more: about as much as its result once more.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights = dnnl.AnyDesc((1, 16, 8, 8), "f32"), dnnl.AnyDesc((32, 16, 3, 3), "f32")
        >>> rougher(dnnl.convolution(src, weights, n_threads=1))  # there are some in bf16
        ()
    """
    if not own.is_open_to_recipes(spec) or spec.desc("src").dtype != "bf16":
        return ()
    return _ours(spec.replace(algorithm=_ROUGHER))


def is_rougher(spec: Spec) -> bool:
    """Whether a Spec asks for the algorithm of those that :func:`rougher` returns, of any weights.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights = dnnl.AnyDesc((1, 16, 8, 8), "f32"), dnnl.AnyDesc((32, 16, 3, 3), "f32")
        >>> is_rougher(dnnl.convolution(src, weights, n_threads=1))
        False
    """
    return spec.algorithm in (_ROUGHER, WINOGRAD_DOMAIN)


def optimised(spec: Spec) -> tuple[Resolved, ...]:
    """The implementations worth running, our favourite, then the library's first; references where nothing else exists.

    Of an implementation that exists for several instruction sets only the library's first, the largest. Answers are
    kept, so asking again is free.

    Raises:
        UnimplementedError: There is none on this CPU.
        InvalidArgumentsError: It contradicts the rules of its kind.
        UnsupportedError: oneDNN cannot express one of its descriptors.

    Example:
        >>> from blocklayout import dnnl
        >>> spec = dnnl.eltwise(dnnl.MemoryDesc((2, 16)), algorithm="relu", n_threads=1)
        >>> any(resolved.is_reference for resolved in optimised(spec))
        False
    """
    outcome = _ask_optimised(spec)
    if isinstance(outcome, tuple):
        return tuple(_as_asked(resolved, spec) for resolved in outcome)
    raise UnimplementedError(outcome, UNIMPLEMENTED)


@lru_cache(maxsize=_MAX_CACHED)
def has_optimised(spec: Spec) -> bool:
    """Whether there is more than references for it; asked without resolving a layout of the library's.

    Raises:
        InvalidArgumentsError: It contradicts the rules of its kind.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights, dst = ((1, 16, 8, 8), "nchw"), (16, 16, 3, 3), ((1, 16, 8, 8), "nhwc")
        >>> src_desc, dst_desc = (dnnl.MemoryDesc(dims, "f32", tag) for dims, tag in (src, dst))
        >>> has_optimised(dnnl.convolution(src_desc, dnnl.AnyDesc(weights, "f32"), dst_desc, pads=1, n_threads=1))
        False
    """
    validate(spec)
    try:
        return run_parallel(lambda: not is_reference(impl_name(create_pd(spec), spec)), spec.n_threads)
    except DnnlError:
        return bool(_ours(spec))


def open_pd(spec: Spec) -> tuple[Handle, Resolved]:
    """The primitive descriptor of a Spec, at the implementation it names if it names one, and the resolved Spec.

    To be called where parallel regions are as wide as the Spec says. An UnimplementedError where oneDNN offers nothing,
    or not that implementation; a DnnlError where it now has other descriptors.
    """
    pd = create_pd(spec)
    named = partial(eq, spec.impl) if spec.impl else None
    for resolved in walk(pd, spec, named):
        if not spec.is_resolved or spec == resolved.spec:
            return pd, resolved
    raise _refusal(spec)


def refused(spec: Spec, doing: str, error: DnnlError) -> DnnlError:
    """The error of a call that the library offered to create or run, and then refused; from now on it is passed over.

    Want of memory is no refusal, and passes.
    """
    if isinstance(error, OutOfMemoryError):
        return error
    known_bugs.remember(spec, doing)
    for known in (has_optimised, _ask, _ask_optimised):
        known.cache_clear()
    advice = f"{spec.impl} is passed over in this process from now on: load the model, or call the operator, again"
    return RefusedError(f"oneDNN offers {spec.impl}, and refuses to {doing} it: {error}; {advice}", error.status, spec)


def _refusal(spec: Spec) -> DnnlError:
    if spec.is_resolved and (fault := known_bugs.fault_of(spec)):
        return UnimplementedError(f"{spec}: {fault}", UNIMPLEMENTED)
    names = impl_names(spec)
    if spec.impl in names:
        return DnnlError(f"{spec}: this library's {spec.impl} has other descriptors, or changes those given")
    wanted = f"named {spec.impl}" if spec.impl else "whose layouts are as given, and such as a descriptor can express,"
    message = f"{spec}: no implementation {wanted} among those oneDNN offers: {', '.join(names)}"
    return UnimplementedError(message, UNIMPLEMENTED)


@lru_cache(maxsize=_MAX_CACHED)
def _ask(spec: Spec) -> Resolved | str:
    """The answer, or why there is none."""
    validate(spec)
    if own.implementation(spec.impl):
        return _our_own(spec)
    try:
        return run_parallel(lambda: open_pd(spec)[1], spec.n_threads)
    except UnimplementedError as error:
        ours = None if spec.impl or has_library_primitive(spec) else next(iter(_ours(spec)), None)
        return ours or str(error)


@lru_cache(maxsize=_MAX_CACHED)
def _ask_optimised(spec: Spec) -> tuple[Resolved, ...] | str:
    validate(spec)
    ours = _ours(spec)
    try:
        theirs = run_parallel(lambda: tuple(_without_needless_references(spec)), spec.n_threads)
        found = sorted((*theirs, *ours), key=lambda each: not own.is_favourite(each.spec))
        return tuple(found) or str(_refusal(spec))
    except UnimplementedError as error:
        return ours or str(error)


def _as_asked(resolved: Resolved, spec: Spec) -> Resolved:
    """The answer to an equal Spec with this one's own descriptors, which may be called otherwise."""
    given = dict(spec.descs)
    descs = tuple((name, _named_as(desc, given.get(name))) for name, desc in resolved.spec.descs)
    if all(mine is theirs for (_, mine), (_, theirs) in zip(descs, resolved.spec.descs, strict=True)):
        return resolved
    return Resolved(resolved.spec.settled(descs=descs), resolved.scratchpad_nbytes)


def _named_as(found: Desc, given: Desc | None) -> Desc:
    if not isinstance(given, MemoryDesc):
        return found
    return given if given.dims == found.dims else given.resized(found.dims)


def _ours(spec: Spec) -> tuple[Resolved, ...]:
    """Our own implementations of it without a known fault."""
    return tuple(ours for ours in own.offers(spec) if known_bugs.fault_of(ours.spec) is None)


def _our_own(spec: Spec) -> Resolved | str:
    ours = next(iter(_ours(spec)), None)
    if ours is None or (spec.is_resolved and ours.spec != spec):
        return f"{spec}: {spec.impl} is not here, or does not compute this: it takes a compiler at installation"
    return ours


def _without_needless_references(spec: Spec) -> Iterator[Resolved]:
    """Every implementation for its largest instruction set; a reference only if it is the first."""
    found: set[str] = set()

    def is_wanted(impl: str) -> bool:
        return impl.rpartition(":")[0] not in found and not (found and is_reference(impl))

    for resolved in walk(create_pd(spec), spec, is_wanted):
        found.add(resolved.spec.impl.rpartition(":")[0])
        yield resolved
