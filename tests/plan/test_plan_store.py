"""Plans are remembered from process to process, for the same question on the same machine, and for no other."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.encoding import to_msgpack
from blocklayout.loading.in_parts import RowParts
from blocklayout.plan import make, make_plan, plan_store
from blocklayout.plan.costs import store as cost_store
from blocklayout.plan.costs.store import CostStore
from blocklayout.plan.plan_store import MAX_FILES, PlanStore, plan_store_path
from tests import nets
from tests.forking import in_child


@pytest.fixture
def n_made(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many plans were made, and not recalled."""
    made: list[None] = []

    def counting(*arguments: Any, **options: Any) -> bl.Plan:
        made.append(None)
        return make_plan(*arguments, **options)

    monkeypatch.setattr(make, "make_plan", counting)
    monkeypatch.setattr(cost_store, "_reported", set())
    return lambda: len(made)


def files() -> list[Path]:
    return sorted(plan_store_path().glob("*"))


def test_the_second_load_replays_the_plan_of_the_first(n_made: Callable[[], int]) -> None:
    first, second = bl.load(nets.residual()), bl.load(nets.residual())
    assert n_made() == 1
    assert second.plan == first.plan
    assert second.plan.to_json() == first.plan.to_json()
    feed = nets.feed_of(first)
    np.testing.assert_array_equal(second.run(None, feed)[0], first.run(None, feed)[0])


def test_another_process_replays_it(tree_environ: dict[str, str], tmp_path: Path, n_made: Callable[[], int]) -> None:
    bl.save(nets.residual(), tmp_path / "model.onnx")
    text = "import blocklayout, sys; sys.stdout.write(blocklayout.load(sys.argv[1]).plan.to_json())"
    command = [sys.executable, "-c", text, str(tmp_path / "model.onnx")]
    environ = tree_environ | {"PYTHONHASHSEED": "7"}
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stdout
    assert bl.load(tmp_path / "model.onnx").plan.to_json() == told
    assert n_made() == 0


