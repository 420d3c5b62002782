"""The mean of gradients over the workers of Ray Train, in the layouts that they have.

Bytes go through Ray's object store: each worker cuts its own into as many pieces as there are workers, adds up one
piece of all, and fetches the means of the others. So a byte crosses the network twice, as in a ring, and workers of one
machine read it where it lies. Collectives of Ray's own take PyTorch, or CUDA.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from msgspec import Struct, field

from blocklayout.dtypes import PRIMITIVE_FLOATS, to_numpy
from blocklayout.errors import DeadlineExceededError, InputError, UnsupportedError
from blocklayout.loading import options
from blocklayout.tensor import Tensor, as_tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from blocklayout.layout import MemoryDesc

SECONDS = 300.0
"""How long to wait for other workers, which may be writing a checkpoint."""

START_SECONDS = 60.0
"""How long the actor may take to start where workers meet."""


@overload
def all_reduce(tensors: Mapping[str, ArrayLike | Tensor], *, seconds: float = SECONDS) -> dict[str, Tensor]: ...


@overload
def all_reduce(tensors: Sequence[ArrayLike | Tensor], *, seconds: float = SECONDS) -> list[Tensor]: ...


def all_reduce(tensors: Any, *, seconds: Any = SECONDS) -> Any:
    """The mean of each tensor over all workers of Ray Train, in its layout; each worker calls it in its training loop.

    Descriptors are compared first: all workers must have the same extents, data types and layouts. Then physical
    elements are added up, padding included, which stays zero; nothing is reordered. Sums are in f32, in the order of
    workers, and rounded once, so all get the same bits.

    Each worker counts the same, however many rows its gradients are a mean of.

    Args:
        tensors: f32, bf16 or f16; by name, or a list. The same names, or as many, on each worker.
        seconds: How long to wait for workers that do not call it.

    Returns:
        New Tensors, by name or as a list.

    Raises:
        InputError: No such tensors; or another worker has others.
        DeadlineExceededError: A worker did not come in time.
        UnsupportedError: Ray is not installed, or this is no worker of Ray Train.
        ray.exceptions.RayError: A worker was lost.

    Example:
        >>> def train_loop_per_worker(config):
        ...     loss, gradients = value_and_grad(loss_of)(learned, images, labels)
        ...     optimizer.step(all_reduce(gradients))
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < inf:
        raise InputError(f"all_reduce: seconds={seconds!r}; give how long to wait for other workers")
    given = _by_name(tensors)
    descs = {name: tensor.desc for name, tensor in given.items()}
    parts = [tensor.physical().astype(np.float32, copy=False) for tensor in given.values()]
    vector = np.concatenate([np.empty(0, np.float32), *parts])
    workers = _workers()
    if workers is not None:
        vector = workers.mean(vector, descs, seconds)
    found = np.split(vector, np.cumsum([part.size for part in parts]))[:-1]
    means = {
        name: Tensor(desc, mean.astype(to_numpy(desc.dtype), copy=False))
        for (name, desc), mean in zip(descs.items(), found, strict=True)
    }
    return {name: means[name] for name in tensors} if isinstance(tensors, Mapping) else list(means.values())


def _by_name(tensors: Any) -> dict[str, Tensor]:
    """Dense Tensors by name, in one order on all workers."""
    if isinstance(tensors, Mapping):
        options.by_name("all_reduce: tensors", tensors, "{'weight': gradient}")
        named = {name: tensors[name] for name in sorted(tensors)}
    elif isinstance(tensors, list | tuple):
        named = {f"tensor {i}": each for i, each in enumerate(tensors)}
    else:
        raise InputError(f"all_reduce: tensors is {tensors!r:.60}; give a list of Tensors, or a mapping by name")
    dense = {}
    for name, each in named.items():
        try:
            tensor = as_tensor(each, "all_reduce")
        except InputError as error:
            raise InputError(f"all_reduce: {name}: {error}") from None
        if tensor.dtype not in PRIMITIVE_FLOATS:
            raise InputError(f"all_reduce: {name} is {tensor.desc}; give {', '.join(PRIMITIVE_FLOATS)}")
        dense[name] = tensor.to(tensor.desc.format_tag)
    return dense


