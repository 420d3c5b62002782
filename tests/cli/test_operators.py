"""``blocklayout operators``, and the same question from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.eager.offers import HOWS, all_op_types

if TYPE_CHECKING:
    from tests.cli.command import Command

TUTORIALS = (
    *("Add", "AveragePool", "BatchNormalization", "Concat", "Conv", "ConvTranspose", "GlobalAveragePool"),
    *("MaxPool", "Relu", "Resize", "Sigmoid", "Tanh"),
)


def test_every_operator_has_an_answer_that_adds_up(cli: Command) -> None:
    told = cli("operators", "--layout", "nhwc", "--json").json["operators"]
    assert {each["op_type"] for each in told} == set(all_op_types())
    assert {each["layout"] for each in told} == {"plain", "nhwc"}
    for each in told:
        assert each["how"] in HOWS
        assert (each["how"] == "none") == bool(each["reason"])
        assert (each["how"] in ("reorder", "native", "plain", "reference")) == bool(each["implementations"])
        assert each["ns"] > 0 or each["how"] in ("none", "view")
        if each["how"] in ("native", "view"):
            assert each["n_reorders"] == 0
        assert (each["how"] == "plain") == ("onnx.reference" in each["implementations"])


def test_the_operators_of_the_tutorial_compute_in_channels_last(cli: Command) -> None:
    told = cli("operators", *TUTORIALS, "--layout", "nhwc", "--json").json["operators"]
    found = {each["op_type"]: each for each in told if each["layout"] == "nhwc"}
    for name in TUTORIALS:
        assert found[name]["how"] in ("native", "reference", "reorder")
        if found[name]["how"] == "native":
            assert "nhwc" in found[name]["computes_in"]
    assert found["Relu"]["how"] == found["Add"]["how"] == "native"


@pytest.mark.filterwarnings("ignore::blocklayout.errors.BlockLayoutWarning")
def test_answers_are_those_of_a_call() -> None:
    for name in ("Relu", "Erf", "MaxPool"):
        sample: dict[str, Any] = {"kernel_shape": (2, 2)} if name == "MaxPool" else {}
        [offer] = bl.candidates(name, (1, 16, 8, 8), layouts=("nChw8c",), **sample)
        x = bl.ones((1, 16, 8, 8), memory_format="nChw8c")
        with bl.watch("record") as seen:
            bl.op(name, x, **sample)
        assert (len(seen) > 0) == (offer.n_reorders > 0), name


def test_a_problem_of_ones_own() -> None:
    weights = np.ones((24, 16, 3, 3), np.float32)
    plain, blocked = bl.candidates("Conv", (1, 16, 9, 9), weights, layouts=("plain", "nChw8c"), pads=(1, 1, 1, 1))
    assert (plain.op_type, plain.layout, blocked.layout) == ("Conv", "plain", "nChw8c")
    assert blocked.ns > 0
    assert blocked.priced_by
    [refused] = bl.candidates("Conv", (1, 17, 9, 9), weights, layouts=("nhwc",))
    assert refused.how == "none"
    assert "Conv" in refused.reason


def test_attributes_go_with_a_sample() -> None:
    small, large = (bl.candidates("MaxPool", layouts="plain", kernel_shape=(size, size))[0] for size in (2, 28))
    assert small.how == "native"
    assert small.ns != large.ns


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (("nhwc",), "input 0 of Relu is 'nhwc'; give the extents of a tensor"),
        ((np.ones(3),), "input 0 of Relu"),
        (((1, -3),), r"input 0 of Relu is \(1, -3\)"),
        (((1, 3), 2.0), r"input 1 of Relu is 2\.0; give extents, or an array of a constant"),
    ],
)
def test_inputs_are_extents_or_arrays(inputs: tuple[Any, ...], message: str) -> None:
    with pytest.raises(bl.InputError, match=message):
        bl.candidates("Relu", *inputs)


def test_a_layout_of_another_rank_is_none() -> None:
    plain, nhwc = bl.candidates("Gemm", layouts=("plain", "nhwc"))
    assert plain.how == "native"
    assert nhwc.how == "none"
    assert "not for 2" in nhwc.reason


def test_registered_operators_are_asked_too() -> None:
    class Copied:
        layouts = bl.channels_last

        def compute(self, result: bl.Tensor, x: bl.Tensor) -> None:
            np.copyto(result.physical(), x.physical())

    bl.register_operator("tests.offers", "Copied", Copied)
    nhwc, blocked = bl.candidates("tests.offers.Copied", layouts=("nhwc", "nChw8c"))
    assert (nhwc.how, nhwc.implementations, nhwc.computes_in) == ("native", ("python",), ("nhwc",))
    assert (blocked.how, blocked.computes_in) == ("reorder", ("nhwc",))


def test_the_table_names_what_it_counts(cli: Command) -> None:
    out = cli.ok("operators", "Relu", "Loop", "--layout", "nhwc")
    assert "plain: 1 native" in out
    assert "nhwc: 1 native" in out
    assert "Loop is not computed" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Cnv",), "no operator 'Cnv'; the closest are Conv"),
        (("Relu", "--layout", "nhcw8z"), "no format tag 'nhcw8z'"),
    ],
)
def test_mistakes_are_told(cli: Command, arguments: tuple[str, ...], message: str) -> None:
    assert message in cli("operators", *arguments).refusal
