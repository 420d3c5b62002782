"""Calls of operators on Tensors: each set of layouts is planned once, and then runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from blocklayout import dnnl
from blocklayout.dtypes import has_reorder
from blocklayout.eager.operands import Known, as_tensor
from blocklayout.errors import BlockLayoutError, PlainKernelWarning
from blocklayout.forking import Lock
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.layout_events import report, warn_caller, watches_around
from blocklayout.recording import Entry, recorders_around, recording, tell
from blocklayout.tensor import Tensor, reorder
from blocklayout.tensor.formats import placed
from blocklayout.value_checks import check_mode

if TYPE_CHECKING:
    from blocklayout.eager.planning import OperatorCall, Reports
    from blocklayout.ir.result_format import Rule

MAX_CALLS = 1024
"""Plans that are kept; the oldest makes room."""


class Formats(Struct, frozen=True):
    """Formats around a gradient: of its forward's result, as the gradient of that is read best, and of its results."""

    forward: str
    results: tuple[str, ...]


Format = str | FormatTag | Formats
Attrs = tuple[tuple[str, Any], ...]
OnnxDims = Callable[[Sequence[Any]], dict[str, tuple[int, ...]]]


class Op(Struct, frozen=True, eq=False):
    """An operator that can be called on Tensors.

    Attributes:
        name: The function's, for reports.
        arguments: Names of its operands, in order; the last one's stands for all that follow.
        build: Applies it to values of a builder, constants, and attributes.
        result_format: The rule by which its result has a format.
        onnx_dims: Names and extents, as ONNX has them, of those of its operands that come in other dimensions.
        op_type: ONNX's name for it, where the version of its operators depends on that.
        kinds: How its arguments are annotated, by name.
    """

    name: str
    arguments: Sequence[str]
    build: Callable[..., Any]
    result_format: Rule
    onnx_dims: OnnxDims | None = None
    op_type: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)

    def argument(self, place: int) -> str:
        """The name of an operand."""
        if place < len(self.arguments):
            return self.arguments[place]
        return f"{self.arguments[-1]}_{place - len(self.arguments) + 1}"


class _Call(Struct, frozen=True, eq=False):
    """An operator that is ready to run on Tensors of given descriptors.

    Attributes:
        descs: The operands' descriptors, held so that no other object gets their identity.
        run: Computes results of the buffers of all Tensors among the operands; ``None`` where nothing is computed.
        fixed: For each result that is not computed the place of the operand that it is, or a Tensor like it. Empty
            where all are computed.
    """

    descs: tuple[MemoryDesc, ...]
    run: Callable[..., dict[str, Any]] | None
    fixed: tuple[int | Tensor | None, ...]
    reports: Reports | None

    def with_fixed(self, operands: Sequence[Any], computed: Sequence[Tensor]) -> list[Tensor]:
        """All results, where some are not computed."""
        rest = iter(computed)
        return [
            next(rest) if each is None else operands[each] if isinstance(each, int) else each.clone()
            for each in self.fixed
        ]


_calls: dict[tuple[Any, ...], _Call] = {}
_lock = Lock()


def call(op: Op, operands: tuple[Any, ...], attrs: Attrs = (), memory_format: Format | None = None) -> list[Tensor]:
    """The results of an operator on Tensors, in ``memory_format`` where the caller states one.

    An optional operand that is absent is ``None``; anything else that can be hashed is a constant. ``attrs`` are the
    other arguments of ``op.build``.

    Raises:
        ModelError: The operands contradict the operator's specification.
        UnsupportedError: Nothing computes it here.
        LayoutError: ``memory_format`` is none, or has another rank.
        WatchError: A watch raises.
        CheckError: Inside of a block that is checked, something is not as it should be.
    """
    if not recorders_around():
        return _called(op, operands, attrs, memory_format)
    with recording():
        results = _called(op, operands, attrs, memory_format)
    tell(Entry(op.name, operands, dict(attrs), tuple(results), op, memory_format))
    return results


