"""Batches that run in parts: the same answers in less memory, and only where rows are apart and no time is lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.dnnl.processor import Cache
from blocklayout.loading import from_model, run_off
from blocklayout.loading.in_parts import parts_that_fit
from blocklayout.loading.run_off import share_of_time
from blocklayout.runtime import ReadyPlan
from tests import nets

ROWS, PARTS, CHANNELS, SIZE = 12, 3, 17, 10
SHAPE = (ROWS, CHANNELS, SIZE, SIZE)
PART = (ROWS // PARTS, *SHAPE[1:])
SHAPES = {"x": SHAPE, "z": SHAPE}


def joining(mix: str | None = None) -> onnx.ModelProto:
    """Two inputs, two outputs and a residual; with ``mix``, which sums over this axis, perhaps of rows."""
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x, z = (b.input(name, (1, *SHAPE[1:])) for name in "xz")
    y = x.conv(nets.he(rng, 16, CHANNELS, 3, 3), pads=1).relu()
    y = y.conv(nets.he(rng, CHANNELS, 16, 3, 3), pads=1) + z
    if mix is not None:
        y = b.op("CumSum", y, np.array(int(mix)))
    b.output("first", y.relu())
    b.output("second", y.conv(nets.he(rng, 8, CHANNELS, 1, 1)))
    return free(b)


def free(builder: bl.Builder) -> onnx.ModelProto:
    proto = builder.to_onnx()
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    return proto


FEED = {"x": nets.random_input(SHAPE, 1), "z": nets.random_input(SHAPE, 2)}


class Trial:
    """What a batch in parts takes of its time at once.

    Attributes:
        share: That.
        n: How often it was tried.
    """

    share: float = 0.5
    n = 0

    def __call__(self, *_: object) -> float:
        self.n += 1
        return self.share


@pytest.fixture(autouse=True)
def trial(monkeypatch: pytest.MonkeyPatch) -> Trial:
    made = Trial()
    monkeypatch.setattr(run_off, "share_of_time", made)
    monkeypatch.setattr(from_model, "parts_that_fit", lambda _, shapes, __: PARTS if shapes[0][1] == SHAPE else 1)
    return made


def load(model: Any = None, **options: Any) -> bl.Session:
    return bl.load(model or joining(), **{"shapes": SHAPES, **options})


def by_parts(run: Callable[..., list[np.ndarray]]) -> list[np.ndarray]:
    """The answer of a session that is fed part by part."""
    fed = [{name: x[start : start + PART[0]] for name, x in FEED.items()} for start in range(0, ROWS, PART[0])]
    return [np.concatenate(each) for each in zip(*(run(None, feed) for feed in fed), strict=True)]


def assert_same(answer: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for got, wanted in zip(answer, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("options", [{}, {"streams": 2, "threads": 2}, {"io_layout": {"x": "nhwc"}}])
def test_parts_give_the_bits_of_a_session_for_a_part(options: dict[str, Any]) -> None:
    is_last = "io_layout" in options
    shapes = {"x": (ROWS, SIZE, SIZE, CHANNELS), "z": SHAPE} if is_last else SHAPES
    part = {name: (PART[0], *shape[1:]) for name, shape in shapes.items()}
    with load(**{**options, "shapes": shapes}) as session, load(**{**options, "shapes": part}) as alone:
        assert session.plan.parts == PARTS
        assert dict(session.plan.fed)["x"].dims == SHAPE
        assert session.plan.steps == alone.plan.steps

        def run(_: None, feed: dict[str, np.ndarray], of: bl.Session = alone) -> list[np.ndarray]:
            x = np.ascontiguousarray(feed["x"].transpose(0, 2, 3, 1)) if is_last else feed["x"]
            return of.run(None, {**feed, "x": x})

        assert_same(run(None, FEED, session), by_parts(run))


@pytest.mark.skipif(not dnnl.has_isa("avx512_core"), reason="no bf16 here")
def test_bf16_runs_in_parts() -> None:
    session, alone = load(dtype="bf16"), load(dtype="bf16", shapes={"x": PART, "z": PART})
    assert session.plan.parts == PARTS
    assert_same(session.run(None, FEED), by_parts(alone.run))


def test_outputs_and_inputs_may_lie_anyhow() -> None:
    session = load()
    expected = session.run(None, FEED)
    whole, other = np.empty_like(expected[0]), np.empty_like(expected[1])
    answer = session.run(["second", "first"], FEED, out={"first": whole, "second": other[:, ::-1]})
    assert answer[1] is whole
    assert_same([whole, other[:, ::-1]], expected)
    wide = np.zeros((2 * ROWS, *SHAPE[1:]), np.float32)
    wide[1::2] = FEED["x"]
    for x in (
        wide[1::2],
        np.asfortranarray(FEED["x"]),
        FEED["x"][::-1].copy()[::-1],
        bl.reorder(FEED["x"], "nChw8c"),
        bl.reorder(FEED["x"], bl.MemoryDesc(SHAPE, "f32", "chwn")),
        bl.reorder(FEED["x"], bl.MemoryDesc(SHAPE, "f32", "NChw16n16c")),
    ):
        for _ in range(2):  # the second is known to fit
            assert_same(session.run(None, {**FEED, "x": x}), expected)


def test_a_run_in_parts_has_the_memory_of_one_part() -> None:
    in_parts, at_once, alone = load(), load(tune="model"), load(shapes={"x": PART, "z": PART})
    held = [session.memory().arena_nbytes for session in (in_parts, at_once, alone)]
    assert held[0] == held[2] < held[1]


def test_a_plan_says_in_how_many_parts_it_runs_and_why() -> None:
    plan = load().plan
    assert f"for each of {PARTS} parts of the rows" in str(plan)
    assert "12 rows run in 3 parts of 4, which took 0.50 of their time at once" in plan.explain()


@pytest.mark.parametrize("is_file", [False, True])
def test_what_was_faster_is_remembered(trial: Trial, tmp_path: Path, *, is_file: bool) -> None:
    for share, parts in ((0.5, PARTS), (1.5, 1)):
        model: Any = joining(None if parts > 1 else "1")
        if is_file:
            onnx.save(model, path := tmp_path / f"{parts}.onnx")
            model = path
        trial.share, trial.n = share, 0
        plans = [load(model).plan for _ in range(3)]
        assert [plan.parts for plan in plans] == [parts] * 3
        assert plans[0] == plans[1] == plans[2]
        assert trial.n == 1
        assert load(model, shapes={"x": PART, "z": PART}).plan.parts == 1


def test_nothing_is_tried_where_prices_alone_are_asked_for_or_a_layout(trial: Trial) -> None:
    assert load(tune="model").plan.parts == load(layout="nhwc").plan.parts == 1
    assert trial.n == 0


def test_rows_that_follow_from_others_run_at_once(trial: Trial) -> None:
    assert load(joining("0")).plan.parts == 1
    assert trial.n == 0


def test_what_was_faster_for_a_model_does_not_hold_for_one_with_other_constants() -> None:
    assert load(joining("1")).plan.parts == PARTS  # along channels
    mixing, feed = load(joining("0")), {name: x[: PART[0]] for name, x in FEED.items()}  # along rows
    assert mixing.plan.parts == 1
    alone = load(joining("0"), shapes={"x": PART, "z": PART}).run(["first"], feed)[0]
    together = mixing.run(["first"], FEED)[0][: PART[0]]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5 * alone.max())  # each by a plan of its own


def test_borders_at_which_rows_do_not_lie_apart_run_at_once(trial: Trial) -> None:
    last = {"x": (*SHAPE[1:], ROWS), "z": SHAPE}
    assert load(io_layout={"x": "chwn"}, shapes=last).plan.parts == 1
    assert trial.n == 0


def fixed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same, with the number of rows declared."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = ROWS
    return model


@pytest.mark.parametrize("is_file", [False, True])
def test_a_declared_number_of_rows_runs_in_parts(tmp_path: Path, *, is_file: bool) -> None:
    model: Any = fixed(joining())
    if is_file:
        onnx.save(model, path := tmp_path / "fixed.onnx")
        model = path
    for _ in range(2):  # the second remembers
        session = bl.load(model)
        assert session.plan.parts == PARTS
        assert session.get_inputs()[0].shape == SHAPE
        assert_same(session.run(None, FEED), load().run(None, FEED))
        with pytest.raises(bl.InputError, match="x"):
            session.run(None, {name: x[: PART[0]] for name, x in FEED.items()})
        assert session.report().to_html()
    session.save(saved := tmp_path / "a.session")
    session.plan.save(plan := tmp_path / "plan.json")
    for again in (bl.load(saved), bl.load(model, plan=plan)):
        assert again.plan.parts == PARTS
        assert_same(again.run(None, FEED), session.run(None, FEED))


def test_rows_that_are_counted_in_the_model_run_at_once(trial: Trial) -> None:
    b = bl.Builder()
    y = b.op("Reshape", b.input("x", SHAPE), np.array([ROWS, -1]))
    b.output("y", y.reshape([ROWS // 2, -1]))
    session = bl.load(b.to_onnx(), shapes={"x": SHAPE})
    assert session.plan.parts == 1
    assert trial.n == 0


def test_a_saved_plan_runs_in_parts(tmp_path: Path) -> None:
    session = load()
    session.plan.save(path := tmp_path / "plan.json")
    expected = session.run(None, FEED)
    for again in (bl.load(joining(), plan=path), load(plan=path)):
        assert again.plan == session.plan
        assert_same(again.run(None, FEED), expected)
    other = {"x": (2, *SHAPE[1:]), "z": (2, *SHAPE[1:])}
    assert again.prepare(other).parts == 1
    assert again.prepare({"x": PART, "z": PART}).parts == 1


def test_a_saved_plan_in_parts_of_rows_that_are_not_apart_is_refused() -> None:
    plan = load(joining("0"), shapes={"x": PART, "z": PART}).plan
    with pytest.raises(bl.PlanError, match=r"3 parts: .*CumSum.* apart from the others"):
        bl.load(joining("0"), plan=replace(plan, parts=PARTS))


def test_a_saved_session_runs_in_parts(tmp_path: Path) -> None:
    session = load()
    session.save(path := tmp_path / "a.session")
    again = bl.load(path)
    assert again.plan.parts == PARTS
    assert_same(again.run(None, FEED), session.run(None, FEED))


def test_each_part_is_checked_profiled_and_reported() -> None:
    session = load()
    expected = session.run(None, FEED)
    with bl.checking():
        assert_same(session.run(None, FEED), expected)
        broken = FEED["x"].copy()
        broken[-1, 0, 0, 0] = np.nan
        with pytest.raises(bl.CheckError):
            session.run(None, {**FEED, "x": broken})
    assert session.profile(FEED, n_runs=2).n_runs == 2 * PARTS
    with bl.watch("record", steps=True) as watched:
        assert_same(session.run(None, FEED), expected)
    with bl.watch("record", steps=True) as alone:
        by_parts(load(shapes={"x": PART, "z": PART}).run)
    assert [event.kind for event in watched.events] == [event.kind for event in alone.events]


def test_a_run_in_parts_can_be_stopped() -> None:
    stop = dnnl.Stop()
    stop.ask()
    with pytest.raises(bl.StoppedError):
        load()._book.run(None, FEED, None, stop)


def test_parts_are_as_few_as_the_cache_allows() -> None:
    plan = bl.load(joining(), shapes=SHAPES, tune="model").plan
    shapes = tuple(SHAPES.items())
    nbytes = plan.arena_nbytes
    assert parts_that_fit(plan, shapes, (Cache(2, 100), Cache(3, 2 * nbytes))) == 1
    assert parts_that_fit(plan, shapes, (Cache(3, nbytes),)) == 4
    assert parts_that_fit(plan, shapes, (Cache(3, nbytes // 2),)) == ROWS
    assert parts_that_fit(plan, shapes, (Cache(3, 1),)) == ROWS
    assert parts_that_fit(plan, shapes, ()) == 1
    assert parts_that_fit(plan, (("x", SHAPE), ("z", PART)), (Cache(3, 1),)) == 1


def test_a_batch_is_run_at_once_and_in_parts_to_see_what_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []

    def share(in_parts: ReadyPlan, at_once: ReadyPlan, _: float) -> float:
        shares.append(share_of_time(in_parts, at_once, math.inf))
        return 0.5

    monkeypatch.setattr(run_off, "N_PLACES", 1)
    monkeypatch.setattr(run_off, "N_ROUNDS", 1)
    monkeypatch.setattr(run_off, "share_of_time", share)
    assert load().plan.parts == PARTS
    assert len(shares) == 1
    assert shares[0] > 0
