"""Ask oneDNN what it offers for a group, in every layout worth having."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.dtypes import has_reorder
from blocklayout.errors import DnnlError, LayoutError, UnsupportedError
from blocklayout.kernels import Candidate, HostSpec, Problem, Recipe, RecipeStep, Role, TensorInfo, Wish, wished_desc
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.plan.fuse import Follower, Group, constant_info, kernel_problem, value_info

if TYPE_CHECKING:
    from blocklayout.plan.costs import CostModel

NOT_OFFERED = (DnnlError, UnsupportedError, LayoutError)
"""What asking for something that does not exist raises."""


MAX_FRUGAL_RATIO = 2.0
"""How much slower than the best a group may become for the sake of memory."""


@dataclass(frozen=True)
class Proposer:
    """Proposes candidates for groups on one machine.

    Attributes:
        costs: Prices the candidates; also knows the machine.
        dtype: Data type of activations.
        tags: Layouts to try beyond the usual ones, as oneDNN tags.
        is_frugal: Whether to leave out what takes memory for good each time it is made, unless all else costs
            more than ``MAX_FRUGAL_RATIO`` times as much.
    """

    costs: CostModel
    dtype: str
    tags: tuple[str, ...] = ()
    is_frugal: bool = False

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
        if all(0 in value.shape for value in group.dsts.values()):
            return (self._nothing_to_do(group),)
        if group.main.operator.role is Role.PLAIN:
            return (self._plain(group),)
        if group.is_view:
            return self._views(group, incoming["src"])
        found: dict[tuple[object, ...], Candidate] = {}
        for wish in self._wishes(group, incoming):
            for candidate in self._candidates(group, wish, in_place):
                key = (candidate.sources, candidate.dst, candidate.alias, tuple(s.spec.impl for s in candidate.steps))
                found.setdefault(key, candidate)
        optimised = tuple(c for c in found.values() if not c.is_reference)
        if not found:
            raise UnsupportedError(_nothing_offered(group, self.dtype))
        offered = optimised or tuple(found.values())
        return _frugal(offered) if self.is_frugal else offered

    def _views(self, group: Group, incoming: Sequence[MemoryDesc]) -> tuple[Candidate, ...]:
        """The layouts that arrive seen through the view, and those a reader may want seen back through it."""
        operator = group.main.operator
        plain = MemoryDesc(incoming[0].dims, incoming[0].dtype)
        pairs: list[tuple[MemoryDesc | None, MemoryDesc | None]]
        pairs = [(desc, operator.through(desc)) for desc in dict.fromkeys([*incoming, plain])]
        info = TensorInfo(group.dst.dims, plain.dtype)
        for name in ("channels_last", *self.costs.machine.block_names):
            dst = wished_desc(name, info)
            if isinstance(dst, MemoryDesc):
                pairs.append((operator.back(dst), dst))
        found = {
            (src, dst): Candidate((("src", src),), (), dst, (), (), None, 0.0, "view")
            for src, dst in pairs
            if src is not None and dst is not None and _can_be_moved(src) and _can_be_moved(dst)
        }
        if not found:
            raise UnsupportedError(f"{group.name}: no layout of {info.dims} can be seen through it")
        return tuple(found.values())

    def _plain(self, group: Group) -> Candidate:
        """A node computed by the reference, on row-major arrays."""
        recipe = group.main.operator.lower(
            kernel_problem(group.main, self.dtype, 1), Wish("plain", "plain"), dnnl.Attr()
        )
        if recipe is None:
            raise UnsupportedError(_nothing_offered(group, self.dtype))
        candidate = self._candidate(group, Wish("plain", "plain"), recipe.steps, {}, None)
        others = tuple((arg, recipe.steps[0].spec.memory_desc(arg)) for arg, _ in group.main.others)
        return replace(candidate, others=others, origin="onnx.reference")

    def _nothing_to_do(self, group: Group) -> Candidate:
        """A result without elements."""
        descs = {arg: _row_major(value_info(value, self.dtype)) for arg, value in group.dsts.items()}
        sources = tuple((arg, _row_major(value_info(value, self.dtype))) for arg, value in group.sources.items())
        others = tuple((arg, descs[arg]) for arg, _ in group.main.others)
        return Candidate(sources, (), descs["dst"], (), (), None, 0.0, "no elements", others)

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
            recipe = self._main_recipe(group, wish, main, fused, alias)
            candidate = self._finish(group, wish, recipe, rest, alias) if recipe else None
            if candidate is not None:
                yield candidate

    def _main_recipe(
        self, group: Group, wish: Wish, main: Problem, fused: Sequence[Follower], alias: str | None
    ) -> Recipe | None:
        """The group's primitives, the last with its post-ops, resolved."""
        try:
            attr = dnnl.Attr(post_ops=tuple(self._post_ops(group, wish, main.dst, fused, alias)))
            recipe = group.main.operator.lower(main, wish, attr)
            if recipe is None:
                return None
            steps = _resolved(recipe)
        except NOT_OFFERED:
            return None
        last = _last_primitive(steps)
        steps[last] = _name_post_op_operands(steps[last], fused)
        return replace(recipe, steps=tuple(steps))

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
        main: Recipe,
        rest: Sequence[Follower],
        alias: str | None,
    ) -> Candidate | None:
        """Append the followers that did not fuse, each in the layout of what precedes it."""
        steps, temporaries = list(main.steps), dict(main.temporaries)
        if not rest:
            return self._candidate(group, wish, steps, temporaries, alias, dict(main.whole))
        # A sum in place has to write where its operand lies; otherwise a temporary serves.
        previous = alias or "tmp_main"
        steps = [_renamed(step, "dst", previous) for step in steps]
        whole = {previous if operand == "dst" else operand: desc for operand, desc in main.whole}
        for position, follower in enumerate(rest):
            desc = whole.get(previous) or steps[-1].spec.memory_desc("dst")
            if previous != alias:
                temporaries[previous] = desc
            result = "dst" if position == len(rest) - 1 else f"tmp_{follower.prefix}"
            recipe = self._standalone(follower, desc, previous, result)
            if recipe is None:
                return None
            steps += recipe.steps
            whole |= dict(recipe.whole)
            previous = result
        return self._candidate(group, wish, steps, temporaries, None, whole)

    def _standalone(self, follower: Follower, desc: MemoryDesc, source: str, result: str) -> Recipe | None:
        """A follower that did not fuse, its operands named as the group's."""
        problem = kernel_problem(follower.kernel, self.dtype, self.costs.machine.n_threads)
        try:
            recipe = follower.kernel.operator.lower(problem, Wish(desc, desc), dnnl.Attr())
            if recipe is None or recipe.temporaries:
                return None
            steps = _resolved(recipe)
        except NOT_OFFERED:
            return None
        names = {follower.arg: source, "dst": result}

        def name(operand: str) -> str:
            return names.get(operand) or follower.operand(operand)

        bound = [
            replace(step, operands=tuple((arg, name(operand)) for arg, operand in step.operands)) for step in steps
        ]
        return Recipe(tuple(bound), (), tuple((name(operand), whole) for operand, whole in recipe.whole))

    def _candidate(
        self,
        group: Group,
        wish: Wish,
        steps: Sequence[RecipeStep],
        temporaries: Mapping[str, MemoryDesc],
        alias: str | None,
        whole: Mapping[str, MemoryDesc] | None = None,
    ) -> Candidate:
        demanded = dict(_demanded(steps)) | dict(whole or {})
        dst = demanded["dst"]
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


