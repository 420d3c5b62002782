"""The store of measured times: nanoseconds by Spec on this user's machine, shared by all threads and processes."""

from __future__ import annotations

import os
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from blocklayout import dnnl
from blocklayout.dnnl import library, processor
from blocklayout.dnnl.spec import spec_digest
from blocklayout.errors import CostStoreWarning
from blocklayout.forking import renew_in_children

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from blocklayout.dnnl import Spec

COST_FORMAT = 3
"""Bump when times are taken in another way, so that old ones are not compared with new ones."""

VARIABLE = "BLOCKLAYOUT_CACHE_DIR"
"""Environment variable that names the folder to keep things in, instead of the user's cache folder."""

FILE_NAME = "costs.sqlite3"

SCHEMA_VERSION = 1

_TABLES = f"""
CREATE TABLE IF NOT EXISTS environments (
    id INTEGER PRIMARY KEY, description TEXT NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS times (
    environment INTEGER NOT NULL, spec BLOB NOT NULL, ns REAL NOT NULL,
    PRIMARY KEY (environment, spec)
) WITHOUT ROWID;
PRAGMA user_version = {SCHEMA_VERSION}
"""
_VERSION = "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
_ID = "(SELECT id FROM environments WHERE description = ?)"
_ANY_TIME = f"SELECT 1 FROM times WHERE environment = {_ID} LIMIT 1"  # noqa: S608 - constants, here and below
_TIMES = f"SELECT spec, ns FROM times WHERE environment = {_ID} AND spec IN (%s)"  # noqa: S608
_ADD_ENVIRONMENT = "INSERT OR IGNORE INTO environments (description) VALUES (?)"
_ADD_TIME = f"INSERT OR %s INTO times VALUES ({_ID}, ?, ?)"  # noqa: S608
_ALL_TIMES = f"SELECT spec, ns FROM times WHERE environment = {_ID}"  # noqa: S608
_SUMS = f"SELECT count(*), total(ns) FROM times WHERE environment = {_ID}"  # noqa: S608

_BATCH = 500  # SQLite takes 999 parameters in a statement at least
_RETRY_S = 0.01

_of_a_parent: list[object] = []
"""Connections that came through a fork: SQLite forbids to use them here, and to close them too."""

_TIMEOUT_S = 5.0
_DAMAGED = "it is damaged: delete it, and it will be made anew"

_Result = TypeVar("_Result")

_reported: set[Path] = set()


