"""A plan as a record for pages and JSON: its graph of kernels and reorders, its steps, its memory, its reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from blocklayout.ir import Fused, layout_name
from blocklayout.plan.place import alive_nbytes, arena_lifetimes, lifetimes
from blocklayout.plan.reasons import CALLER
from blocklayout.plan.runs import BLOCKED, CHANNELS_LAST, PLAIN, family, find_runs
from blocklayout.show.blocks import kernel_paths
from blocklayout.show.explain import optimality, way_text
from blocklayout.show.names import impl_words, policy_name, primitive_name, weights_role

if TYPE_CHECKING:
    from blocklayout.ir import ValueLayout
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.choices import KernelChoice, Way
    from blocklayout.plan.plan import Plan, Step

_INT8 = ("s8", "u8")
_SCALARS = (
    *("model", "policy", "dtype", "n_threads", "isa", "library", "priced_by", "cost_ns", "bound_ns"),
    *("is_optimal", "is_exact", "unpinned_ns", "arena_nbytes", "arena_lower_bound", "scratchpad_nbytes"),
    *("padding_nbytes", "multiply_adds", "padding_multiply_adds", "reorder_nbytes"),
)


def _facts(value: object, names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names.split()}


def layout_class(desc: ValueLayout) -> str:
    """The class of a layout: ``plain``, ``channels last``, ``8c``, ``16c``, ``int8``, ``other``, or ``any``.

    The last is for vectors and single pixels, to which the layout makes no difference.

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

    Descriptors stand once in ``descs`` and are referred to by their index; kernels, by theirs in ``kernels``. The
    ``path`` of a kernel has the blocks that it is in, found by names or by the structure of the graph (``blocks_by``).
    """
    descs = _Descs()
    steps = [_step_record(plan, step, descs) for step in plan.steps]
    # Gains that are smaller than prices may be wrong by are left alone: so much less costs the cheapest network.
    declined_ns = max(0.0, plan.cost_ns - plan.bound_ns) if plan.is_exact else 0.0
    blocks_by, paths = kernel_paths(plan.choices)
    kernels = [
        _kernel_record(choice, descs, declined_ns) | {"path": path}
        for choice, path in zip(plan.choices, paths, strict=True)
    ]
    numbers = {kernel["name"]: index for index, kernel in enumerate(kernels)}
    for number, step in enumerate(plan.steps):
        if not step.is_reorder and step.kernel in numbers:
            kernels[numbers[step.kernel]]["steps"].append(number)
    owners = {kernel.name: choice.kernel for choice in plan.choices for kernel in choice.kernels}
    return {
        **{name: getattr(plan, name) for name in _SCALARS},
        "chosen": policy_name(plan.chosen),
        "verdict": optimality(plan),
        "declined_ns": declined_ns,
        "blocks_by": blocks_by,
        "policy_costs": dict(plan.policy_costs),
        "raced": dict(plan.raced),
        "pins": [_facts(pin, "key wanted") | {"kernel": owners.get(pin.name)} for pin in plan.pins],
        "precision": [_facts(each, "key wanted") for each in plan.precision],
        "io_layout": [{"name": name, "format": text} for name, text in plan.io_layout],
        "exceptions": [{"kernel": kernel, "reason": reason} for kernel, reason in plan.exceptions],
        "inputs": [{"name": name, "desc": descs.number(desc)} for name, desc in plan.inputs],
        "kernels": kernels,
        "edges": list(_edges(plan, numbers, descs)),
        "steps": steps,
        "entries": [
            _facts(entry, "input buffer is_reorder reason cost_ns readers without_ns")
            | {"source": descs.number(entry.source), "desc": descs.number(entry.desc)}
            | {"nbytes": entry.nbytes_moved if entry.is_reorder else 0}
            for entry in plan.entries
        ],
        "results": [
            {"name": result.name, "desc": None if result.desc is None else descs.number(result.desc)}
            for result in plan.results
        ],
        "values": [{"name": name, "desc": descs.number(desc)} for name, desc in plan.values],
        "constants": [
            _facts(each, "kernel buffer") | {"name": each.constant, "desc": descs.number(each.desc)}
            for each in plan.constants
        ],
        "runs": [{"family": run.family, "kernels": [numbers[name] for name in run.kernels]} for run in find_runs(plan)],
        **_memory_records(plan, numbers, descs),
        "descs": descs.records,
    }


class _Descs:
    """Descriptors, each once, and their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[ValueLayout, int] = {}
        self.records: list[dict[str, Any]] = []

    def number(self, desc: ValueLayout, role: str = "src") -> int:
        if desc not in self._numbers:
            self._numbers[desc] = len(self.records)
            self.records.append(_desc_record(desc, role))
        return self._numbers[desc]


