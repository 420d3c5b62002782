"""Which kernels a demand means: by name, pattern, operator type or function, and which demand precedes which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import blocklayout as bl
from tests import nets

if TYPE_CHECKING:
    from blocklayout.ir import KernelInfo


def formats(plan: bl.Plan) -> dict[str, str]:
    """The format that each convolution of a network is computed in."""
    found = {kernel.name: kernel for choice in plan.choices for kernel in choice.kernels if kernel.op_type == "Conv"}
    return {name: plan.format_of(kernel.value).named("src") for name, kernel in found.items()}


ALL_LAST = {"conv0": "nhwc", "conv1": "nhwc", "conv2": "nhwc"}


@pytest.mark.parametrize(
    "pin",
    [
        {"Conv": "nhwc"},
        {"conv*": "nhwc"},
        {"conv[0-9]": "channels_last"},
        lambda kernel: "nhwc" if kernel.op_type == "Conv" else None,
        lambda kernel: "nhwc" if kernel.role == "chooser" and len(kernel.shape) == 4 else None,
    ],
    ids=["operator type", "pattern", "range", "function of the operator", "function of the role"],
)
def test_many_kernels_are_selected_at_once(pin: Any) -> None:
    plan = bl.load(nets.chain(24), pin=pin, layout="blocked").plan
    assert formats(plan) == ALL_LAST
    assert {pin.name for pin in plan.pins} == {*ALL_LAST}


def test_results_are_the_same() -> None:
    free, pinned = bl.load(nets.residual()), bl.load(nets.residual(), pin={"Conv": "nhwc"})
    feed = nets.feed_of(free)
    np.testing.assert_allclose(pinned.run(None, feed)[0], free.run(None, feed)[0], rtol=1e-4, atol=1e-4)
    assert {*formats(pinned.plan).values()} == {"nhwc"}


def test_an_exact_name_precedes_a_pattern_and_that_an_operator_type() -> None:
    pin = {"Conv": "nhwc", "conv[12]": "nChw8c", "conv2": "nchw"}
    for order in (pin, dict(reversed(pin.items()))):
        plan = bl.load(nets.chain(24), pin=order).plan
        assert formats(plan) == {"conv0": "nhwc", "conv1": "nChw8c", "conv2": "nchw"}


def test_the_follower_of_a_primitive_precedes_it_where_it_is_named_more_exactly() -> None:
    plan = bl.load(nets.chain(24), pin={"Conv": "nhwc", "relu_3": "nChw8c"}).plan
    assert plan.format_of("relu_3").named("src") == "nChw8c"
    assert plan.format_of("relu_1").named("src") == "nhwc"


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        ({"conv*": "nhwc", "*1": "nChw8c"}, r"pin \*1=nChw8c \(conv1\): .* conv\*=nhwc \(conv1\)"),
        ({"Conv": "nhwc", "Relu": "nChw8c"}, r"pin Relu=nChw8c \(relu_1\): conv0 computes it.* Conv=nhwc \(conv0\)"),
    ],
    ids=["two patterns for a kernel", "two operators for a primitive"],
)
def test_contradictions_are_refused(pin: dict[str, str], message: str) -> None:
    with pytest.raises(bl.PlanError, match=message):
        bl.load(nets.chain(), pin=pin)


@pytest.mark.parametrize("option", ["pin", "expect", "precision"])
@pytest.mark.parametrize(
    ("key", "closest"),
    [("Convl", "Conv, conv"), ("layer1.*", "the closest are"), ("convl", r"conv\d, conv\d, conv\d")],
)
def test_what_selects_nothing_is_answered_with_the_closest(option: str, key: str, closest: str) -> None:
    wanted = "f32" if option == "precision" else "nhwc"
    options: dict[str, Any] = {option: {key: wanted}}
    with pytest.raises(bl.PlanError, match=rf"{option} {key.replace('*', '.*')}={wanted}: .*{closest}"):
        bl.load(nets.chain(), **options)


def test_the_closest_may_be_an_operator() -> None:
    with pytest.raises(bl.PlanError, match=r"pin Cnov=nhwc: .*the closest are Conv"):
        bl.load(nets.chain(), pin={"Cnov": "nhwc"})


def test_kernels_of_another_rank_are_passed_over_by_patterns_but_not_by_names() -> None:
    plan = bl.load(nets.residual(), pin={"Softmax": "nc", "block*": "nhwc", "*flatten*": "nc"}).plan
    assert {pin.name for pin in plan.pins if pin.key == "block*"} == {
        "block1/a",
        "block1/b",
        "block1/project",
        "block2/a",
        "block2/b",
    }
    with pytest.raises(bl.PlanError, match=r"flatten_15=nhwc: "):
        bl.load(nets.residual(), pin={"flatten_15": "nhwc"})
    with pytest.raises(bl.PlanError, match=r"Softmax=nhwc: "):
        bl.load(nets.residual(), pin={"Softmax": "nhwc"})


@pytest.mark.parametrize(
    "expect", [{"Conv": "nhwc"}, {"conv*": "nhwc"}, lambda k: "nhwc" if k.op_type == "Conv" else None]
)
def test_expectations_are_selected_likewise(expect: Any) -> None:
    bl.load(nets.chain(24), layout="nhwc", expect=expect)
    with pytest.raises(bl.PlanError, match=r"expect [Cc]onv.*=nhwc"):
        bl.load(nets.chain(24), layout="nChw8c", expect=expect)


def test_an_exact_expectation_precedes_that_of_an_operator() -> None:
    pin = {"conv1": "nChw8c"}
    with pytest.raises(bl.PlanError, match=r"expect Conv=nhwc \(conv1\): it comes as nChw8c"):
        bl.load(nets.chain(24), layout="nhwc", pin=pin, expect={"Conv": "nhwc"})
    bl.load(nets.chain(24), layout="nhwc", pin=pin, expect={"Conv": "nhwc", "conv1": "nChw8c"})
    bl.load(nets.chain(24), layout="nhwc", pin=pin, expect={"Conv": "nhwc", "conv1": None})


def test_an_input_may_be_expected_in_a_format() -> None:
    bl.load(nets.chain(24), io_layout={"x": "nhwc"}, expect={"x": "nhwc"})
    with pytest.raises(bl.PlanError, match="expect x=nhwc: it comes as"):
        bl.load(nets.chain(24), expect={"x": "nhwc"})


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        ("nhwc", "pin='nhwc': give a mapping"),
        ({"conv0": 3}, "pin: 'conv0': 3: give texts"),
        ({"conv0": ""}, "pin: 'conv0': '': give texts"),
        ({3: "nhwc"}, "pin: 3: 'nhwc': give texts"),
        (lambda _: 3, "pin conv0=3: a function returns a text, or None"),
        (lambda _: "nhwcc", "pin conv0=nhwcc: "),
        ({"Conv": "nhwcc"}, "pin Conv=nhwcc: "),
    ],
)
def test_what_is_no_demand_is_refused(pin: Any, message: str) -> None:
    with pytest.raises(bl.PlanError, match=message):
        bl.load(nets.chain(), pin=pin)


def test_a_function_sees_every_kernel_once() -> None:
    seen: list[KernelInfo] = []
    session = bl.load(nets.residual(), pin=lambda kernel: seen.append(kernel))  # noqa: PLW0108 - returns None
    assert [kernel.name for kernel in seen] == list(dict.fromkeys(kernel.name for kernel in seen))
    assert {kernel.value for kernel in seen} == {*session.plan.formats} - {"image"}
    assert {kernel.op_type for kernel in seen} >= {"Conv", "Relu", "MaxPool", "Softmax"}


def test_plans_of_other_demands_are_not_mistaken_for_each_other() -> None:
    for tag in ("nhwc", "nChw8c", "nhwc"):
        for pin in ({"Conv": tag}, {"conv*": tag}, lambda k, tag=tag: tag if k.op_type == "Conv" else None):
            assert {*formats(bl.load(nets.chain(24), pin=pin).plan).values()} == {tag}


def test_a_saved_plan_is_compared_with_what_is_demanded_now() -> None:
    plan = bl.load(nets.chain(24), pin={"Conv": "nhwc"}).plan
    again = bl.Plan.from_json(plan.to_json())
    assert again == plan
    for pin in (None, {"Conv": "nhwc"}, {"conv1": "nhwc"}, lambda k: "nhwc" if k.op_type == "Conv" else None):
        assert bl.load(nets.chain(24), plan=again, pin=pin).plan == plan
    for pin in ({"Conv": "nChw8c"}, {"Conv": "nhwc", "conv2": "nchw"}, lambda k: "nchw" if k.name == "conv1" else None):
        with pytest.raises(bl.PlanError, match=r"the plan was made with pins Conv=nhwc, and pin .* is asked for"):
            bl.load(nets.chain(24), plan=again, pin=pin)


def test_a_saved_session_is_compared_with_what_is_demanded_now(tmp_path: Any) -> None:
    bl.load(nets.chain(24), pin={"Conv": "nhwc"}).save(tmp_path / "net.session")
    bl.load(tmp_path / "net.session", pin={"Conv": "nhwc"}, expect={"Conv": "channels_last"})
    assert formats(bl.load(tmp_path / "net.session").plan) == ALL_LAST
    with pytest.raises(bl.PlanError, match="made with pins Conv=nhwc, and pin conv2=nchw is asked for"):
        bl.load(tmp_path / "net.session", pin={"conv2": "nchw"})
    with pytest.raises(bl.PlanError, match=r"expect Conv=nchw \(conv0\): it comes as nhwc"):
        bl.load(tmp_path / "net.session", expect={"Conv": "nchw"})
    with pytest.raises(bl.PlanError, match="expect convl=nchw: no kernel"):
        bl.load(tmp_path / "net.session", expect={"convl": "nchw"})


def test_a_plan_says_once_what_was_forced() -> None:
    assert "without Conv=nhwc: " in bl.load(nets.chain(24), pin={"Conv": "nhwc"}).plan.explain()
