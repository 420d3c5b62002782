"""The plan of one operator for operands of given layouts: it checks arguments, chooses, and reports moves of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl, model
from blocklayout.eager.call import Format, Formats
from blocklayout.eager.operands import refused
from blocklayout.errors import BlockLayoutError, InputError, PlanError
from blocklayout.ir import Demand, Demanded, Value
from blocklayout.ir.result_format import Followed, agree, is_plain
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.layout_events import carry, report
from blocklayout.loading.from_model import constants_of, known_outputs
from blocklayout.loading.saved_plan import computes_of
from blocklayout.model.builder import DEFAULT_OPSET
from blocklayout.model.schemas import opset_with
from blocklayout.plan import TUNE_SECONDS, Pricing, Request, make_plan
from blocklayout.plan.plan import FREE
from blocklayout.plan.prepack import PackedWeights
from blocklayout.plan.request import DTYPES
from blocklayout.runtime import ReadyPlan
from blocklayout.show.events import report_step_of
from blocklayout.tensor.formats import placed

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.eager.call import Op
    from blocklayout.ir import Program
    from blocklayout.layout_events import EventKind
    from blocklayout.model.graph import Graph
    from blocklayout.plan import Plan, Step


BF16_OPSET = 22
"""The first version of ONNX's operators in which convolutions and poolings take bf16."""

SMALL_ELEMENTS = 1 << 16
"""Of operands and results together: more are not planned for one thread."""

SMALL_NS = 10_000.0
"""Work that takes one thread no longer is not faster with two: a region costs some microseconds."""


class OperatorCall(Struct, frozen=True):
    """An operator and the tensors it is called with.

    Attributes:
        attrs: Arguments that are no operands, by name.
        operands: Descriptors by name, in its order; anything else is a constant.
        memory_format: The result's format where the caller says it.
        free: Names of operands whose format is left to the plan.
        is_frugal: Whether to do without primitives that the library never wholly frees.
    """

    op: Op
    attrs: Mapping[str, Any]
    operands: Mapping[str, Any]
    memory_format: Format | None = None
    free: frozenset[str] = frozenset()
    is_frugal: bool = False

    @property
    def descs(self) -> dict[str, MemoryDesc]:
        """The tensors among the operands."""
        return {name: each for name, each in self.operands.items() if isinstance(each, MemoryDesc)}


class Planned(Struct, frozen=True):
    """A plan that is ready to run.

    Attributes:
        followed: The format that each result is to have, and why an operand's layout is given up.
        fixed: For each result, the operand that it is, unchanged, or its contents where extents alone tell them;
            ``None`` where it is computed.
    """

    ready: ReadyPlan
    followed: tuple[Followed, ...]
    fixed: tuple[str | np.ndarray | None, ...]


def plan_for(problem: OperatorCall) -> Planned:
    """Choose implementations such that the result has its format, and the operands stay as they are if possible.

    Raises:
        InputError: An argument is out of range; the message names it, and the right values.
        ModelError: The operands contradict the operator's specification.
        UnsupportedError: Nothing computes it here.
        LayoutError: ``memory_format`` is none, or has another rank.
    """
    check(problem)
    try:
        return _planned(problem)
    except BlockLayoutError as error:
        function = problem.op.name
        reason = str(error).removeprefix(f"{function}: ")
        error.args = (f"{function}: {reason} (called with {shown(problem)})",)
        raise


def weights_desc(
    op: Op,
    source: MemoryDesc,
    kernel: MemoryDesc,
    attrs: tuple[tuple[str, Any], ...],
    memory_format: str | FormatTag | None = None,
    *,
    has_bias: bool,
) -> MemoryDesc:
    """The layout in which a convolution reads its weights, whose extents ``kernel`` has as the primitive takes them."""
    from blocklayout.eager.call import problem_of

    outputs = kernel.dims[: kernel.ndims - source.ndims + 1]
    vector = MemoryDesc((prod(outputs),), kernel.dtype) if has_bias else None
    problem = problem_of(op, (source, kernel, vector), attrs, memory_format)
    role = "weights" if len(outputs) == 1 else "grouped_weights"
    plan = plan_for(replace(problem, free=frozenset(("weights",)))).ready.plan
    return dict(plan.inputs)["weights"].in_role(role)


