"""What differs between two plans of one model."""

from __future__ import annotations

import blocklayout as bl
from blocklayout.show.plan_record import changes_record, plan_record
from tests import nets


def test_a_plan_differs_in_nothing_from_itself() -> None:
    plan = bl.load(nets.residual(), layout="nhwc").plan
    assert changes_record(plan_record(plan), plan_record(plan)) == {
        "kernels": [],
        "reorders_gone": [],
        "reorders_new": [],
    }


def test_a_pin_changes_its_kernel_and_brings_reorders() -> None:
    plan = bl.load(nets.residual(), layout="nhwc").plan
    kernel = next(choice.kernel for choice in plan.choices if "nChw8c" in choice.layouts)
    pinned = bl.load(nets.residual(), layout="nhwc", pin={kernel: "nChw8c"}).plan
    changes = changes_record(plan_record(plan), plan_record(pinned))
    changed = {each["name"]: each for each in changes["kernels"]}
    assert (changed[kernel]["before"]["writes"], changed[kernel]["after"]["writes"]) == ("nhwc", "nChw8c")
    n_new, n_gone = len(changes["reorders_new"]), len(changes["reorders_gone"])
    assert n_new - n_gone == len(pinned.reorders) - len(plan.reorders)
    assert n_new > 0
    assert all(each["nbytes"] > 0 and each["readers"] for each in changes["reorders_new"])


def test_what_is_gone_one_way_is_new_the_other() -> None:
    before, after = (plan_record(bl.load(nets.residual(), layout=layout).plan) for layout in ("nhwc", "plain"))
    there, back = changes_record(before, after), changes_record(after, before)
    assert there["reorders_gone"] == back["reorders_new"]
    assert {each["name"] for each in there["kernels"]} == {each["name"] for each in back["kernels"]}
