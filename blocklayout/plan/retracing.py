"""The recipes that a group's operators give for layouts a plan already has: what its steps may say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.errors import DnnlError, LayoutError, UnsupportedError
from blocklayout.kernels import LAYOUT_NAMES, HostSpec, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.plan.fuse import constant_info, kernel_problem, value_info

if TYPE_CHECKING:
    from blocklayout.kernels import RecipeStep
    from blocklayout.plan.fuse import Follower, Group

NOT_OFFERED = (DnnlError, UnsupportedError, LayoutError)
_RESULT = "dst"
_BETWEEN = "tmp_main"


@dataclass(frozen=True)
class Way:
    """One way to compute a group, in the Specs of a plan.

    Attributes:
        steps: With the plan's own Specs; operands are the group's, ``dst`` and temporaries.
        descs: The layout of each operand as a whole.
        overwritten: The source that the result, or what becomes of it, is added to in place.
    """

    steps: tuple[RecipeStep, ...]
    descs: Mapping[str, MemoryDesc]
    overwritten: str | None


@dataclass(frozen=True)
class Retrace:
    """A group, and the Specs with which a plan says it computes it.

    Attributes:
        dtype: Data type of activations.
        n_threads: Threads the plan is for.
        arriving: Layouts that buffers which the steps read are known to be in.
        tags: Layouts that the policy asked for.
    """

    group: Group
    specs: Sequence[dnnl.Spec | HostSpec]
    dtype: str
    n_threads: int
    arriving: Sequence[MemoryDesc]
    tags: Sequence[str]

    def ways(self) -> Iterator[Way]:
        """Every way of the group's operators whose primitives the Specs are."""
        followers = self.group.followers
        in_place = [f.operand(f.use.operand) for f in followers[:1] if f.use.is_sum and f.use.operand is not None]
        for n_fused, alias in product(range(len(followers), -1, -1), (None, *in_place)):
            if n_fused or alias is None:
                yield from self._ways(followers[:n_fused], followers[n_fused:], alias)

    def _ways(self, fused: Sequence[Follower], rest: Sequence[Follower], alias: str | None) -> Iterator[Way]:
        problem = kernel_problem(self.group.main, self.dtype, self.n_threads)
        attr = dnnl.Attr(post_ops=tuple(self._post_op(follower, problem.dst.dims, alias) for follower in fused))
        for wish in self._wishes():
            try:
                recipe = self.group.main.operator.lower(problem, wish, attr)
            except NOT_OFFERED:
                continue
            steps = settled(recipe.steps, self.specs) if recipe else None
            if recipe is None or steps is None:
                continue
            bound = _bind_post_ops(steps, fused) if fused else steps
            way = self._finish(bound, dict(recipe.whole), rest, alias)
            if way is not None:
                yield way

    def _wishes(self) -> Iterator[Wish]:
        """What the planner may have wished for, the layouts that came of it first."""
        named = [(name, desc) for spec in self.specs for name, desc in spec.descs if isinstance(desc, MemoryDesc)]
        descs = list(dict.fromkeys(desc for _, desc in named))
        own = list(dict.fromkeys(desc for name, desc in named if name == _RESULT))
        kinds = {getattr(spec, "prop_kind", "") for spec in self.specs} & {"forward_training", "forward_inference"}
        pairs: list[tuple[str | MemoryDesc, str | MemoryDesc]] = [*product(descs[:3], own)]
        pairs += [(name, name) for name in (*LAYOUT_NAMES, *self.tags)]
        pairs += [("plain", name) for name in LAYOUT_NAMES if name.startswith("blocked")]
        pairs += [(desc, desc) for desc in dict.fromkeys((*self.arriving, *descs))]
        for kind in sorted(kinds) or ("forward_inference",):
            yield from (Wish(src, dst, kind) for src, dst in pairs)

    def _post_op(self, follower: Follower, dims: tuple[int, ...], alias: str | None) -> dnnl.PostOp:
        use = follower.use
        if use.operand is None or not isinstance(use.post_op, dnnl.Binary):
            return use.post_op
        operand = follower.operand(use.operand)
        if operand == alias:
            return dnnl.Sum()
        sources = self.group.sources
        if operand in sources:
            info = value_info(sources[operand], self.dtype)
        else:
            info = constant_info(operand, self.group.constants[operand], self.dtype)
        is_open = info.dims == dims
        src1 = dnnl.AnyDesc(info.dims, info.dtype) if is_open else MemoryDesc(info.dims, info.dtype)
        return replace(use.post_op, src1=src1)

    def _finish(
        self, main: list[RecipeStep], whole: dict[str, MemoryDesc], rest: Sequence[Follower], alias: str | None
    ) -> Way | None:
        """Append the followers that did not fuse; ``None`` where the Specs are others, or more."""
        steps = main
        previous = _RESULT if not rest else alias or _BETWEEN
        steps = [_renamed(step, {_RESULT: previous}) for step in steps]
        whole = {previous if operand == _RESULT else operand: desc for operand, desc in whole.items()}
        for position, follower in enumerate(rest):
            result = _RESULT if position == len(rest) - 1 else f"tmp_{follower.prefix}"
            desc = whole.get(previous) or steps[-1].spec.memory_desc(_RESULT)
            found = self._standalone(follower, desc, {follower.arg: previous, _RESULT: result}, len(steps))
            if found is None:
                return None
            steps, whole, previous = [*steps, *found[0]], whole | found[1], result
        if len(steps) != len(self.specs):
            return None
        descs = {operand: step.spec.memory_desc(arg) for step in steps for arg, operand in step.operands} | whole
        if alias is not None and not rest:
            descs[alias] = descs[_RESULT]
        return Way(tuple(steps), descs, alias)

    def _standalone(
        self, follower: Follower, desc: MemoryDesc, names: Mapping[str, str], position: int
    ) -> tuple[list[RecipeStep], dict[str, MemoryDesc]] | None:
        problem = kernel_problem(follower.kernel, self.dtype, self.n_threads)
        try:
            recipe = follower.kernel.operator.lower(problem, Wish(desc, desc), dnnl.Attr())
        except NOT_OFFERED:
            return None
        steps = settled(recipe.steps, self.specs[position:]) if recipe else None
        if recipe is None or steps is None:
            return None
        operands = {operand for step in steps for _, operand in step.operands}
        full = {operand: names.get(operand) or follower.operand(operand) for operand in operands}
        return [_renamed(step, full) for step in steps], {full[operand]: each for operand, each in recipe.whole}


