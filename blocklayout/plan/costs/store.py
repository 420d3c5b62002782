"""The store of measured times: nanoseconds by Spec on this user's machine, shared by all threads and processes."""

from __future__ import annotations

import os
import time
import warnings
from contextlib import contextmanager
from functools import cached_property
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from blocklayout import dnnl
from blocklayout.dnnl import library, processor
from blocklayout.dnnl.spec import DIGEST_NBYTES, spec_digest
from blocklayout.errors import CostStoreWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from blocklayout.dnnl import Spec

COST_FORMAT = 3
"""Bump when times are taken in another way, so that old ones are not compared with new ones."""

VARIABLE = "BLOCKLAYOUT_CACHE_DIR"
"""Environment variable that names the folder to keep things in, instead of the user's cache folder."""

FILE_NAME = "costs.bin"

_RECORD = np.dtype([("environment", "<u8"), ("spec", f"V{DIGEST_NBYTES}"), ("ns", "<f8"), ("check", "<u8")])
"""A time in the file: digests of its environment and its Spec, and a sum over these words."""

_WEIGHTS = np.array([1, 3, 5, 7], np.uint64)
"""Of the words in that sum; one more is added, so that zeros are no record."""

_ASK_EVERY_S = 0.02

_reported: set[Path] = set()


