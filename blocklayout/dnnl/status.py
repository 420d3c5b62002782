"""The one place where a ``dnnl_status_t`` becomes an exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blocklayout.dnnl import enums, library
from blocklayout.errors import DnnlError, InvalidArgumentsError, OutOfMemoryError, UnimplementedError

SUCCESS = 0
LAST_IMPL_REACHED = enums.value("status", "last_impl_reached")

_ERRORS: dict[str, tuple[type[DnnlError], str]] = {
    "out_of_memory": (OutOfMemoryError, "the library could not allocate memory"),
    "invalid_arguments": (InvalidArgumentsError, "the library refused the arguments"),
    "unimplemented": (UnimplementedError, "the library has no implementation of this problem on this CPU"),
    "last_impl_reached": (UnimplementedError, "the library has no further implementation of this problem"),
}
_RERUN = "the library gives no reason; rerun with ONEDNN_VERBOSE=check in the environment to see its checks"


def error(status: int, call: str, subject: object = None) -> DnnlError:
    """The exception for a failed call of a C function about a subject, shown as it prints.

    Example:
        >>> print(error(3, "dnnl_matmul_primitive_desc_create", "matmul 2x3"))
        dnnl_matmul_primitive_desc_create for matmul 2x3: the library has no implementation of this problem on this CPU (dnnl_unimplemented); the library gives no reason; rerun with ONEDNN_VERBOSE=check in the environment to see its checks
    """  # noqa: E501 - the message is one line
    name = enums.name("status", status)
    kind, meaning = _ERRORS.get(name, (DnnlError, "the call failed"))
    about = "" if subject is None else f" for {subject}"
    return kind(f"{call}{about}: {meaning} (dnnl_{name}); {_RERUN}", status)


def check(status: int, call: str, subject: object = None) -> None:
    """Raise the DnnlError of a call that failed; the message shows ``call`` and ``subject``."""
    if status != SUCCESS:
        raise error(status, call, subject)


def call(function: str, *c_args: Any, subject: object = None) -> None:
    """Calls a C function that answers with a status, and raises a DnnlError unless that is success."""
    c_function: Callable[..., int] = getattr(library.load(), function)
    check(c_function(*c_args), function, subject)
