"""Implementations of our own, which stand beside the library's: one module each, found by its name.

A module has ``OURS``. ``impl`` of a Spec that it computes is its name, a colon and the instruction set:
``winograd:avx2``. Nobody else needs to know which there are.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from blocklayout.dnnl.spec import Spec

if TYPE_CHECKING:
    from blocklayout.dnnl.memory import Memory
    from blocklayout.dnnl.primitive_desc import Resolved

_MAX_CACHED = 256


class Kernel(Protocol):
    """Runs in place of one of the library's primitives.

    Attributes:
        c: The problem in C.
        execute: The C function that takes it, called as ``dnnl_primitive_execute`` is.
    """

    c: Any
    execute: Any

    def c_args(self, spec: Spec, memories: Mapping[str, Memory]) -> Any:
        """The array of arguments that ``execute`` takes."""

    def destroy(self) -> None:
        """Free it now; nothing it was bound to may run any more."""


class Implementation(Struct, frozen=True, kw_only=True):
    """An implementation of our own.

    Attributes:
        offer: The Spec settled for it, or ``None`` where it does not compute that Spec here, or where the Spec names
            another implementation.
        kernel: The code for a Spec that it settled.
        multiply_adds: Multiplications that it does for such a Spec, each with an addition.
        compute_ns: Estimate of the nanoseconds that its arithmetic takes, from such a Spec, floating-point operations a
            nanosecond at the peak, and the number of threads.
        rule: That a run which ends with ``invalid_arguments`` found broken by the contents of an argument.
    """

    offer: Callable[[Spec], Resolved | None]
    kernel: Callable[[Spec], Kernel]
    multiply_adds: Callable[[Spec], int]
    compute_ns: Callable[[Spec, float, int], float]
    rule: str = ""


def name_of(impl: str) -> str:
    """An implementation's name without its instruction set.

    Example:
        >>> name_of("winograd:avx2")
        'winograd'
    """
    return impl.partition(":")[0]


@lru_cache(maxsize=_MAX_CACHED)
def implementation(impl: str) -> Implementation | None:
    """Our implementation of this name; ``None`` for the library's.

    Example:
        >>> implementation("winograd:avx2") is None, implementation("brgconv:avx2") is None
        (False, True)
    """
    return _load(name_of(impl)) if name_of(impl) in _names() else None


def offers(spec: Spec) -> Iterator[Resolved]:
    """The Spec as each of ours settles it that computes it here."""
    for name in _names():
        if offered := _load(name).offer(spec):
            yield offered


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(name for _, name, _ in pkgutil.iter_modules(__path__)))


@cache
def _load(name: str) -> Implementation:
    ours: Implementation = importlib.import_module(f"{__name__}.{name}").OURS
    return ours
