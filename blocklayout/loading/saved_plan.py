"""Saved plans: whether one fits the library, the machine, the model and the caller's wishes, and for which extents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.dtypes import FLOATS
from blocklayout.errors import BlockLayoutError, LayoutError, PlanError, PlanMisfitWarning
from blocklayout.ir import HostSpec, preceding
from blocklayout.layout import FormatTag
from blocklayout.layout_events import warn_caller
from blocklayout.plan.candidates.pins import check_expectations, is_in_format
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.plan import FREE
from blocklayout.plan.policies import SOLVES, Policy
from blocklayout.plan.runs import check_losses

if TYPE_CHECKING:
    from blocklayout.ir import Compute, Demand, Demands, Program
    from blocklayout.loading.options import Options
    from blocklayout.plan import Plan
    from blocklayout.plan.request import Request
    from blocklayout.runtime import InputInfo

    Shapes = Mapping[str, Sequence[Any]]


def check_terms(plan: Plan, options: Options) -> None:
    """Refuse a plan that was made with another data type, policy or number of threads, or for other formats.

    The PlanError names the option; ``None`` asks for nothing.
    """
    made, wanted = plan.config, options.io_layout
    pairs: dict[str, tuple[object, object]] = {
        "dtype": (options.dtype, made.dtype),
        "layout": (options.layout, made.policy),
        "threads": (options.threads, made.n_threads),
        "io_layout": (None if wanted is None else _formats(wanted), _formats(dict(made.io_layout))),
    }
    for name, (asked, given) in pairs.items():
        if asked is not None and asked != given:
            each = f" for each of {options.streams} streams" if name == "threads" and options.streams > 1 else ""
            raise PlanError(f"the plan was made with {name}={given!r}, and {name}={asked!r} is asked for{each}")


def check_formats(options: Options, infos: Sequence[InputInfo]) -> None:
    """Refuse, by a PlanError, other formats at the border than those of a session's inputs and outputs."""
    given = _formats({info.name: info.border for info in infos if info.border is not None})
    if options.io_layout is not None and _formats(options.io_layout) != given:
        asked = dict(options.io_layout)
        raise PlanError(f"the session was made with io_layout={given!r}, and io_layout={asked!r} is asked for")