def cost_store_path() -> Path:
    """Where measured times are kept: ``costs.bin`` in ``BLOCKLAYOUT_CACHE_DIR``, or in the user's cache folder.

    Example:
        >>> cost_store_path().name
        'costs.bin'
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        import platformdirs

        folder = platformdirs.user_cache_dir("blocklayout")
    return Path(os.path.abspath(os.path.expanduser(folder)), FILE_NAME)  # noqa: PTH100, PTH111 - a home may be unknown


def cost_environment() -> str:
    """All that times depend on and that a Spec does not say.

    Threads are part of a Spec. Which CPUs of the machine a process may use makes no difference.
    """
    caches = " ".join(f"L{cache.level}:{cache.nbytes >> 10}K" for cache in processor.data_caches())
    version = ".".join(map(str, dnnl.version()))
    runtime = "sequential" if library.is_sequential() else "OpenMP"
    parts = (
        f"format {COST_FORMAT}",
        f"oneDNN {version} {library.version_hash()} {runtime}",
        dnnl.isa(),
        processor.cpu_name(),
        caches or "caches unknown",
    )
    return "; ".join(parts)


class CostStore:
    """Measured nanoseconds by Spec, kept from process to process.

    Times hold for an *environment*: one library on one kind of CPU. Those of others stay in the file, unseen.
    Each is a record that is appended to the file, at once and whole, so that threads and processes may share it; those
    that are cut off or damaged all the same are passed over. Reading creates nothing.

    No method raises for faults of the file. Where it cannot be read or written that is reported once in a process, by
    a :class:`~blocklayout.errors.CostStoreWarning`; the store then keeps times in memory.

    Example:
        >>> import tempfile
        >>> from blocklayout import dnnl
        >>> spec = dnnl.resolve(dnnl.eltwise(dnnl.MemoryDesc((2, 17)), algorithm="relu", n_threads=1)).spec
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = CostStore(f"{folder}/costs.bin")
        ...     store.keep(spec, 1500.0)
        ...     store.times([spec])[spec]
        1500.0
    """

    def __init__(self, path: str | Path | None = None, *, environment: str | None = None) -> None:
        self.path = cost_store_path() if path is None else Path(os.path.abspath(path))  # noqa: PTH100 - never raises
        self._given_environment = environment
        self._times: dict[Spec, float] = {}  # those that the file has not taken

    @cached_property
    def environment(self) -> str:
        """Library and CPU its times hold for, in words."""
        return cost_environment() if self._given_environment is None else self._given_environment

    def has_times(self) -> bool:
        """Whether it knows any."""
        return bool(self._times) or len(self._records()) > 0

    def times(self, specs: Iterable[Spec]) -> dict[Spec, float]:
        """Nanoseconds of those Specs that have been measured in this environment."""
        measured = self.measured()
        if not (measured or self._times):  # before any Spec is digested, which takes longer than reading
            return {}
        digests = {spec: spec_digest(spec) for spec in specs}
        kept = {spec: measured[digest] for spec, digest in digests.items() if digest in measured}
        return kept | {spec: self._times[spec] for spec in digests if spec in self._times}

    def keep(self, spec: Spec, ns: float) -> None:
        """Keep the nanoseconds of one execution for good, if they are a positive number; a newer time replaces it."""
        if not 0 < ns < inf:
            return
        self._times[spec] = ns
        if self._append({spec_digest(spec): ns}):
            self._times.pop(spec, None)

    def measured(self) -> dict[bytes, float]:
        """All times that the file has of this environment, by the digest of a Spec, for machines of the same kind."""
        records = self._records()
        return dict(zip(records["spec"].tolist(), records["ns"].tolist(), strict=True))

    def add(self, others: Mapping[bytes, float]) -> None:
        """Keep times of other machines of this kind, where none is known."""
        known = self.measured()
        missing = {digest: ns for digest, ns in others.items() if digest not in known}
        if missing:
            self._append(missing)

    def state(self) -> str | None:
        """A text that changes with the times that are kept; ``None`` where the file does not take them."""
        return None if self._times else _digest(self._records().tobytes()).hex()

    @contextmanager
    def alone(self, go_on: Callable[[], bool]) -> Iterator[None]:
        """While no other process measures that keeps its times here: those that do at the same time disturb each other.

        A lock lies beside the file. Where its folder takes none, nobody waits; the wait is over when ``go_on`` says no.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = self.path.with_name(f"{self.path.name}.lock").open("ab")
        except OSError:
            yield
            return
        with lock:
            while not is_taken(lock) and go_on():
                time.sleep(_ASK_EVERY_S)
            yield

    def _records(self) -> np.ndarray:
        """Those of this environment in the file, the newest last; none where it cannot be read."""
        content = b""
        try:
            content = self.path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            self._report(error)
        records = np.frombuffer(content, _RECORD, len(content) // _RECORD.itemsize)
        is_own = (records["check"] == _checks(records)) & (records["environment"] == self._environment_number())
        own: np.ndarray = records[is_own & (records["ns"] > 0) & (records["ns"] < inf)]
        return own

    def _append(self, times: Mapping[bytes, float]) -> bool:
        """Write times by digest; whether the file has taken them."""
        records = np.zeros(len(times), _RECORD)
        records["environment"] = self._environment_number()
        records["spec"] = np.frombuffer(b"".join(times), _RECORD["spec"])
        records["ns"] = [*times.values()]
        records["check"] = _checks(records)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                is_taken(file, waits=True)  # the end lies within a record while another process writes across pages
                gap = -file.seek(0, os.SEEK_END) % _RECORD.itemsize  # behind a record that was cut off
                file.write(bytes(gap) + records.tobytes())
        except OSError as error:
            self._report(error)
            return False
        return True

    def _environment_number(self) -> int:
        return int.from_bytes(_digest(self.environment.encode())[:8], "little")

    def _report(self, error: Exception) -> None:
        remedy = f"see to its disk and permissions, or set {VARIABLE} to another folder"
        message = f"measured costs cannot be kept in {self.path}: {error}; {remedy}"
        warn_once(self.path, f"{message}. This process goes on without the file.", CostStoreWarning)


def is_taken(lock: IO[bytes], *, waits: bool = False) -> bool:
    """Whether the lock is ours now, or once it is free; closing the file or the end of the process gives it back."""
    import fcntl  # on Unix alone

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _checks(records: np.ndarray) -> np.ndarray:
    words: np.ndarray = records.view("<u8").reshape(-1, 5)[:, :4]
    checks: np.ndarray = words @ _WEIGHTS + np.uint64(1)
    return checks


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST_NBYTES).digest()


def warn_once(path: Path, message: str, category: type[Warning]) -> None:
    """Warn of a store that cannot be used, once for each path."""
    if path not in _reported:
        _reported.add(path)
        warnings.warn(message, category, stacklevel=4)  # at the call of a store's method
