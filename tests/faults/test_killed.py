"""Processes that are killed while they write: nothing is lost that was acknowledged, nothing half can be read."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.plan.costs.store import CostStore
from blocklayout.plan.plan_store import PlanStore
from tests import nets
from tests.faults.conftest import RunFailing

IMAGE = nets.random_input((2, 3, 14, 14))


def save_all(path: Path, *saves: Callable[[Path], None]) -> None:
    """One after the other."""
    for save in saves:
        save(path)


class Kept:
    """Everything that is written in a folder: by name what writes it, and what reads it.

    A reader fails where something is not whole, and tells whether there is anything.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        first, second = (bl.load(nets.residual(), layout=layout, tune="model") for layout in ("nhwc", "plain"))
        self.answer = first(IMAGE)
        self.plan = first.plan
        self.spec = dnnl.resolve(dnnl.eltwise(dnnl.MemoryDesc((2, 17)), algorithm="relu", n_threads=1)).spec
        plans, costs = PlanStore(folder / "plans"), partial(CostStore, folder / "costs.bin", environment="here")
        session, plan, model = folder / "net.session", folder / "net.plan", folder / "net.onnx"
        tensor, tensors = folder / "image.tensor", folder / "image.tensors"
        self.writers: dict[str, Callable[[], object]] = {
            "costs": lambda: costs().keep(self.spec, 1000.0),
            "plans": lambda: plans.keep("key", self.plan),
            "session": lambda: save_all(session, first.save, second.save),
            "plan": lambda: save_all(plan, first.plan.save, second.plan.save),
            "model": lambda: bl.save(nets.residual(), model),
            "tensor": lambda: bl.save(bl.from_array(IMAGE), tensor),
            "tensors": lambda: bl.save({"image": IMAGE}, tensors),
        }
        self.readers: dict[str, Callable[[], bool]] = {
            "costs": lambda: self.has_cost(costs()),
            "plans": lambda: (found := plans.recall("key", bl.Plan)) is not None and found == self.plan,
            "session": lambda: session.exists() and self.is_right(bl.load(session)(IMAGE)),
            "plan": lambda: plan.exists() and bl.Plan.load(plan).model == self.plan.model,
            "model": lambda: model.exists() and self.is_right(bl.load(model, tune="model")(IMAGE)),
            "tensor": lambda: tensor.exists() and np.array_equal(bl.Tensor.load(tensor).numpy(), IMAGE),
            "tensors": lambda: tensors.exists() and np.array_equal(bl.load_tensors(tensors)["image"].numpy(), IMAGE),
        }

    def has_cost(self, costs: CostStore) -> bool:
        found = costs.times([self.spec])
        assert found in ({}, {self.spec: 1000.0})
        return bool(found)

    def is_right(self, answer: np.ndarray) -> bool:
        np.testing.assert_allclose(answer, self.answer, rtol=1e-4, atol=1e-5)
        return True


AT_EVERY_WRITE = """
import ctypes, warnings
from pathlib import Path
from tests.faults.test_killed import Kept
from tests.forking import in_child

shim = ctypes.CDLL(None)
kept = Kept(Path.cwd() / "kept")
warnings.simplefilter("error")  # what is damaged is told
warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads is the point

def killed(write, place, by_half):
    shim.dying_at(place, by_half)
    write()
    return True

for name, write in kept.writers.items():
    n_ends = 0
    for by_half in (0, 1):
        place = 1
        while (code := in_child(lambda: killed(write, place, by_half))) != 0:
            assert code == -9
            n_ends += 1
            is_there = kept.readers[name]()
            assert is_there or not by_half  # the first time it was not there before
            place += 1
    print(name, n_ends > 1)
"""


def test_at_every_write(run_failing: RunFailing) -> None:
    names = ("costs", "plans", "session", "plan", "model", "tensor", "tensors")
    assert run_failing(AT_EVERY_WRITE).splitlines() == [f"{name} True" for name in names]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("error::blocklayout.errors.BlockLayoutWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking beside threads is the point
@pytest.mark.parametrize("n_kills", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_at_any_time(n_kills: int, tmp_path: Path) -> None:
    kept = Kept(tmp_path / "kept")
    names, acknowledged = [*kept.writers], set[str]()
    rng = random.Random(n_kills)
    for number in range(n_kills):
        heard, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                sys.dont_write_bytecode = True
                for which in count(number):
                    kept.writers[names[which % len(names)]]()
                    os.write(told, bytes([which % len(names)]))
            finally:
                os._exit(2)
        os.close(told)
        with os.fdopen(heard, "rb") as acknowledgements:
            acknowledged |= {names[which] for which in acknowledgements.read(rng.randint(1, 3))}
            time.sleep(rng.uniform(0.0, 0.03))
            os.kill(child, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            acknowledged |= {names[which] for which in acknowledgements.read()}
        found = {name for name, read in kept.readers.items() if read()}
        assert acknowledged <= found
    assert acknowledged == {*names}