def _planned(problem: OperatorCall) -> Planned:
    program = _program(problem)
    followed = tuple(_followed(problem, place, value) for place, value in enumerate(program.outputs))
    borders = {name: FREE if name in problem.free else desc.format_tag.text for name, desc in problem.descs.items()}
    borders |= {value.name: each.desc.format_tag.text for value, each in zip(program.outputs, followed, strict=True)}
    dtype = program.outputs[0].dtype
    is_computed = dtype in DTYPES and dnnl.missing_isa(dtype) is None
    request = Request(dtype=dtype if is_computed else "f32", io_layout=borders, is_frugal=problem.is_frugal)
    if isinstance(problem.memory_format, Formats):
        request = replace(request, policy=problem.memory_format.forward)
    plan = _plan(program, request)
    known, constants = known_outputs(program), constants_of(program, plan)
    ready = ReadyPlan(plan, PackedWeights().pack(plan, constants.pop), known, computes_of(plan))
    return Planned(ready, followed, tuple(_fixed(program, value) for value in program.outputs))


def graph_of(problem: OperatorCall) -> Graph:
    """The network of one call, as its operator applies ONNX's to values of the operands' extents and data types."""
    is_bf16 = any(desc.dtype == "bf16" for desc in problem.descs.values())
    usual = BF16_OPSET if is_bf16 else DEFAULT_OPSET
    builder = model.Builder(problem.op.name, opset_with(problem.op.op_type, usual))
    onnx_dims = _onnx_dims(problem)
    operands = [
        builder.input(name, onnx_dims.get(name, each.dims), each.dtype) if isinstance(each, MemoryDesc) else each
        for name, each in problem.operands.items()
    ]
    made = problem.op.build(*operands, **problem.attrs)
    for number, value in enumerate(made if isinstance(made, tuple) else (made,)):
        builder.output(f"result_{number}", value)
    return builder.to_graph()


def _program(problem: OperatorCall) -> Program:
    program = model.lower(model.legalize(model.simplify(graph_of(problem))))
    for name in _onnx_dims(problem):
        program = _seen_as_given(program, name, problem.operands[name].dims)
    return program


def _onnx_dims(problem: OperatorCall) -> Mapping[str, tuple[int, ...]]:
    return problem.op.onnx_dims([*problem.operands.values()]) if problem.op.onnx_dims else {}


def _seen_as_given(program: Program, name: str, dims: tuple[int, ...]) -> Program:
    [old] = [value for value in program.inputs if value.name == name]
    new = Value(name, dims, old.dtype)

    def swapped(value: Value) -> Value:
        return new if value is old else value

    kernels = tuple(
        replace(kernel, sources=tuple((arg, swapped(value)) for arg, value in kernel.sources))
        for kernel in program.kernels
    )
    return replace(program, kernels=kernels, inputs=tuple(map(swapped, program.inputs)))


def _followed(problem: OperatorCall, place: int, value: Value) -> Followed:
    stated = problem.memory_format
    if stated is not None:
        form = stated.results[place] if isinstance(stated, Formats) else stated
        return Followed(placed(MemoryDesc(value.dims, value.dtype), form))
    return problem.op.result_format(list(problem.descs.values()), value.dims, value.dtype)


def _fixed(program: Program, value: Value) -> str | np.ndarray | None:
    return value.name if value in program.inputs else value.data


def _plan(program: Program, request: Request) -> Plan:
    """A plan for one thread where that is as good as several, which take microseconds to begin and to end."""
    n_threads = dnnl.default_threads()
    values = (*program.inputs, *program.outputs)
    if n_threads > 1 and sum(prod(value.dims) for value in values) <= SMALL_ELEMENTS:
        plan = _plan_with(program, request, 1)
        if plan.cost_ns <= SMALL_NS:
            return plan
    return _plan_with(program, request, n_threads)


def _plan_with(program: Program, request: Request, n_threads: int) -> Plan:
    """The first plan that computes in the formats asked for; else the first that does without references.

    The cheapest that writes the format of the result comes first, then the one that changes layouts least, then the
    cheapest of all. Where each of them reorders, it is the one that does so least often. A gradient is computed in the
    format of its forward, which the request states.
    """
    formats = {value.name: request.io_layout[value.name] for value in program.outputs if _fixed(program, value) is None}
    kernels = [kernel for kernel in program.kernels if kernel.dst.name in formats]
    policies, is_stated = [request.policy], request.policy != Request().policy
    if is_stated:
        kernels = [kernel for kernel in kernels if not kernel.operator.writes_weights]
    elif (given := next(iter(request.io_layout.values()))) != FREE:
        policies.append(given)
    written = [(kernel.name, kernel.dst.name) for kernel in kernels]
    pinned = Demanded(tuple(Demand("pin", value, kernel, formats[value]) for kernel, value in written))
    plans = []
    for policy in policies:
        with suppress(PlanError):  # nothing writes the format
            plans.append(_made(program, replace(request, policy=policy, demanded=pinned), n_threads))
            if not (plans[-1].reference_steps or (_has_detour(plans[-1]) and not is_stated)):
                return plans[-1]
    plans += [_made(program, replace(request, policy=policy), n_threads) for policy in policies]
    fast = [plan for plan in plans if not plan.reference_steps]
    return min(fast or plans[:1], key=lambda plan: len(plan.reorders))


