"""Saved plans as a session uses them: for the extents they were made for, and for no other model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.errors import BlockLayoutError, PlanError, PlanMisfitWarning
from blocklayout.plan.saving.fitting import check_program

if TYPE_CHECKING:
    from blocklayout.kernels import Program
    from blocklayout.plan import Plan
    from blocklayout.runtime import InputInfo

    Shapes = Mapping[str, Sequence[int]]


class SavedPlan(Struct):
    """A plan from elsewhere, until it turns out not to fit.

    Attributes:
        plan: Checked in itself; ``None`` once it was given up.
        replans: Whether to warn and plan anew where it does not fit.
    """

    plan: Plan | None
    replans: bool = False

    def plan_for(self, program: Program, *, is_decided: bool) -> Plan | None:
        """The plan, proven to compute ``program``; ``None`` where it was made for other extents or contents.

        Args:
            program: What is to be run.
            is_decided: Whether it also follows from what inputs hold, so that it differs from run to run.

        Raises:
            PlanError: It does not fit, and nobody asked to plan anew then.
        """
        plan = self.plan
        if plan is None or _is_for_others(plan, program, is_decided=is_decided):
            return None
        try:
            check_program(plan, program)
        except PlanError as error:
            if not self.replans:
                raise
            warn_of_misfit(error, stacklevel=6)
            self.plan = None
        return self.plan


def warn_of_misfit(error: BlockLayoutError, stacklevel: int) -> None:
    """Tell once why a saved plan or session is not used."""
    warnings.warn(f"what was saved is not used, but made anew: {error}", PlanMisfitWarning, stacklevel=stacklevel)


def served_extents(plan: Plan, inputs: Sequence[InputInfo], shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """The extents that a plan was made for, as the caller's arrays have them; those of ``shapes`` besides.

    An input that only decides extents enters no step, and the plan does not say which extents it had.

    Args:
        plan: Saved.
        inputs: The model's.
        shapes: Extents that the caller gives.

    Raises:
        PlanError: The model has no such inputs, or the caller wants other extents.
    """
    unknown = [name for name, _ in plan.inputs if all(name != info.name for info in inputs)]
    if unknown:
        raise PlanError(f"the plan is of another model ({plan.model}): this one has no input {', '.join(unknown)}")
    served = _in_callers_order(plan, inputs)
    for name, shape in served.items():
        asked = tuple(shapes.get(name, shape))
        if asked != shape:
            raise PlanError(f"the plan was made for {name} of {_text(shape)}, and {_text(asked)} is asked for")
    for info in inputs:
        if info.name in served and not _is_declared(info, served[info.name]):
            told, declared = _text(served[info.name]), _text(info.shape or ())
            raise PlanError(f"the plan was made for {info.name} of {told}; the model declares {declared}")
    return {name: tuple(shape) for name, shape in shapes.items()} | served


def _is_for_others(plan: Plan, program: Program, *, is_decided: bool) -> bool:
    made_for = {name: desc.dims for name, desc in plan.inputs}
    asked = {value.name: value.dims for value in program.inputs}
    if is_decided:
        from blocklayout.plan.saving.digest import program_digest  # with all that plans: only where there is a model

        return made_for != asked or plan.program != program_digest(program)
    return made_for.keys() == asked.keys() and made_for != asked


def _in_callers_order(plan: Plan, inputs: Sequence[InputInfo]) -> dict[str, tuple[int, ...]]:
    dims = {name: desc.dims for name, desc in plan.inputs}
    served = {}
    for info in inputs:
        if info.name not in dims:
            continue
        order = info.order or range(len(dims[info.name]))
        is_scalar = info.shape == () and dims[info.name] == (1,)
        is_ordered = len(order) == len(dims[info.name])
        shape = tuple(dims[info.name][axis] for axis in order) if is_ordered else dims[info.name]
        served[info.name] = () if is_scalar else shape
    return served


def _is_declared(info: InputInfo, shape: tuple[int, ...]) -> bool:
    if info.shape is None:
        return True
    return len(info.shape) == len(shape) and all(
        not isinstance(declared, int) or declared == extent for declared, extent in zip(info.shape, shape, strict=True)
    )


def _text(shape: Sequence[object]) -> str:
    return "x".join("?" if extent is None else str(extent) for extent in shape) or "a scalar"
