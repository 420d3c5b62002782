"""The buffers of one group's operands, each found to hold what a run of the group needs there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blocklayout.errors import PlanError
from blocklayout.plan.checking import written_args

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.fuse import Group
    from blocklayout.plan.holdings import Holdings
    from blocklayout.plan.plan import Buffer, PackedConstant, Step
    from blocklayout.plan.retracing import Way


@dataclass(frozen=True)
class Binding:
    """Steps of a plan as one way to compute a group.

    Attributes:
        first: Number of the first step.
        buffers: All of the plan's.
        packed: The plan's constants, by buffer.
        holdings: What the buffers hold before the steps.
    """

    group: Group
    way: Way
    first: int
    steps: Sequence[Step]
    buffers: Sequence[Buffer]
    packed: Mapping[int, PackedConstant]
    holdings: Holdings

    def places(self) -> dict[str, int]:
        """The buffer of each operand.

        Raises:
            PlanError: An operand is not where it has to be; the message names the field.
        """
        found: dict[str, int] = {}
        for field, name, buffer in self._operands():
            if found.setdefault(name, buffer) != buffer:
                raise PlanError(f"{field}.buffer is {buffer}; {self.group.name}'s {name} is in {found[name]}")
            self._check_source(field, name, buffer)
        if self.way.overwritten is not None and self.way.overwritten not in found:
            found[self.way.overwritten] = found["dst"]
            self._check_source(f"steps.{self.first}.operands.dst", self.way.overwritten, found["dst"])
        self._check_written(found)
        return found

    def _operands(self) -> Iterator[tuple[str, str, int]]:
        """Field, name and buffer of what the steps read and write."""
        for number, (step, told) in enumerate(zip(self.steps, self.way.steps, strict=True), start=self.first):
            operands, names = dict(step.operands), dict(told.operands)
            if set(operands) != set(names):
                raise PlanError(f"steps.{number}.operands are {', '.join(operands)}, not {', '.join(names)}")
            for arg, name in names.items():
                yield f"steps.{number}.operands.{arg}", name, operands[arg].buffer

    def _check_source(self, field: str, name: str, buffer: int) -> None:
        desc = self.way.descs[name]
        if name in self.group.sources:
            value = self.group.sources[name].name
            if not self.holdings.holds(buffer, value, desc):
                raise PlanError(f"{field}.buffer: buffer {buffer} does not hold {value} as {desc} by then")
        elif name in self.group.constants:
            packed = self.packed.get(buffer)
            constant = self.group.constants[name].name
            if packed is None or packed.constant != constant or not packed.desc.readable_as(desc):
                raise PlanError(f"{field}.buffer: buffer {buffer} does not hold the constant {constant} as {desc}")

    def _check_written(self, places: Mapping[str, int]) -> None:
        """Results and what lies between steps have buffers of their own, except where one is added to in place."""
        in_place = {"dst", self.way.overwritten}
        for name in sorted(self._written()):
            field, buffer = f"steps.{self.first}", places[name]
            if name in (*self.group.sources, *self.group.constants) and name != self.way.overwritten:
                raise PlanError(f"{field}: {self.group.name}'s {name} would be overwritten")
            shared = {other for other, place in places.items() if place == buffer} - {name}
            if shared - (in_place if name in in_place and self.way.overwritten is not None else set()):
                raise PlanError(f"{field}: {name} and {', '.join(sorted(shared))} are in one buffer, {buffer}")
            if not (shared or name == self.way.overwritten):
                check_size(f"{field}: {name}", self.buffers, buffer, self.way.descs[name])

    def _written(self) -> Iterator[str]:
        for step, told in zip(self.steps, self.way.steps, strict=True):
            names = dict(told.operands)
            yield from (names[arg] for arg in written_args(step))


def check_size(field: str, buffers: Sequence[Buffer], buffer: int, desc: MemoryDesc) -> None:
    """Refuse a buffer of another size than what is written to it, and what has holes and so might have any size.

    Raises:
        PlanError: The message names the buffer.
    """
    if not desc.is_dense:
        raise PlanError(f"{field}: {desc} leaves holes; what a step writes leaves none")
    if buffers[buffer].nbytes != desc.nbytes:
        raise PlanError(f"{field}: buffers.{buffer}.nbytes is {buffers[buffer].nbytes}; {desc} takes {desc.nbytes}")
