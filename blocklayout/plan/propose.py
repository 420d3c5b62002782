"""Ask oneDNN what it offers for a group, in every layout worth having."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.errors import DnnlError, LayoutError, UnsupportedError
from blocklayout.kernels import Candidate, Problem, Recipe, RecipeStep, Role, TensorInfo, Wish, wished_desc
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.plan.fuse import Follower, Group, constant_info, kernel_problem, value_info

if TYPE_CHECKING:
    from blocklayout.plan.costs import CostModel

NOT_OFFERED = (DnnlError, UnsupportedError, LayoutError)
"""What asking for something that does not exist raises."""


@dataclass(frozen=True)
class Proposer:
    """Proposes candidates for groups on one machine.

    Attributes:
        costs: Prices the candidates; also knows the machine.
        dtype: Data type of activations.
        tags: Layouts to try beyond the usual ones, as oneDNN tags.
    """

    costs: CostModel
    dtype: str
    tags: tuple[str, ...] = ()

    def propose(
        self, group: Group, incoming: Mapping[str, Sequence[MemoryDesc]], in_place: str | None
    ) -> tuple[Candidate, ...]:
        """Every distinct way to compute a group; reference implementations only where nothing else exists.

        Args:
            group: The group.
            incoming: Layouts in which each source may arrive, by operand.
            in_place: The operand that may be overwritten by the result, if any may.

        Raises:
            UnsupportedError: No primitive computes it on this CPU.
        """
        if group.is_view:
            return tuple(self._views(group, incoming["src"]))
        found: dict[tuple[object, ...], Candidate] = {}
        for wish in self._wishes(group, incoming):
            for candidate in self._candidates(group, wish, in_place):
                key = (candidate.sources, candidate.dst, candidate.alias, tuple(s.spec.impl for s in candidate.steps))
                found.setdefault(key, candidate)
        optimised = tuple(c for c in found.values() if not c.is_reference)
        if not found:
            raise UnsupportedError(_nothing_offered(group, self.dtype))
        return optimised or tuple(found.values())

    def _views(self, group: Group, incoming: Sequence[MemoryDesc]) -> Iterator[Candidate]:
        plain = MemoryDesc(incoming[0].dims, incoming[0].dtype)
        operator = group.main.operator
        for desc in dict.fromkeys([*incoming, plain]):
            dst = operator.through(desc)
            if dst is not None and dnnl.is_expressible(dst):
                yield Candidate((("src", desc),), (), dst, (), (), None, 0.0, "view")

    def _wishes(self, group: Group, incoming: Mapping[str, Sequence[MemoryDesc]]) -> Iterator[Wish]:
        names = ("plain", "channels_last", *self.costs.machine.block_names)
        ndims = len(group.main.dst.shape)
        yield from (Wish(tag, tag) for tag in self.tags if FormatTag.parse(tag).ndims == ndims)
        if group.main.operator.role is Role.CHOOSER:
            yield Wish("any", "any")
            yield Wish("any", "any", "forward_training")
            yield from (Wish("plain", block) for block in self.costs.machine.block_names)
        yield from (Wish(name, name) for name in names)
        if group.main.operator.role is Role.FOLLOWER:
            first = next(iter(group.main.sources), None)
            arriving = incoming.get(first[0], ()) if first else ()
            yield from (Wish(desc, desc) for desc in arriving if desc.is_dense)

    def _candidates(self, group: Group, wish: Wish, in_place: str | None) -> Iterator[Candidate]:
        """The group with as many post-ops fused as run optimised; the sum in place where that is legal."""
        main = kernel_problem(group.main, self.dtype, self.costs.machine.n_threads)
        for n_fused in range(len(group.followers), -1, -1):
            offered = list(self._fused(group, wish, main, n_fused, in_place))
            yield from offered
            if any(not candidate.is_reference for candidate in offered):
                return

    def _fused(
        self, group: Group, wish: Wish, main: Problem, n_fused: int, in_place: str | None
    ) -> Iterator[Candidate]:
        fused, rest = group.followers[:n_fused], group.followers[n_fused:]
        can_sum = any(f.use.is_sum and f.operand(f.use.operand or "") == in_place for f in fused[:1])
        for alias in (in_place, None) if can_sum else (None,):
            step = self._main_step(group, wish, main, fused, alias)
            candidate = step and self._finish(group, wish, step, rest, alias)
            if candidate is not None:
                yield candidate

    def _main_step(
        self, group: Group, wish: Wish, main: Problem, fused: Sequence[Follower], alias: str | None
    ) -> tuple[list[RecipeStep], dict[str, MemoryDesc]] | None:
        """The group's primitive with its post-ops, resolved, and the temporaries of its recipe."""
        try:
            attr = dnnl.Attr(post_ops=tuple(self._post_ops(group, wish, main.dst, fused, alias)))
            recipe = group.main.operator.lower(main, wish, attr)
            if recipe is None:
                return None
            steps = _resolved(recipe)
        except NOT_OFFERED:
            return None
        return [*steps[:-1], _name_post_op_operands(steps[-1], fused)], dict(recipe.temporaries)

    def _post_ops(
        self, group: Group, wish: Wish, dst: TensorInfo, fused: Sequence[Follower], alias: str | None
    ) -> Iterator[dnnl.PostOp]:
        for follower in fused:
            use = follower.use
            if use.operand is None or not isinstance(use.post_op, dnnl.Binary):
                yield use.post_op
            elif follower.operand(use.operand) == alias:
                yield dnnl.Sum()
            else:
                yield replace(use.post_op, src1=self._src1(group, wish, dst, follower.operand(use.operand)))

    def _src1(self, group: Group, wish: Wish, dst: TensorInfo, operand: str) -> dnnl.Desc:
        info = self._operand_info(group, operand)
        if info.dims == dst.dims:
            return wished_desc(wish.dst, info)
        return MemoryDesc(info.dims, info.dtype)

    def _operand_info(self, group: Group, operand: str) -> TensorInfo:
        if operand in group.sources:
            return value_info(group.sources[operand], self.dtype)
        return constant_info(operand, group.constants[operand], self.dtype)

    def _finish(
        self,
        group: Group,
        wish: Wish,
        main: tuple[list[RecipeStep], dict[str, MemoryDesc]],
        rest: Sequence[Follower],
        alias: str | None,
    ) -> Candidate | None:
        """Append the followers that did not fuse, each in the layout of what precedes it."""
        steps, temporaries = main
        if not rest:
            return self._candidate(group, wish, steps, temporaries, alias)
        # A sum in place has to write where its operand lies; otherwise a temporary serves.
        previous = alias or "tmp_main"
        steps = [*steps[:-1], _renamed(steps[-1], "dst", previous)]
        for position, follower in enumerate(rest):
            desc = steps[-1].spec.memory_desc("dst")
            if previous != alias:
                temporaries[previous] = desc
            result = "dst" if position == len(rest) - 1 else f"tmp_{follower.prefix}"
            step = self._standalone(follower, desc, previous, result)
            if step is None:
                return None
            steps.append(step)
            previous = result
        return self._candidate(group, wish, steps, temporaries, None)

    def _standalone(self, follower: Follower, desc: MemoryDesc, source: str, result: str) -> RecipeStep | None:
        problem = kernel_problem(follower.kernel, self.dtype, self.costs.machine.n_threads)
        try:
            recipe = follower.kernel.operator.lower(problem, Wish(desc, desc), dnnl.Attr())
            if recipe is None or len(recipe.steps) != 1:
                return None
            [step] = _resolved(recipe)
        except NOT_OFFERED:
            return None
        names = {follower.arg: source, "dst": result}
        bound = ((arg, names.get(operand) or follower.operand(operand)) for arg, operand in step.operands)
        return replace(step, operands=tuple(bound))

    def _candidate(
        self,
        group: Group,
        wish: Wish,
        steps: Sequence[RecipeStep],
        temporaries: Mapping[str, MemoryDesc],
        alias: str | None,
    ) -> Candidate:
        demanded = dict(_demanded(steps))
        dst = steps[-1].spec.memory_desc("dst")
        if alias is not None:
            demanded[alias] = dst
        return Candidate(
            sources=tuple((operand, demanded[operand]) for operand in group.sources),
            constants=tuple((operand, demanded[operand]) for operand in group.constants),
            dst=dst,
            steps=tuple(steps),
            temporaries=tuple(temporaries.items()),
            alias=alias,
            cost_ns=sum(self.costs.step_ns(step.spec) for step in steps),
            origin=_origin(wish),
        )


