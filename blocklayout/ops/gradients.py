"""Operators of training, of a domain of our own: normalisation by a batch's statistics, and gradients of layers.

Each takes the gradient of its forward's result, ``grad``, and the forward's own inputs. Products of matrices have no
operators here: their gradients are products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar

from blocklayout import dnnl, ir
from blocklayout.errors import UnsupportedError
from blocklayout.layout import MemoryDesc
from blocklayout.ops._layouts import Follower, argument, like
from blocklayout.ops._window import read_kernel_shape, read_window, sliding
from blocklayout.ops.conv import in_groups

DOMAIN = "blocklayout"

Results = Sequence[tuple[tuple[int, ...], str]]
_FLAGS = ("use_scale", "use_shift")


def _read(node: ir.NodeInfo, results: Sequence[str]) -> tuple[tuple[str, ...], dict[str, ir.Value]]:
    """The results that are read, by the primitive's arguments, and all but the first, which is ``dst``, as values."""
    named = {arg: value for arg, value in zip(results, node.outputs, strict=False) if value is not None}
    return tuple(named), {arg: named[arg] for arg in [*named][1:]}


def _recipe(
    spec: dnnl.Spec,
    results: Sequence[str],
    read: Sequence[str],
    whole: Mapping[str, MemoryDesc] | None = None,
    vectors: Sequence[str] = (),
) -> ir.Recipe:
    """One primitive whose first result that is read is ``dst``; results that are not read are temporaries.

    ``vectors`` are arguments that the library lists only once the primitive exists.
    """
    spare: tuple[tuple[str, MemoryDesc], ...] = ()
    if len(read) < len(results):
        settled = dnnl.resolve(spec).spec
        spare = tuple((arg, settled.memory_desc(arg)) for arg in results if arg not in read)
        known = dict(spare)
        spec = spec.replace(descs=tuple((arg, known.get(arg, desc)) for arg, desc in spec.descs))
    names = {name: name for name in (*dict(spec.descs), *results, *vectors)} | {read[0]: "dst"}
    step = ir.RecipeStep(spec, tuple(sorted(names.items())))
    return ir.Recipe((step,), spare, tuple((whole or {}).items()))


def _check_grad(node: ir.NodeInfo, dims: Sequence[int]) -> ir.Value:
    grad = node.required(0, "grad")
    if grad.shape != tuple(dims):
        raise node.wrong(f"grad has extents {list(grad.shape)}", f"the forward's result has {list(dims)}")
    return grad


def _check_window(node: ir.NodeInfo, window: ir.Window, x: tuple[int, ...], n_channels: int) -> None:
    extents = window.extents(x[2:])
    if min(extents) < 1:
        raise node.wrong(f"kernel gives extents {list(extents)}", "it spans more than the padded source")
    _check_grad(node, (x[0], n_channels, *extents))


def _convolved(node: ir.NodeInfo, x: tuple[int, ...], weights: tuple[int, ...]) -> tuple[ir.Window, int]:
    """The window and groups of a convolution of these extents, checked with the gradient's.

    Weights may have their groups in front.
    """
    n_groups = node.int_attr("group", 1)
    if len(weights) > len(x) and weights[0] == n_groups:
        weights = (weights[0] * weights[1], *weights[2:])
    if n_groups < 1 or x[1] != weights[1] * n_groups or weights[0] % n_groups:
        raise node.wrong(f"group is {n_groups}", f"it must divide {x[1]} and {weights[0]} channels, as the weights do")
    window = read_window(node, weights[2:], x[2:])
    _check_window(node, window, x, weights[0])
    return window, n_groups


