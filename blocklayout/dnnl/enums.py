"""oneDNN's enumerations by name, without the ``dnnl_`` prefix; the library need not be loaded."""

from __future__ import annotations

from functools import cache

from blocklayout.dnnl._abi import ffi
from blocklayout.errors import InvalidArgumentsError


@cache
def values(enum: str) -> dict[str, int]:
    """Names and values of an enumeration, such as ``alg_kind``, in the order of its values.

    Example:
        >>> values("scratchpad_mode")
        {'library': 0, 'user': 1}
    """
    members = ffi.typeof(f"dnnl_{enum}_t").relements
    prefix = f"dnnl_{enum}_" if all(name.startswith(f"dnnl_{enum}_") for name in members) else "dnnl_"
    return {name.removeprefix(prefix): members[name] for name in sorted(members, key=members.__getitem__)}


@cache
def _names(enum: str) -> dict[int, str]:
    by_value: dict[int, str] = {}
    for name, number in values(enum).items():
        by_value.setdefault(number, name)
    return by_value


def value(enum: str, name: str) -> int:
    """The value of one name of an enumeration; an InvalidArgumentsError that lists the names where there is none.

    Example:
        >>> value("alg_kind", "eltwise_relu")
        32
    """
    known = values(enum)
    if name not in known:
        raise InvalidArgumentsError(f"{name!r} is no {enum}; oneDNN has {', '.join(known)}")
    return known[name]


def name(enum: str, number: int) -> str:
    """The name of one value of an enumeration; values this binding has no name for print as ``enum(value)``.

    Example:
        >>> name("status", 3), name("cpu_isa", 7), name("status", 99)
        ('unimplemented', 'avx2', 'status(99)')
    """
    return _names(enum).get(number, f"{enum}({number})")


@cache
def argument(name: str) -> int:
    """The number of an execution argument; an InvalidArgumentsError where there is no such argument.

    Example:
        >>> argument("dst"), argument("multiple_src")
        (17, 1024)
    """
    try:
        return int(ffi.integer_const(f"DNNL_ARG_{name.upper()}"))
    except AttributeError:
        raise InvalidArgumentsError(f"oneDNN has no execution argument {name!r}") from None


_KINDS = ("convolution", "deconvolution", "eltwise", "binary", "pooling", "lrn", "reduction", "resampling", "softmax")
_PREFIXES = {family: (f"{family}_",) for family in _KINDS} | {"rnn": ("vanilla_", "lbr_")}

WINOGRAD_DOMAIN = "convolution_winograd_domain"
"""Winograd's of weights in its domain, (OC, IC, 4, 4), as :class:`blocklayout.ir.WinogradWeights` makes them of 3x3."""

ALGORITHMS = {
    family: tuple(name for name in values("alg_kind") if name.startswith(prefixes))
    for family, prefixes in _PREFIXES.items()
}
"""Algorithms by the kind of primitive they belong to, the library's and our own."""

ALGORITHMS["convolution"] += (WINOGRAD_DOMAIN,)


def full_algorithm(family: str, name: str) -> str:
    """The full name of an algorithm, which may be given without its family; an InvalidArgumentsError where it has none.

    Example:
        >>> full_algorithm("eltwise", "relu"), full_algorithm("binary", "binary_add")
        ('eltwise_relu', 'binary_add')
    """
    known = ALGORITHMS[family]
    if name in known:
        return name
    if f"{family}_{name}" in known:
        return f"{family}_{name}"
    raise InvalidArgumentsError(f"{family}: algorithm {name!r} does not exist; give one of {', '.join(known)}")