class SchemaError(Exception):
    """A database of somebody else, or of another version."""


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

    No method raises for faults of the file. A file that is damaged, locked or cannot be written is left as it
    is and reported once in a process, by a :class:`~blocklayout.errors.CostStoreWarning`; the store then keeps
    times in memory.

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
        self._connection: sqlite3.Connection | None = None
        self._number: int | None = None  # of the file that it is to
        self.path = cost_store_path() if path is None else Path(os.path.abspath(path))  # noqa: PTH100 - never raises
        self._given_environment = environment
        self._timeout_s = timeout_s
        self._is_readable = True
        self._is_writable = True
        self._times: dict[Spec, float] = {}  # those that the file has not taken
        renew_in_children(self)

    def renew(self) -> None:
        """Have a free lock, and in a child that was forked no connection: it is the parent's."""
        self._lock = threading.Lock()
        if self._connection is not None:
            _of_a_parent.append(self._connection)
            self._connection = None

    @cached_property
    def environment(self) -> str:
        """Library and CPU its times hold for, in words."""
        return cost_environment() if self._given_environment is None else self._given_environment

    def has_times(self) -> bool:
        """Whether it knows any."""
        return bool(self._times or self._read(_ANY_TIME, self.environment))

    def times(self, specs: Iterable[Spec]) -> dict[Spec, float]:
        """Nanoseconds of those Specs that have been measured in this environment."""
        wanted = list(specs)
        kept: dict[Spec, float] = {}
        if self._read(_ANY_TIME, self.environment):  # before any Spec is digested, which takes longer than reading
            digests = {spec: spec_digest(spec) for spec in wanted}
            found = self._times_of([*digests.values()])
            kept = {spec: found[digest] for spec, digest in digests.items() if digest in found}
        return kept | {spec: self._times[spec] for spec in wanted if spec in self._times}

    def keep(self, spec: Spec, ns: float) -> None:
        """Keep the nanoseconds of one execution for good, if they are a positive number; a newer time replaces it."""
        if not 0 < ns < inf:
            return
        self._times[spec] = ns
        if self._write(_ADD_TIME % "REPLACE", {spec_digest(spec): ns}):
            self._times.pop(spec, None)

    def measured(self) -> dict[bytes, float]:
        """All times that the file has of this environment, by the digest of a Spec, for machines of the same kind."""
        return _times(self._read(_ALL_TIMES, self.environment))

    def add(self, others: Mapping[bytes, float]) -> None:
        """Keep times of other machines of this kind, where none is known."""
        known = self.measured()
        missing = {digest: ns for digest, ns in others.items() if digest not in known}
        if missing:
            self._write(_ADD_TIME % "IGNORE", missing)

    def state(self) -> str | None:
        """A text that changes with the times that are kept; ``None`` where the file does not take them."""
        rows = self._read(_SUMS, self.environment) if self._is_writable else None
        return None if rows is None else repr(rows)

    def close(self) -> None:
        """Let go of the file; the next question opens it again."""
        self._using(self._disconnect, to_write=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _times_of(self, digests: Sequence[bytes]) -> dict[bytes, float]:
        found: dict[bytes, float] = {}
        for start in range(0, len(digests), _BATCH):
            batch = digests[start : start + _BATCH]
            found |= _times(self._read(_TIMES % ",".join("?" * len(batch)), self.environment, *batch))
        return found

    def _read(self, query: str, *parameters: object) -> list[Any] | None:
        """Rows of the file; ``None`` where it cannot be read."""

        def read() -> list[Any]:
            with self._lock:
                connection = self._existing()
                return [] if connection is None else connection.execute(query, parameters).fetchall()

        return self._using(read)

    def _write(self, statement: str, times: Mapping[bytes, float]) -> bool:
        """Write times by digest; whether the file has taken them."""

        def write() -> bool:
            with self._lock, _transaction(self._open_to_write()) as connection:
                connection.execute(_ADD_ENVIRONMENT, (self.environment,))
                connection.executemany(statement, [(self.environment, *row) for row in times.items()])
            return True

        return bool(self._using(write, to_write=True))

    def _disconnect(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

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

    def _existing(self) -> sqlite3.Connection | None:
        """The connection, if there is a file with our tables."""
        number = _number_of(self.path)
        if number is None:
            return None
        self._leave_file(number)
        if self._connection is None:
            # Where the folder cannot be written, SQLite has no place to say that it reads, unless nobody ever writes.
            access = "mode=rw" if os.access(self.path.parent, os.W_OK) else "immutable=1"
            self._connection, self._number = _connect(self.path, access, self._timeout_s), number
        return self._connection if _has_tables(self._connection) else None

    def _open_to_write(self) -> sqlite3.Connection:
        self._leave_file(_number_of(self.path))
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = _connect(self.path, "mode=rwc", self._timeout_s)
            self._number = _number_of(self.path)
        # A commit need not wait for the disk: commits of a killed process are kept all the same. Times that a
        # power failure takes are measured again.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if not _has_tables(self._connection):
            _create_tables(self._connection, self._timeout_s)
        return self._connection

    def _leave_file(self, number: int | None) -> None:
        """Have no connection to a file that was removed or replaced: nobody would read it."""
        if self._connection is not None and number != self._number:
            self._connection.close()
            self._connection = None


def _number_of(path: Path) -> int | None:
    """That of the file, ``None`` where there is none."""
    try:
        return path.stat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None


def _connect(path: Path, access: str, timeout_s: float) -> sqlite3.Connection:
    import sqlite3  # 6 ms, and plans without a store do without

    # Committing is left to us; and one lock sees to it that one thread at a time uses the connection.
    uri = f"{path.as_uri()}?{access}"
    return sqlite3.connect(uri, timeout=timeout_s, uri=True, isolation_level=None, check_same_thread=False)


def _has_tables(connection: sqlite3.Connection) -> bool:
    """Whether our tables are there, which they are not in an empty file; a SchemaError where others are."""
    [(version, n_tables)] = connection.execute(_VERSION).fetchall()
    if version != SCHEMA_VERSION and (version or n_tables):
        raise SchemaError(f"it holds {n_tables} tables of version {version}, not of version {SCHEMA_VERSION}")
    return bool(version)


def _create_tables(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Retried, since SQLite does not wait where two processes turn to write-ahead logging at once."""
    import sqlite3

    end = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")  # readers and a writer do not wait for each other
            with _transaction(connection):
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(_RETRY_S)
        else:
            return


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        with suppress(Exception):
            connection.rollback()
        raise


def _times(rows: Iterable[tuple[bytes, Any]] | None) -> dict[bytes, float]:
    """Those that can be times; SQLite does not check types of columns."""
    return {key: float(value) for key, value in rows or () if isinstance(value, int | float) and 0 < value < inf}


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
