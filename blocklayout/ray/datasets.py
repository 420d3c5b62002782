"""A model over a Ray Dataset: on each node one saved session, and as many actors that map it as its CPUs allow.

Takes the extra ``ray``. See docs/how-to/many-machines.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from blocklayout import dnnl, errors
from blocklayout.api import load
from blocklayout.atomic_write import replacing
from blocklayout.errors import CostStoreWarning, InputError, UnsupportedError
from blocklayout.loading import options
from blocklayout.loading.saved_session import is_saved_session
from blocklayout.model import whole_contents
from blocklayout.plan.costs.store import CostStore, cost_store_path, is_taken

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.actor import ActorHandle
    from ray.data import Dataset

    from blocklayout.session import Session


LOCAL_CONFIG = {"idle_worker_killing_time_threshold_ms": 60_000}
"""Ray's settings for a cluster that is started here. Where actors take all CPUs, Ray ends other processes that are idle
for a second; the next task starts another, which takes a second of a CPU or more."""

KEEPER_TIMEOUT_S = 60.0
"""How long a node waits for measured costs, before it does without."""


def map_batches(
    dataset: Dataset,
    model: str | os.PathLike[str] | bytes,
    *,
    batch_size: int = 32,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] | None = None,
    threads: int = 1,
    **load_options: Any,
) -> Dataset:
    """The dataset with a model's outputs as columns besides, in the order of its rows; computed when it is read.

    Each node makes a saved session for its own CPU once, in a file in its user's cache folder; all actors there map it,
    so weights are in memory once. Actors and nodes that are lost are replaced; their unfinished batches are done by
    others. Costs that nodes measure are kept with those of the machine that calls this, and handed to other nodes of
    the same kind before they choose layouts.

    Args:
        dataset: Rows with a column for each input of the model: arrays of the extents that one row of the input has.
        model: Path or bytes of an ONNX model, or path of a saved session, whose plans then have to be for
            ``batch_size``; of its ``targets`` each node takes its own.
        batch_size: Rows of one run, at least 1. Fewer at the end are filled up with copies of the last, whose answers
            are left out: the answer to one row must not depend on the others.
        columns: Names of columns, by input; those that have other names than the inputs.
        keep: Columns of the dataset that the result has as well; all by default.
        threads: Threads of one actor, which takes as many CPUs.
        **load_options: As for :func:`blocklayout.load`, for models: ``dtype``, ``layout``, ``tune`` and so on.

    Raises:
        InputError: An argument is none of those there are; or the model cannot be read.
        UnsupportedError: Ray is not installed.
        BlockLayoutError: Of :func:`blocklayout.load` and of runs, as the cause of Ray's error when it is computed.

    Example:
        >>> import ray.data  # doctest: +SKIP
        >>> rows = ray.data.read_images("photographs", size=(224, 224))  # doctest: +SKIP
        >>> answers = map_batches(rows, "classifier.onnx", columns={"x": "image"})  # doctest: +SKIP
    """
    try:
        import ray.data
    except ImportError as error:
        raise UnsupportedError("Ray is not installed: pip install 'blocklayout[ray]'") from error
    options.positive("batch_size", batch_size)
    options.positive("threads", threads)
    options.by_name("columns", columns, "{'x': 'image'}")
    if load_options.pop("shapes", None):
        raise InputError("shapes follow from the rows; batch_size= says how many are run at a time")
    content = _content(model)
    result = dataset.map_batches(
        _Mapper,
        batch_size=batch_size,
        batch_format="numpy",
        zero_copy_batch=True,
        num_cpus=threads,
        compute=ray.data.ActorPoolStrategy(min_size=1),
        fn_constructor_kwargs={
            "content": [ray.put(np.frombuffer(content, np.uint8))],  # within a list it stays a reference
            "digest": hashlib.sha256(content).hexdigest(),
            "is_session": is_saved_session(model),
            "costs": _SharedCosts.of_this_machine(),
            "batch_size": batch_size,
            "columns": dict(columns or {}),
            "keep": None if keep is None else tuple(keep),
            "load_options": {**load_options, "threads": threads},
        },
    )
    result.context.execution_options.preserve_order = True
    return result


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Inside, Ray computes on the cluster at this address, or on one of this machine alone (``local``).

    Raises:
        InputError: There is no cluster.
        BlockLayoutError: That of an actor, made anew of Ray's text.

    Example:
        >>> import ray.data  # doctest: +SKIP
        >>> with connected("local"):  # doctest: +SKIP
        ...     ray.data.range(3).count()
        3
    """
    import ray

    is_here = ray.is_initialized()
    try:
        if not is_here:
            config = LOCAL_CONFIG if address == "local" else None
            ray.init(address, logging_level=logging.ERROR, _system_config=config)
            logging.getLogger("ray.data").setLevel(logging.ERROR)
    except (ConnectionError, ValueError) as error:
        raise InputError(f"no cluster of Ray at {address}: {error}") from error
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        found = re.findall(r"^blocklayout\.errors\.(\w+): (.*)$", str(error), re.MULTILINE)
        if not found:
            raise
        name, message = found[0]
        raise getattr(errors, name, errors.BlockLayoutError)(message) from None
    finally:
        if not is_here:
            ray.shutdown()


def _content(model: str | os.PathLike[str] | bytes) -> bytes:
    """All that a model or a session is, which other nodes have no file of."""
    if isinstance(model, bytes):
        return model
    path = Path(model)
    if not path.is_file():
        raise InputError(f"model: there is no file {path}")
    return path.read_bytes() if is_saved_session(path) else whole_contents(path)


