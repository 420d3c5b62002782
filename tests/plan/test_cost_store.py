"""Measured times are kept from process to process, and whatever happens to the file, nothing raises."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.errors import CostStoreWarning
from blocklayout.plan.costs import store as cost_store
from blocklayout.plan.costs.store import _RECORD, CostStore, _checks, cost_store_path, is_taken

HERE = "format 1; a library; a CPU"

MANY = """
import sys
from pathlib import Path
from blocklayout import dnnl
from blocklayout.plan.costs.store import CostStore
path, first, n = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
store = CostStore(path, environment="format 1; a library; a CPU")
for number in range(first, first + n):
    desc = dnnl.MemoryDesc((1, number), "f32", "nc")
    store.keep(dnnl.softmax(desc, n_threads=1), float(number))
    print(number, flush=True)
"""


def spec_number(number: int) -> dnnl.Spec:
    return dnnl.softmax(dnnl.MemoryDesc((1, number)), n_threads=1)


def specs(n: int) -> list[dnnl.Spec]:
    return [spec_number(number) for number in range(1, n + 1)]


def opened(path: Path) -> CostStore:
    return CostStore(path, environment=HERE)


def kept_in(path: Path, n: int) -> int:
    return len(opened(path).times(specs(n)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "costs.bin"


def start_keeping(path: Path, first: int, n: int, environ: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", MANY, str(path), str(first), str(n)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


# What is kept, and for whom.


def test_what_was_kept_is_there_for_the_next_store(path: Path) -> None:
    store = opened(path)
    store.keep(spec_number(3), 1234.5)
    assert store.times(specs(5)) == {spec_number(3): 1234.5}
    store = opened(path)
    assert store.times(specs(5)) == {spec_number(3): 1234.5}


def test_a_newer_time_replaces_the_older(path: Path) -> None:
    store = opened(path)
    store.keep(spec_number(3), 2.0)
    store.keep(spec_number(3), 1.0)
    assert store.times(specs(3)) == {spec_number(3): 1.0}


def test_another_environment_sees_nothing_of_it(path: Path) -> None:
    store = opened(path)
    other = CostStore(path, environment="format 2; a library; a CPU")
    store.keep(spec_number(1), 1.0)
    assert other.times(specs(2)) == {}
    other.keep(spec_number(1), 7.0)
    assert store.times(specs(2)) == {spec_number(1): 1.0}


def test_the_state_changes_with_what_is_kept_by_anyone_and_with_nothing_else(path: Path) -> None:
    store = opened(path)
    other = opened(path)
    elsewhere = CostStore(path, environment="another CPU")
    states = [store.state()]
    for keeper, number, ns in ((store, 1, 1.0), (other, 1, 2.0), (other, 2, 2.0)):
        keeper.keep(spec_number(number), ns)
        states.append(store.state())
        assert other.state() == states[-1]
    assert len({*states}) == len(states)
    elsewhere.keep(spec_number(3), 1.0)
    assert store.state() == states[-1]
    assert opened(path).state() == states[-1]


@pytest.mark.parametrize("ns", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_not_kept(path: Path, ns: float) -> None:
    store = opened(path)
    store.keep(spec_number(1), ns)
    assert store.times(specs(1)) == {}


def test_what_another_machine_measured_replaces_nothing(path: Path, tmp_path: Path) -> None:
    store = opened(path)
    other = opened(tmp_path / "costs.bin")
    store.keep(spec_number(1), 1.0)
    other.keep(spec_number(1), 9.0)
    other.keep(spec_number(2), 2.0)
    store.add(other.measured())
    assert store.times(specs(3)) == {spec_number(1): 1.0, spec_number(2): 2.0}
    assert store.measured().keys() == other.measured().keys()


def test_to_add_nothing_writes_nothing(path: Path) -> None:
    store = opened(path)
    store.add(store.measured())
    assert not path.parent.exists()


def test_the_environment_names_the_library_and_the_cpu(path: Path) -> None:
    environment = CostStore(path).environment
    assert dnnl.isa() in environment
    assert "oneDNN 3." in environment


# Where it is, and what looking costs.


def test_the_folder_is_the_users_to_choose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BLOCKLAYOUT_CACHE_DIR", str(tmp_path))
    assert cost_store_path() == tmp_path / "costs.bin"
    assert CostStore().path == tmp_path / "costs.bin"
    monkeypatch.delenv("BLOCKLAYOUT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cost_store_path().is_relative_to(tmp_path / "xdg" / "blocklayout")


def test_reading_creates_nothing(path: Path) -> None:
    store = opened(path)
    assert store.times(specs(3)) == {}
    assert not path.parent.exists()


def test_keeping_creates_one_file(path: Path) -> None:
    store = opened(path)
    store.keep(spec_number(1), 1.0)
    assert list(path.parent.iterdir()) == [path]


def test_nothing_is_digested_where_nothing_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(path)
    other = CostStore(path, environment="elsewhere")
    monkeypatch.setattr(cost_store, "spec_digest", lambda _: pytest.fail("digested"))
    assert store.times(specs(3)) == {}
    monkeypatch.undo()
    store.keep(spec_number(1), 1.0)
    monkeypatch.setattr(cost_store, "spec_digest", lambda _: pytest.fail("digested"))
    assert other.times(specs(3)) == {}


def test_a_store_at_a_path_looks_for_no_folder(tree_environ: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys, blocklayout.plan.costs.store as module; module.CostStore('x'); "
        "assert 'platformdirs' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], env=tree_environ, cwd=tmp_path, check=True, timeout=60)


# Several at once.


def test_processes_write_at_once(path: Path, tree_environ: dict[str, str]) -> None:
    writers = [start_keeping(path, first, 100, tree_environ) for first in (1, 101, 201)]
    for writer in writers:
        writer.communicate(timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert kept_in(path, 300) == 300


def test_nothing_is_written_into_a_record_that_another_process_writes(path: Path) -> None:
    store = opened(path)
    store.keep(spec_number(1), 1.0)
    record = path.read_bytes()
    path.write_bytes(b"")
    keeper = threading.Thread(target=store.keep, args=(spec_number(2), 2.0))
    with path.open("ab", buffering=0) as file:
        assert is_taken(file)
        file.write(record[:20])
        keeper.start()
        keeper.join(0.05)
        file.write(record[20:])
    keeper.join()
    assert kept_in(path, 2) == 2


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
    store = opened(path)
    store.keep(spec_number(999_999), 1.0)
    assert len(store.times([*specs(n_told), spec_number(999_999)])) == n_told + 1


def test_threads_share_a_store(path: Path) -> None:
    store = opened(path)

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


def test_a_forked_child_adds_to_the_file(path: Path) -> None:
    def in_child() -> None:
        is_seen = store.times(specs(1)) == {spec_number(1): 1.0}
        store.keep(spec_number(2), 2.0)
        os._exit(0 if is_seen else 1)

    store = opened(path)
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


def check_it_goes_on_without(path: Path, saying: str) -> None:
    """One warning, whatever is done and however many stores there are; and this process remembers."""
    store = opened(path)
    with pytest.warns(CostStoreWarning, match=saying) as reports:
        use(store)
    assert len(reports) == 1
    assert str(path) in str(reports[0].message)
    assert store.times(specs(2)) == {spec_number(1): 5.0}
    another = opened(path)
    another.keep(spec_number(1), 5.0)
    assert another.times(specs(2)) == {spec_number(1): 5.0}


def test_a_record_that_was_cut_off_is_passed_over(path: Path) -> None:
    for number in (1, 2):
        opened(path).keep(spec_number(number), 1.0)
    os.truncate(path, path.stat().st_size - 7)
    assert kept_in(path, 3) == 1
    opened(path).keep(spec_number(3), 1.0)
    assert kept_in(path, 3) == 2


def test_noise_is_passed_over(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(random.Random(0).randbytes(10_000) + bytes(999))
    assert not opened(path).has_times()
    opened(path).keep(spec_number(1), 1.0)
    assert kept_in(path, 2) == 1


def test_a_file_that_was_overwritten_in_part(path: Path) -> None:
    for number in range(1, 100):
        opened(path).keep(spec_number(number), 1.0)
    whole = path.read_bytes()
    for at in (0, 1000, len(whole) - 20):
        path.write_bytes(whole[:at] + random.Random(0).randbytes(20) + whole[at + 20 :])
        assert kept_in(path, 99) in (97, 98)


@pytest.mark.parametrize("ns", [0.0, -1.0, float("nan"), float("inf")])
def test_values_that_are_no_times_are_not_believed(ns: float, path: Path) -> None:
    for number in (1, 2):
        opened(path).keep(spec_number(number), 1.0)
    records = np.fromfile(path, _RECORD)
    records["ns"][0] = ns
    records["check"] = _checks(records)
    records.tofile(path)
    assert opened(path).times(specs(2)) == {spec_number(2): 1.0}


def test_an_empty_file_is_filled(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    store = opened(path)
    assert store.times(specs(1)) == {}
    store.keep(spec_number(1), 1.0)
    assert kept_in(path, 1) == 1


def test_a_folder_that_cannot_be_made(path: Path) -> None:
    path.parent.write_text("a file where the folder should be", encoding="ascii")
    check_it_goes_on_without(path, "permissions")


def test_a_folder_where_the_file_should_be(path: Path) -> None:
    path.mkdir(parents=True)
    check_it_goes_on_without(path, "permissions")


def test_a_full_disk(path: Path, tree_environ: dict[str, str]) -> None:
    code = f"""
import resource, warnings
from pathlib import Path
from blocklayout import dnnl
from blocklayout.errors import CostStoreWarning
from blocklayout.plan.costs.store import CostStore
resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
spec = dnnl.softmax(dnnl.MemoryDesc((1, 3)), n_threads=1)
store = CostStore(Path({str(path)!r}), environment="x")
with warnings.catch_warnings(record=True) as reports:
    warnings.simplefilter("always")
    store.keep(spec, 1.0)
    store.keep(spec, 2.0)
assert [report.category for report in reports] == [CostStoreWarning], reports
assert "see to its disk" in str(reports[0].message)
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
    store = opened(path)
    store.keep(spec_number(2), 1.0)
    forbid(0o555)
    store = opened(path)
    assert store.times(specs(2)) == {spec_number(2): 1.0}, "reading takes no more than that"
    with pytest.warns(CostStoreWarning, match="permissions"):
        store.keep(spec_number(1), 5.0)
    assert store.times(specs(2)) == {spec_number(1): 5.0, spec_number(2): 1.0}


def test_a_folder_that_may_not_even_be_read(path: Path, forbid: Callable[[int], None]) -> None:
    path.parent.mkdir()
    forbid(0)
    check_it_goes_on_without(path, "permissions")
