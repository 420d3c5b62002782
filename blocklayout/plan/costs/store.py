"""The store of measured times: nanoseconds by Spec on this user's machine, shared by all processes."""

from __future__ import annotations

import os
import warnings
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from blocklayout import dnnl
from blocklayout.dnnl import library, processor
from blocklayout.dnnl.spec_digest import spec_digest
from blocklayout.errors import CostStoreWarning
from blocklayout.plan.costs.file import CostFile, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from blocklayout.dnnl import Spec

COST_FORMAT = 3
"""Bump when times are taken in another way, so that old ones are not compared with new ones."""

VARIABLE = "BLOCKLAYOUT_CACHE_DIR"
"""Environment variable that names the folder to keep things in, instead of the user's cache folder."""

FILE_NAME = "costs.sqlite3"

_TIMEOUT_S = 5.0
_DAMAGED = "it is damaged: delete it, and it will be made anew"

_Result = TypeVar("_Result")

_reported: set[Path] = set()


def cost_store_path() -> Path:
    """Where measured times are kept: ``costs.sqlite3`` in ``BLOCKLAYOUT_CACHE_DIR``, or in the user's cache folder.

    Example:
        >>> cost_store_path().name
        'costs.sqlite3'
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        import platformdirs

        folder = platformdirs.user_cache_dir("blocklayout")
    return Path(os.path.abspath(os.path.expanduser(folder)), FILE_NAME)  # noqa: PTH100, PTH111 - a home may be unknown


def cost_environment() -> str:
    """All that times depend on and that a Spec does not say.

    Threads are part of a Spec. Which CPUs of the machine a process may use makes no difference.

    Raises:
        UnsupportedError: oneDNN cannot be used here.
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
    Threads and forked processes may share a store, and processes its file. Nothing is read before it is needed, and
    reading creates nothing.

    No method raises for what the file is or does. A file that is damaged, locked or cannot be written is left as it
    is and reported once in a process, by a :class:`~blocklayout.errors.CostStoreWarning`; the store then remembers
    what it is given.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from blocklayout import dnnl
        >>> spec = dnnl.resolve(dnnl.eltwise(dnnl.MemoryDesc((2, 17)), algorithm="relu", n_threads=1)).spec
        >>> with tempfile.TemporaryDirectory() as folder, CostStore(Path(folder, "costs.sqlite3")) as store:
        ...     store.keep(spec, 1500.0)
        ...     store.times([spec])[spec]
        1500.0
    """

    def __init__(
        self, path: str | Path | None = None, *, environment: str | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self.path = cost_store_path() if path is None else Path(os.path.abspath(path))  # noqa: PTH100 - never raises
        self._given_environment = environment
        self._file = CostFile(self.path, timeout_s)
        self._is_readable = True
        self._is_writable = True
        self._times: dict[Spec, float] = {}  # only what the file has not taken

    @cached_property
    def environment(self) -> str:
        """Library and CPU its times hold for, in words."""
        return cost_environment() if self._given_environment is None else self._given_environment

    def has_times(self) -> bool:
        """Whether it knows any."""
        return bool(self._times or self._using(lambda: self._file.has_times(self.environment)))

    def times(self, specs: Iterable[Spec]) -> dict[Spec, float]:
        """Nanoseconds of those Specs that have been measured in this environment."""
        wanted = list(specs)
        kept = self._using(lambda: self._read_times(wanted)) or {}
        return kept | {spec: self._times[spec] for spec in wanted if spec in self._times}

    def keep(self, spec: Spec, ns: float) -> None:
        """Keep a time for good; a newer one replaces it.

        Args:
            spec: What was measured.
            ns: Nanoseconds of one execution; anything but a positive number is not kept.
        """
        if not 0 < ns < inf:
            return
        self._times[spec] = ns
        if self._using(lambda: self._write(spec, ns), to_write=True):
            self._times.pop(spec, None)

    def measured(self) -> dict[bytes, float]:
        """All times that the file has of this environment, by the digest of a Spec, for machines of the same kind."""
        return _times(self._using(lambda: self._file.read_all(self.environment)) or {})

    def add(self, others: Mapping[bytes, float]) -> None:
        """Keep what was measured on other machines of this kind, where nothing is known."""
        known = self.measured()
        missing = {digest: ns for digest, ns in others.items() if digest not in known}
        if missing:
            self._using(lambda: self._file.write_missing(self.environment, missing), to_write=True)

    def state(self) -> str | None:
        """A text that changes with the times that are kept; ``None`` where the file does not take them."""
        return self._using(lambda: self._file.state(self.environment)) if self._is_writable else None

    def close(self) -> None:
        """Let go of the file; what is asked of the store afterwards opens it again."""
        self._using(self._file.close, to_write=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_times(self, specs: list[Spec]) -> dict[Spec, float]:
        if not self._file.has_times(self.environment):
            return {}  # before any Spec is digested, which takes longer than reading
        digests = {spec: spec_digest(spec) for spec in specs}
        found = _times(self._file.read_times(self.environment, list(digests.values())))
        return {spec: found[digest] for spec, digest in digests.items() if digest in found}

    def _write(self, spec: Spec, ns: float) -> bool:
        self._file.write_time(self.environment, spec_digest(spec), ns)
        return True

    def _using(self, use: Callable[[], _Result], *, to_write: bool = False) -> _Result | None:
        """Result of reading or writing the file; ``None`` if it cannot be, now or any more.

        A file that cannot be written may still be readable.
        """
        if not (self._is_writable if to_write else self._is_readable):
            return None
        try:
            return use()
        except Exception as error:  # raised again unless it is the fault of the file
            self._is_writable = False
            self._is_readable &= to_write
            remedy = _remedy(error)
            if remedy is None:
                raise
            problem = f"measured costs cannot be kept in {self.path}: {error}; {remedy}"
            warn_once(self.path, f"{problem}. This process goes on without the file.", CostStoreWarning)
            return None


def _times(values: Mapping[bytes, Any]) -> dict[bytes, float]:
    """Those that can be times; SQLite does not mind what is in a column."""
    return {key: float(value) for key, value in values.items() if isinstance(value, int | float) and 0 < value < inf}


def _remedy(error: Exception) -> str | None:
    """Remedy of an error; ``None`` for errors that are no fault of the file."""
    elsewhere = f"set {VARIABLE} to another folder"
    if isinstance(error, SchemaError):
        return f"delete it if nothing else needs it, or {elsewhere}"
    if isinstance(error, OSError):
        return f"see to its permissions, or {elsewhere}"
    if isinstance(error, ImportError):
        return "this Python was built without sqlite3: install one that has it"

    if isinstance(error, UnicodeError):  # sqlite3 quotes it in messages
        return _DAMAGED

    import sqlite3

    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return _DAMAGED
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"another process holds it: end that, or {elsewhere}"
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return f"see whether its disk is full, or {elsewhere}"
    return f"see to its permissions, delete it if it is not ours, or {elsewhere}"


def warn_once(path: Path, message: str, category: type[Warning]) -> None:
    """Warn of a store that cannot be used, once for each path."""
    if path not in _reported:
        _reported.add(path)
        warnings.warn(message, category, stacklevel=4)  # at the call of a store's method
