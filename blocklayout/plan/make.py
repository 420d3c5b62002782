"""From a program to a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.errors import PlanError, UnsupportedError
from blocklayout.plan.assemble import Assembly, assemble, step_lifetimes
from blocklayout.plan.costs import CostModel
from blocklayout.plan.digest import program_digest
from blocklayout.plan.fuse import fuse
from blocklayout.plan.network import Choice, Network, propose_all
from blocklayout.plan.place import place_buffers
from blocklayout.plan.plan import Plan
from blocklayout.plan.policies import SIMPLE_POLICIES, Policy, choose_by, exceptions_of
from blocklayout.plan.propose import Proposer
from blocklayout.plan.solve import improve, solve_layouts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blocklayout.kernels import Program
    from blocklayout.plan.machine import Machine

DTYPES = ("f32", "bf16")


@dataclass(frozen=True)
class _Contender:
    """A choice with the steps it implies."""

    name: str
    policy: Policy | None
    choice: Choice
    assembly: Assembly


def make_plan(
    program: Program,
    *,
    policy: str,
    dtype: str,
    machine: Machine,
    io_layout: Mapping[str, str] | None = None,
    is_frugal: bool = False,
) -> Plan:
    """Choose a layout for every value of a program and lay out the steps that compute it.

    Args:
        program: The kernels, every extent known.
        policy: ``auto``, one of the simple policies, or a oneDNN tag.
        dtype: Data type of activations inside: ``f32`` or ``bf16``.
        machine: What it will run on.
        io_layout: Formats of inputs and outputs that are not row-major at the border, by name.
        is_frugal: Whether it is one plan of many, and should do without primitives that take memory for good.

    Raises:
        PlanError: No such policy or data type.
        UnsupportedError: Nothing computes a kernel on this CPU, or the CPU has no bf16.
    """
    _check_dtype(dtype)
    wanted = None if policy == "auto" else Policy.parse(policy, machine)
    costs = CostModel(machine)
    proposer = Proposer(costs, dtype, wanted.tags if wanted else (), is_frugal)
    network = propose_all(program, fuse(program, dtype, machine.n_threads), proposer, io_layout)
    contenders = [_contend(Policy.parse(name, machine), network) for name in SIMPLE_POLICIES]
    contenders.append(_solved(network, contenders))
    if wanted and policy not in SIMPLE_POLICIES:
        contenders.append(_contend(wanted, network))
    if wanted:
        winner = next(contender for contender in contenders if contender.name == policy)
    else:
        winner = min(contenders, key=lambda contender: contender.assembly.cost_ns)
    return _finish(program, policy, dtype, machine, winner, contenders)


def _check_dtype(dtype: str) -> None:
    if dtype not in DTYPES:
        raise PlanError(f"dtype={dtype!r}: activations are computed in one of {', '.join(DTYPES)}")
    if dtype == "bf16" and not dnnl.has_bf16():
        raise UnsupportedError(f"dtype='bf16' needs a CPU with AVX-512 (avx512_core); this one runs {dnnl.isa()}")


def _contend(policy: Policy, network: Network) -> _Contender:
    choice = choose_by(policy, network)
    return _Contender(policy.name, policy, choice, assemble(network, choice, returns_to_plain=policy.returns_to_plain))


def _solved(network: Network, contenders: list[_Contender]) -> _Contender:
    """The global solve, and the simple policies with single groups changed: whichever costs least."""
    starts = [c.choice for c in contenders if c.policy and not c.policy.returns_to_plain]
    choices = [solve_layouts(network), *(improve(network, choice) for choice in starts)]
    choice = min(choices, key=network.total_ns)
    return _Contender("solve", None, choice, assemble(network, choice))


def _finish(
    program: Program,
    policy: str,
    dtype: str,
    machine: Machine,
    winner: _Contender,
    contenders: list[_Contender],
) -> Plan:
    assembly = winner.assembly
    sizes = {index: buffer.nbytes for index, buffer in enumerate(assembly.buffers)}
    placement = place_buffers(sizes, step_lifetimes(assembly))
    buffers = tuple(
        replace(buffer, offset=placement.offsets.get(index, 0)) for index, buffer in enumerate(assembly.buffers)
    )
    costs = {contender.name: contender.assembly.cost_ns for contender in contenders}
    costs["auto"] = min(costs.values())
    exceptions = exceptions_of(winner.policy, assembly.network, winner.choice) if winner.policy else ()
    return Plan(
        model=program.name,
        policy=policy,
        chosen=winner.name,
        dtype=dtype,
        n_threads=machine.n_threads,
        isa=machine.isa,
        library=".".join(map(str, dnnl.version())),
        inputs=tuple(assembly.network.fixed.items()),
        entries=tuple(assembly.entries),
        steps=tuple(assembly.steps),
        results=tuple(assembly.results),
        buffers=buffers,
        constants=tuple(assembly.constants),
        formats=tuple(assembly.formats),
        policy_costs=tuple(costs.items()),
        exceptions=exceptions,
        arena_nbytes=placement.nbytes,
        arena_lower_bound=placement.lower_bound,
        scratchpad_nbytes=max((step.scratchpad_nbytes for step in assembly.steps), default=0),
        program=program_digest(program),
        io_layout=tuple(assembly.network.io_layout.items()),
    )