def _desc_record(desc: ValueLayout, role: str) -> dict[str, Any]:
    if isinstance(desc, Fused):
        return {"layout": layout_name(desc), "class": "any", "is_fused": True}
    return _facts(desc, "dtype dims padded_dims strides nbytes") | {
        "layout": desc.named(role),
        "class": layout_class(desc),
        "inner_blocks": [[size, dim] for size, dim in zip(desc.inner_blks, desc.inner_idxs, strict=True)],
        "padding_nbytes": desc.n_padding * desc.itemsize,
        "elements_nbytes": desc.n_elements * desc.itemsize,
    }


def _kernel_record(choice: KernelChoice, descs: _Descs, declined_ns: float) -> dict[str, Any]:
    """A kernel. ``extra_ns`` of an alternative is over the plan's cost, ``added_ns`` over the cheapest network's."""
    return _facts(choice, "operator nodes reads writes holds layouts") | {
        "name": choice.kernel,
        "aliases": tuple(alias for kernel in choice.kernels for alias in kernel.aliases),
        "role": choice.kernels[0].role,
        "is_view": not choice.chosen.impls and not choice.chosen.is_joined,
        "chosen": _way_record(choice.chosen, descs),
        "alternatives": [
            _way_record(each.way, descs)
            | {"extra_ns": each.extra_ns, "added_ns": each.extra_ns + declined_ns, "pin": choice.pin_to(each.way)}
            for each in choice.alternatives
        ],
        "steps": [],
    }


def _way_record(way: Way, descs: _Descs) -> dict[str, Any]:
    return _facts(way, "origin impls in_place cost_ns") | {
        "text": way_text(way),
        "sources": [descs.number(desc) for desc in way.sources],
        "dst": descs.number(way.dst),
    }


def _step_record(plan: Plan, step: Step, descs: _Descs) -> dict[str, Any]:
    return _facts(step, "kernel nodes reason cost_ns priced scratchpad_nbytes readers without_ns") | {
        "kind": "reorder" if step.is_reorder else "fallback" if step.is_plain or step.is_reference else "work",
        "primitive": primitive_name(step),
        "impl": step.spec.impl,
        "impl_words": impl_words(step.spec.impl),
        "spec": str(step.spec),
        "nbytes": step.nbytes_moved,
        "multiply_adds": step.multiply_adds(),
        "padded_multiply_adds": step.multiply_adds(padded=True),
        "operands": [
            {
                "argument": argument,
                "buffer": operand.buffer,
                "value": plan.buffers[operand.buffer].name,
                "desc": descs.number(operand.desc, weights_role(step) if argument.endswith("weights") else "src"),
            }
            for argument, operand in step.operands
        ],
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
        for reader in step.readers if step.is_reorder else ():
            copies.setdefault((plan.buffers[step.dst.buffer].name, reader), []).append((number, step.dst.desc))
    moving = [(number, entry) for number, entry in enumerate(plan.entries) if entry.is_reorder]
    entries = {(entry.input, reader): number for number, entry in moving for reader in entry.readers}
    reading = [
        (value, choice.kernel, desc)
        for choice in plan.choices
        for value, desc in zip(choice.reads, choice.chosen.sources, strict=True)
    ]
    reading += [(result.name, CALLER, result.desc) for result in plan.results if result.desc is not None]
    for value, reader, desc in reading:
        made = copies.get((value, reader), [])
        yield {
            "value": value,
            "source": writers.get(value),
            "reader": numbers.get(reader),
            "written": descs.number(plan.formats.get(value, desc)),
            "read": descs.number(desc),
            "reorder": next((number for number, copy in made if copy == desc), made[0][0] if made else None),
            "entry": entries.get((value, reader)),
        }


def _memory_records(plan: Plan, numbers: Mapping[str, int], descs: _Descs) -> dict[str, Any]:
    """Buffers with the steps that are the first and the last to touch them or parts of them; -1 is before the first.

    ``values`` are held one after the other; ``desc`` is the layout of the first, ``writers`` are steps, ``kernel`` is
    the one that writes first, or reads the caller's array first. In the sums, elements are bytes without padding,
    in the data type of the packed ones.
    """
    spans = lifetimes(plan.entries, plan.steps, plan.buffers)
    of_arena = arena_lifetimes(spans, plan.buffers)
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
            _facts(buffer, "kind name nbytes offset within")
            | {"first": first, "last": last, "writers": made, "values": list(values)}
            | {"desc": descs.number(next(iter(values.values()))) if values else None}
            | {"kernel": None if kernel is None else numbers.get(kernel)}
        )
    packed = [each.desc for each in plan.constants]
    sums = {
        "alive_nbytes": alive_nbytes({at: plan.buffers[at].nbytes for at in of_arena}, of_arena, len(plan.steps)),
        "results_nbytes": sum(buffer.nbytes for buffer in plan.buffers if buffer.kind == "output"),
        "weights_nbytes": sum(desc.nbytes for desc in packed),
        "weights_elements_nbytes": sum(desc.n_elements * desc.itemsize for desc in packed),
    }
    return {"buffers": records, "memory": sums}


