"""Costs and layouts of a plan, in numbers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from blocklayout.plan.report.text import primitive_name, reference_reason

if TYPE_CHECKING:
    from blocklayout.plan import Plan


class PlanFacts(Struct, frozen=True, kw_only=True):
    """A plan in numbers.

    Attributes:
        policy: What the layouts were asked to follow, and ...
        chosen: ... what they follow: ``auto`` takes the cheapest.
        estimated_ns: By the plan's own costs.
        reorder_nbytes: Bytes that reorders read and write.
        padding_nbytes: Bytes of zero padding in the results of steps.
        padding_multiply_adds: Multiply-adds spent on padding, beside ``multiply_adds``.
        layouts: How many values are in each layout, most frequent first.
        references: Kernels that run a reference implementation: kernel, implementation, reason.
        plain: Kernels that ``onnx.reference`` computes: kernel, operator, reason.
        exceptions: Kernels that could not have the policy's layout, or an implementation that the library refused:
            kernel, reason.
    """

    policy: str
    chosen: str
    dtype: str
    n_threads: int
    estimated_ns: float
    n_steps: int
    n_reorders: int
    reorder_nbytes: int
    padding_nbytes: int
    multiply_adds: int
    padding_multiply_adds: int
    layouts: tuple[tuple[str, int], ...]
    references: tuple[tuple[str, str, str], ...]
    plain: tuple[tuple[str, str, str], ...]
    exceptions: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, plan: Plan) -> PlanFacts:
        """The facts about a plan."""
        counted = Counter(desc.named("src") for desc in plan.formats.values())
        return cls(
            policy=plan.policy,
            chosen=plan.chosen,
            dtype=plan.dtype,
            n_threads=plan.n_threads,
            estimated_ns=plan.cost_ns,
            n_steps=len(plan.steps),
            n_reorders=len(plan.reorders),
            reorder_nbytes=plan.reorder_nbytes,
            padding_nbytes=plan.padding_nbytes,
            multiply_adds=plan.multiply_adds,
            padding_multiply_adds=plan.padding_multiply_adds,
            layouts=tuple(counted.most_common()),
            references=tuple((step.kernel, step.spec.impl, reference_reason(step)) for step in plan.reference_steps),
            plain=tuple((step.kernel, primitive_name(step), step.reason) for step in plan.plain_steps),
            exceptions=plan.exceptions,
        )

    @property
    def name(self) -> str:
        """The policy, and what it chose if that is another."""
        return self.policy if self.chosen == self.policy else f"{self.policy} ({self.chosen})"

    @property
    def padding_share(self) -> float:
        """Multiply-adds on padding, as a share of those of the network."""
        return self.padding_multiply_adds / self.multiply_adds if self.multiply_adds else 0.0

    @property
    def layout_counts(self) -> str:
        """The layouts in one line, such as ``nChw8c 12, nc 3``."""
        return ", ".join(f"{tag} {n}" for tag, n in self.layouts)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        record: dict[str, Any] = to_builtins(self)
        return record | {"layouts": dict(self.layouts)}
