"""Measured times are kept from process to process, and whatever happens to the file, nothing raises."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blocklayout import dnnl
from blocklayout.errors import CostStoreWarning
from blocklayout.plan.costs import store as cost_store
from blocklayout.plan.costs.store import CostStore, cost_store_path

HERE = "format 1; a library; a CPU"

MANY = """
import sys
from pathlib import Path
from blocklayout import dnnl
from blocklayout.plan.costs.store import CostStore
path, first, n = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
with CostStore(path, environment="format 1; a library; a CPU") as store:
    for number in range(first, first + n):
        desc = dnnl.MemoryDesc((1, number), "f32", "nc")
        store.keep(dnnl.softmax(desc, n_threads=1), float(number))
        print(number, flush=True)
"""


def spec_number(number: int) -> dnnl.Spec:
    return dnnl.softmax(dnnl.MemoryDesc((1, number)), n_threads=1)


def specs(n: int) -> list[dnnl.Spec]:
    return [spec_number(number) for number in range(1, n + 1)]


def opened(path: Path, timeout_s: float = 5.0) -> CostStore:
    return CostStore(path, environment=HERE, timeout_s=timeout_s)


def kept_in(path: Path, n: int) -> int:
    with opened(path) as store:
        return len(store.times(specs(n)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "costs.sqlite3"


def start_keeping(path: Path, first: int, n: int, environ: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", MANY, str(path), str(first), str(n)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


# What is kept, and for whom.


def test_what_was_kept_is_there_for_the_next_store(path: Path) -> None:
    with opened(path) as store:
        store.keep(spec_number(3), 1234.5)
        assert store.times(specs(5)) == {spec_number(3): 1234.5}
    with opened(path) as store:
        assert store.times(specs(5)) == {spec_number(3): 1234.5}


def test_a_newer_time_replaces_the_older(path: Path) -> None:
    with opened(path) as store:
        store.keep(spec_number(3), 2.0)
        store.keep(spec_number(3), 1.0)
        assert store.times(specs(3)) == {spec_number(3): 1.0}


def test_more_specs_than_a_statement_takes(path: Path) -> None:
    with opened(path) as store:
        for number in (1, 499, 501, 1999):
            store.keep(spec_number(number), float(number))
        assert sorted(store.times(specs(2000)).values()) == [1.0, 499.0, 501.0, 1999.0]


def test_another_environment_sees_nothing_of_it(path: Path) -> None:
    with opened(path) as store, CostStore(path, environment="format 2; a library; a CPU") as other:
        store.keep(spec_number(1), 1.0)
        assert other.times(specs(2)) == {}
        other.keep(spec_number(1), 7.0)
        assert store.times(specs(2)) == {spec_number(1): 1.0}


def test_the_state_changes_with_what_is_kept_by_anyone_and_with_nothing_else(path: Path) -> None:
    with opened(path) as store, opened(path) as other, CostStore(path, environment="another CPU") as elsewhere:
        states = [store.state()]
        for keeper, number, ns in ((store, 1, 1.0), (other, 1, 2.0), (other, 2, 2.0)):
            keeper.keep(spec_number(number), ns)
            states.append(store.state())
            assert other.state() == states[-1]
        assert len({*states}) == len(states)
        elsewhere.keep(spec_number(3), 1.0)
        assert store.state() == states[-1]
    with opened(path) as store:  # what was written ahead is in the file itself since the last one was closed
        assert store.state() == states[-1]


@pytest.mark.parametrize("ns", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_not_kept(path: Path, ns: float) -> None:
    with opened(path) as store:
        store.keep(spec_number(1), ns)
        assert store.times(specs(1)) == {}


def test_what_another_machine_measured_replaces_nothing(path: Path, tmp_path: Path) -> None:
    with opened(path) as store, opened(tmp_path / "costs.sqlite3") as other:
        store.keep(spec_number(1), 1.0)
        other.keep(spec_number(1), 9.0)
        other.keep(spec_number(2), 2.0)
        store.add(other.measured())
        assert store.times(specs(3)) == {spec_number(1): 1.0, spec_number(2): 2.0}
        assert store.measured().keys() == other.measured().keys()


def test_to_add_nothing_writes_nothing(path: Path) -> None:
    with opened(path) as store:
        store.add(store.measured())
    assert not path.parent.exists()


def test_the_environment_names_the_library_and_the_cpu(path: Path) -> None:
    environment = CostStore(path).environment
    assert dnnl.isa() in environment
    assert "oneDNN 3." in environment


# Where it is, and what looking costs.


def test_the_folder_is_the_users_to_choose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BLOCKLAYOUT_CACHE_DIR", str(tmp_path))
    assert cost_store_path() == tmp_path / "costs.sqlite3"
    assert CostStore().path == tmp_path / "costs.sqlite3"
    monkeypatch.delenv("BLOCKLAYOUT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cost_store_path().is_relative_to(tmp_path / "xdg" / "blocklayout")


def test_reading_creates_nothing(path: Path) -> None:
    with opened(path) as store:
        assert store.times(specs(3)) == {}
    assert not path.parent.exists()


def test_keeping_creates_one_file(path: Path) -> None:
    with opened(path) as store:
        store.keep(spec_number(1), 1.0)
    assert list(path.parent.iterdir()) == [path]


def test_nothing_is_digested_where_nothing_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as store, CostStore(path, environment="elsewhere") as other:
        monkeypatch.setattr(cost_store, "spec_digest", lambda _: pytest.fail("digested"))
        assert store.times(specs(3)) == {}
        monkeypatch.undo()
        store.keep(spec_number(1), 1.0)
        monkeypatch.setattr(cost_store, "spec_digest", lambda _: pytest.fail("digested"))
        assert other.times(specs(3)) == {}


def test_importing_it_loads_no_database(tree_environ: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys, blocklayout.plan.costs.store as module; module.CostStore('x').close(); "
        "assert not {'sqlite3', 'platformdirs'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], env=tree_environ, cwd=tmp_path, check=True, timeout=60)


# Several at once.


def test_processes_write_at_once(path: Path, tree_environ: dict[str, str]) -> None:
    writers = [start_keeping(path, first, 100, tree_environ) for first in (1, 101, 201)]
    for writer in writers:
        writer.communicate(timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert kept_in(path, 300) == 300


def test_a_killed_process_leaves_what_it_measured(path: Path, tree_environ: dict[str, str]) -> None:
    writer = start_keeping(path, 1, 100_000, tree_environ)
    assert writer.stdout is not None
    n_told = 0
    while n_told < 50:
        n_told = int(writer.stdout.readline())
    writer.kill()
    rest, _ = writer.communicate(timeout=60)
    n_told = max([n_told, *map(int, rest.splitlines()[:-1])])
    assert writer.returncode == -signal.SIGKILL
    assert kept_in(path, n_told) == n_told
    with opened(path) as store:
        store.keep(spec_number(999_999), 1.0)
        assert len(store.times([*specs(n_told), spec_number(999_999)])) == n_told + 1


def test_threads_share_a_store(path: Path) -> None:
    with opened(path) as store:

        def keep(first: int) -> None:
            for number in range(first, first + 40):
                store.keep(spec_number(number), float(number))
                assert store.times([spec_number(number)]) == {spec_number(number): float(number)}

        threads = [threading.Thread(target=keep, args=(first,)) for first in (1, 41, 81, 121)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.times(specs(160))) == 160


def test_a_forked_child_uses_a_connection_of_its_own(path: Path) -> None:
    def in_child() -> None:
        is_seen = store.times(specs(1)) == {spec_number(1): 1.0}
        store.keep(spec_number(2), 2.0)
        os._exit(0 if is_seen else 1)

    with opened(path) as store:
        store.keep(spec_number(1), 1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other tests leave threads
            child = multiprocessing.get_context("fork").Process(target=in_child)
            child.start()
        child.join(60)
        assert child.exitcode == 0
        assert store.times(specs(3)) == {spec_number(1): 1.0, spec_number(2): 2.0}
        store.keep(spec_number(3), 3.0)
        assert len(store.times(specs(3))) == 3


# What can be wrong with a file.


def use(store: CostStore) -> None:
    store.times(specs(2))
    store.keep(spec_number(1), 5.0)


def check_it_goes_on_without(path: Path, saying: str, timeout_s: float = 5.0) -> None:
    """One warning, whatever is done and however many stores there are; and this process remembers."""
    with opened(path, timeout_s) as store:
        with pytest.warns(CostStoreWarning, match=saying) as reports:
            use(store)
        assert len(reports) == 1
        assert str(path) in str(reports[0].message)
        assert store.times(specs(2)) == {spec_number(1): 5.0}
    with opened(path, timeout_s) as another:
        another.times(specs(2))
        another.keep(spec_number(1), 5.0)
        assert another.times(specs(2)) == {spec_number(1): 5.0}


def test_noise_is_reported_and_left_as_it_is(path: Path) -> None:
    noise = random.Random(0).randbytes(10_000)
    path.parent.mkdir()
    path.write_bytes(noise)
    check_it_goes_on_without(path, "damaged: delete it")
    assert path.read_bytes() == noise


def test_a_file_that_was_overwritten_in_part(path: Path) -> None:
    with opened(path) as store:
        for number in range(1, 1000):
            store.keep(spec_number(number), 1.0)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + random.Random(0).randbytes(len(whole) - 4096))
    check_it_goes_on_without(path, "damaged: delete it")


def test_damage_that_makes_messages_unreadable(path: Path) -> None:
    with opened(path) as store:
        store.keep(spec_number(1), 1.0)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"CREATE TABLE times", b"CREATE \xc1ABLE times"))
    check_it_goes_on_without(path, "damaged: delete it")


def test_somebody_elses_database(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE letters (text TEXT)")
    connection.close()
    check_it_goes_on_without(path, "1 tables of version 0")


def test_tables_of_ours_with_other_columns(path: Path) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE times (text TEXT)")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    check_it_goes_on_without(path, "no such")


def test_values_that_are_no_times_are_not_believed(path: Path) -> None:
    with opened(path) as store:
        store.keep(spec_number(1), 1.0)
        store.keep(spec_number(2), 2.0)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE times SET ns = 'soon' WHERE ns = 1.0")
    connection.commit()
    connection.close()
    with opened(path) as store:
        assert store.times(specs(2)) == {spec_number(2): 2.0}


def test_an_empty_file_is_filled(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with opened(path) as store:
        assert store.times(specs(1)) == {}
        store.keep(spec_number(1), 1.0)
    assert kept_in(path, 1) == 1


def test_a_folder_that_cannot_be_made(path: Path) -> None:
    path.parent.write_text("a file where the folder should be", encoding="ascii")
    check_it_goes_on_without(path, "permissions")


def test_a_folder_where_the_file_should_be(path: Path) -> None:
    path.mkdir(parents=True)
    check_it_goes_on_without(path, "permissions")


def test_a_file_that_another_process_holds_too_long(path: Path) -> None:
    with opened(path) as store:
        store.keep(spec_number(2), 1.0)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with opened(path, timeout_s=0.05) as store:
        assert store.times(specs(2)) == {spec_number(2): 1.0}, "reading does not wait for a writer"
        with pytest.warns(CostStoreWarning, match="another process holds it"):
            store.keep(spec_number(1), 5.0)
        assert store.times(specs(2))[spec_number(1)] == 5.0
    holder.close()


def test_a_full_disk(path: Path, tree_environ: dict[str, str]) -> None:
    code = f"""
