"""The file of measured costs: an SQLite database that several threads and processes use at once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

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


class SchemaError(Exception):
    """A database of somebody else, or of another version."""


class CostFile:
    """Rows of one file; every method may raise ``sqlite3.Error``, ``OSError`` or ``SchemaError``.

    Nothing is opened before it is needed, and nothing created but by writing.

    Args:
        path: Of the file, absolute.
        timeout_s: How long to wait for other processes.
    """

    def __init__(self, path: Path, timeout_s: float) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._number: int | None = None  # of the file that it is to

    def has_times(self, environment: str) -> bool:
        """Whether there is any time of this environment."""
        return bool(self._read(_ANY_TIME, environment))

    def read_times(self, environment: str, digests: Sequence[bytes]) -> dict[bytes, float]:
        """Nanoseconds by digest, of those that are there."""
        found: dict[bytes, float] = {}
        for start in range(0, len(digests), _BATCH):
            batch = digests[start : start + _BATCH]
            found.update(self._read(_TIMES % ",".join("?" * len(batch)), environment, *batch))
        return found

    def write_time(self, environment: str, digest: bytes, ns: float) -> None:
        """Add or replace a time."""
        self._write(environment, _ADD_TIME % "REPLACE", [(environment, digest, ns)])

    def read_all(self, environment: str) -> dict[bytes, float]:
        """Times by digest."""
        return dict(self._read(_ALL_TIMES, environment))

    def state(self, environment: str) -> str:
        """A text that changes with the times of this environment, and with nothing else."""
        return repr(self._read(_SUMS, environment))

    def write_missing(self, environment: str, times: Mapping[bytes, float]) -> None:
        """Add what is not there, and replace nothing."""
        self._write(environment, _ADD_TIME % "IGNORE", [(environment, *row) for row in times.items()])

    def close(self) -> None:
        """Close it; the next use opens it again."""
        self._leave_parent()
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def __del__(self, getpid: Callable[[], int] = os.getpid, of_a_parent: list[object] = _of_a_parent) -> None:
        # At the interpreter's end the module's globals are gone; defaults are not.
        if self._pid != getpid():
            of_a_parent.append(self._connection)
        elif self._connection is not None:
            self._connection.close()

    def _read(self, query: str, *parameters: object) -> list[Any]:
        self._leave_parent()
        with self._lock:
            connection = self._existing()
            return [] if connection is None else connection.execute(query, parameters).fetchall()

    def _existing(self) -> sqlite3.Connection | None:
        """The connection, if there is a file with our tables."""
        number = _number_of(self.path)
        if number is None:
            return None
        self._leave_file(number)
        if self._connection is None:
            self._connection, self._number = _connect_to_read(self.path, self._timeout_s), number
        return self._connection if _has_tables(self._connection) else None

    def _write(self, environment: str, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        self._leave_parent()
        with self._lock, _transaction(self._open_to_write()) as connection:
            connection.execute(_ADD_ENVIRONMENT, (environment,))
            connection.executemany(statement, rows)

    def _open_to_write(self) -> sqlite3.Connection:
        self._leave_file(_number_of(self.path))
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = _connect(self.path, "mode=rwc", self._timeout_s)
            self._number = _number_of(self.path)
        # A commit need not wait for the disk: what a killed process has committed is kept all the same. What a
        # power failure takes is measured again.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if not _has_tables(self._connection):
            _create_tables(self._connection, self._timeout_s)
        return self._connection

    def _leave_file(self, number: int | None) -> None:
        """Have no connection to a file that was removed or replaced: nobody would find what is written to it."""
        if self._connection is not None and number != self._number:
            self._connection.close()
            self._connection = None

    def _leave_parent(self) -> None:
        """In a child: a connection and a lock of its own, since the lock may have been held during the fork."""
        if self._pid != os.getpid():
            _of_a_parent.append(self._connection)
            self._connection, self._lock, self._pid = None, threading.Lock(), os.getpid()


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


def _connect_to_read(path: Path, timeout_s: float) -> sqlite3.Connection:
    """Where the folder cannot be written, SQLite has no place to say that it reads, unless nobody ever writes."""
    return _connect(path, "mode=rw" if os.access(path.parent, os.W_OK) else "immutable=1", timeout_s)


def _has_tables(connection: sqlite3.Connection) -> bool:
    """Whether the tables are there; not so in an empty file.

    Raises:
        SchemaError: Other tables are.
    """
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
            _create_once(connection)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(_RETRY_S)
        else:
            return


def _create_once(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")  # readers and a writer do not wait for each other
    with _transaction(connection):
        for statement in _TABLES.split(";"):
            connection.execute(statement)


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
