"""Whether a saved plan fits: the library, the machine, the model, and what its user asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.errors import PlanError
from blocklayout.plan.candidates.pins import check_expectations
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.policies import BOLD_SOLVE, SOLVE, Policy
from blocklayout.plan.telling.runs import check_losses

if TYPE_CHECKING:
    from blocklayout.kernels import Program
    from blocklayout.plan.plan import Plan
    from blocklayout.plan.request import Request


def check_here(plan: Plan, threads: int | None = None, streams: int = 1) -> None:
    """Refuse a plan for another library, or for what this machine has not.

    Args:
        plan: Read from anywhere.
        threads: Threads of a run that were asked for; without, the plan's have to be ones that this process may use.
        streams: Runs at a time.

    Raises:
        PlanError: The message tells both.
    """
    library = ".".join(map(str, dnnl.version()))
    if plan.library != library:
        raise PlanError(f"the plan was made with oneDNN {plan.library}; this is oneDNN {library}")
    if not dnnl.has_isa(plan.isa):
        raise PlanError(f"the plan is for CPUs with {plan.isa}; this one runs {dnnl.isa()}")
    for policy in {plan.policy, plan.chosen} - {"auto", SOLVE, BOLD_SOLVE}:
        Policy.parse(policy, Machine(plan.isa, 1))
    n_threads = plan.n_threads * streams
    if threads is None and n_threads > dnnl.default_threads():
        each = f", and for {n_threads} in {streams} streams" if streams > 1 else ""
        raise PlanError(
            f"the plan is for {plan.n_threads} threads{each}; this process may use {dnnl.default_threads()}: plan "
            f"anew, or ask for threads={n_threads} all the same"
        )


def check_wishes(plan: Plan, wishes: Request) -> None:
    """Refuse a plan that was made with other pins, or that is not what its user expects.

    Raises:
        PlanError: The message names the kernel or value.
    """
    if wishes.pins and dict(plan.pins) != dict(wishes.pins):
        made, asked = (", ".join(f"{name}={tag}" for name, tag in pins) for pins in (plan.pins, wishes.pins.items()))
        raise PlanError(f"the plan was made with pins {made or 'none'}, and {asked} is asked for")
    if any(own.name_of(step.spec.impl) in wishes.without for step in plan.steps):
        raise PlanError("the plan computes convolutions by Winograd's method, and winograd=False is asked for")
    check_expectations(plan, wishes.expected)
    check_losses(plan, wishes.on_layout_loss)


def check_program(plan: Plan, program: Program) -> None:
    """Refuse a plan of another program, and one that computes something else or cannot run here.

    Raises:
        PlanError: The message names the field.
    """
    from blocklayout.plan.saving.digest import program_digest  # with all that plans: only where there is a model
    from blocklayout.plan.saving.replay import replay

    digest = program_digest(program)
    if plan.program != digest:
        raise PlanError(
            f"the plan is of another model ({plan.model}, structure {plan.program:.40}); this is {program.name}, "
            f"structure {digest}"
        )
    replay(plan, program)
