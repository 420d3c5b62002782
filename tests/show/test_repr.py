"""Sessions and plans in a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import blocklayout as bl
from blocklayout.show.names import policy_name
from tests import nets


def test_a_session_tells_borders_layout_type_threads_and_what_chose_the_plan() -> None:
    session = bl.load(nets.chain(), threads=1, tune="model", io_layout={"y": "nhwc"})
    text = repr(session)
    plan = session.plan
    assert "x f32 1x17x12x12 -> y f32 1x12x12x17 nhwc" in text
    assert f"layout auto ({policy_name(plan.chosen)}, by {plan.priced_by}), f32" in text
    assert "1 thread" in text
    assert f"{session.executor} executor" in text
    assert "\n" not in text


def test_a_session_without_a_plan_tells_how_it_will_be_asked_for() -> None:
    with bl.load(nets.free_model(), layout="nhwc", threads=2, streams=2, check="padding") as session:
        assert "x f32 nx3xhxw" in repr(session)
        assert repr(session).startswith(
            "<Session without a plan yet: run it, or load it with shapes={'x': (...)}; x f32"
        )
        assert "layout nhwc, f32" in repr(session)
        assert "2 streams" in repr(session)
        assert "check='padding'" in repr(session)
        for size in (8, 9):
            session(np.zeros((1, 3, size, size), np.float32))
        assert "layout nhwc, f32, the last of 2 plans" in repr(session)
    assert "closed" in repr(session)


def test_a_saved_session_tells_the_same(tmp_path: Path) -> None:
    session = bl.load(nets.chain())
    session.save(tmp_path / "chain.session")
    assert repr(bl.load(tmp_path / "chain.session")) == repr(session)


def test_a_plan_is_a_line() -> None:
    plan = bl.load(nets.chain(), layout="nhwc", threads=1).plan
    assert repr(plan).startswith("<plan of model: layout nhwc, f32, 1 thread, ")
    assert f"{len(plan.steps)} steps" in repr(plan)
    assert "\n" not in repr(plan)
