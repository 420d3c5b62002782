"""The ways to compute a tile: its primitive with followers as post-ops, and those that remain behind it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import TypeGuard

from msgspec import Struct, field
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.dnnl.attr import NO_ATTR
from blocklayout.errors import DnnlError, LayoutError, UnsupportedError
from blocklayout.ir import (
    BYTES,
    BaseOperator,
    Candidate,
    HostSpec,
    Problem,
    Recipe,
    RecipeStep,
    TensorInfo,
    Wish,
    wished_desc,
)
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.tiles import Member, Tile, constant_info, in_bytes, kernel_problem, value_info

_Ways = Callable[[Problem, Wish, dnnl.Attr], Sequence[Recipe]]
"""Recipes of an operator's problem, as wished and with these post-ops."""

NOT_OFFERED = (DnnlError, UnsupportedError, LayoutError)
"""Errors of questions for primitives that do not exist."""


class TileRecipes(Struct, frozen=True, dict=True):
    """Finds the candidates of one tile in one data type of activations.

    Attributes:
        answers: Whether the library goes from one layout to another, by what that depends on; shared among tiles.
        impls: The implementations that the primitives may be, by name; any if there are none.
    """

    tile: Tile
    dtype: str
    n_threads: int
    answers: dict[object, bool] = field(default_factory=dict)
    impls: tuple[str, ...] = ()

    @cached_property
    def _problem(self) -> Problem:
        return kernel_problem(self.tile.main, self.dtype, self.n_threads)

    @cached_property
    def _likeness(self) -> object:
        return self.tile.main.operator.likeness(self._problem)

    def wished(self, wish: Wish) -> Iterator[Candidate]:
        """Candidates in wished layouts: with as many post-ops fused as run optimised, and with some left apart.

        These are a sum, which then reads no other layout, and a function that code of our own computes faster alone.
        """
        operator, followers = self.tile.main.operator, self.tile.followers
        if self.tile.depthwise is not None:
            yield from self._fused(wish, len(followers), _usual(operator))
            return
        if wish.src != wish.dst and not self.impls and not self._is_worth_asking(wish):
            return
        n_fused = yield from self._most_fused(wish, _usual(operator))
        for is_apart in (_is_sum, _is_faster_alone):
            n_before = next((n for n, follower in enumerate(followers) if is_apart(follower)), None)
            if n_before is not None and n_before < n_fused:
                yield from islice(self._fused(wish, n_before, _usual(operator)), 1)
        yield from self._most_fused(wish, operator.alternatives)

    def _most_fused(self, wish: Wish, ways: _Ways) -> Generator[Candidate, None, int]:
        """Candidates with fewer and fewer post-ops fused, until some run optimised; returns how many are."""
        for n_fused in range(len(self.tile.followers), -1, -1):
            offered = list(self._fused(wish, n_fused, ways))
            yield from offered
            if any(not candidate.is_reference for candidate in offered):
                return n_fused
        return 0

    def _is_worth_asking(self, wish: Wish) -> bool:
        """Whether more than a reference goes from one layout to another; asked once for problems that are alike."""
        question = wish, self._likeness
        if question not in self.answers:
            self.answers[question] = self._has_optimised(wish)
        return self.answers[question]

    def _has_optimised(self, wish: Wish) -> bool:
        try:
            recipe = self.tile.main.operator.lower(self._problem, wish, NO_ATTR)
            specs = [step.spec for step in recipe.steps] if recipe else []
            return any(isinstance(spec, dnnl.Spec) and dnnl.has_optimised(spec) for spec in specs)
        except NOT_OFFERED:
            return False

    def _fused(self, wish: Wish, n_fused: int, ways: _Ways) -> Iterator[Candidate]:
        fused, rest = self.tile.followers[:n_fused], self.tile.followers[n_fused:]
        if self.dtype != BYTES and len(rest) == 0 and self.tile.byte_writer is not None:
            return  # only primitives that compute with bytes have a scale for their result
        shared = self.tile.shared or () if self.dtype != BYTES else ()
        sums = (f.operand(f.use.operand or "") for f in fused[:1] if f.use.is_sum)
        for alias in (*(operand for operand in sums if operand in shared), None):
            for rank, recipe in enumerate(self._main_recipes(wish, fused, alias, ways)):
                finished = self._finished(recipe, rest, alias) if rest else recipe
                if finished is not None:
                    yield self._candidate(wish, finished, None if rest else alias, rank)

    def _candidate(self, wish: Wish, recipe: Recipe, alias: str | None, rank: int) -> Candidate:
        """Resolved steps that compute the whole tile, operands named as the tile names them."""
        demanded = {operand: step.spec.memory_desc(arg) for step in recipe.steps for arg, operand in step.operands}
        demanded |= dict(recipe.whole)
        if alias is not None:
            demanded[alias] = demanded["dst"]
        return Candidate(
            sources=tuple((operand, demanded[operand]) for operand in self.tile.sources),
            constants=tuple((operand, demanded[operand]) for operand in self.tile.constants if operand in demanded),
            dst=demanded["dst"],
            made=recipe.made,
            others=tuple((arg, demanded[arg]) for arg, _ in self.tile.main.others),
            steps=recipe.steps,
            temporaries=recipe.temporaries,
            alias=alias,
            origin=_origin(wish, rank),
            rank=rank,
        )

    def _main_recipes(self, wish: Wish, fused: Sequence[Member], alias: str | None, ways: _Ways) -> Iterator[Recipe]:
        """The tile's primitives, the last with its post-ops, in every implementation of that."""
        with suppress(*NOT_OFFERED):
            attr = dnnl.Attr(tuple(self._post_ops(wish, self._problem.dst, fused, alias))) if fused else NO_ATTR
            problem, numbers = self._problem, dict[str, str]()
            if self.dtype == BYTES:
                writer = fused[-1] if fused and fused[-1] is self.tile.byte_writer else None
                problem = replace(problem, dst=value_info(writer.kernel.dst, BYTES)) if writer else problem
                attr, numbers = self._with_numbers(attr, writer)
            for recipe in ways(problem, wish, attr):
                with suppress(*NOT_OFFERED):
                    whole = _with_whole_operands(recipe, attr, fused)
                    may_round = self.tile.spares_roundings(fused)
                    yield from _implementations(whole, fused, self.impls, numbers, may_round=may_round)

    def _with_numbers(self, attr: dnnl.Attr, writer: Member | None) -> tuple[dnnl.Attr, dict[str, str]]:
        """With scales and zero points of bytes, and of a result of which ``writer`` makes bytes.

        With it the tile's operands, by operand of the recipe, that these and constant bytes are.

        Raises:
            UnsupportedError: The operator, or one of the post-ops, cannot compute with these bytes.
        """
        main = self.tile.main
        given, infos = main.in_bytes, dict(self._problem.arguments)
        if given is None:
            return attr, {}
        masks = {arg: main.operator.scale_mask(infos[arg]) if each.array.size > 1 else 0 for arg, each in given.scales}
        operands = {arg: in_bytes(arg) for arg in (*dict(given.constants), *(f"scale_{arg}" for arg in masks))}
        around = self.tile.post_ops_of_bytes(writer)
        if around is not None:
            before, behind = around
            reads_more = [isinstance(post_op, dnnl.Binary | dnnl.Prelu) for post_op in attr.post_ops]
            if any(reads_more) and (before or len(reads_more) > 1):  # its operand is named by its place
                raise UnsupportedError(f"{self.tile.name}: a post-op behind others of bytes reads more than the result")
            zeros = tuple((arg, 0) for arg, _ in given.zero_points)
            return dnnl.Attr(_composed((*before, *attr.post_ops, *behind)), tuple(masks.items()), zeros), operands
        shifts = {f"zero_point_{arg}": in_bytes(f"zero_point_{arg}") for arg, _ in given.zero_points}
        if writer and writer.use.post_op is None:
            masks["dst"] = 0
            operands["scale_dst"] = writer.operand("scale")
        if writer:
            shifts |= {f"{arg}_dst": writer.operand(arg) for arg, _ in writer.kernel.constants if arg == "zero_point"}
        shifted = tuple((name.removeprefix("zero_point_"), 0) for name in shifts)
        return replace(attr, scales=tuple(masks.items()), zero_points=shifted), operands | shifts

    def _post_ops(
        self, wish: Wish, dst: TensorInfo, fused: Sequence[Member], alias: str | None
    ) -> Iterator[dnnl.PostOp]:
        for follower in fused:
            use = follower.use
            if use.post_op is None:
                continue
            if use.operand is None or not isinstance(use.post_op, dnnl.Binary):
                yield use.post_op
            elif follower.operand(use.operand) == alias:
                yield dnnl.Sum()
            else:
                yield replace(use.post_op, src1=self._src1(wish, dst, follower.operand(use.operand)))

    def _src1(self, wish: Wish, dst: TensorInfo, operand: str) -> dnnl.Desc:
        if operand in self.tile.sources:
            info = value_info(self.tile.sources[operand], "f32" if self.dtype == BYTES else self.dtype)
        else:
            info = constant_info(operand, self.tile.constants[operand], self.dtype)
        return wished_desc(wish.dst, info) if info.dims == dst.dims else MemoryDesc(info.dims, info.dtype)

    def _finished(self, main: Recipe, rest: Sequence[Member], alias: str | None) -> Recipe | None:
        """Append the followers that did not fuse, each in the layout of what precedes it."""
        # A sum in place has to write where its operand lies; otherwise a temporary serves.
        previous = alias or "tmp_main"
        steps = [renamed(step, {"dst": previous}) for step in main.steps]
        temporaries = dict(main.temporaries)
        whole = {previous if operand == "dst" else operand: desc for operand, desc in main.whole}
        for follower in rest:
            result = "dst" if follower is rest[-1] else f"tmp_{follower.prefix}"
            written = next(arg for arg, operand in steps[-1].operands if operand == previous)
            desc = temporaries[previous] = whole.get(previous) or steps[-1].spec.memory_desc(written)
            problem = kernel_problem(follower.kernel, self.dtype, self.n_threads)
            recipe = _standalone(follower, problem, desc, previous, result)
            if recipe is None or problem.sources[follower.arg].dtype != desc.dtype:
                return None
            steps += recipe.steps
            whole |= dict(recipe.whole)
            previous = result
        if alias is not None:
            del temporaries[alias]
        return Recipe(tuple(steps), tuple(temporaries.items()), tuple(whole.items()), main.made)