def _made(program: Program, request: Request, n_threads: int) -> Plan:
    pricing = _pricing(n_threads)
    return make_plan(program, request, pricing.modelled(), price=pricing.priced, prices_unpinned=False)


def _has_detour(plan: Plan) -> bool:
    """Whether the first operand, or a value computed of it, changes its layout."""
    return any(entry.is_reorder for entry in plan.entries[:1]) or any(step.is_reorder for step in plan.steps)


@cache
def _pricing(n_threads: int) -> Pricing:
    return Pricing(n_threads, "cached", TUNE_SECONDS, lambda _: None)


_IMAGES = range(3, 6)
"""Ranks of tensors with spatial dimensions."""

_TOO_LARGE = 1 << 63


def check(problem: OperatorCall) -> None:
    """Refuse arguments that are out of range, each by its annotation in :class:`Operators`: an InputError says how."""
    x = problem.operands.get("x", next(iter(problem.operands.values()), None))
    if not isinstance(x, MemoryDesc):
        return
    given = {**problem.operands, **problem.attrs}
    for name, value in problem.attrs.items():
        if any(isinstance(number, int) and abs(number) >= _TOO_LARGE for number in _each(value)):
            raise refused(value, f"{problem.op.name}: {name}", "numbers that 64 bits can hold")
    for name, kind in problem.op.kinds.items():
        value = given.get(name)
        if value is None or kind not in _RULES:
            continue
        if kind in ("Extents", "Pads") and x.ndims not in _IMAGES:
            raise InputError(f"{problem.op.name}: x has shape {x.dims}; give one of rank 3 to 5, for {name} to go over")
        right = _RULES[kind](value, x)
        if right:
            raise refused(value.dims if isinstance(value, MemoryDesc) else value, f"{problem.op.name}: {name}", right)


def shown(problem: OperatorCall) -> str:
    """The arguments of a call as they were given."""
    stated = None if isinstance(problem.memory_format, Formats) else problem.memory_format
    given = {**problem.operands, **problem.attrs, "memory_format": stated}
    texts = {name: str(each) if isinstance(each, MemoryDesc) else f"{each!r:.60}" for name, each in given.items()}
    return ", ".join(f"{name} {text}" for name, text in texts.items() if given[name] is not None)


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _window(value: Any, x: MemoryDesc, least: int, lengths: tuple[int, ...]) -> str:
    each = value if isinstance(value, tuple) else (value,) * lengths[0]
    if len(each) in lengths and min(each) >= least:
        return ""
    return f"one number, or {' or '.join(map(str, lengths))} of them for x of shape {x.dims}, each at least {least}"


def _axes(value: Any, x: MemoryDesc) -> str:
    each = _each(value)
    if len({axis % x.ndims for axis in each}) == len(each) and all(-x.ndims <= axis < x.ndims for axis in each):
        return ""
    which = "a dimension" if isinstance(value, int) else "each dimension at most once"
    return f"{which} of x of shape {x.dims}: {-x.ndims} to {x.ndims - 1}"


def _vector(value: Any, x: MemoryDesc) -> str:
    n_channels = x.dims[1] if x.ndims > 1 else 0
    return "" if value.dims == (n_channels,) else f"one number for each channel of x of shape {x.dims}: ({n_channels},)"


_RULES: dict[str, Callable[[Any, MemoryDesc], str]] = {
    "Extents": lambda value, x: _window(value, x, 1, (x.ndims - 2,)),
    "Pads": lambda value, x: _window(value, x, 0, (x.ndims - 2, 2 * (x.ndims - 2))),
    "Axes": _axes,
    "Axis": _axes,
    "Count": lambda value, _: "" if value >= 1 else "1 or more",
    "NotNegative": lambda value, _: "" if value >= 0 else "a number of at least 0",
    "Vector": _vector,
}
"""The right values of a parameter, by its annotation, in words; empty where the given one is right."""


class _Report(Struct, frozen=True):
    """An event of each run: bytes moved from ``src``, at ``place`` in its times, of the first operand or others."""

    kind: EventKind
    result: MemoryDesc
    nbytes: int
    reason: str
    place: int | None = None
    src: MemoryDesc | None = None
    is_of_first: bool = False


