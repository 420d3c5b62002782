"""The library's refusals: each is remembered, and leads to a plan without what was refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from blocklayout.errors import BlockLayoutError, RefusedError

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


def without_refusals(
    attempt: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """The result of the first attempt in which the library refuses nothing.

    Args:
        attempt: Plans and goes by the plan; what was refused before is passed over when it plans again.
        args: For ``attempt``.
        kwargs: For ``attempt``.

    Raises:
        RefusedError: The same is refused again.
    """
    met: dict[object, str] = {}  # not the errors themselves, which would hold what was made until garbage is collected
    while True:
        try:
            return attempt(*args, **kwargs)
        except RefusedError as error:
            if error.spec in met:
                raise
            met[error.spec] = str(error)
        except BlockLayoutError as error:
            for refusal in met.values():
                error.add_note(refusal)
            raise
