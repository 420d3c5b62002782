"""Full disks, folders that may only be read or go away: loads go on, what cannot be saved is one clear error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.plan.costs.store import CostStore, cost_store_path
from blocklayout.plan.plan_store import plan_store_path
from tests import nets
from tests.forking import in_child

IMAGE = nets.random_input((2, 3, 14, 14))

FULL = """
import resource, sys, warnings
from pathlib import Path
import blocklayout as bl
from tests import nets
from tests.faults.test_disks import IMAGE, savers

session = bl.load(nets.residual(), tune="model")
expected = session(IMAGE)
folder = Path.cwd()
for path, _ in savers(session):
    path.write_text("as it was")
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for _ in range(2):
        assert (bl.load(nets.residual())(IMAGE) - expected).max() < 1e-4
print([each.category.__name__ for each in told])
before = {*folder.iterdir()}
for path, save in savers(session):
    try:
        save(path)
    except bl.BlockLayoutError as error:
        print(path.suffix, path.name in str(error), path.read_text() == "as it was")
print({*folder.iterdir()} == before)
"""


def savers(session: bl.Session) -> list[tuple[Path, Callable[[Path], object]]]:
    """Everything that can be saved, with the name of its file."""
    tensor = bl.from_array(IMAGE)
    saved: dict[str, Callable[[Path], object]] = {
        "net.session": session.save,
        "net.plan": session.plan.save,
        "net.onnx": lambda path: bl.save(nets.residual(), path),
        "image.tensor": tensor.save,
        "image.tensors": lambda path: bl.save({"image": tensor}, path),
        "net.html": session.report().save,
        "trace.json": session.profile({"image": IMAGE}, n_runs=1).save_chrome_trace,
    }
    return [(Path(name), save) for name, save in saved.items()]


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of files' sizes on this platform")
def test_a_full_disk(tree_environ: dict[str, str], tmp_path: Path) -> None:
    environ = tree_environ | {"BLOCKLAYOUT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", FULL],  # it would leave modules cut short
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told, *errors, folder = done.stdout.splitlines()
    assert told == "['PlanStoreWarning']"
    suffixes = (".session", ".plan", ".onnx", ".tensor", ".tensors", ".html", ".json")
    assert errors == [f"{suffix} True True" for suffix in suffixes]
    assert folder == "True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking beside threads is the point
def test_a_cache_that_may_only_be_read() -> None:
    expected = bl.load(nets.residual())(IMAGE)
    folder = plan_store_path()
    [kept] = folder.iterdir()
    folder.chmod(0o555)
    kept.chmod(0o444)

    def loads() -> bool:
        if os.getuid() == 0:
            os.seteuid(65534)  # root may write anywhere
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            known = bl.load(nets.residual())(IMAGE)
            bl.load(nets.residual(batch=3))
            bl.load(nets.residual(batch=4))
        return np.array_equal(known, expected) and [each.category for each in told] == [bl.PlanStoreWarning]

    for path in folder.resolve().parents[:2]:  # which tests alone may enter
        path.chmod(0o755)
    try:
        assert in_child(loads) == 0
    finally:
        folder.chmod(0o755)


def test_a_cache_that_goes_away() -> None:
    expected = bl.load(nets.residual())(IMAGE)
    for _ in range(2):
        shutil.rmtree(plan_store_path().parent)
        np.testing.assert_array_equal(bl.load(nets.residual())(IMAGE), expected)
    assert len([*plan_store_path().iterdir()]) == 1


def test_costs_are_kept_in_a_file_that_can_be_found() -> None:
    first, second = (dnnl.softmax(dnnl.MemoryDesc((1, n)), n_threads=1) for n in (3, 4))
    store = CostStore(environment="here")
    store.keep(first, 1.0)
    shutil.rmtree(cost_store_path().parent)
    assert store.times([first]) == {}
    store.keep(second, 2.0)
    for each in (store, CostStore(environment="here")):
        assert each.times([first, second]) == {second: 2.0}
