"""What every test may ask for."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.browsing import browser, pytest_runtest_teardown  # noqa: F401 - a fixture, and what ends it

if TYPE_CHECKING:
    from tests.refusing import Refusing

ROOT = Path(__file__).resolve().parents[1]

# Before anything is imported that might look: no test, nor a process that one starts, sees the user's own costs.
CACHE = tempfile.TemporaryDirectory(prefix="blocklayout-tests-")
os.environ["BLOCKLAYOUT_CACHE_DIR"] = CACHE.name
# Where another process has one of the CPUs, a thread that spins for the others of its region spins in vain, and a
# region of microseconds takes milliseconds. OpenMP reads this as it is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Whatever the environment says: half of the time to collect goes to assertions that are rewritten, and there are many
# child processes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
NUMBERS = count()
# Where tests run in the background, a shell has them ignore an interrupt, and what they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure, and a change is not to blame for an example that nobody drew before it:
# the same examples each run. New ones come with --hypothesis-profile=explore.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=500)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files with what comes out now")


def pytest_configure(config: pytest.Config) -> None:
    """Leave out examples in docstrings of a package whose extra is not installed."""
    if find_spec("fastapi") is None or find_spec("pydantic_settings") is None:
        config.option.ignore_glob = [*(config.option.ignore_glob or []), str(ROOT / "blocklayout" / "http" / "*")]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector the thousands of cases, which stay to the end: as they are made, and ever after."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    CACHE.cleanup()


def pytest_runtest_setup(item: pytest.Item) -> None:
    os.environ["BLOCKLAYOUT_CACHE_DIR"] = str(Path(CACHE.name, str(next(NUMBERS))))  # what one test measures is its own
    narrow = [dtype for dtype in ("bf16", "f16") if item.get_closest_marker(f"needs_{dtype}")]
    if not narrow:
        return
    from blocklayout import dnnl

    for missing in filter(None, map(dnnl.missing_isa, narrow)):
        pytest.skip(missing)


@pytest.fixture(scope="session")
def update_golden(pytestconfig: pytest.Config) -> bool:
    """Whether golden files are to be rewritten instead of compared."""
    return bool(pytestconfig.getoption("--update-golden"))


@pytest.fixture(autouse=True)
def plans_follow_from_prices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run no plan to see how fast it is, where nobody asked for it: tests need the same plan each time."""
    if request.node.get_closest_marker("runs_plans"):
        return
    from blocklayout.loading.from_model import Making

    run_off = Making.run_off
    monkeypatch.setattr(
        Making, "run_off", lambda self, *_: run_off(self, *_) if self.maker.pricing.mode == "measure" else None
    )


@pytest.fixture(autouse=True)
def turns_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time a single call, where nobody says how long a turn is: no test looks at how fast something is."""
    monkeypatch.setattr("blocklayout.timing.fastest_ns.__defaults__", (1.0,))


@pytest.fixture
def tree_environ() -> dict[str, str]:
    """Environment in which a child process imports the package of this tree, wherever it runs."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.fixture
def wide_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns for tables and reasons in lines of their own: none is broken."""
    monkeypatch.setenv("COLUMNS", "1000")


@pytest.fixture
def no_garbage() -> None:
    """For a test that counts what is alive: none of what others left, which would go at any moment, is counted."""
    gc.collect()


@pytest.fixture(scope="module")
def frames_of_errors_end() -> Iterator[None]:
    """Errors hold the frames they passed through, and these sessions: tests of other modules count what is alive."""
    yield
    gc.collect()


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Refusing]:
    """A library that refuses what a test says; nothing is remembered of what was before, nor of it afterwards."""
    from tests.refusing import Refusing

    request.getfixturevalue("frames_of_errors_end")
    Refusing.forget()
    yield Refusing(monkeypatch)
    Refusing.forget()
