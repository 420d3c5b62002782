"""oneDNN's enumerations by name, without the ``dnnl_`` prefix; the library need not be loaded."""

from __future__ import annotations

from functools import cache

from blocklayout.dnnl._abi import ffi
from blocklayout.errors import InvalidArgumentsError

_PREFIXES = {
    "data_type": "dnnl_",
    "prop_kind": "dnnl_",
    "alg_kind": "dnnl_",
    "primitive_kind": "dnnl_",
    "query": "dnnl_query_",
    "status": "dnnl_",
    "cpu_isa": "dnnl_cpu_isa_",
    "fpmath_mode": "dnnl_fpmath_mode_",
    "scratchpad_mode": "dnnl_scratchpad_mode_",
    "normalization_flags": "dnnl_",
    "rnn_direction": "dnnl_",
    "format_kind": "dnnl_",
    "engine_kind": "dnnl_",
    "stream_flags": "dnnl_stream_",
}


@cache
def values(enum: str) -> dict[str, int]:
    """Names and values of an enumeration, such as ``alg_kind``, in the order of its values.

    Example:
        >>> values("scratchpad_mode")
        {'library': 0, 'user': 1}
    """
    prefix = _PREFIXES[enum]
    members = ffi.typeof(f"dnnl_{enum}_t").relements
    return {name.removeprefix(prefix): members[name] for name in sorted(members, key=members.__getitem__)}


@cache
def _names(enum: str) -> dict[int, str]:
    by_value: dict[int, str] = {}
    for name, number in values(enum).items():
        by_value.setdefault(number, name)
    return by_value


def value(enum: str, name: str) -> int:
    """The value of one name of an enumeration.

    Raises:
        InvalidArgumentsError: There is no such name; the message lists them.

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
    """The number of an execution argument.

    Raises:
        InvalidArgumentsError: There is no such argument.

    Example:
        >>> argument("dst"), argument("multiple_src")
        (17, 1024)
    """
    try:
        return int(ffi.integer_const(f"DNNL_ARG_{name.upper()}"))
    except AttributeError:
        raise InvalidArgumentsError(f"oneDNN has no execution argument {name!r}") from None
