"""A plan as a record for pages and JSON: its graph of kernels and reorders, its steps, its memory, its reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from blocklayout.ir import Fused, layout_name
from blocklayout.plan.plan import Step
from blocklayout.plan.runs import BLOCKED, CHANNELS_LAST, PLAIN, family, find_runs
from blocklayout.show.explain import verdict, way_text
from blocklayout.show.impl_words import impl_words
from blocklayout.show.memory import held_values, lifetimes, memory_record
from blocklayout.show.plan_text import primitive_name, weights_role

if TYPE_CHECKING:
    from blocklayout.ir import ValueLayout
    from blocklayout.plan.choices import Alternative, KernelChoice, Way
    from blocklayout.plan.plan import Entry, Plan

CALLER = "the caller"

_INT8 = ("s8", "u8")
_SCALARS = (
    *("model", "policy", "chosen", "dtype", "n_threads", "isa", "library", "priced_by", "cost_ns", "bound_ns"),
    *("is_optimal", "is_exact", "unpinned_ns", "arena_nbytes", "arena_lower_bound", "scratchpad_nbytes"),
    *("padding_nbytes", "multiply_adds", "padding_multiply_adds", "reorder_nbytes"),
)


def layout_class(desc: ValueLayout) -> str:
    """The class of a layout: ``plain``, ``channels last``, ``8c``, ``16c``, ``int8``, ``other``, or ``any``.

    The last is for what the layout makes no difference to: vectors, single pixels.

    Example:
        >>> from blocklayout import MemoryDesc
        >>> [layout_class(MemoryDesc((1, 16, 4, 4), "f32", tag)) for tag in ("nchw", "nhwc", "nChw8c", "nChw4c")]
        ['plain', 'channels last', '8c', 'other']
    """
    if isinstance(desc, Fused):
        return "any"
    if desc.dtype in _INT8:
        return "int8"
    kind = family(desc)
    if kind in (PLAIN, CHANNELS_LAST):
        return kind
    if kind == BLOCKED:
        return f"{desc.inner_blks[0]}c" if desc.inner_idxs == (1,) and desc.inner_blks[0] in (8, 16) else "other"
    is_last = 3 <= desc.ndims <= 5 and desc.is_contiguous("channels_last")
    return "any" if is_last or desc.is_contiguous() else "other"


def plan_record(plan: Plan) -> dict[str, Any]:
    """Everything a page shows of a plan, as values that JSON can hold.

    Descriptors stand once in ``descs`` and are referred to by their index; kernels, by theirs in ``kernels``.
    """
    descs = _Descs()
    steps = [_step_record(plan, step, descs) for step in plan.steps]
    declined_ns = _declined_ns(plan)
    kernels = [_kernel_record(choice, descs, declined_ns) for choice in plan.choices]
    numbers = {kernel["name"]: index for index, kernel in enumerate(kernels)}
    for number, step in enumerate(plan.steps):
        if not step.is_reorder and step.kernel in numbers:
            kernels[numbers[step.kernel]]["steps"].append(number)
    owners = {kernel.name: choice.kernel for choice in plan.choices for kernel in choice.kernels}
    record = {name: getattr(plan, name) for name in _SCALARS}
    spans = lifetimes(plan)
    return record | {
        "verdict": verdict(plan),
        "declined_ns": declined_ns,
        "policy_costs": dict(plan.policy_costs),
        "raced": dict(plan.raced),
        "pins": [{"key": pin.key, "wanted": pin.wanted, "kernel": owners.get(pin.name)} for pin in plan.pins],
        "precision": [{"key": each.key, "wanted": each.wanted} for each in plan.precision],
        "io_layout": [{"name": name, "format": text} for name, text in plan.io_layout],
        "exceptions": [{"kernel": kernel, "reason": reason} for kernel, reason in plan.exceptions],
        "inputs": [{"name": name, "desc": descs.number(desc)} for name, desc in plan.inputs],
        "kernels": kernels,
        "edges": list(_edges(plan, numbers, descs)),
        "steps": steps,
        "entries": [_entry_record(entry, descs) for entry in plan.entries],
        "results": [
            {"name": result.name, "desc": None if result.desc is None else descs.number(result.desc)}
            for result in plan.results
        ],
        "values": [{"name": name, "desc": descs.number(desc)} for name, desc in plan.values],
        "buffers": _buffer_records(plan, numbers, descs, spans),
        "constants": [
            {"name": each.constant, "kernel": each.kernel, "buffer": each.buffer, "desc": descs.number(each.desc)}
            for each in plan.constants
        ],
        "runs": [{"family": run.family, "kernels": [numbers[name] for name in run.kernels]} for run in find_runs(plan)],
        "descs": descs.records,
        "memory": memory_record(plan, spans),
    }


class _Descs:
    """Descriptors, each told once."""

    def __init__(self) -> None:
        self._numbers: dict[ValueLayout, int] = {}
        self.records: list[dict[str, Any]] = []

    def number(self, desc: ValueLayout, role: str = "src") -> int:
        if desc not in self._numbers:
            self._numbers[desc] = len(self.records)
            self.records.append(desc_record(desc, role))
        return self._numbers[desc]


def desc_record(desc: ValueLayout, role: str = "src") -> dict[str, Any]:
    """A descriptor: its name, class, extents, padded extents, strides, blocks and bytes."""
    if isinstance(desc, Fused):
        return {"layout": layout_name(desc), "class": "any", "is_fused": True}
    return {
        "layout": desc.named(role),
        "class": layout_class(desc),
        "dtype": desc.dtype,
        "dims": desc.dims,
        "padded_dims": desc.padded_dims,
        "strides": desc.strides,
        "inner_blocks": [[size, dim] for size, dim in zip(desc.inner_blks, desc.inner_idxs, strict=True)],
        "nbytes": desc.nbytes,
        "padding_nbytes": desc.n_padding * desc.itemsize,
        "elements_nbytes": desc.n_elements * desc.itemsize,
    }


def _kernel_record(choice: KernelChoice, descs: _Descs, declined_ns: float) -> dict[str, Any]:
    return {
        "name": choice.kernel,
        "operator": choice.operator,
        "nodes": choice.nodes,
        "aliases": tuple(alias for kernel in choice.kernels for alias in kernel.aliases),
        "role": choice.kernels[0].role,
        "reads": choice.reads,
        "writes": choice.writes,
        "holds": choice.holds,
        "is_view": not choice.chosen.impls and not choice.is_of_a_pair,
        "chosen": _way_record(choice.chosen, descs),
        "alternatives": [_alternative_record(choice, each, descs, declined_ns) for each in choice.alternatives],
        "layouts": choice.layouts,
        "steps": [],
    }


def _way_record(way: Way, descs: _Descs) -> dict[str, Any]:
    return {
        "text": way_text(way),
        "origin": way.origin,
        "impls": way.impls,
        "sources": [descs.number(desc) for desc in way.sources],
        "dst": descs.number(way.dst),
        "in_place": way.in_place,
        "cost_ns": way.cost_ns,
    }


def _declined_ns(plan: Plan) -> float:
    """How much less the cheapest network costs: gains that are smaller than prices may be wrong by are left alone."""
    return max(0.0, plan.cost_ns - plan.bound_ns) if plan.is_exact else 0.0


def _alternative_record(
    choice: KernelChoice, alternative: Alternative, descs: _Descs, declined_ns: float
) -> dict[str, Any]:
    """An alternative, and the format that a pin to it names.

    ``extra_ns`` is over the plan's cost, ``added_ns`` over that of the cheapest network.
    """
    return _way_record(alternative.way, descs) | {
        "extra_ns": alternative.extra_ns,
        "added_ns": alternative.extra_ns + declined_ns,
        "pin": choice.pin_to(alternative.way),
    }


def _step_record(plan: Plan, step: Step, descs: _Descs) -> dict[str, Any]:
    return {
        "kernel": step.kernel,
        "kind": "reorder" if step.is_reorder else "fallback" if step.is_plain or step.is_reference else "work",
        "primitive": primitive_name(step),
        "impl": step.spec.impl,
        "impl_words": impl_words(step.spec.impl),
        "spec": str(step.spec),
        "nodes": step.nodes,
        "reason": step.reason,
        "cost_ns": step.cost_ns,
        "priced": step.priced,
        "nbytes": step.nbytes_moved,
        "multiply_adds": step.multiply_adds(),
        "padded_multiply_adds": step.multiply_adds(padded=True),
        "scratchpad_nbytes": step.scratchpad_nbytes,
        "operands": [
            {
                "argument": argument,
                "buffer": operand.buffer,
                "value": plan.buffers[operand.buffer].name,
                "desc": descs.number(operand.desc, weights_role(step) if argument == "weights" else "src"),
            }
            for argument, operand in step.operands
        ],
        "readers": step.readers,
        "without_ns": step.without_ns,
    }


def _entry_record(entry: Entry, descs: _Descs) -> dict[str, Any]:
    return {
        "input": entry.input,
        "buffer": entry.buffer,
        "source": descs.number(entry.source),
        "desc": descs.number(entry.desc),
        "is_reorder": entry.is_reorder,
        "reason": entry.reason,
        "cost_ns": entry.cost_ns,
        "nbytes": entry.nbytes_moved if entry.is_reorder else 0,
        "readers": entry.readers,
        "without_ns": entry.without_ns,
    }


def _edges(plan: Plan, numbers: Mapping[str, int], descs: _Descs) -> Iterator[dict[str, Any]]:
    """Who reads which value, in which layout, through which reorder.

    ``source`` and ``reader`` are kernels, or ``null`` for the caller; ``reorder`` is the number of a step,
    ``entry`` that of an entry whose copy is read.
    """
    writers = {choice.writes: numbers[choice.kernel] for choice in plan.choices}
    for step in plan.steps:
        if not step.is_reorder and step.kernel in numbers:
            for each in step.dsts:  # a buffer keeps the name of the first of several values in it
                writers.setdefault(plan.buffers[each.buffer].name, numbers[step.kernel])
    copies: dict[tuple[str, str], list[tuple[int, ValueLayout]]] = {}
    for number, step in enumerate(plan.steps):
        if step.is_reorder:
            for reader in step.readers:
                copies.setdefault((plan.buffers[step.dst.buffer].name, reader), []).append((number, step.dst.desc))
    entries: dict[tuple[str, str], int] = {}
    for number, entry in enumerate(plan.entries):
        if entry.is_reorder:
            entries |= {(entry.input, reader): number for reader in entry.readers}
    reading = [
        (value, choice.kernel, desc)
        for choice in plan.choices
        for value, desc in zip(choice.reads, choice.chosen.sources, strict=True)
    ]
    reading += [(result.name, CALLER, result.desc) for result in plan.results if result.desc is not None]
    for value, reader, desc in reading:
        written = plan.formats.get(value, desc)
        made = copies.get((value, reader), [])
        taken = next((number for number, copy in made if copy == desc), made[0][0] if made else None)
        yield {
            "value": value,
            "source": writers.get(value),
            "reader": numbers.get(reader),
            "written": descs.number(written),
            "read": descs.number(desc),
            "reorder": taken,
            "entry": entries.get((value, reader)),
        }


def _buffer_records(
    plan: Plan, numbers: Mapping[str, int], descs: _Descs, spans: Mapping[int, tuple[int, int]]
) -> list[dict[str, Any]]:
    """Buffers with the steps that are the first and the last to touch them or parts of them; -1 is before the first.

    ``values`` are held one after the other; ``desc`` is the layout of the first, ``writers`` are steps, ``kernel`` is
    the one that writes first, or reads first what the caller gives.
    """
    writers: dict[int, list[int]] = {}
    for number, step in enumerate(plan.steps):
        for operand in step.dsts:
            writers.setdefault(operand.buffer, []).append(number)
    kernels = {choice.writes: choice.kernel for choice in plan.choices}
    kernels |= {plan.buffers[entry.buffer].name: entry.readers[0] for entry in plan.entries if entry.readers}
    records = []
    for index, values in held_values(plan).items():
        buffer, made = plan.buffers[index], writers.get(index, [])
        kernel = plan.steps[made[0]].kernel if made else kernels.get(buffer.name)
        first, last = spans.get(index, (None, None))
        records.append(
            {
                "kind": buffer.kind,
                "name": buffer.name,
                "nbytes": buffer.nbytes,
                "offset": buffer.offset,
                "within": buffer.within,
                "first": first,
                "last": last,
                "desc": descs.number(next(iter(values.values()))) if values else None,
                "values": list(values),
                "writers": made,
                "kernel": None if kernel is None else numbers.get(kernel),
            }
        )
    return records