def _called(op: Op, operands: tuple[Any, ...], attrs: Attrs, memory_format: Format | None) -> list[Tensor]:
    ids, buffers = [], []
    for each in operands:
        if isinstance(each, Tensor):
            ids.append(id(each.desc))
            buffers.append(each.buffer)
        else:
            ids.append(each)
    key = (op, attrs, memory_format, *ids)
    found = _calls.get(key)
    # Others than the first of types that it does not know, such as indices, numpy moves within the plan if need be.
    if found is None and any(
        _is_stuck(each) and (not place or has_reorder(each.desc.dtype)) for place, each in enumerate(operands)
    ):
        return _through_plain(op, operands, attrs, memory_format)
    try:
        if found is None:
            with _lock:
                found = _calls.get(key) or _made(op, operands, attrs, memory_format)
                while len(_calls) >= MAX_CALLS:
                    del _calls[next(iter(_calls))]
                _calls[key] = found
        if found.run is None:
            return found.with_fixed(operands, ())
        reports = found.reports
        times: list[int] | None = [] if reports and (reports.always_warns or watches_around()) else None
        results = [*found.run(buffers, None, times, check_mode.get()).values()]
    except BlockLayoutError as error:
        if str(error).startswith(f"{op.name}: "):
            raise
        given = (f"{op.argument(place)} {each.desc}" for place, each in enumerate(operands) if isinstance(each, Tensor))
        error.args = (f"{op.name}: {error} (called with {', '.join(given)})",)
        raise
    if reports and times is not None:
        reports.report(times)
    return found.with_fixed(operands, results) if found.fixed else results


def problem_of(op: Op, operands: Sequence[Any], attrs: Attrs, memory_format: Format | None = None) -> OperatorCall:
    """An operator with its operands, as it is planned."""
    from blocklayout.eager.planning import OperatorCall

    names = [op.argument(place) for place in range(len(operands))]
    described: list[Any] = [each.desc if isinstance(each, Tensor) else each for each in operands]
    known = [each.array() if isinstance(each, Known) else each for each in described]
    while known and known[-1] is None:
        known.pop()
    given = dict(zip(names, known, strict=False))
    return OperatorCall(op, dict(attrs), given, memory_format, is_frugal=len(_calls) >= MAX_CALLS)


def _is_stuck(operand: Any) -> bool:
    """Whether the library cannot bring it into another layout: it does not know the type, or has no such layout."""
    if type(operand) is not Tensor or (has_reorder(operand.desc.dtype) and dnnl.is_expressible(operand.desc)):
        return False
    return not operand.desc.readable_as(MemoryDesc(operand.desc.dims, operand.desc.dtype))


def _movable(desc: MemoryDesc) -> MemoryDesc:
    dense = MemoryDesc(desc.dims, desc.dtype, desc.format_tag)
    return dense if has_reorder(desc.dtype) and dnnl.is_expressible(dense) else MemoryDesc(desc.dims, desc.dtype)


def _through_plain(op: Op, operands: tuple[Any, ...], attrs: Attrs, memory_format: Format | None) -> list[Tensor]:
    """As :func:`call`, with tensors that the library cannot move made dense or row-major by numpy, and brought back."""
    plain = tuple(reorder(each, _movable(each.desc)) if _is_stuck(each) else each for each in operands)
    results = call(op, plain, attrs)
    stated = memory_format.results if isinstance(memory_format, Formats) else (memory_format,) * len(results)
    return [_back(op, operands, each, wanted) for each, wanted in zip(results, stated, strict=True)]


def _back(op: Op, operands: tuple[Any, ...], result: Tensor, memory_format: str | FormatTag | None) -> Tensor:
    descs = [each.desc for each in operands if isinstance(each, Tensor)]
    wanted = op.result_format(descs, result.desc.dims, result.desc.dtype).desc
    if memory_format is not None:
        wanted = placed(wanted, memory_format)
    if result.desc.readable_as(wanted):
        return Tensor.over(wanted, result.buffer[: wanted.nbytes])
    reason = f"oneDNN cannot read {descs[0]}: it went through row-major, and back to {wanted.tag}"
    report("loss", op.name, descs, wanted, reason=reason, always_warns=True)
    return reorder(result, wanted)


def _made(op: Op, operands: tuple[Any, ...], attrs: Attrs, memory_format: Format | None) -> _Call:
    from blocklayout.eager.planning import plan_for, reports_of
    from blocklayout.runtime import Workspace

    problem = problem_of(op, operands, attrs, memory_format)
    planned = plan_for(problem)
    if planned.ready.plan.plain_steps:
        given = ", ".join(map(str, problem.descs.values()))
        message = f"{op.name}: no primitive computes it of {given}; onnx.reference does, on plain layout"
        warn_caller(message, PlainKernelWarning)
    names = list(problem.operands)
    descs = problem.descs
    fixed = tuple(
        names.index(each) if isinstance(each, str) else None if each is None else as_tensor(each, "a result")
        for each in planned.fixed
    )
    run = reports = None
    if any(each is None for each in fixed):
        ready = planned.ready
        workspace = dnnl.run_parallel(lambda: Workspace(ready, has_tensors=True), ready.plan.config.n_threads)
        run = partial(workspace.run, workspace.executable(descs))
        reports = reports_of(problem, planned)
    is_fixed = any(each is not None for each in fixed)
    return _Call(tuple(descs.values()), run, fixed if is_fixed else (), reports)
