"""Plans in files: written whole, and read with every field checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from blocklayout.errors import PlanError
from blocklayout.plan.saving.codec import plan_from_json, plan_to_json
from blocklayout.replacing import replacing

if TYPE_CHECKING:
    from blocklayout.plan.plan import Plan

MAX_NBYTES = 1 << 28
"""More than the plan of any network takes: tens of thousands of steps."""


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan as JSON: the file is there as a whole, or as it was before.

    Raises:
        PlanError: It cannot be written.
    """
    target = Path(path)
    try:
        with replacing(target) as beside:
            beside.write_text(f"{plan_to_json(plan, 1)}\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        raise PlanError(f"the plan cannot be saved as {target}: {_reason(error)}") from error


def open_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan in a file, every field of its type; whether it fits a model is for its user to find out.

    Raises:
        PlanError: No such file, or no plan of this version; the message names the field.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_NBYTES + 1)
    except TypeError as error:
        raise PlanError(f"plan={path!r:.60}: give a Plan, or the path of a saved one") from error
    except (OSError, ValueError) as error:
        raise PlanError(f"no plan can be read from {path!s}: {_reason(error)}") from error
    if len(text) > MAX_NBYTES:
        raise PlanError(f"{Path(path)} is no saved plan: it holds more than {MAX_NBYTES >> 20} MiB")
    try:
        return plan_from_json(text)
    except PlanError as error:
        raise PlanError(f"{Path(path)}: {error}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