class Reports(Struct, frozen=True):
    """The events of each run of a plan, and its steps; ``always_warns`` where a layout is lost, watched or not."""

    operator: str
    inputs: tuple[MemoryDesc, ...]
    events: tuple[_Report, ...]
    steps: tuple[Step, ...]
    always_warns: bool

    def report(self, times: Sequence[int]) -> None:
        """Report a run to the watches around it, by the times of inputs' reorders and then of steps; they may raise."""
        carry(partial(self._report, times))()

    def _report(self, times: Sequence[int]) -> None:
        for event in self.events:
            report(
                event.kind,
                self.operator,
                self.inputs,
                event.result,
                nbytes=event.nbytes,
                ns=None if event.place is None else times[event.place],
                reason=event.reason,
                always_warns=event.kind == "loss",
            )
        for step, ns in zip(self.steps, times[len(times) - len(self.steps) :], strict=True):
            report_step_of(step, self.operator, ns)


def reports_of(problem: OperatorCall, planned: Planned) -> Reports:
    """The events that a watch gets of each run of a plan."""
    descs = tuple(problem.descs.values())
    moves = [*_entries(problem, planned), *_steps(planned)]
    losses = []
    if not problem.memory_format:
        losses = _losses(planned, descs[0], [move for move in moves if move.is_of_first])
    elif isinstance(problem.memory_format, Formats):
        losses = [*_lost_by_gradient(planned, placed(descs[0], problem.memory_format.forward))]
    return Reports(problem.op.name, descs, (*moves, *losses), planned.ready.plan.steps, always_warns=bool(losses))


def _entries(problem: OperatorCall, planned: Planned) -> Iterator[_Report]:
    for place, entry in enumerate(planned.ready.plan.entries):
        src, dst = problem.descs[entry.input], entry.desc
        if not src.readable_as(dst):
            role = _role(entry.input, problem)
            reason = f"{entry.input} is {src.named(role)}, and computed with as {dst.named(role)}"
            kind: EventKind = "reorder" if src.is_dense else "copy"
            is_of_first = entry.input == next(iter(problem.descs))
            yield _Report(kind, dst, src.nbytes + dst.nbytes, reason, place, src, is_of_first)


def _role(name: str, problem: OperatorCall) -> str:
    """In whose letters an operand's layout is named."""
    if name != "weights":
        return "src"
    first = next(iter(problem.descs.values()))
    return "grouped_weights" if problem.descs[name].ndims > first.ndims else "weights"


def _steps(planned: Planned) -> Iterator[_Report]:
    """Those within the plan; to gather a part of a tensor is the operator's own work."""
    plan = planned.ready.plan
    for number, step in enumerate(plan.steps):
        operands = dict(step.operands)
        if step.is_reorder and operands["src"].desc.format_tag != operands["dst"].desc.format_tag:
            place = len(plan.entries) + number
            src, dst = operands["src"].desc, operands["dst"].desc
            yield _Report("reorder", dst, step.nbytes_moved, step.reason, place, src, is_of_first=True)


def _losses(planned: Planned, given: MemoryDesc, moves: Sequence[_Report]) -> list[_Report]:
    """Layouts that give way to others, and those that no primitive computes in."""
    found = [_Report("loss", each.desc, 0, each.reason) for each in planned.followed if each.reason]
    result = planned.followed[0].desc
    if found or is_plain(given):
        return found
    sizes = {given.n_elements, result.n_elements}
    passed = [desc for move in moves for desc in (move.src, move.result) if desc and desc.n_elements in sizes]
    others = [desc.named("src") for desc in passed if not (agree(given, desc) or agree(result, desc))]
    if not others and not any(step.is_plain for step in planned.ready.plan.steps):
        return found
    reason = f"nothing fast computes it in {given.tag}: it went through {others[0] if others else 'row-major'}"
    if is_plain(result):
        reason = f"its result is row-major, and {given.tag} is given up"
    return [_Report("loss", result, 0, reason)]


def _lost_by_gradient(planned: Planned, meant: MemoryDesc) -> Iterator[_Report]:
    """The loss where a gradient is read in another layout than that of its forward's result."""
    for entry in planned.ready.plan.entries[:1]:
        if not (agree(meant, entry.desc) or entry.desc.readable_as(meant)):
            wish, instead = meant.named("src"), entry.desc.named("src")
            reason = f"nothing optimised for {wish} on {dnnl.isa()}: computed as {instead}, and brought back"
            yield _Report("loss", meant, 0, reason)
