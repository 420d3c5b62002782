"""Checks of a plan that was read from a file: no primitive that does not exist, no byte beyond a buffer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

from blocklayout.dnnl import Spec, validate
from blocklayout.errors import BlockLayoutError, PlanError

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.layout import MemoryDesc
    from blocklayout.model.origins import Origin
    from blocklayout.plan.plan import Buffer, Plan

MAX_ARENA_NBYTES = 1 << 40


def check_specs(plan: Plan) -> None:
    """Refuse a plan with a Spec against the rules of its kind, or a reorder without its operands.

    Raises:
        PlanError: The message names the field.
    """
    for number, step in enumerate(plan.steps):
        try:
            if isinstance(step.spec, Spec):
                validate(step.spec)
        except BlockLayoutError as error:
            raise PlanError(f"steps.{number}.spec: {error}") from error
        buffers = {arg: operand.buffer for arg, operand in step.operands}
        if step.is_reorder and not ("src" in buffers and 0 <= buffers.get("dst", -1) < len(plan.buffers)):
            raise PlanError(f"steps.{number}.operands: a reorder has src and dst, in the plan's buffers")


def check_bounds(plan: Plan, packed: Mapping[int, int]) -> None:
    """Refuse a plan with a step that cannot be, or that would reach beyond its buffers.

    Whether its steps compute the right thing cannot be checked without the model.

    Args:
        plan: Every field is of its type.
        packed: Bytes of each packed constant, by buffer.

    Raises:
        PlanError: The message names the field.
    """
    check_specs(plan)
    for name, nbytes in (("arena_nbytes", plan.arena_nbytes), ("scratchpad_nbytes", plan.scratchpad_nbytes)):
        if not 0 <= nbytes <= MAX_ARENA_NBYTES:
            raise PlanError(f"{name} is {nbytes}")
    for number, buffer in enumerate(plan.buffers):
        room = packed.get(number, -1) if buffer.kind == "constant" else _room(plan, buffer)
        if not 0 <= buffer.nbytes <= room:
            raise PlanError(f"buffers.{number} ({buffer.name}) has {buffer.nbytes} bytes; there is room for {room}")
    for number, step in enumerate(plan.steps):
        if not 0 <= step.scratchpad_nbytes <= plan.scratchpad_nbytes:
            raise PlanError(f"steps.{number}.scratchpad_nbytes is {step.scratchpad_nbytes}")
    uses = {(number, desc): where for where, number, desc in _uses(plan)}
    for (number, desc), where in uses.items():
        if not 0 <= number < len(plan.buffers):
            raise PlanError(f"{where}.buffer is {number}; there are {len(plan.buffers)}")
        nbytes = plan.buffers[number].nbytes
        if not (desc.placement.last_address() + 1) * desc.itemsize <= desc.nbytes <= nbytes:
            raise PlanError(f"{where} takes {desc.nbytes} bytes; its buffer has {nbytes}")
    _check_given(plan, {number: where for (number, _), where in uses.items()})


def check_names(plan: Plan, inputs: Collection[str], outputs: Collection[str], known: Collection[str]) -> None:
    """Refuse a plan whose inputs or outputs are not those of a session, ``known`` those that nothing computes.

    Raises:
        PlanError: The message names those that differ.
    """
    entering = {entry.input for entry in plan.entries}
    given = {result.name for result in plan.results if result.buffer is not None} | {*known}
    strange = (entering - {*inputs}) | ({*outputs} - given) | (entering - {name for name, _ in plan.inputs})
    if strange:
        raise PlanError(f"the plan is not one of this session: inputs or outputs differ ({', '.join(sorted(strange))})")


def check_fits(
    plan: Plan,
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Collection[str],
    known: Collection[str],
    constants_of: Callable[[Plan], Mapping[str, np.ndarray | Origin]],
) -> None:
    """Refuse a remembered plan of other inputs or outputs, or with constants that it cannot have.

    Args:
        plan: Every field is of its type.
        inputs: Extents by name.
        outputs: Names.
        known: Names of outputs that nothing computes.
        constants_of: The constants that it may pack, by name.

    Raises:
        PlanError: The message names the misfits.
    """
    check_names(plan, inputs, outputs, known)
    shapes = {name: each.shape for name, each in constants_of(plan).items()}
    strange = {name for name, desc in plan.inputs if desc.dims != (inputs.get(name, desc.dims) or (1,))}
    for item in plan.constants:
        shape = shapes.get(item.constant, ())
        if item.constant not in shapes or prod(item.made.dims(shape) if item.made else shape) != item.desc.n_elements:
            strange.add(item.constant)
    if strange:
        raise PlanError(f"the plan is for other extents of {', '.join(sorted(strange))}")


def _check_given(plan: Plan, used: Mapping[int, str]) -> None:
    """Refuse a plan whose steps have a caller's buffers that no input or output, or one of other extents, is put to."""
    for result in plan.results:
        if result.desc is not None and (result.shape or (1,)) != result.desc.dims:
            raise PlanError(f"results.{result.name}.shape is {result.shape}; its layout has {result.desc.dims}")
    given = {
        "entry": [(f"entries.{entry.input}", entry.buffer) for entry in plan.entries],
        "output": [(f"results.{each.name}", each.buffer) for each in plan.results if each.buffer is not None],
    }
    for kind, places in given.items():
        for where, number in places:
            if plan.buffers[number].kind != kind:
                raise PlanError(f"{where}.buffer is {number}, of kind {plan.buffers[number].kind}; it must be {kind}")
    known = {number for places in given.values() for _, number in places}
    for number, where in used.items():
        kind = plan.buffers[number].kind
        if kind in given and number not in known:
            raise PlanError(f"{where}.buffer is {number}, of kind {kind}, and none of {', '.join(dict(given[kind]))}")


def _uses(plan: Plan) -> Iterator[tuple[str, int, MemoryDesc]]:
    """Every use of a buffer: place, number and layout."""
    for number, step in enumerate(plan.steps):
        yield from ((f"steps.{number}.{arg}", operand.buffer, operand.desc) for arg, operand in step.operands)
    for entry in plan.entries:
        yield f"entries.{entry.input}", entry.buffer, entry.desc
    for result in plan.results:
        if result.buffer is not None and result.desc is not None:
            yield f"results.{result.name}", result.buffer, result.desc


def _room(plan: Plan, buffer: Buffer) -> int:
    """Bytes from where a buffer begins."""
    if buffer.kind == "output":
        return buffer.nbytes
    return plan.arena_nbytes - buffer.offset if buffer.offset >= 0 else -1