def _row_major(info: TensorInfo) -> MemoryDesc:
    return MemoryDesc(info.dims, info.dtype)


def _can_be_moved(desc: MemoryDesc) -> bool:
    """Whether something brings a tensor into this layout: the library, or numpy for the types it lacks."""
    return not has_reorder(desc.dtype) or dnnl.is_expressible(desc)


def _last_primitive(steps: Sequence[RecipeStep]) -> int:
    """The step that takes the post-ops; what numpy does after it takes none."""
    return max(index for index, step in enumerate(steps) if isinstance(step.spec, dnnl.Spec))


def _resolved(recipe: Recipe) -> list[RecipeStep]:
    """The steps as oneDNN settles them; raises what NOT_OFFERED lists where it has no implementation."""
    steps = []
    for step in recipe.steps:
        if isinstance(step.spec, HostSpec):
            steps.append(step)
            continue
        resolved = dnnl.resolve(step.spec)
        steps.append(replace(step, spec=resolved.spec, scratchpad_nbytes=resolved.scratchpad_nbytes))
    return steps


def _demanded(steps: Iterable[RecipeStep]) -> Iterator[tuple[str, MemoryDesc]]:
    for step in steps:
        for arg, operand in step.operands:
            yield operand, step.spec.memory_desc(arg)


def _name_post_op_operands(step: RecipeStep, fused: Sequence[Follower]) -> RecipeStep:
    """Bind what post-ops read, a second source or slopes, to the followers' operands."""
    bound = [
        (f"post_op_{index}_{role}", follower.operand(follower.use.operand))
        for index, follower in enumerate(fused)
        if follower.use.operand is not None
        for role in ("src_1", "weights")
    ]
    present = {arg for arg, _ in step.spec.descs}
    # A recipe may have bound a post-op of its own; by its argument's name it did not.
    kept = [(arg, operand) for arg, operand in step.operands if operand != arg or not arg.startswith("post_op_")]
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


def _frugal(offered: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """The candidates whose primitives give all their memory back, where those are not much slower."""
    frugal = tuple(candidate for candidate in offered if not any(_lasts(step) for step in candidate.steps))
    limit = MAX_FRUGAL_RATIO * min(candidate.cost_ns for candidate in offered)
    return frugal if any(candidate.cost_ns <= limit for candidate in frugal) else offered


def _lasts(step: RecipeStep) -> bool:
    return isinstance(step.spec, dnnl.Spec) and dnnl.leaves_code_behind(step.spec)