def _check_equal(descs: Sequence[Mapping[str, MemoryDesc]]) -> None:
    for rank, others in enumerate(descs):
        for name in {**descs[0], **others}:
            first, other = descs[0].get(name, "missing"), others.get(name, "missing")
            if first != other:
                raise InputError(
                    f"all_reduce: {name} is {first} on worker 0, and {other} on worker {rank}; all workers must have "
                    "the same tensors in the same layouts"
                )


class _Workers:
    """The workers of a run of Ray Train, of which this process is one; all call the same methods in the same order."""

    def __init__(self, rank: int, size: int, place: str) -> None:
        import ray

        self._rank = rank
        self._size = size
        self._n_met = 0
        meeting = ray.remote(_Meeting).options(name=place, get_if_exists=True, num_cpus=0, max_concurrency=size)
        self._meeting = meeting.remote(size)

    def mean(self, vector: np.ndarray, descs: Mapping[str, MemoryDesc], seconds: float) -> np.ndarray:
        """The mean of each worker's vector, once their descriptors are found equal. f32."""
        import ray

        met = self._exchange([(descs, ray.put(piece)) for piece in np.array_split(vector, self._size)], seconds)
        _check_equal([each for each, _ in met])
        first, *others = _fetched([piece for _, piece in met], seconds)
        total = first.copy()
        for other in others:
            total += other
        total /= self._size
        return np.concatenate(_fetched(self._exchange([ray.put(total)] * self._size, seconds), seconds))

    def _exchange(self, values: list[Any], seconds: float) -> list[Any]:
        """The values that workers have for this one, in their order; ``values`` are those that it has for each."""
        self._n_met += 1
        answer = self._meeting.exchange.remote(self._n_met, self._rank, values, seconds)
        met, failure = _fetched(answer, seconds + START_SECONDS)
        if failure:
            raise DeadlineExceededError(f"all_reduce: {failure}; all workers must call it equally often")
        return list(met)


class _Meeting:
    """An actor where workers exchange values, as many times as they like."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rounds: dict[int, _Round] = {}
        self._failure = ""

    async def exchange(self, number: int, rank: int, values: Sequence[Any], seconds: float) -> tuple[list[Any], str]:
        """Values of all workers for the caller once all have called it with this ``number``; else why there are none.

        After a failure there are no more exchanges.
        """
        each = self._rounds.setdefault(number, _Round())
        each.values[rank] = values
        if len(each.values) == self._size:
            del self._rounds[number]
            each.is_complete.set()
        if not self._failure:
            with suppress(TimeoutError):
                await asyncio.wait_for(each.is_complete.wait(), seconds)
        if not self._failure and not each.is_complete.is_set():
            missing = ", ".join(str(other) for other in range(self._size) if other not in each.values)
            self._failure = f"no call by worker {missing} within {seconds:g} s"
        if self._failure:
            return [], self._failure
        return [each.values[other][rank] for other in range(self._size)], ""


class _Round(Struct):
    """One exchange: values that the workers that came have for all, by rank."""

    values: dict[int, Sequence[Any]] = field(default_factory=dict)
    is_complete: asyncio.Event = field(default_factory=asyncio.Event)


def _fetched(refs: Any, seconds: float) -> Any:
    import ray

    try:
        return ray.get(refs, timeout=seconds)
    except ray.exceptions.GetTimeoutError as error:
        raise DeadlineExceededError(f"all_reduce: nothing came from the other workers within {seconds:g} s") from error


def _workers() -> _Workers | None:
    """Those of this process's run, if there are several."""
    try:
        import ray.train
    except ImportError as error:
        raise UnsupportedError("Ray Train is not installed: pip install 'blocklayout[ray]'") from error
    try:
        context = ray.train.get_context()
    except RuntimeError as error:
        raise UnsupportedError("all_reduce: call it in the train_loop_per_worker of a trainer of Ray Train") from error
    if context.get_world_size() == 1:
        return None
    group = ray.util.get_current_placement_group()  # a new one whenever workers are started anew
    return _workers_of(context.get_world_rank(), context.get_world_size(), f"blocklayout.all_reduce {group.id.hex()}")


_workers_of = cache(_Workers)
