"""Proof of a run: padding zero and values finite of inputs and constants, and of the results of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blocklayout.plan.plan import Operand
from blocklayout.resource_limits import check_time
from blocklayout.show.names import primitive_name
from blocklayout.value_checks import prove

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.layout import MemoryDesc
    from blocklayout.plan import KernelChoice, Plan
    from blocklayout.value_checks import CheckMode


def prove_given(plan: Plan, mode: CheckMode, fed: Mapping[str, MemoryDesc], buffers: Sequence[np.ndarray]) -> None:
    """Prove inputs."""
    for (name, desc), buffer in zip(fed.items(), buffers, strict=False):  # arrays for outputs follow
        prove(f"{plan.model}: input", name, desc, buffer, mode)


def prove_constants(plan: Plan, mode: CheckMode, packed: Mapping[int, np.ndarray]) -> None:
    """Prove packed constants."""
    for each in plan.constants:
        prove(f"{plan.model}: {each.kernel} reads the constant", each.constant, each.desc, packed[each.buffer], mode)


def after_steps(
    plan: Plan, mode: CheckMode, in_arena: Callable[[int, MemoryDesc], np.ndarray]
) -> Callable[[int, Any], None]:
    """The check of the values that a step has finished, called with the number and the step of an executable.

    ``in_arena`` returns the bytes of a buffer that is in the arena.
    """
    choices = {choice.kernel: choice for choice in plan.rationale.choices}

    def after(number: int, execution: Any) -> None:
        check_time(f"{plan.model}, after step {number}")
        place = number - len(plan.entries)
        if place < 0:
            entry = plan.entries[number]
            what = f"{plan.model}: the reorder of input"
            prove(what, entry.input, entry.desc, execution.memories["dst"].buffer, mode)
            return
        step = plan.steps[place]
        is_clearing = step.spec.kind == "zero_padding"  # the end of a kernel
        does = choices[step.kernel].operator if is_clearing else primitive_name(step)
        for arg, value, operand in _finished(plan, place, choices):
            is_arena = plan.buffers[operand.buffer].kind == "arena"
            buffer = in_arena(operand.buffer, operand.desc) if is_arena else execution.memories[arg].buffer
            what = f"step {place} of {plan.model}, {step.kernel} ({does}):"
            prove(what, value, operand.desc, buffer, mode, place)

    return after


def _finished(plan: Plan, number: int, choices: Mapping[str, KernelChoice]) -> Iterator[tuple[str, str, Operand]]:
    """The values that are whole after a step: the argument that it writes them by, their names and operands.

    A kernel of several steps finishes its results with the last: before, padding may hold anything.
    """
    step = plan.steps[number]
    if step.is_reorder:
        yield "dst", plan.buffers[step.dst.buffer].name, step.dst
        return
    if any(other.kernel == step.kernel and not other.is_reorder for other in plan.steps[number + 1 : number + 2]):
        return
    for arg, operand in step.operands:
        name = choices[step.kernel].writes if arg == step.written[0] else plan.buffers[operand.buffer].name
        if arg in step.written and name in plan.formats:
            yield arg, name, Operand(operand.buffer, plan.formats[name])