def _is_sum(follower: Member) -> bool:
    return follower.use.is_sum


def _is_faster_alone(follower: Member) -> bool:
    function = follower.use.post_op
    return isinstance(function, dnnl.Eltwise) and own.is_faster_alone(function)


def _origin(wish: Wish, rank: int) -> str:
    sides = ("a layout at hand" if isinstance(side, MemoryDesc) else side for side in (wish.src, wish.dst))
    asked = " to ".join(dict.fromkeys(sides))
    return f"{asked}, choice {rank + 1}" if rank else asked


def _usual(operator: BaseOperator) -> _Ways:
    """Its main recipe, as a sequence of as many as there are."""

    def ways(problem: Problem, wish: Wish, attr: dnnl.Attr) -> Sequence[Recipe]:
        recipe = operator.lower(problem, wish, attr)
        return () if recipe is None else (recipe,)

    return ways


def trained_wishes(tile: Tile, dtype: str, n_threads: int) -> Iterator[Wish]:
    """The layouts that the library would pick for training: other ones than for inference, and often as fast."""
    problem = kernel_problem(tile.main, dtype, n_threads)
    try:
        recipe = tile.main.operator.lower(problem, Wish("any", "any", "forward_training"), NO_ATTR)
        specs = [step.spec for step in resolved(recipe.steps)] if recipe else []
    except NOT_OFFERED:
        return
    for spec in specs:
        if isinstance(spec, dnnl.Spec) and spec.has("src") and spec.has("dst"):
            yield Wish(spec.memory_desc("src"), spec.memory_desc("dst"))