def test_a_programs_digest_is_that_of_every_process(tree_environ: dict[str, str]) -> None:
    text = """
import blocklayout as bl
from blocklayout import model
b = bl.Builder()
b.output("y", b.input("x", (4, 3)).gemm(b.input("z", (5, 4)), trans_a=True, trans_b=True))
print(model.lower(model.legalize(model.simplify(b.to_graph()))).digest)
"""
    digests = {
        subprocess.run(
            [sys.executable, "-c", text],
            check=True,
            capture_output=True,
            text=True,
            env=tree_environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"layout": "nhwc"},
        {"threads": 1} if dnnl.default_threads() > 1 else {"threads": 2},
        {"recipes": {"winograd": False}},
        {"pin": {"conv_0": "nhwc"}},
        {"precision": {"conv_0": "f32"}},
        {"io_layout": {"x": "nhwc"}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_other_options_make_another_plan(other: dict[str, Any], n_made: Callable[[], int]) -> None:
    b = bl.Builder()
    x = b.input("x", (1, 16, 8, 8))
    b.output("y", x.conv(nets.he(np.random.default_rng(0), 16, 16, 3, 3), pads=1, name="conv_0"))
    bl.load(b)
    bl.load(b, **other)
    assert n_made() == 2


def test_another_model_is_no_hit(n_made: Callable[[], int]) -> None:
    bl.load(nets.residual())
    bl.load(nets.chain(convs=1))
    assert n_made() == 2


@pytest.mark.parametrize("name", ["cost_environment", "_package_state"])
def test_another_machine_or_version_is_no_hit(
    name: str, n_made: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    bl.load(nets.residual())
    monkeypatch.setattr(plan_store, name, lambda: "another one")
    bl.load(nets.residual())
    assert n_made() == 2


def test_other_costs_are_no_hit(n_made: Callable[[], int]) -> None:
    bl.load(nets.residual())
    CostStore().keep(dnnl.resolve(dnnl.eltwise(dnnl.MemoryDesc((2, 17)), algorithm="relu")).spec, 1500.0)
    bl.load(nets.residual())
    assert n_made() == 2


def test_the_model_alone_neither_asks_nor_fills_the_store(n_made: Callable[[], int]) -> None:
    bl.load(nets.residual(), tune="model")
    assert files() == []
    bl.load(nets.residual())
    bl.load(nets.residual(), tune="model")
    assert n_made() == 3


def test_what_was_measured_is_replayed_by_default(n_made: Callable[[], int]) -> None:
    measured = bl.load(nets.chain(convs=1), tune="measure", tune_seconds=0.3)
    assert bl.load(nets.chain(convs=1)).plan == measured.plan
    assert n_made() == 1


def test_expectations_are_held_against_a_remembered_plan() -> None:
    b = nets.chain(convs=1)
    name = bl.load(b).plan.results[0].name
    with pytest.raises(bl.PlanError, match="nChw4c"):
        bl.load(b, expect={name: "nChw4c"})


def test_damage_is_told_once_and_the_plan_made_anew(n_made: Callable[[], int]) -> None:
    right = bl.load(nets.residual()).plan
    [path] = files()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    damages = [bytes(content), b"", path.read_bytes()[:-1]]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number, damage in enumerate(damages):
            path.write_bytes(damage)
            assert bl.load(nets.residual()).plan == right
            assert n_made() == number + 2
    assert [each.category for each in told] == [bl.PlanStoreWarning]


def test_a_file_under_another_key_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_store, "_reported", set())
    store = PlanStore(tmp_path)
    store.keep("one", bl.load(nets.chain(convs=1)).plan)
    (tmp_path / "one.plan").rename(tmp_path / "two.plan")
    with pytest.warns(bl.PlanStoreWarning, match="damaged"):
        assert store.recall("two", bl.Plan) is None


def plan_with(**changes: Any) -> Callable[[Path], bytes]:
    """A plan with other fields."""
    return lambda _: to_msgpack(replace(bl.load(nets.chain(convs=1), tune="model").plan, **changes))


def spoilt_spec() -> bytes:
    """A plan with a primitive that there is not."""
    plan = bl.load(nets.chain(convs=1), tune="model").plan
    [step, *others] = (step for step in plan.steps if isinstance(step.spec, dnnl.Spec))
    step = replace(step, spec=replace(step.spec, kind="nothing"))
    return to_msgpack(replace(plan, steps=(step, *others)))


class Made:
    """Makes a file when it is read as a pickle."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return self.path.touch, ()


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (lambda folder: pickle.dumps(Made(folder / "made")), "Expected `array`"),
        (lambda _: b"", "truncated"),
        (lambda _: to_msgpack(RowParts(2)), "model: it is missing"),
        (plan_with(version=5), "version"),
        (plan_with(arena_nbytes=-1), "arena_nbytes is -1"),
        (plan_with(buffers=()), r"buffer is \d+; there are 0"),
        (lambda _: spoilt_spec(), r"steps\.\d\.spec: no kind of primitive 'nothing'"),
        (lambda _: msgspec.msgpack.encode([[], 3]), "Expected `object`"),
    ],
)
def test_a_file_makes_nothing_but_plans(
    written: Callable[[Path], bytes], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_store, "_reported", set())
    body = written(tmp_path)
    (tmp_path / "key.plan").write_bytes(plan_store.checksum("key", body) + body)
    with pytest.warns(bl.PlanStoreWarning, match=message):
        assert PlanStore(tmp_path).recall("key", bl.Plan) is None
    assert [path.name for path in tmp_path.iterdir()] == ["key.plan"]


def test_a_folder_that_cannot_be_made_is_told_once(n_made: Callable[[], int]) -> None:
    plan_store_path().parent.parent.mkdir(parents=True, exist_ok=True)
    plan_store_path().parent.write_text("a file, no folder")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            bl.load(nets.residual())
    assert [each.category for each in told] == [bl.PlanStoreWarning]
    assert n_made() == 2


def test_without_a_home_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_store, "_reported", set())
    plan = bl.load(nets.chain(convs=1), tune="model").plan
    with pytest.warns(bl.PlanStoreWarning, match="home folder is unknown"):
        PlanStore(tmp_path / "~" / ".cache").keep("key", plan)
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_make_room(tmp_path: Path) -> None:
    store, plan = PlanStore(tmp_path), bl.load(nets.chain(convs=1)).plan
    for number in range(MAX_FILES):
        path = tmp_path / f"{number}.plan"
        path.write_bytes(b"")
        os.utime(path, ns=(number, number))
    store.keep("new", plan)
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == MAX_FILES
    assert {"new.plan", "1.plan"} <= names
    assert "0.plan" not in names


def test_processes_that_keep_at_once_leave_a_whole_file(
    tree_environ: dict[str, str], n_made: Callable[[], int]
) -> None:
    text = "import tests.nets, blocklayout; blocklayout.load(tests.nets.residual())"
    command = [sys.executable, "-W", "error", "-c", text]
    started = [subprocess.Popen(command, env=tree_environ) for _ in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert len(files()) == 1
    bl.load(nets.residual())
    assert n_made() == 0


def test_a_child_of_a_fork_recalls_it(n_made: Callable[[], int]) -> None:
    right = bl.load(nets.residual()).plan
    assert in_child(lambda: bl.load(nets.residual()).plan == right) == 0
    assert n_made() == 1


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_a_plan_of_many_forms_comes_back_as_it_was(tmp_path: Path) -> None:
    b = bl.Builder()
    x = b.input("x", (2, 17, 6, 6))
    y = x.conv(nets.he(np.random.default_rng(0), 17, 17, 3, 3), pads=1)
    b.output("y", b.op("Erf", y).relu() + b.op("HardSwish", y))
    plan = replace(bl.load(b, tune="model").plan, model="another")
    store = PlanStore(tmp_path)
    store.keep("key", plan)
    again = store.recall("key", bl.Plan)
    assert again == plan
    assert str(again) == str(plan)
