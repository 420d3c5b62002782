"""Standard output of commands: text for people, JSON for machines."""

from __future__ import annotations

import json
import math
import sys
from typing import Any


def say(text: str) -> None:
    """Print lines."""
    sys.stdout.write(f"{text}\n")


def say_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    say(json_text(value))


def json_text(value: Any) -> str:
    """A value as JSON that any reader takes: what is not finite becomes null.

    Example:
        >>> json_text({"shape": (1, 3), "mean": float("nan")})
        '{"shape": [1, 3], "mean": null}'
    """
    return json.dumps(_cleaned(value), allow_nan=False)


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