def resolved(steps: Iterable[RecipeStep], ask: Callable[[dnnl.Spec], dnnl.Resolved] = dnnl.resolve) -> list[RecipeStep]:
    """The steps as oneDNN settles them; raises what NOT_OFFERED lists where it has no implementation."""
    found = []
    for step in steps:
        if isinstance(step.spec, HostSpec):
            found.append(step)
            continue
        settled = ask(step.spec)
        found.append(RecipeStep(settled.spec, step.operands, settled.scratchpad_nbytes))
    return found


def _standalone(follower: Member, problem: Problem, desc: MemoryDesc, source: str, result: str) -> Recipe | None:
    """A follower that did not fuse, its operands named as the tile's."""
    try:
        recipe = follower.kernel.operator.lower(problem, Wish(desc, desc), NO_ATTR)
        if recipe is None or recipe.temporaries:
            return None
        steps = resolved(recipe.steps, dnnl.favourite)
    except NOT_OFFERED:
        return None
    operands = {operand for step in steps for _, operand in step.operands} | dict(recipe.whole).keys()
    names = {operand: follower.operand(operand) for operand in operands} | {follower.arg: source, "dst": result}
    whole = tuple((names[operand], desc) for operand, desc in recipe.whole)
    return Recipe(tuple(renamed(step, names) for step in steps), (), whole)


def renamed(step: RecipeStep, names: Mapping[str, str]) -> RecipeStep:
    """A step some of whose operands are called otherwise."""
    return replace(step, operands=tuple((arg, names.get(operand, operand)) for arg, operand in step.operands))