class ConvDataGradient(ir.BaseOperator, frozen=True):
    """The gradient of a convolution's source, of that of its result and the weights; ``extents`` are the source's."""

    op_types: ClassVar[tuple[str, ...]] = (f"{DOMAIN}.ConvDataGradient",)
    role: ClassVar[ir.Role] = ir.Role.CHOOSER

    window: ir.Window
    n_groups: int = 1

    @classmethod
    def inferred(cls, node: ir.NodeInfo) -> Results:
        weights = node.required(1, "weights")
        extents = node.ints_attr("extents", len(node.required(0, "grad").shape), 1, at_least=0)
        _convolved(node, extents, weights.shape)
        return ((extents, weights.dtype),)

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        weights = node.required(1, "weights")
        window, n_groups = _convolved(node, node.result.shape, weights.shape)
        return cls(window, n_groups).bind({"diff_dst": node.required(0, "grad"), "weights": weights})

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops:
            return None
        src, dst = wish.dst_desc(problem.dst), wish.src_desc(argument(problem, "diff_dst"))

        def spec(weights: dnnl.Desc) -> dnnl.Spec:
            return dnnl.convolution_backward_data(
                src, weights, dst, **sliding(self.window), n_threads=problem.n_threads
            )

        weights = argument(problem, "weights")
        if self.n_groups == 1 or len(weights.dims) > len(problem.dst.dims):
            return ir.Recipe.single(spec(dnnl.AnyDesc(weights.dims, weights.dtype)), {"diff_src": "dst"})
        made, whole = in_groups(spec, "weights", weights, self.n_groups)
        return ir.Recipe.single(made, {"diff_src": "dst"}, (("weights", whole),))