import resource, warnings
from pathlib import Path
from blocklayout import dnnl
from blocklayout.errors import CostStoreWarning
from blocklayout.plan.costs.store import CostStore
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
spec = dnnl.softmax(dnnl.MemoryDesc((1, 3)), n_threads=1)
with CostStore(Path({str(path)!r}), environment="x") as store:
    with warnings.catch_warnings(record=True) as reports:
        warnings.simplefilter("always")
        store.keep(spec, 1.0)
        store.keep(spec, 2.0)
    assert [report.category for report in reports] == [CostStoreWarning], reports
    assert "disk is full" in str(reports[0].message)
    assert store.times([spec]) == {{spec: 2.0}}
"""
    subprocess.run([sys.executable, "-B", "-W", "error", "-c", code], env=tree_environ, check=True, timeout=60)


@pytest.fixture
def forbid(path: Path) -> Iterator[Callable[[int], None]]:
    """Takes permissions from the folder and what is in it, until the test ends."""

    def take(mode: int) -> None:
        for entry in path.parent.iterdir():
            entry.chmod(mode & 0o666)
        path.parent.chmod(mode)
        if os.access(path.parent, os.W_OK):
            pytest.skip("root may write anywhere")

    yield take
    path.parent.chmod(0o755)


def test_a_folder_that_may_only_be_read(path: Path, forbid: Callable[[int], None]) -> None:
    with opened(path) as store:
        store.keep(spec_number(2), 1.0)
    forbid(0o555)
    with opened(path) as store:
        assert store.times(specs(2)) == {spec_number(2): 1.0}, "reading takes no more than that"
        with pytest.warns(CostStoreWarning, match="permissions"):
            store.keep(spec_number(1), 5.0)
        assert store.times(specs(2)) == {spec_number(1): 5.0, spec_number(2): 1.0}


def test_a_folder_that_may_not_even_be_read(path: Path, forbid: Callable[[int], None]) -> None:
    path.parent.mkdir()
    forbid(0)
    check_it_goes_on_without(path, "permissions")


def test_two_thousand_look_ups_are_batched(path: Path) -> None:
    with opened(path) as store:
        store.keep(spec_number(1), 1.0)
        queries: list[str] = []
        assert store._connection is not None
        store._connection.set_trace_callback(queries.append)
        store.times(specs(2000))
    assert sum(" IN (" in query for query in queries) == 4


def test_a_file_is_closed_without_a_word_where_the_interpreter_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CostStore(path, environment="here")
    store.keep(dnnl.softmax(dnnl.MemoryDesc((1, 3)), n_threads=1), 1.0)
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    for name in ("os", "threading", "_of_a_parent"):  # as modules are when it has cleared them
        monkeypatch.setattr(f"blocklayout.plan.costs.store.{name}", None)
    del store
    assert not told
