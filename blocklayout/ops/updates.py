"""Updates of parameters by their gradients, of a domain of our own: each is computed on the bare bytes, in any layout.

Numbers that change from step to step, such as the learning rate, are inputs of one element, negated where they are
multiplied by what is subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import ClassVar

from blocklayout import dnnl, ir
from blocklayout.dnnl import Attr, Binary, Eltwise
from blocklayout.layout import MemoryDesc
from blocklayout.ops._layouts import Follower
from blocklayout.ops.gradients import DOMAIN, Results

Step = tuple[dnnl.Spec, Mapping[str, str]]
"""A primitive, and the operands that its arguments are."""


class _Update(Follower, frozen=True):
    """An update of a parameter, the second input, by its gradient, the first; behind them are its state and numbers."""

    states: ClassVar[tuple[str, ...]]
    numbers: ClassVar[tuple[str, ...]]

    @classmethod
    def inferred(cls, node: ir.NodeInfo) -> Results:
        grad, n_tensors = node.required(0, "grad"), len(node.inputs) - len(cls.numbers)
        for index in range(1, len(node.inputs)):
            given, wanted = node.required(index, "an operand").shape, grad.shape if index < n_tensors else (1,)
            if given != wanted:
                raise node.wrong(f"input {index} has extents {list(given)}", f"{list(wanted)} is right")
        return ((grad.shape, grad.dtype),) * (n_tensors - 1)

    def bound(self, node: ir.NodeInfo) -> ir.Lowered:
        """With the node's inputs, and all results."""
        n_states = len(node.inputs) - 2 - len(self.numbers)
        names = ("src", "param", *self.states[:n_states], *self.numbers)
        sources = dict(zip(names, (value for value in node.inputs if value is not None), strict=True))
        others = {f"dst_{name}": value for name, value in zip(self.states, node.outputs[1:], strict=False)}
        if any(value is None for value in others.values()):
            raise node.wrong("a new state is not read", "the next step needs all")
        return ir.Lowered(self, sources, others={name: value for name, value in others.items() if value is not None})

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        del dst  # it lies as the gradient does
        if attr.post_ops or not src.is_dense:
            return None
        flat = MemoryDesc((prod(src.padded_dims),), src.dtype)
        states = [name for name in self.states if name in problem.sources]
        steps = tuple(
            ir.RecipeStep(spec, tuple(sorted(operands.items())))
            for spec, operands in self.steps(flat, MemoryDesc((1,)), problem.n_threads)
        )
        results = ("dst", *(f"dst_{name}" for name in states))
        known = ("src", "param", *states, *self.numbers, *results)
        named = dict.fromkeys(operand for step in steps for _, operand in step.operands)
        whole = tuple((name, src) for name in ("src", "param", *states, *results))
        return ir.Recipe(steps, tuple((name, flat) for name in named if name not in known), whole)

    def steps(self, flat: MemoryDesc, one: MemoryDesc, n_threads: int) -> Iterator[Step]:
        """Primitives on tensors seen as ``flat``, and numbers as ``one``."""
        raise NotImplementedError


def _sum(flat: MemoryDesc, n_threads: int, dst: str, **terms: float) -> Step:
    """The sum of operands times numbers."""
    spec = dnnl.sum([flat] * len(terms), flat, [*terms.values()], n_threads=n_threads)
    return spec, {"dst": dst} | {f"src_{place}": name for place, name in enumerate(terms)}


class SgdUpdate(_Update, frozen=True):
    """Stochastic gradient descent, with momentum where there is a velocity; ``rate`` is negated."""

    op_types: ClassVar[tuple[str, ...]] = (f"{DOMAIN}.SgdUpdate",)
    states: ClassVar[tuple[str, ...]] = ("velocity",)
    numbers: ClassVar[tuple[str, ...]] = ("rate",)

    has_velocity: bool
    momentum: float
    weight_decay: float
    is_nesterov: bool

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        numbers = node.float_attr("momentum", 0.0), node.float_attr("weight_decay", 0.0)
        return cls(len(node.inputs) > 3, *numbers, node.flag_attr("nesterov")).bound(node)

    def steps(self, flat: MemoryDesc, one: MemoryDesc, n_threads: int) -> Iterator[Step]:
        decay = {"param": self.weight_decay} if self.weight_decay else {}
        moved = "src"
        if self.has_velocity:
            moved = "dst_velocity"
            yield _sum(flat, n_threads, moved, velocity=self.momentum, src=1.0, **decay)
        if self.is_nesterov and self.has_velocity:
            yield _sum(flat, n_threads, "ahead", dst_velocity=self.momentum, src=1.0, **decay)
            moved = "ahead"
        elif decay and not self.has_velocity:
            yield _sum(flat, n_threads, "decayed", src=1.0, **decay)
            moved = "decayed"
        spec = dnnl.binary(flat, one, flat, "mul", attr=Attr((Binary("add", flat),)), n_threads=n_threads)
        yield spec, {"src_0": moved, "src_1": "rate", "post_op_0_src_1": "param", "dst": "dst"}


class AdamUpdate(_Update, frozen=True):
    """Adam with decoupled weight decay. Numbers: the rate over the first moment's correction, negated; the second
    moment's correction, inverted; and the share of the parameter that is left by the decay. ``rest_1`` is 1 less
    ``beta_1``, which has lost digits as an attribute; so has ``rest_2``.
    """

    op_types: ClassVar[tuple[str, ...]] = (f"{DOMAIN}.AdamUpdate",)
    states: ClassVar[tuple[str, ...]] = ("mean", "square")
    numbers: ClassVar[tuple[str, ...]] = ("rate", "correction", "kept")

    betas: tuple[float, float]
    rests: tuple[float, float]
    epsilon: float

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        betas = node.float_attr("beta_1", 0.9), node.float_attr("beta_2", 0.999)
        rests = node.float_attr("rest_1", 1 - betas[0]), node.float_attr("rest_2", 1 - betas[1])
        return cls(betas, rests, node.float_attr("epsilon", 1e-8)).bound(node)

    def steps(self, flat: MemoryDesc, one: MemoryDesc, n_threads: int) -> Iterator[Step]:
        def binary(second: MemoryDesc, *post_ops: dnnl.PostOp, algorithm: str = "mul") -> dnnl.Spec:
            return dnnl.binary(flat, second, flat, algorithm, attr=Attr(post_ops), n_threads=n_threads)

        (first, second), (rest_1, rest_2) = self.betas, self.rests
        yield _sum(flat, n_threads, "dst_mean", mean=first, src=rest_1)
        yield binary(flat), {"src_0": "src", "src_1": "src", "dst": "squared"}
        yield _sum(flat, n_threads, "dst_square", square=second, squared=rest_2)
        root = Eltwise("sqrt"), Eltwise("linear", 1.0, self.epsilon)
        yield binary(one, *root), {"src_0": "dst_square", "src_1": "correction", "dst": "root"}
        scaled = {"src_0": "dst_mean", "src_1": "root", "post_op_0_src_1": "rate", "dst": "change"}
        yield binary(flat, Binary("mul", one), algorithm="div"), scaled
        changed = {"src_0": "param", "src_1": "kept", "post_op_0_src_1": "change", "dst": "dst"}
        yield binary(one, Binary("add", flat)), changed
