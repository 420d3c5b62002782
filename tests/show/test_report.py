"""Reports of sessions: what is in them, of which plan, and what a notebook shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import blocklayout as bl
from tests import nets
from tests.ops.in_pieces import F32, IMAGE, NODE, PLACES, model_of

CUT = [*PLACES, NODE("Transpose", ["p"], ["pt"]), NODE("GatherND", ["c", "pt"], ["v"]), NODE("Relu", ["v"], ["y"])]
"""A convolution, and what is gathered of it where it is positive."""


def test_a_report_without_a_feed_runs_nothing() -> None:
    record = bl.load(nets.residual(), tune="model").report().to_dict()
    assert record["profile"] is None
    assert record["plan"]["steps"]
    assert (record["pieces"], record["others"], record["served"]) == ([], [], False)


def test_a_report_of_a_feed_has_the_time_of_each_step() -> None:
    session = bl.load(nets.residual(), layout="nhwc")
    record = session.report(nets.feed_of(session), n_runs=2).to_dict()
    assert record["profile"]["n_runs"] == 2
    timed = [step["number"] for step in record["profile"]["steps"] if step["number"] is not None]
    assert timed == list(range(len(record["plan"]["steps"])))
    assert json.loads(json.dumps(record))["plan"]["model"] == session.plan.model


def test_of_several_plans_the_feed_tells_which() -> None:
    session = bl.load(nets.free_model(), layout="nhwc")
    with pytest.raises(bl.PlanError, match="the session has 0 plans: give a feed, or shapes= when loading"):
        session.report()
    for size in (8, 9):
        session(np.zeros((1, 3, size, size), np.float32))
    with pytest.raises(bl.PlanError, match="the session has 2 plans: give a feed, whose extents tell which"):
        session.report()
    [info] = session.get_inputs()
    for size in (8, 9, 10):
        record = session.report({info.name: np.zeros((1, 3, size, size), np.float32)}, n_runs=1).record
        desc = record["plan"]["descs"][record["plan"]["inputs"][0]["desc"]]
        assert tuple(desc["dims"]) == (1, 3, size, size)


def test_a_closed_session_reports_its_plan_and_no_times() -> None:
    with bl.load(nets.chain()) as session:
        pass
    assert session.report().record["plan"]["steps"]
    with pytest.raises(bl.InputError, match="closed"):
        session.report(nets.feed_of(session))


def test_a_saved_session_reports_the_same_plan(tmp_path: Path) -> None:
    session = bl.load(nets.chain())
    session.save(tmp_path / "chain.session")
    loaded = bl.load(tmp_path / "chain.session")
    assert loaded.report().record["plan"] == session.report().record["plan"]
    assert loaded.report(nets.feed_of(loaded), n_runs=1).record["profile"]["steps"]


def test_wrong_numbers_of_runs_are_refused() -> None:
    session = bl.load(nets.chain())
    for wrong in (0, -1, 1.5, "5", True):
        with pytest.raises(bl.InputError, match="n_runs"):
            session.report(nets.feed_of(session), n_runs=wrong)  # type: ignore[arg-type]


def test_a_cut_model_is_reported_piece_by_piece() -> None:
    session = bl.load(model_of(CUT, {"x": IMAGE}, {"y": F32}))
    record = session.report({"x": IMAGE}, n_runs=2).record
    assert session.pieces is not None
    assert [piece["name"] for piece in record["pieces"]] == [piece.name for piece in session.pieces]
    first, nonzero, last = record["pieces"]
    assert first["report"]["plan"] == record["plan"]
    assert first["report"]["profile"] == record["profile"] is not None
    assert nonzero["report"] is None
    assert nonzero["by"] == "numpy"
    assert nonzero["ns"] > 0
    assert "depend on data" in nonzero["reason"]
    assert last["report"]["profile"]["steps"]
    assert json.loads(json.dumps(record))["pieces"]


def test_a_cut_model_without_a_feed_is_reported_as_far_as_it_is_planned() -> None:
    session = bl.load(model_of(CUT, {"x": IMAGE}, {"y": F32}))
    with pytest.raises(bl.PlanError, match="0 plans: give a feed"):
        session.report()
    session.run(None, {"x": IMAGE})
    record = session.report().record
    assert [piece["report"] is None for piece in record["pieces"]] == [False, True, False]
    assert [piece["ns"] for piece in record["pieces"]] == [None, None, None]
    assert "conv" in [node["name"] for node in record["nodes"]]
    assert record["pieces"][2]["report"]["nodes"]


def test_a_cut_model_that_nothing_plans_has_no_report() -> None:
    session = bl.load(model_of([NODE("NonZero", ["x"], ["y"])], {"x": np.ones(600, np.float32)}, {"y": 7}))
    with pytest.raises(bl.PlanError, match="no piece of this model has a plan"):
        session.report({"x": np.ones(600, np.float32)})


def test_plans_stand_beside_each_other() -> None:
    policies = ("nhwc", "plain", "per-op")
    reports = [bl.load(nets.chain(), layout=policy).report() for policy in policies]
    record = reports[0].beside(reports[1]).beside(reports[2]).record
    assert record["plan"]["policy"] == "nhwc"
    assert [(other["plan"]["policy"], other["profile"]) for other in record["others"]] == [
        ("plain", None),
        ("per-op", None),
    ]
    assert reports[0].record["others"] == []


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    report = bl.load(nets.chain()).report()
    report.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == report.to_html()
    with pytest.raises(bl.InputError, match=r"page\.txt: give a name that ends in \.html"):
        report.save(tmp_path / "page.txt")
    with pytest.raises(bl.InputError, match="cannot be written"):
        report.save(tmp_path / "none" / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_notebook_shows_names_as_text() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["</pre><script>y"], "<img src=x>", pads=[1, 1, 1, 1])
    model = model_of([node], {"x": IMAGE}, {"</pre><script>y": F32})
    model.graph.name = "<b>net</b>"
    session = bl.load(model, shapes={"x": IMAGE.shape})
    for shown in (session, session.plan, session.report()):
        html = shown._repr_html_()
        assert "<script>y" not in html
        assert "<img" not in html
        assert "<b>" not in html
    assert "report(feed)" in session._repr_html_()


def test_a_notebook_shows_a_session_that_has_no_plan() -> None:
    html = bl.load(nets.free_model())._repr_html_()
    assert "without a plan yet: run it" in html
    assert ".report()" in html


def test_a_notebook_shows_each_plan_of_a_cut_model() -> None:
    session = bl.load(model_of(CUT, {"x": IMAGE}, {"y": F32}), shapes={"x": IMAGE.shape})
    assert "cut into" in session._repr_html_()
    assert session._repr_html_().count("<details>") == len(session.plans) == 1
