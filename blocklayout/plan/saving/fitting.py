"""Whether a saved plan fits: the library, the machine, the model, and what its user asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.errors import LayoutError, PlanError
from blocklayout.layout import FormatTag
from blocklayout.plan.candidates.pins import check_expectations
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.plan import FREE
from blocklayout.plan.policies import Policy
from blocklayout.plan.saving.digest import program_digest
from blocklayout.plan.saving.replay import replay
from blocklayout.plan.telling.runs import check_losses

if TYPE_CHECKING:
    from blocklayout.kernels import Program
    from blocklayout.plan.make import Request
    from blocklayout.plan.plan import Plan


@dataclass(frozen=True)
class Terms:
    """What whoever loads a model says of its plan; ``None`` where nothing.

    Attributes:
        dtype: Data type of activations inside.
        layout: The policy.
        threads: Threads of a run.
        io_layout: Formats of inputs and outputs that are not row-major at the border, by name.
    """

    dtype: str | None = None
    layout: str | None = None
    threads: int | None = None
    io_layout: Mapping[str, str] | None = None

    def check(self, plan: Plan) -> None:
        """Refuse a plan that was made on other terms.

        Raises:
            PlanError: The message names the term.
        """
        pairs: dict[str, tuple[object, object]] = {
            "dtype": (self.dtype, plan.dtype),
            "layout": (self.layout, plan.policy),
            "threads": (self.threads, plan.n_threads),
            "io_layout": (None if self.io_layout is None else _formats(self.io_layout), _formats(dict(plan.io_layout))),
        }
        for name, (asked, given) in pairs.items():
            if asked is not None and asked != given:
                raise PlanError(f"the plan was made with {name}={given!r}, and {name}={asked!r} is asked for")

    @classmethod
    def of(cls, plan: Plan) -> Terms:
        """Those a plan was made on."""
        return cls(plan.dtype, plan.policy, plan.n_threads, dict(plan.io_layout))


def check_here(plan: Plan, threads: int | None = None) -> None:
    """Refuse a plan for another library, or for what this machine has not.

    Args:
        plan: Read from anywhere.
        threads: Threads that were asked for; without, the plan's have to be ones that this process may use.

    Raises:
        PlanError: The message tells both.
    """
    library = ".".join(map(str, dnnl.version()))
    if plan.library != library:
        raise PlanError(f"the plan was made with oneDNN {plan.library}; this is oneDNN {library}")
    if not dnnl.has_isa(plan.isa):
        raise PlanError(f"the plan is for CPUs with {plan.isa}; this one runs {dnnl.isa()}")
    for policy in {plan.policy, plan.chosen} - {"auto", "solve"}:
        Policy.parse(policy, Machine(plan.isa, 1))
    if threads is None and plan.n_threads > dnnl.default_threads():
        raise PlanError(
            f"the plan is for {plan.n_threads} threads; this process may use {dnnl.default_threads()}: plan anew, or "
            f"ask for threads={plan.n_threads} all the same"
        )


def check_wishes(plan: Plan, wishes: Request) -> None:
    """Refuse a plan that was made with other pins, or that is not what its user expects.

    Raises:
        PlanError: The message names the kernel or value.
    """
    if wishes.pins and dict(plan.pins) != dict(wishes.pins):
        made, asked = (", ".join(f"{name}={tag}" for name, tag in pins) for pins in (plan.pins, wishes.pins.items()))
        raise PlanError(f"the plan was made with pins {made or 'none'}, and {asked} is asked for")
    check_expectations(plan, wishes.expected)
    check_losses(plan, wishes.on_layout_loss)


def check_program(plan: Plan, program: Program) -> None:
    """Refuse a plan of another program, and one that computes something else or cannot run here.

    Raises:
        PlanError: The message names the field.
    """
    digest = program_digest(program)
    if plan.program != digest:
        raise PlanError(
            f"the plan is of another model ({plan.model}, structure {plan.program:.40}); this is {program.name}, "
            f"structure {digest}"
        )
    replay(plan, program)


def _formats(io_layout: Mapping[str, str]) -> dict[str, str]:
    """Formats in one spelling, without those that say row-major."""
    try:
        tags = {name: FormatTag.parse(text) for name, text in io_layout.items() if text != FREE}
    except LayoutError as error:
        raise PlanError(f"io_layout: {error}") from error
    plain = {name for name, tag in tags.items() if not tag.inner_blks and tag.order == tuple(range(tag.ndims))}
    free = {name: FREE for name, text in io_layout.items() if text == FREE}
    return free | {name: tag.canonical for name, tag in tags.items() if name not in plain}