class SavedPlan(Struct):
    """A plan from elsewhere, checked in itself; ``None`` once it turned out not to fit, where that ``replans``."""

    plan: Plan | None
    replans: bool = False

    def parts_for(self, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> int:
        """In how many parts the plan runs inputs of these extents; 1 where it is for others."""
        plan = self.plan
        return plan.parts if plan is not None and {name: desc.dims for name, desc in plan.fed} == dict(shapes) else 1

    def plan_for(self, program: Program, *, is_decided: bool, is_part: bool) -> Plan | None:
        """The plan, proven to compute ``program``; ``None`` where it was made for other extents or contents.

        A PlanError where it does not fit, and nobody asked to plan anew then.

        Args:
            program: That of the session.
            is_decided: Whether it also follows from contents of inputs, so that it differs from run to run.
            is_part: Whether it is one of the parts in which the plan runs its rows.
        """
        plan = self.plan
        if plan is None or is_part != (plan.parts > 1) or _is_for_others(plan, program, is_decided=is_decided):
            return None
        try:
            check_program(plan, program)
        except PlanError as error:
            if not self.replans:
                raise
            warn_of_misfit(error)
            self.plan = None
        return self.plan


def computes_of(plan: Plan) -> dict[int, Compute]:
    """Functions that run the nodes among the steps of a plan that no primitive computes, by step number."""
    specs = {number: step.spec for number, step in enumerate(plan.steps) if isinstance(step.spec, HostSpec)}
    return {number: _compute_of(spec) for number, spec in specs.items() if spec.kind in _NODES}


_NODES = ("plain", "numpy", "registered")


def _compute_of(spec: HostSpec) -> Compute:
    if spec.kind != "plain":
        from blocklayout.ops import functions, registered

        return registered.compute_of(spec) if spec.kind == "registered" else functions.compute_of(spec)
    from blocklayout.model import compute_of  # needs onnx

    return compute_of(spec)


def check_here(plan: Plan, threads: int | None = None, streams: int = 1) -> None:
    """Refuse a plan for another library or machine, by a PlanError that names its requirement and this machine's.

    Without ``threads`` of a run that were asked for, this process must be allowed as many as the plan's streams take.
    """
    made, library = plan.config, ".".join(map(str, dnnl.version()))
    if made.library != library:
        raise PlanError(f"the plan was made with oneDNN {made.library}; this is oneDNN {library}")
    if not dnnl.has_isa(made.isa):
        raise PlanError(f"the plan is for CPUs with {made.isa}; this one runs {dnnl.isa()}")
    for policy in {made.policy, plan.rationale.chosen} - {"auto", *SOLVES}:
        Policy.parse(policy, Machine(made.isa, 1))
    n_threads = made.n_threads * streams
    if threads is None and n_threads > dnnl.default_threads():
        each = f", and for {n_threads} in {streams} streams" if streams > 1 else ""
        raise PlanError(
            f"the plan is for {made.n_threads} threads{each}; this process may use {dnnl.default_threads()}: plan "
            f"anew, or ask for threads={n_threads} all the same"
        )


def check_wishes(plan: Plan, wishes: Request, demands: Demands, of_model: Demands) -> None:
    """Refuse a saved plan that does not meet demands and expectations of its user or the model, naming the kernel."""
    demanded = demands.settled(of_model, plan.names)
    choices = {kernel.name: choice for choice in plan.rationale.choices for kernel in choice.kernels}
    pins = preceding(demanded.pins, {name: choice.kernel for name, choice in choices.items()}, "is pinned to")
    for pin in pins.values():
        if not is_in_format(choices[pin.name].chosen.dst, pin.wanted, str(pin)):
            raise PlanError(f"the plan was made with pins {_named(plan.pins)}, and {pin} is asked for")
    for each in demanded.precision:
        if {desc.dtype for desc in choices[each.name].chosen.layouts if desc.dtype in FLOATS} - {each.wanted}:
            raise PlanError(f"the plan was made with precision {_named(plan.precision)}, and {each} is asked for")
    unwanted = next((name for step in plan.steps if (name := own.name_of(step.spec.impl)) in wishes.without), None)
    if unwanted:
        raise PlanError(f"the plan computes by {unwanted}, and recipes={{{unwanted!r}: False}} is asked for")
    check_expectations(plan, demanded.expected)
    check_losses(plan, wishes.on_layout_loss)


def _named(demands: Sequence[Demand]) -> str:
    return ", ".join(dict.fromkeys(f"{each.key}={each.wanted}" for each in demands)) or "none"


def check_program(plan: Plan, program: Program) -> None:
    """Refuse a plan of another program, and one that computes something else or cannot run here, naming the field."""
    from blocklayout.loading.replay import replay  # with all that plans: only where there is a model

    if plan.program != program.digest:
        raise PlanError(
            f"the plan is of another model ({plan.model}, structure {plan.program:.40}); this is {program.name}, "
            f"structure {program.digest}"
        )
    replay(plan, program)


def warn_of_misfit(error: BlockLayoutError) -> None:
    """Warn that a saved plan or session is not used, and why."""
    warn_caller(f"what was saved is not used, but made anew: {error}", PlanMisfitWarning)


def served_extents(plan: Plan, inputs: Sequence[InputInfo], shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """The extents that a plan was made for, as the caller's arrays have them; those of ``shapes`` besides.

    An input that only decides extents enters no step, and the plan does not say which extents it had. A PlanError where
    the model has no such inputs, or its caller asks for other ``shapes``.
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
            planned, by = _text(served[info.name]), "shapes" if info.ranges else "the model"
            raise PlanError(f"the plan was made for {info.name} of {planned}; {by} declares {info.extents}")
    return {name: tuple(shape) for name, shape in shapes.items()} | served


def _is_for_others(plan: Plan, program: Program, *, is_decided: bool) -> bool:
    made_for = {name: desc.dims for name, desc in plan.inputs}
    asked = {value.name: value.dims for value in program.inputs}
    if is_decided:
        return made_for != asked or plan.program != program.digest
    return made_for.keys() == asked.keys() and made_for != asked


def _in_callers_order(plan: Plan, inputs: Sequence[InputInfo]) -> dict[str, tuple[int, ...]]:
    dims = {name: desc.dims for name, desc in plan.fed}
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
    if info.ranges:
        pairs = zip(info.ranges, shape, strict=False)
        return len(info.ranges) == len(shape) and all(least <= extent <= most for (least, most), extent in pairs)
    if info.shape is None:
        return True
    return len(info.shape) == len(shape) and all(
        not isinstance(declared, int) or declared == extent for declared, extent in zip(info.shape, shape, strict=True)
    )


def _text(shape: Sequence[object]) -> str:
    return "x".join("?" if extent is None else str(extent) for extent in shape) or "a scalar"


def _formats(io_layout: Mapping[str, str]) -> dict[str, str]:
    """Formats in one spelling, without those that say row-major."""
    try:
        tags = {name: FormatTag.parse(text) for name, text in io_layout.items() if text != FREE}
    except LayoutError as error:
        raise PlanError(f"io_layout: {error}") from error
    plain = {name for name, tag in tags.items() if not tag.inner_blks and tag.order == tuple(range(tag.ndims))}
    free = {name: FREE for name, text in io_layout.items() if text == FREE}
    return free | {name: tag.canonical for name, tag in tags.items() if name not in plain}