def settled(steps: Sequence[RecipeStep], specs: Sequence[dnnl.Spec | HostSpec]) -> list[RecipeStep] | None:
    """The steps with the Specs that settle theirs, as many as there are; ``None`` if one does not."""
    if len(steps) > len(specs):
        return None
    pairs = list(zip(steps, specs, strict=False))
    if not all(settles(step.spec, spec) for step, spec in pairs):
        return None
    return [replace(step, spec=spec) for step, spec in pairs]


def settles(asked: dnnl.Spec | HostSpec, found: dnnl.Spec | HostSpec) -> bool:
    """Whether ``found`` is ``asked`` with nothing but open layouts and the implementation filled in."""
    if not isinstance(asked, dnnl.Spec) or not isinstance(found, dnnl.Spec):
        return asked == found
    same = ("kind", "algorithm", "prop_kind", "params", "n_threads")
    return (
        all(getattr(asked, name) == getattr(found, name) for name in same)
        and asked.impl in ("", found.impl)
        and _attr_settles(asked.attr, found.attr)
        and all(found.has(name) and _desc_settles(desc, found.desc(name)) for name, desc in asked.descs)
    )


def _attr_settles(asked: dnnl.Attr, found: dnnl.Attr) -> bool:
    if replace(asked, post_ops=()) != replace(found, post_ops=()) or len(asked.post_ops) != len(found.post_ops):
        return False
    return all(_post_op_settles(*pair) for pair in zip(asked.post_ops, found.post_ops, strict=True))


def _post_op_settles(asked: dnnl.PostOp, found: dnnl.PostOp) -> bool:
    if not isinstance(asked, dnnl.Binary) or not isinstance(found, dnnl.Binary):
        return asked == found
    if asked.src1 is None or found.src1 is None or not _desc_settles(asked.src1, found.src1):
        return False
    return replace(asked, src1=found.src1) == found


def _desc_settles(asked: dnnl.Desc, found: dnnl.Desc) -> bool:
    return asked == found if isinstance(asked, MemoryDesc) else (asked.dims, asked.dtype) == (found.dims, found.dtype)


def _renamed(step: RecipeStep, names: Mapping[str, str]) -> RecipeStep:
    return replace(step, operands=tuple((arg, names.get(operand, operand)) for arg, operand in step.operands))


def _bind_post_ops(steps: list[RecipeStep], fused: Sequence[Follower]) -> list[RecipeStep]:
    """The last primitive with what its post-ops read: a second source, or slopes."""
    last = max(index for index, step in enumerate(steps) if isinstance(step.spec, dnnl.Spec))
    step = steps[last]
    present = {arg for arg, _ in step.spec.descs}
    read = [(index, f.operand(f.use.operand)) for index, f in enumerate(fused) if f.use.operand is not None]
    bound = [(f"post_op_{index}_{role}", operand) for index, operand in read for role in ("src_1", "weights")]
    kept = [(arg, operand) for arg, operand in step.operands if operand != arg or not arg.startswith("post_op_")]
    operands = [*kept, *(pair for pair in bound if pair[0] in present)]
    return [*steps[:last], replace(step, operands=tuple(operands)), *steps[last + 1 :]]