class ConvWeightsGradient(ir.BaseOperator, frozen=True):
    """The gradients of a convolution's weights, and of its bias if that is read, of that of its result and the source.

    Weights are ``grouped`` if they have their groups in front.
    A layout wished for the destination is the gradient's: that of weights is the primitive's choice.
    """

    op_types: ClassVar[tuple[str, ...]] = (f"{DOMAIN}.ConvWeightsGradient",)
    role: ClassVar[ir.Role] = ir.Role.CHOOSER
    any_output: ClassVar[bool] = True
    writes_weights: ClassVar[bool] = True

    window: ir.Window
    n_groups: int
    read: tuple[str, ...]
    is_grouped: bool

    @classmethod
    def inferred(cls, node: ir.NodeInfo) -> Results:
        x = node.required(1, "x")
        kernel = read_kernel_shape(node, len(x.shape) - 2)
        n_groups, n_outputs = max(node.int_attr("group", 1), 1), node.required(0, "grad").shape[1]
        outputs = (n_groups, n_outputs // n_groups) if node.flag_attr("grouped") else (n_outputs,)
        weights = (*outputs, x.shape[1] // n_groups, *kernel)
        _convolved(node, x.shape, weights)
        return (weights, x.dtype), ((n_outputs,), "f32")

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        grad, x = node.required(0, "grad"), node.required(1, "x")
        (weights, _), _ = cls.inferred(node)
        window, n_groups = _convolved(node, x.shape, weights)
        read, others = _read(node, ("diff_weights", "diff_bias"))
        operator = cls(window, n_groups, read, node.flag_attr("grouped"))
        return ir.Lowered(operator, {"src": x, "diff_dst": grad}, others=others)

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops:
            return None
        x, grad = argument(problem, "src"), argument(problem, "diff_dst")
        wished = dict(wish.others).get("diff_dst", wish.dst if isinstance(wish.dst, str) else wish.src)
        src, dst = wish.src_desc(x), ir.wished_desc(wished, grad)
        bias = MemoryDesc(grad.dims[1:2]) if "diff_bias" in self.read else None
        outputs = (self.n_groups, grad.dims[1] // self.n_groups) if self.is_grouped else grad.dims[1:2]
        dims = (*outputs, x.dims[1] // self.n_groups, *self.window.kernel)

        def spec(weights: dnnl.Desc) -> dnnl.Spec:
            return dnnl.convolution_backward_weights(
                src, weights, dst, bias, **sliding(self.window), n_threads=problem.n_threads
            )

        results = ("diff_weights", "diff_bias") if bias else ("diff_weights",)
        if self.n_groups == 1 or self.is_grouped:
            return _recipe(spec(dnnl.AnyDesc(dims, x.dtype)), results, self.read)
        made, whole = in_groups(spec, "diff_weights", ir.TensorInfo(dims, x.dtype), self.n_groups)
        return _recipe(made, results, self.read, {"dst": whole} if "diff_weights" in self.read else None)


class MaxPoolGradient(Follower, frozen=True):
    """The gradient of max pooling's source: each window's goes to the first of its largest elements.

    The pooling is run once more, to know where these are.
    """

    op_types: ClassVar[tuple[str, ...]] = (f"{DOMAIN}.MaxPoolGradient",)

    window: ir.Window

    @classmethod
    def inferred(cls, node: ir.NodeInfo) -> Results:
        x = node.required(1, "x")
        _pooled(node, x.shape)
        return ((x.shape, x.dtype),)

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        x = node.required(1, "x")
        return cls(_pooled(node, x.shape)).bind({"src": x, "diff_dst": node.required(0, "grad")})

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops:
            return None
        grad = like(src, argument(problem, "diff_dst"))
        given: Any = {"kernel": self.window.kernel, **sliding(self.window), "n_threads": problem.n_threads}
        forward = dnnl.resolve(dnnl.pooling(src, grad, "pooling_max", prop_kind="forward_training", **given)).spec
        backward = dnnl.pooling_backward(dst, grad, "pooling_max", **given)
        places = forward.memory_desc("workspace")
        if dnnl.resolve(backward).spec.memory_desc("workspace") != places:  # one does not read what the other writes
            return None
        steps = (
            ir.RecipeStep(forward, (("dst", "largest"), ("src", "src"), ("workspace", "places"))),
            ir.RecipeStep(backward, (("diff_dst", "diff_dst"), ("diff_src", "dst"), ("workspace", "places"))),
        )
        return ir.Recipe(steps, (("largest", grad), ("places", places)))


class AveragePoolGradient(Follower, frozen=True):
    """The gradient of average pooling's source of these ``extents``."""

    op_types: ClassVar[tuple[str, ...]] = (f"{DOMAIN}.AveragePoolGradient",)

    window: ir.Window
    counts_pads: bool

    @classmethod
    def inferred(cls, node: ir.NodeInfo) -> Results:
        grad = node.required(0, "grad")
        extents = node.ints_attr("extents", len(grad.shape), 1, at_least=0)
        _pooled(node, extents)
        return ((extents, grad.dtype),)

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        window = _pooled(node, node.result.shape)
        return cls(window, node.flag_attr("count_include_pad")).bind({"src": node.required(0, "grad")})

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops:
            return None
        algorithm = "pooling_avg_include_padding" if self.counts_pads else "pooling_avg_exclude_padding"
        given: Any = {"kernel": self.window.kernel, **sliding(self.window), "n_threads": problem.n_threads}
        spec = dnnl.pooling_backward(dst, src, algorithm, **given)
        return ir.Recipe.single(spec, {"diff_src": "dst", "diff_dst": "src"})


def _pooled(node: ir.NodeInfo, x: tuple[int, ...]) -> ir.Window:
    """The window of a pooling of a source of these extents, checked with the gradient's."""
    window = read_window(node, read_kernel_shape(node, len(x) - 2), x[2:])
    if any(pad >= reach for pad, reach in zip(window.pads, window.reach * 2, strict=True)):
        raise node.wrong(f"pads are {list(window.pads)}", f"each must be below the {list(window.reach)} of a window")
    _check_window(node, window, x, x[1])
    return window


class _BatchNorm(Follower, frozen=True):
    """A batch normalisation, or its gradient: ``operands`` and ``results`` by the primitive's arguments."""

    any_output: ClassVar[bool] = True
    operands: ClassVar[tuple[str, ...]]
    results: ClassVar[tuple[str, ...]]

    epsilon: float
    read: tuple[str, ...]

    @classmethod
    def _given(cls, node: ir.NodeInfo) -> dict[str, ir.Value]:
        """The inputs by the primitive's arguments: images of the same extents, and one number for each channel."""
        given = {name: node.required(place, name) for place, name in enumerate(cls.operands)}
        x = given["src"].shape
        if "diff_dst" in given:
            _check_grad(node, x)
        for name, value in given.items():
            if name not in ("src", "diff_dst") and value.shape != x[1:2]:
                raise node.wrong(f"{name} has extents {list(value.shape)}", f"x has {x[1]} channels")
        return given

    @classmethod
    def inferred(cls, node: ir.NodeInfo) -> Results:
        x = cls._given(node)["src"]
        vector = (x.shape[1:2], "f32")
        return (x.shape, x.dtype), vector, vector

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        read, others = _read(node, cls.results)
        return cls(node.float_attr("epsilon", 1e-5), read).bind(cls._given(node), others=others)

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        src = wish.src_desc(argument(problem, "src"))
        if attr.post_ops or not isinstance(src, MemoryDesc):
            return None
        vectors = [name for name in self.operands if name not in ("src", "diff_dst")]
        return _recipe(self.spec(src, problem.n_threads), self.results, self.read, vectors=vectors)

    def spec(self, src: MemoryDesc, n_threads: int) -> dnnl.Spec:
        """The primitive on images of this layout."""
        raise NotImplementedError


class BatchNormTraining(_BatchNorm, frozen=True):
    """Each channel normalised by its mean and variance over the batch, which are results too; scaled and shifted."""

    op_types: ClassVar[tuple[str, ...]] = (f"{DOMAIN}.BatchNormTraining",)
    operands: ClassVar[tuple[str, ...]] = ("src", "scale", "shift")
    results: ClassVar[tuple[str, ...]] = ("dst", "mean", "variance")

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (x, scale, _), (_, mean, variance), bl = call.sources, call.results, call.bl
        epsilon = call.node.float_attr("epsilon", 1e-5)

        def gradients(_: Any, grad: Any, *of_statistics: Any) -> Any:
            if grad is None or any(each is not None for each in of_statistics):
                rule = "its mean and variance have no gradient; only y has"
                raise UnsupportedError(f"gradients: batch_norm_training: {rule}")
            return bl.batch_norm_backward(grad, x, scale, mean, variance, epsilon)

        return gradients

    def spec(self, src: MemoryDesc, n_threads: int) -> dnnl.Spec:
        kind = "forward_training"
        return dnnl.batch_normalization(src, src, self.epsilon, _FLAGS, prop_kind=kind, n_threads=n_threads)


class BatchNormGradient(_BatchNorm, frozen=True):
    """The gradients of a batch normalisation's source, scale and shift, by the mean and variance that it gave."""

    op_types: ClassVar[tuple[str, ...]] = (f"{DOMAIN}.BatchNormGradient",)
    operands: ClassVar[tuple[str, ...]] = ("diff_dst", "src", "scale", "mean", "variance")
    results: ClassVar[tuple[str, ...]] = ("diff_src", "diff_scale", "diff_shift")

    def spec(self, src: MemoryDesc, n_threads: int) -> dnnl.Spec:
        return dnnl.batch_normalization_backward(src, src, src, self.epsilon, _FLAGS, n_threads=n_threads)


class SlopeGradient(Follower, frozen=True):
    """The gradient of a function of each element, of that of its result and ``x``: its source, or its result.

    It is computed on the bare bytes, padding included.
    """

    op_types: ClassVar[tuple[str, ...]] = (f"{DOMAIN}.SlopeGradient",)

    algorithm: str
    alpha: float
    beta: float

    @classmethod
    def inferred(cls, node: ir.NodeInfo) -> Results:
        x = node.required(1, "x")
        _check_grad(node, x.shape)
        return ((x.shape, x.dtype),)

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        numbers = node.float_attr("alpha", 0.0), node.float_attr("beta", 0.0)
        operator = cls(str(node.attrs["algorithm"]), *numbers)
        return operator.bind({"src": node.required(1, "x"), "diff_dst": node.required(0, "grad")})

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops or not src.is_dense:
            return None
        flat = MemoryDesc((prod(src.padded_dims),), src.dtype)
        spec = dnnl.eltwise_backward(
            flat, flat, flat, self.algorithm, self.alpha, self.beta, n_threads=problem.n_threads
        )
        data = "dst" if self.algorithm.endswith("_use_dst_for_bwd") else "src"
        step = ir.RecipeStep(spec, (("diff_dst", "diff_dst"), ("diff_src", "dst"), (data, "src")))
        behind = (ir.zero_padding_step(dst),) if dst.n_padding and spoils_padding(self.algorithm) else ()
        return ir.Recipe((step, *behind), (), tuple((name, src) for name in ("src", "diff_dst", "dst")))


def spoils_padding(algorithm: str) -> bool:
    """Whether the slope at 0 may be infinite, or negative: padding comes out as NaN, or as -0."""
    return algorithm.removeprefix("eltwise_") in ("linear", "log", "pow", "sqrt")