@dataclass  # Ray makes classes of it that are none of Structs
class _Mapper:
    """Runs a session on batches of rows, in an actor."""

    content: list[ObjectRef]
    digest: str
    is_session: bool
    costs: _SharedCosts
    batch_size: int
    columns: Mapping[str, str]
    keep: Sequence[str] | None
    load_options: Mapping[str, Any]
    session: Session | None = None  # once the extents of a row are known

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self.session is None:
            self.session = self._opened(batch)
        n_rows = len(next(iter(batch.values())))
        feed = {info.name: self._filled(self._column(batch, info.name)) for info in self.session.get_inputs()}
        names = [info.name for info in self.session.get_outputs()]
        outputs = dict(zip(names, map(np.asarray, self.session.run(None, feed)), strict=True))
        for name, array in outputs.items():
            if array.ndim == 0 or len(array) != self.batch_size:
                raise InputError(f"output {name} is {array.shape} of {self.batch_size} rows: no answer for each")
        kept = batch if self.keep is None else {name: _column(batch, name, "keep=") for name in self.keep}
        return {**kept, **{name: array[:n_rows] for name, array in outputs.items()}}

    def _column(self, batch: Mapping[str, np.ndarray], name: str) -> np.ndarray:
        column = self.columns.get(name, name)
        array = _column(batch, column, f"input {name}: columns=")
        if array.dtype == object:
            shapes = sorted({np.shape(row) for row in array})[:3]
            raise InputError(f"column {column} has rows of several extents ({shapes}): bring them to one first")
        return array

    def _filled(self, array: np.ndarray) -> np.ndarray:
        """As many rows as a run has."""
        missing = self.batch_size - len(array)
        return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]) if missing else array

    def _opened(self, batch: Mapping[str, np.ndarray]) -> Session:
        """The node's session, which the first actor makes."""
        import ray

        extents = {name: array.shape[1:] for name, array in batch.items()}
        made_for = (self.digest, self.batch_size, sorted(extents.items()), sorted(self.load_options.items()))
        here = (dnnl.isa(), dnnl.version(), os.sched_getaffinity(0))
        name = hashlib.sha256(repr((made_for, here)).encode()).hexdigest()

        def write(path: Path) -> None:
            content = ray.get(self.content[0])
            if self.is_session:
                path.write_bytes(content)
                return
            with self.costs.known_here(), load(content.tobytes(), **self.load_options) as session:
                rows = {info.name: self._filled(self._column(batch, info.name)) for info in session.get_inputs()}
                session.prepare({name: array.shape for name, array in rows.items()}, rows)
                session.save(path)

        folder = cost_store_path().with_name("ray")
        return _held_session(folder / f"{name}.session", write, self.load_options["threads"])


class _SharedCosts(Struct):
    """Measured costs of the driver's machine, the ``node`` of their keeper, for nodes of all kinds."""

    node: str
    keeper: ActorHandle[_Keeper]

    @classmethod
    def of_this_machine(cls) -> _SharedCosts:
        """Those of the machine that the driver runs on; of a client of Ray, of the one that it is connected to."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = ray.get_runtime_context().get_node_id()
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        # One process for all nodes: as a task each would have its own, as many at once as there are nodes.
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": there}
        return cls(node, ray.remote(**options)(_Keeper).remote(cost_store_path()))

    @contextmanager
    def known_here(self) -> Iterator[None]:
        """Inside, this node knows them; at the end, its other measurements are kept there."""
        import ray

        if ray.get_runtime_context().get_node_id() == self.node:
            yield
            return
        store = CostStore()
        known = self._answer("known", store.environment) or {}
        store.add(known)
        yield
        others = {digest: ns for digest, ns in store.measured().items() if digest not in known}
        if others:
            self._answer("add", store.environment, others)

    def _answer(self, method: str, *arguments: object) -> Any:
        """Of the keeper; ``None`` where it cannot be asked, which loses nothing but time."""
        import ray

        try:
            return ray.get(getattr(self.keeper, method).remote(*arguments), timeout=KEEPER_TIMEOUT_S)
        except ray.exceptions.RayError as error:
            message = f"measured costs are not shared with {self.node}: {error}"
            warnings.warn(message, CostStoreWarning, stacklevel=3)
            return None


class _Keeper:
    """The store of the driver's machine, in an actor."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def known(self, environment: str) -> dict[bytes, float]:
        return CostStore(self._path, environment=environment).measured()

    def add(self, environment: str, measured: dict[bytes, float]) -> None:
        CostStore(self._path, environment=environment).add(measured)


def _column(batch: Mapping[str, np.ndarray], name: str, asked_by: str) -> np.ndarray:
    if name not in batch:
        raise InputError(f"{asked_by}{name}: the rows have no such column; they have {', '.join(batch)}")
    return batch[name]


def _held_session(path: Path, write: Callable[[Path], None], threads: int) -> Session:
    """The session that a file of this node holds; the file goes when no process holds it any more.

    One process at a time opens it. A lock on a file beside it, given back when a process ends, tells whether it is
    held: the next that opens one removes those that are not. A file that was removed too early is still mapped.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_suffix(".lock").open("ab")
    fcntl.flock(lock, fcntl.LOCK_EX)
    for other in path.parent.glob("*.lock"):
        with other.open("ab") as others:
            if is_taken(others):  # ours is held already
                other.with_suffix(".session").unlink(missing_ok=True)
                other.unlink(missing_ok=True)
    if not path.exists():
        with replacing(path, outlasts_power=False) as made:
            write(made)
    session = load(path, threads=threads)
    fcntl.flock(lock, fcntl.LOCK_SH)
    _locks.append(lock)
    return session


_locks: list[IO[bytes]] = []
"""Held until this process ends."""
