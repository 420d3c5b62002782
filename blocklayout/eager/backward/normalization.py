"""Batch normalisation as it is trained, and its gradients."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from blocklayout import dnnl
from blocklayout.eager.backward.call import Call
from blocklayout.eager.backward.choosing import first_optimised
from blocklayout.eager.backward.formats import format_of, other_formats
from blocklayout.eager.primitives import execute
from blocklayout.layout import MemoryDesc
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_RANKS = (2, 3, 4, 5)
_FLAGS = "use_scale | use_shift"


class BatchNormTraining(NamedTuple):
    """What a batch normalisation gives while it is trained.

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
    x: ArrayLike | Tensor, scale: ArrayLike | Tensor, shift: ArrayLike | Tensor, epsilon: float = 1e-5
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
    call = _Normalization("batch_norm_training", x, epsilon)
    vectors = {"scale": scale, "shift": shift}
    results, wanted = call.run(vectors)
    return BatchNormTraining(call.returned(results["dst"], wanted, "the result"), results["mean"], results["variance"])


def batch_norm_backward(
    grad: ArrayLike | Tensor,
    x: ArrayLike | Tensor,
    scale: ArrayLike | Tensor,
    mean: ArrayLike | Tensor,
    variance: ArrayLike | Tensor,
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
    call = _Normalization("batch_norm_backward", x, epsilon, grad)
    vectors = {"scale": scale, "mean": mean, "variance": variance}
    results, wanted = call.run(vectors)
    data = call.returned(results["diff_src"], wanted, "the gradient of x")
    return BatchNormGradients(data, results["diff_scale"], results["diff_shift"])


class _Normalization(Call):
    """One call, in either direction: backward where there is a gradient."""

    def __init__(
        self, function: str, x: ArrayLike | Tensor, epsilon: float, grad: ArrayLike | Tensor | None = None
    ) -> None:
        super().__init__(function)
        self.grad = None if grad is None else self.read("grad", grad, _RANKS)
        self.x = self.read("x", x, _RANKS)
        if self.grad is not None:
            self.check_same_dtype(self.grad, self.x)
            self.check_dims(self.grad, self.x.dims, "the forward's result")
        self.epsilon = self.number("epsilon", epsilon)
        if not 0 <= self.epsilon < math.inf:
            raise self.error("epsilon", f"is {epsilon!r}; give a finite number of at least 0")

    def run(self, vectors: dict[str, ArrayLike | Tensor]) -> tuple[dict[str, Tensor], MemoryDesc]:
        """The primitive's results, and the format of ``x``."""
        n_channels = self.x.dims[1]
        read = {name: self.read_vector(name, value, n_channels) for name, value in vectors.items()}
        wanted = format_of(self.x.desc)
        place, spec = _way(wanted, self.grad is not None, self.epsilon, dnnl.default_threads())
        used = spec.memory_desc("src")
        if place:
            self.lose(wanted, used)
        plain = MemoryDesc((n_channels,))
        inputs = {name: self.placed(vector, plain) for name, vector in read.items()}
        inputs["src"] = self.placed(self.x, used)
        if self.grad is not None:
            inputs["diff_dst"] = self.placed(self.grad, used)
        return execute(spec, inputs), wanted


@lru_cache(maxsize=1024)
def _way(src: MemoryDesc, is_backward: bool, epsilon: float, n_threads: int) -> tuple[int, dnnl.Spec]:  # noqa: FBT001 - lru_cache's key
    def spec_of(desc: MemoryDesc) -> dnnl.Spec:
        if is_backward:
            return dnnl.batch_normalization_backward(desc, desc, desc, epsilon, _FLAGS, n_threads=n_threads)
        kind = "forward_training"
        return dnnl.batch_normalization(desc, desc, epsilon, _FLAGS, prop_kind=kind, n_threads=n_threads)

    place, (spec,) = first_optimised((spec_of(each),) for each in (src, *other_formats(src)))
    return place, spec
