"""Batch normalisation: with known statistics, where it was not folded; as it is trained; and its gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from blocklayout import dnnl
from blocklayout.ir import Affine, BaseOperator, Lowered, NodeInfo, Problem, Recipe, Refusal, Role, Wish
from blocklayout.ops._descs import argument, as_one_image, followed
from blocklayout.ops._needs import has_one_output, is_source
from blocklayout.ops._rows import of_source
from blocklayout.ops._transposing import per_channel
from blocklayout.ops.gradients import Call, TensorLike, formats, fresh, public

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.tensor import Tensor

_FLAGS = ("use_global_stats", "use_scale", "use_shift")
_LEARNED = ("use_scale", "use_shift")
_VECTORS = {"scale": "scale", "shift": "B", "mean": "input_mean", "variance": "input_var"}


def _is_inference(node: NodeInfo) -> Refusal | None:
    if node.int_attr("training_mode", 0) != 0:
        return node.refused("attribute training_mode is 1", "only inference is computed: 0")
    if node.int_attr("spatial", 1) != 1:
        return node.refused("attribute spatial is 0", "statistics must be per channel: 1")
    return None


class BatchNormalization(BaseOperator, frozen=True):
    """Scales and shifts every channel by its statistics.

    Attributes:
        epsilon: Added to the variance.
    """

    op_types: ClassVar[tuple[str, ...]] = ("BatchNormalization",)
    role: ClassVar[Role] = Role.FOLLOWER
    needs = (is_source(2, 5), has_one_output("running statistics"), _is_inference)

    epsilon: float

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        src = node.required(0, "X")
        arguments = {"src": src}
        for index, (argument_name, onnx_name) in enumerate(_VECTORS.items(), start=1):
            vector = node.required(index, onnx_name)
            if vector.shape != (src.shape[1],):
                rule = f"{src.name} has {src.shape[1]} channels"
                raise node.wrong(f"{onnx_name} has extents {list(vector.shape)}", rule)
            arguments[argument_name] = vector
        return cls(node.float_attr("epsilon", 1e-5)).bind(arguments)

    @classmethod
    def keeps_rows(cls, node: NodeInfo, rows: frozenset[int]) -> bool:
        return of_source(node, rows) and not node.attrs.get("training_mode", 0)

    transposed = staticmethod(per_channel)

    @classmethod
    def affine(cls, node: NodeInfo) -> Affine | None:
        known = [node.constant(index) for index in range(1, 5)]
        if node.attrs.get("training_mode", 0) or not node.attrs.get("spatial", 1) or any(node.outputs[1:]):
            return None
        channels = node.shape(0)[1:2]
        vectors = [array.astype(np.float64) for array in known if array is not None and array.shape == channels]
        if len(vectors) != 4:
            return None
        scale, shift, mean, variance = vectors
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
            return Affine(0, factor, shift - mean * factor)

    @classmethod
    def aligned_scale(cls, node: NodeInfo, scale: np.ndarray) -> np.ndarray | None:
        return None if cls.affine(node) is None else scale

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        if descs is None:
            return None
        src, dst = as_one_image(*descs) or descs
        spec = dnnl.batch_normalization(
            src, dst, epsilon=self.epsilon, flags=_FLAGS, attr=attr, n_threads=problem.n_threads
        )
        # The library lists the vectors among its arguments only once the primitive exists.
        whole = zip(("src", "dst"), descs, strict=True)
        return Recipe.single(spec, {name: name for name in _VECTORS}, whole)


@public
class BatchNormTraining(NamedTuple):
    """Results of a batch normalisation in training.

    Attributes:
        y: The result, in the format of ``x``.
        mean: Of each channel over the batch and its images.
        variance: Likewise; of the sample itself, divided by the number of elements.
    """

    y: Tensor
    mean: Tensor
    variance: Tensor


@public
class BatchNormGradients(NamedTuple):
    """Gradients of a batch normalisation's arguments.

    Attributes:
        data: Of ``x``, in its format.
        scale: Of the scale: a vector.
        shift: Of the shift: a vector.
    """

    data: Tensor
    scale: Tensor
    shift: Tensor


@public
def batch_norm_training(
    x: TensorLike, scale: TensorLike, shift: TensorLike, epsilon: float = 1e-5
) -> BatchNormTraining:
    """Normalise each channel by its own mean and variance over the batch, then scale and shift it.

    Args:
        x: Of rank 2 to 5, in any layout.
        scale: One factor for each channel.
        shift: One summand for each channel.
        epsilon: Added to the variance.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and what would be right.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> x = np.float32([[1, 10], [3, 30]])
        >>> y, mean, variance = batch_norm_training(x, np.ones(2, np.float32), np.zeros(2, np.float32), 0)
        >>> y.numpy().tolist(), mean.numpy().tolist(), variance.numpy().tolist()
        ([[-1.0, -1.0], [1.0, 1.0]], [2.0, 20.0], [1.0, 100.0])
    """
    results = _trained("batch_norm_training", x, epsilon, {"scale": scale, "shift": shift})
    return BatchNormTraining(results["dst"], results["mean"], results["variance"])


@public
def batch_norm_backward(
    grad: TensorLike,
    x: TensorLike,
    scale: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    epsilon: float = 1e-5,
) -> BatchNormGradients:
    """Gradients of a batch normalisation's source, scale and shift, mean and variance being those of ``x``.

    Args:
        grad: Gradient of the result, in any layout.
        x: The source, of rank 2 to 5.
        scale: One factor for each channel.
        mean: As :func:`batch_norm_training` gave it.
        variance: As :func:`batch_norm_training` gave it.
        epsilon: As it was there.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and what would be right.
        UnsupportedError: bf16, on a CPU that does not compute in it.
    """
    vectors = {"scale": scale, "mean": mean, "variance": variance}
    results = _trained("batch_norm_backward", x, epsilon, vectors, {"diff_dst": grad})
    return BatchNormGradients(results["diff_src"], results["diff_scale"], results["diff_shift"])


def _trained(
    function: str,
    x: TensorLike,
    epsilon: float,
    vectors: Mapping[str, TensorLike],
    grads: Mapping[str, TensorLike] = MappingProxyType({}),
) -> dict[str, Tensor]:
    """The results of the primitive by the batch's own statistics: of the gradient's where there are ``grads``."""
    call, ranks = Call(function), (2, 3, 4, 5)
    operands = {name: call.read("grad", grad, ranks) for name, grad in grads.items()}
    operands["src"] = src = call.read("x", x, ranks)
    for given in operands.values():
        call.check_same_dtype(given, src)
        call.check_dims(given, src.dims)
    number = call.number("epsilon", epsilon)
    if not 0 <= number < math.inf:
        raise call.error("epsilon", f"is {epsilon!r}; give a finite number of at least 0")
    operands |= {name: call.read_vector(name, value, src.dims[1]) for name, value in vectors.items()}
    wanted = fresh(src.desc)
    (spec,) = call.best(_ways_back if grads else _ways, wanted, number, kept="src", wanted=wanted)
    results = call.run(spec, operands)
    name, gradient_of = ("diff_src", "x") if grads else ("dst", "")
    return results | {name: call.returned(results[name], wanted, gradient_of)}


def _ways(src: MemoryDesc, epsilon: float, n_threads: int) -> Iterator[tuple[dnnl.Spec, ...]]:
    for desc in formats(src):
        kind = "forward_training"
        yield (dnnl.batch_normalization(desc, desc, epsilon, _LEARNED, prop_kind=kind, n_threads=n_threads),)


def _ways_back(src: MemoryDesc, epsilon: float, n_threads: int) -> Iterator[tuple[dnnl.Spec, ...]]:
    for desc in formats(src):
        yield (dnnl.batch_normalization_backward(desc, desc, desc, epsilon, _LEARNED, n_threads=n_threads),)