def _implementations(
    recipe: Recipe, fused: Sequence[Member], impls: Sequence[str], numbers: Mapping[str, str], *, may_round: bool
) -> list[Recipe]:
    """A recipe in every implementation of its last primitive, which takes the post-ops: numpy's steps take none.

    With names, in those of them that there are, and the library is asked for no others. With ``numbers`` its constants
    are bytes. Those that round more than others are among them if it ``may_round``.
    """
    primitives = [(index, step.spec) for index, step in enumerate(recipe.steps) if isinstance(step.spec, dnnl.Spec)]
    if not primitives:
        return [recipe]
    last, spec = primitives[-1]
    if dnnl.is_rougher(spec) and not may_round:
        return []
    before, behind = resolved(recipe.steps[:last]), resolved(recipe.steps[last + 1 :])
    found = []
    offered = [*(_named(spec, impls) if impls else dnnl.optimised(spec))]
    if may_round:
        offered += [each for each in dnnl.rougher(spec) if not impls or each.spec.impl in impls]
    for each in offered:
        operands = _with_post_op_operands(recipe.steps[last].operands, each.spec, fused)
        if numbers:
            operands = _with_bytes(operands, each.spec, numbers)
        step = RecipeStep(each.spec, operands, each.scratchpad_nbytes)
        found.append(replace(recipe, steps=(*before, step, *behind)))
    return found


def _with_bytes(
    operands: Iterable[tuple[str, str]], spec: dnnl.Spec, numbers: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """With constants that are bytes, scales and zero points, which are arguments of the same names unless renamed."""
    found = {arg: operand for arg, operand in numbers.items() if spec.has(arg)}
    return tuple(sorted((found | {arg: numbers.get(operand, operand) for arg, operand in operands}).items()))


def _composed(post_ops: Iterable[dnnl.PostOp]) -> tuple[dnnl.PostOp, ...]:
    """The same with adjacent linear functions as one."""
    found: list[dnnl.PostOp] = []
    for each in post_ops:
        before = found[-1] if found else None
        if _is_linear(before) and _is_linear(each):
            found[-1] = dnnl.Eltwise("linear", before.alpha * each.alpha, before.beta * each.alpha + each.beta)
        else:
            found.append(each)
    return tuple(found)


def _is_linear(post_op: dnnl.PostOp | None) -> TypeGuard[dnnl.Eltwise]:
    return isinstance(post_op, dnnl.Eltwise) and post_op.algorithm == "eltwise_linear"


def _named(spec: dnnl.Spec, impls: Sequence[str]) -> Iterator[dnnl.Resolved]:
    for impl in dict.fromkeys(impls):
        with suppress(*NOT_OFFERED):
            yield dnnl.resolve(spec.replace(impl=impl))


def _with_whole_operands(recipe: Recipe, asked: dnnl.Attr, fused: Sequence[Member]) -> Recipe:
    """With the layouts of what post-ops read where the primitive sees it under other extents than it was asked to.

    Those that it was asked for, or, under the argument's name, that the recipe has.
    """
    if not fused:
        return recipe
    last = recipe.steps[-1].spec
    given = last.attr.post_ops if isinstance(last, dnnl.Spec) else ()
    whole = dict(recipe.whole)
    for index, (follower, wanted, seen) in enumerate(zip(fused, asked.post_ops, given, strict=False)):
        src1, own = (each.src1 if isinstance(each, dnnl.Binary) else None for each in (wanted, seen))
        if src1 is None or own is None or follower.use.operand is None:
            continue
        named = whole.pop(f"post_op_{index}_src_1", None)
        if named is not None or src1.dims != own.dims:
            desc = src1 if isinstance(src1, MemoryDesc) else MemoryDesc(src1.dims, src1.dtype)
            whole[follower.operand(follower.use.operand)] = named or desc
    return replace(recipe, whole=tuple(whole.items()))


def _with_post_op_operands(
    operands: tuple[tuple[str, str], ...], spec: dnnl.Spec, fused: Sequence[Member]
) -> tuple[tuple[str, str], ...]:
    """With what post-ops read, a second source, slopes or weights, bound to the followers' operands."""
    read = (pair for index, follower in enumerate(fused) for pair in follower.read_by(index))
    bound = [(arg, operand) for arg, operand in read if spec.has(arg)]
    # A recipe may have bound a post-op of its own; by its argument's name it did not.
    kept = [(arg, operand) for arg, operand in operands if operand != arg or not arg.startswith("post_op_")]
    return tuple(sorted([*kept, *bound]))
