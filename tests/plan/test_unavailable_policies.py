"""A policy that cannot be had says so, and why."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import blocklayout as bl
from tests import nets

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.LayoutLossWarning")


def relus() -> bl.Builder:
    b = bl.Builder("relus")
    b.output("y", b.input("x", (2, 3, 4, 4)).relu().tanh())
    return b


@pytest.mark.parametrize("layout", ["cwhn", "hcwn"])
def test_a_layout_that_no_kernel_has_is_a_warning_that_names_operators_and_why(layout: str) -> None:
    with pytest.warns(bl.PolicyWarning) as seen:
        session = bl.load(nets.chain(batch=2), layout=layout)
    [warning] = seen
    assert warning.filename == __file__
    text = str(warning.message)
    assert f"layout='{layout}' is nowhere in" in text
    for name in ("conv0", "conv1", "conv2"):
        assert f"{name}: {layout} has only a reference implementation or none" in text
    assert [kernel for kernel, _ in session.plan.exceptions] == ["conv0", "conv1", "conv2"]


def test_the_reason_printed_is_true() -> None:
    with pytest.warns(bl.PolicyWarning):
        plan = bl.load(nets.chain(batch=2), layout="cwhn").plan
    work = [step for step in plan.steps if not step.is_reorder]
    assert not [step.reason for step in work if "asked for" in step.reason]
    assert any("cwhn has only a reference implementation or none" in step.reason for step in work)


def test_many_operators_are_counted() -> None:
    with pytest.warns(bl.PolicyWarning, match=r"conv3: .* and 2 more"):
        bl.load(nets.chain(batch=2, convs=6), layout="cwhn")


def test_a_tag_of_another_rank_is_a_warning() -> None:
    with pytest.warns(bl.PolicyWarning, match="layout='ncw' is nowhere in .*: it has no tensor of rank 3"):
        bl.load(nets.chain(), layout="ncw")


def test_a_layout_without_effect_is_a_warning() -> None:
    b = bl.Builder("relus")
    b.output("y", b.input("x", (1, 3, 4, 4)).relu())
    with pytest.warns(bl.PolicyWarning, match="makes no difference to relus"):
        bl.load(b, layout="chwn")


def test_followers_say_what_they_follow() -> None:
    with pytest.warns(bl.PolicyWarning, match=r"layout='nhwc' is nowhere in relus: .* only follow .* io_layout"):
        session = bl.load(relus(), layout="nhwc")
    assert all(step.reason.endswith("it follows what it reads") for step in session.plan.steps)
    with warnings.catch_warnings():
        warnings.simplefilter("error", bl.PolicyWarning)
        bl.load(relus(), layout="nhwc", io_layout={"x": "nhwc"})


@pytest.mark.parametrize("layout", ["auto", "any", "plain", "per-op", "nhwc", "blocked", "nchw"])
def test_what_is_had_somewhere_is_no_warning(layout: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", bl.PolicyWarning)
        bl.load(nets.residual(), layout=layout)


def test_where_it_is_had_in_part_exceptions_are_counted() -> None:
    b = bl.Builder()
    x = b.input("x", (2, 16, 8, 8)).relu()
    b.output("y", x.conv(nets.he(np.random.default_rng(0), 16, 16, 3, 3), name="conv"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", bl.PolicyWarning)
        plan = bl.load(b, layout="cwhn", io_layout={"x": "cwhn"}).plan
    assert [kernel for kernel, _ in plan.exceptions] == ["conv"]


def test_plans_made_at_the_first_run_and_remembered_ones_warn() -> None:
    for _ in range(2):
        session = bl.load(nets.free_model(), layout="cwhn")
        with pytest.warns(bl.PolicyWarning, match="is nowhere in free"):
            session(np.zeros((2, 3, 9, 9), np.float32))
