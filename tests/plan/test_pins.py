"""What the user insists on: forced formats, expected formats, and what happens where they cannot be had."""

from __future__ import annotations

import numpy as np
import pytest

import blocklayout as bl
from tests import nets


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw8c", "channels_last"])
@pytest.mark.parametrize("name", ["conv1", "relu_3"])
def test_a_pinned_kernel_writes_the_format(name: str, layout: str) -> None:
    free, forced = (bl.load(nets.chain(), tune="model", pin=pin) for pin in ({}, {name: layout}))
    [choice] = [choice for choice in forced.plan.choices if name in choice.nodes]
    dst = choice.chosen.dst
    assert isinstance(dst, bl.MemoryDesc)
    assert dst.physically_equal(bl.MemoryDesc(dst.dims, "f32", layout))
    assert forced.plan.cost_ns >= 0.999 * free.plan.bound_ns
    assert forced.plan.unpinned_ns == pytest.approx(free.plan.cost_ns)
    feed = nets.feed_of(free)
    np.testing.assert_allclose(forced.run(None, feed)[0], free.run(None, feed)[0], rtol=1e-4, atol=1e-4)


def test_a_pin_holds_for_every_policy() -> None:
    for policy in bl.plan.POLICIES:
        plan = bl.load(nets.chain(), layout=policy, pin={"conv1": "nChw8c"}).plan
        assert plan.format_of("relu_3").named("src") == "nChw8c"


def test_an_unknown_name_is_answered_with_the_closest_three() -> None:
    with pytest.raises(bl.PlanError, match=r"pin convl=nhwc.*closest are conv\d, conv\d, conv\d"):
        bl.load(nets.chain(), pin={"convl": "nhwc"})
    with pytest.raises(bl.PlanError, match=r"expect convl=nhwc.*closest are"):
        bl.load(nets.chain(), expect={"convl": "nhwc"})


def test_what_nothing_writes_is_answered_with_what_is_offered() -> None:
    with pytest.raises(bl.PlanError, match=r"flatten_15=cn: no primitive writes that here; offered are nc"):
        bl.load(nets.residual(), pin={"flatten_15": "cn"})


def test_a_format_that_does_not_exist_is_named() -> None:
    with pytest.raises(bl.PlanError, match="conv0=nhwcc"):
        bl.load(nets.chain(), pin={"conv0": "nhwcc"})
    with pytest.raises(bl.PlanError, match="conv0=ncdhw"):
        bl.load(nets.chain(), expect={"conv0": "ncdhw"})


def test_two_pins_for_one_group_contradict_each_other() -> None:
    with pytest.raises(bl.PlanError, match=r"conv0 computes it, and is pinned to nhwc already"):
        bl.load(nets.chain(), pin={"conv0": "nhwc", "relu_1": "nChw8c"})


def test_an_expectation_that_is_not_met_says_what_came_instead() -> None:
    bl.load(nets.chain(16), layout="nhwc", expect={"conv1": "channels_last"})
    with pytest.raises(bl.PlanError, match=r"conv1=channels_last: it comes as .*nChw8c, written by conv1 .*offers"):
        bl.load(nets.chain(16), layout="nChw8c", expect={"conv1": "channels_last"})


def test_a_builder_states_what_it_expects() -> None:
    b = bl.Builder()
    x = b.input("x", (1, 16, 8, 8))
    y = x.conv(nets.he(np.random.default_rng(0), 16, 16, 3, 3), pads=1, name="first").relu().expect("channels_last")
    b.output("y", y.conv(nets.he(np.random.default_rng(1), 16, 16, 3, 3), pads=1))
    assert bl.load(b, layout="nhwc").plan.format_of("relu_1").is_contiguous("channels_last")
    with pytest.raises(bl.PlanError, match="relu_1=channels_last"):
        bl.load(b, layout="nChw8c")