def changes_record(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The differences between the records of two plans of one model, as values that JSON can hold.

    ``kernels`` has each kernel whose layouts or implementations differ, with ``before`` and ``after``, ``null`` where
    a plan has no such kernel; ``reorders_gone`` those that only the first plan has, ``reorders_new`` only the second.
    """
    old, new = ({kernel["name"]: _short_way(plan, kernel) for kernel in plan["kernels"]} for plan in (before, after))
    was, now = _reorders(before), _reorders(after)
    unpriced = {"cost_ns": None}  # which another plan may know otherwise
    anew = [
        name for name in dict.fromkeys((*new, *old)) if old.get(name, {}) | unpriced != new.get(name, {}) | unpriced
    ]
    return {
        "kernels": [{"name": name, "before": old.get(name), "after": new.get(name)} for name in anew],
        "reorders_gone": [record for key, record in was.items() if key not in now],
        "reorders_new": [record for key, record in now.items() if key not in was],
    }


def _short_way(plan: Mapping[str, Any], kernel: Mapping[str, Any]) -> dict[str, Any]:
    chosen, descs = kernel["chosen"], plan["descs"]
    reads = [descs[number]["layout"] for number in chosen["sources"]]
    written = descs[chosen["dst"]]["layout"]
    return {"impls": chosen["impls"], "cost_ns": chosen["cost_ns"], "reads": reads, "writes": written}


def _reorders(plan: Mapping[str, Any]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Each reorder by the value that it copies and its two layouts."""
    moves = [(each["input"], each["source"], each["desc"], each) for each in plan["entries"] if each["is_reorder"]]
    for step in plan["steps"]:
        if step["kind"] == "reorder":
            operands = {operand["argument"]: operand for operand in step["operands"]}
            src, dst = operands["src"], operands["dst"]
            moves.append((dst["value"], src["desc"], dst["desc"], step))
    found = {}
    for value, *descs, each in moves:
        src, dst = (plan["descs"][number]["layout"] for number in descs)
        of_all = {name: each[name] for name in ("nbytes", "readers", "cost_ns")}
        found[value, src, dst] = {"value": value, "src": src, "dst": dst} | of_all
    return found


def held_values(plan: Plan) -> dict[int, dict[str, MemoryDesc]]:
    """The values that each buffer holds, by and by, with their layouts; views of them come last.

    More than one was written into it where a sum is in place. A value without a name in the model has the buffer's.
    """
    held: dict[int, dict[str, MemoryDesc]] = {index: {} for index in range(len(plan.buffers))}
    for entry in plan.entries:
        held[entry.buffer][entry.input] = entry.desc
    for constant in plan.constants:
        held[constant.buffer][constant.constant] = constant.desc
    results = {choice.kernel: choice.writes for choice in plan.choices}
    last_steps = {step.kernel: number for number, step in enumerate(plan.steps) if not step.is_reorder}
    for number, step in enumerate(plan.steps):
        for argument, operand in step.operands:
            if argument in step.written:
                is_result = argument == step.written[0] and last_steps.get(step.kernel) == number
                name = results[step.kernel] if is_result else plan.buffers[operand.buffer].name
                held[operand.buffer].setdefault(name, operand.desc)
    for index, buffer in enumerate(plan.buffers):
        if not held[index] and buffer.name in plan.formats:  # written in parts
            held[index][buffer.name] = plan.formats[buffer.name]
    where = {value: index for index, values in reversed(held.items()) for value in values}
    for choice in plan.choices:
        dst = choice.chosen.dst
        if choice.writes not in where and not isinstance(dst, Fused) and choice.reads and choice.reads[0] in where:
            where[choice.writes] = where[choice.reads[0]]
            held[where[choice.writes]][choice.writes] = dst
    return held