def _resolved(recipe: Recipe) -> list[RecipeStep]:
    """The steps as oneDNN settles them; raises what NOT_OFFERED lists where it has no implementation."""
    steps = []
    for step in recipe.steps:
        resolved = dnnl.resolve(step.spec)
        steps.append(replace(step, spec=resolved.spec, scratchpad_nbytes=resolved.scratchpad_nbytes))
    return steps


def _demanded(steps: Iterable[RecipeStep]) -> Iterator[tuple[str, MemoryDesc]]:
    for step in steps:
        for arg, operand in step.operands:
            yield operand, step.spec.memory_desc(arg)


def _name_post_op_operands(step: RecipeStep, fused: Sequence[Follower]) -> RecipeStep:
    """Bind what binary post-ops read to the followers' operands."""
    bound = [
        (f"post_op_{index}_src_1", follower.operand(follower.use.operand))
        for index, follower in enumerate(fused)
        if follower.use.operand is not None
    ]
    present = {arg for arg, _ in step.spec.descs}
    kept = [(arg, operand) for arg, operand in step.operands if not arg.startswith("post_op_")]
    return replace(step, operands=tuple(sorted([*kept, *(pair for pair in bound if pair[0] in present)])))


def _renamed(step: RecipeStep, operand: str, name: str) -> RecipeStep:
    return replace(step, operands=tuple((arg, name if op == operand else op) for arg, op in step.operands))


def _origin(wish: Wish) -> str:
    if isinstance(wish.dst, MemoryDesc):
        return "the layout that arrives"
    if wish.prop_kind == "forward_training":
        return f"{wish.dst} for training"
    return str(wish.dst) if wish.src == wish.dst else f"{wish.src} to {wish.dst}"


def _nothing_offered(group: Group, dtype: str) -> str:
    shapes = ", ".join(f"{name} {'x'.join(map(str, v.shape))}" for name, v in group.sources.items())
    return (
        f"{group.name}: oneDNN {'.'.join(map(str, dnnl.version()))} has no {dtype} primitive for it on this CPU "
        f"({dnnl.isa()}), sources {shapes}"
    )
