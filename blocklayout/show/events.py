"""Events of a run, reported to watches and as a table: bytes moved at the border and between kernels, layouts lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from blocklayout.errors import LayoutError
from blocklayout.ir import HostSpec
from blocklayout.layout import MemoryDesc
from blocklayout.layout_events import Event, EventKind, event_totals, report, report_step, tensor_text
from blocklayout.plan.reasons import dropped
from blocklayout.plan.runs import find_runs
from blocklayout.show.names import layout
from blocklayout.show.words import counted, kib, scaled_time, table, us

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.plan import Entry, Plan, Step
    from blocklayout.plan.choices import KernelChoice

_HEADER = ("kind", "operator", "where", "inputs, result, reason", "KiB", "us")
_PLURALS = {"copy": "copies", "loss": "losses"}


def report_run(plan: Plan, given: Mapping[str, MemoryDesc], times: Sequence[int]) -> None:
    """Report the bytes that a run of a plan moved, with their times, and the layouts it lost.

    ``given`` describes the feed; times are nanoseconds of each entry's reorder, then of each step.
    """
    n_entries = len(plan.entries)
    for entry, ns in zip(plan.entries, times[:n_entries], strict=True):
        _report_entry(entry, given[entry.input], ns)
    operators = _operators(plan)
    results = {result.buffer: f"output {result.name}" for result in plan.results}
    for step, ns in zip(plan.steps, times[n_entries:], strict=True):
        operator = operators.get(step.kernel) or results[step.dst.buffer]
        if step.is_reorder:
            src, dst = dict(step.operands)["src"].desc, step.dst.desc
            kind: EventKind = "copy" if src.readable_as(dst) else "reorder"
            report(kind, operator, [src], dst, nbytes=step.nbytes_moved, ns=ns, reason=step.reason)
        report_step_of(step, operator, ns)
    for choice, reason in _losses(plan):
        inputs = [plan.formats[value] for value in choice.reads]
        report("loss", operators[choice.kernel], inputs, plan.formats[choice.writes], reason=reason)


def report_step_of(step: Step, operator: str, ns: int) -> None:
    """Report a step that ran to the watches that ask for steps."""
    written = step.dsts[0].desc if step.dsts else None
    unread = (*step.written, "scratchpad", "workspace")
    read = [operand.desc for name, operand in step.operands if not name.startswith(unread)]
    prop_kind = getattr(step.spec, "prop_kind", "")
    primitive = f"{step.spec.kind} {prop_kind}" if prop_kind.startswith("backward") else step.spec.kind
    report_step(operator, read, written, ns, primitive, step.spec.impl)


def report_unpacked(name: str, desc: MemoryDesc, array: np.ndarray, ns: int) -> None:
    """Report an input in blocks that became a row-major array, since only numpy moves its data type."""
    became = MemoryDesc.from_array(array)
    reason = f"oneDNN has no reorder of {desc.dtype}: what is given in {layout(desc)} is unpacked"
    report("reorder", f"input {name}", [desc], became, nbytes=_moved(desc) + became.nbytes, ns=ns, reason=reason)


def report_copied(name: str, result: np.ndarray, array: np.ndarray, ns: int) -> None:
    """Report an output that was copied to the caller's array, since it could not be written there directly."""
    is_whole = array.flags.c_contiguous and array.flags.aligned
    why = "shares memory with other arrays of this run" if is_whole else "has holes or strides of its own"
    came, became = _desc_of(result), _desc_of(array)
    reason = f"the array given as out= {why}, so that no step may write to it"
    report("copy", f"output {name}", [came] if came else [], became, nbytes=2 * result.nbytes, ns=ns, reason=reason)


def _report_entry(entry: Entry, given: MemoryDesc, ns: int) -> None:
    """Report the reorder of an input, if it took one."""
    if given.readable_as(entry.desc):
        return
    reason = entry.reason
    if not given.readable_as(entry.source):
        readers = f"{', '.join(entry.readers)} {'reads' if len(entry.readers) == 1 else 'read'}"
        reason = f"{readers} {layout(entry.desc)}, the caller gave {layout(given)}"
    nbytes = _moved(given) + entry.desc.nbytes
    report("reorder", f"input {entry.input}", [given], entry.desc, nbytes=nbytes, ns=ns, reason=reason)


def _operators(plan: Plan) -> dict[str, str]:
    names = {choice.kernel: choice.operator for choice in plan.choices}
    names |= {
        step.kernel: step.spec.label for step in plan.steps if isinstance(step.spec, HostSpec) and step.spec.label
    }
    return {kernel: f"{kernel} ({name})" for kernel, name in names.items()}


def _losses(plan: Plan) -> Iterator[tuple[KernelChoice, str]]:
    """Kernels that drop their sources to plain, and why; each once."""
    choices = {choice.kernel: choice for choice in plan.choices}
    reasons = {step.kernel: step.reason for step in plan.steps if step.is_row_major}
    found = {kernel: reason for kernel, reason in reasons.items() if _reads_layouts(plan, choices[kernel].reads)}
    for run in find_runs(plan):
        for end in run.ends:
            if end.is_loss:
                why = (dropped(len(run.kernels), run.family), reasons.get(end.reader))
                found[end.reader] = ": ".join(filter(None, why))
    return ((choices[kernel], reason) for kernel, reason in found.items())


def _reads_layouts(plan: Plan, values: Sequence[str]) -> bool:
    descs = (plan.formats[value] for value in values)
    return any(not desc.readable_as(MemoryDesc(desc.dims, desc.dtype)) for desc in descs)


def _moved(desc: MemoryDesc) -> int:
    """Bytes of its elements and padding, without holes."""
    return prod(desc.padded_dims) * desc.itemsize


def _desc_of(array: np.ndarray) -> MemoryDesc | None:
    try:
        return MemoryDesc.from_array(array)
    except LayoutError:  # strides that run backwards, for one, or a scalar
        return None


def events_table(events: Sequence[Event]) -> str:
    """A row for each event, and a last line with the totals of each kind."""
    totals = []
    for kind, total in event_totals(events).items():
        moved = [f"{kib(total['nbytes'])} KiB"] * bool(total["nbytes"]) + [scaled_time(total["ns"])] * bool(total["ns"])
        totals.append(counted(total["n"], kind, _PLURALS.get(kind, "")) + (f" ({', '.join(moved)})" if moved else ""))
    lines = table(_HEADER, [*map(_row, events)], numbers=(4, 5)) if events else ()
    return "\n".join([*lines, ", ".join(totals) or "nothing was moved or lost"])


def _row(event: Event) -> tuple[str, ...]:
    inputs = [line for desc in event.inputs for line in (tensor_text(desc), f"strides {desc.strides}")]
    became = _result_text(event)
    what = [*inputs, f"-> {became}" if became else "", event.reason]
    moved = kib(event.nbytes) if event.nbytes else ""
    took = "" if event.ns is None else us(event.ns)
    place = f"{Path(event.file).name}:{event.line}"
    return event.kind, event.operator, place, "\n".join(filter(None, what)), moved, took


def _result_text(event: Event) -> str:
    """Only the layout, where all else is as it was."""
    if event.result is None:
        return ""
    is_alike = [(desc.dtype, desc.dims) for desc in event.inputs] == [(event.result.dtype, event.result.dims)]
    return event.result.named("src") if is_alike else tensor_text(event.result)
