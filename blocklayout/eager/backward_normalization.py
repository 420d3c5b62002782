"""Batch normalisation in training, and its gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from blocklayout import dnnl
from blocklayout.eager.gradients import Call, TensorLike, formats, fresh

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.tensor import Tensor

_LEARNED = ("use_scale", "use_shift")


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


def batch_norm_backward(
    grad: TensorLike,
    x: TensorLike,
    scale: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    epsilon: float = 1e-5,
) -> BatchNormGradients:
    """Gradients of a batch normalisation's source, scale and shift.

    ``grad`` is the gradient of the result of :func:`batch_norm_training`, in any layout; the others are what that took,
    and the mean and variance that it returned.

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
