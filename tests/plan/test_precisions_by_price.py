"""Precisions that a solve chooses next to layouts, where errors have a price."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.encoding import to_json
from blocklayout.errors import ModelError
from blocklayout.model import legalize, lower, read, simplify
from blocklayout.model.onnx_read import REPORT_KEY
from blocklayout.plan import Plan
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.costs.model import CostModel
from blocklayout.plan.network import Network
from blocklayout.plan.precision import (
    FrontPoint,
    LayerPrecision,
    PrecisionReport,
    cheapest_precisions,
    free_network,
)
from tests.quantised import model_of, through, weights

needs_exact_sums = pytest.mark.skipif(
    not own.multiplies_bytes(), reason="no kernel computes products of bytes on this CPU"
)
FORCED = 1e10


def three_convolutions(b: bl.Builder, rng: np.random.Generator) -> None:
    x = through(b.input("x", (1, 32, 14, 14)))
    y = through(x.conv(weights(rng, b, 64, 32, 3, 3), pads=1, name="first").relu())
    z = through(y.conv(weights(rng, b, 64, 64, 1, 1), name="second").relu())
    b.output("y", (through(z.conv(weights(rng, b, 64, 64, 3, 3), pads=1, name="third")) + y).relu())


def network_of(body: Any = three_convolutions, dtype: str = "f32") -> Network:
    program = lower(legalize(simplify(read(model_of(body)))))
    return free_network(program, CostModel(Machine(dnnl.isa(), 2)), dtype)


NODES = ("first", "second", "third")


@pytest.mark.parametrize("dtype", ["f32", *(["bf16"] if dnnl.has_bf16() else [])])
def test_numbers_are_on_offer_wherever_there_are_bytes(dtype: str) -> None:
    network = network_of(dtype=dtype)
    floats = cheapest_precisions(network, dict.fromkeys(NODES, 1.0), FORCED)
    assert not floats.in_bytes & {*NODES}
    for tile, offered in zip(network.tiles, network.candidates, strict=True):
        if tile.name in NODES:
            assert {each.reads_bytes for each in offered} == {False, own.multiplies_bytes()}


@needs_exact_sums
def test_where_errors_cost_nothing_the_choice_is_the_fastest_of_all() -> None:
    network = network_of()
    free = cheapest_precisions(network, {}, 0.0)
    for n in range(len(NODES) + 1):
        for in_bytes in combinations(NODES, n):
            signs = {name: -1.0 if name in in_bytes else 1.0 for name in NODES}
            forced = cheapest_precisions(network, signs, FORCED)
            assert forced.in_bytes & {*NODES} == {*in_bytes}
            assert free.ns <= forced.ns * (1 + 1e-9)
    assert all(extra >= -1e-3 for extra in free.otherwise_ns.values())


@needs_exact_sums
@given(st.lists(st.floats(1e-3, 1), min_size=3, max_size=3), st.lists(st.floats(1, 1e6), min_size=2, max_size=2))
@settings(deadline=None, max_examples=25)
def test_a_higher_price_of_error_never_gives_more_error_or_less_time(errors: list[float], prices: list[float]) -> None:
    network, of_nodes = network_of(), dict(zip(NODES, errors, strict=True))
    low, high = (cheapest_precisions(network, of_nodes, price) for price in sorted(prices))
    totals = [sum(of_nodes[name] for name in each.in_bytes & {*NODES}) for each in (low, high)]
    assert totals[1] <= totals[0] * (1 + 1e-9)
    assert high.ns >= low.ns * (1 - 1e-9)


@needs_exact_sums
def test_what_a_change_would_cost_is_the_difference_to_the_changed_choice() -> None:
    network = network_of()
    forced = cheapest_precisions(network, dict.fromkeys(NODES, -1.0), FORCED)
    for name in NODES:
        changed = cheapest_precisions(network, dict.fromkeys(NODES, -1.0) | {name: 1.0}, FORCED)
        assert forced.otherwise_ns[name] == pytest.approx(changed.ns - forced.ns, rel=1e-6, abs=1)


REPORT = PrecisionReport(
    metric="rms",
    max_error=0.1,
    error=0.05,
    dtype="f32",
    layers=(
        LayerPrecision("stem", "Conv", in_bytes=True, error=0.03, otherwise_ns=1500.0),
        LayerPrecision("head <1>", "Gemm", in_bytes=False, error=0.2, otherwise_ns=-250.0),
        LayerPrecision("last", "Add", in_bytes=False, error=None, otherwise_ns=None),
    ),
    left=("head <1>", "last"),
    front=(FrontPoint(0, 9e6, 0.0), FrontPoint(1, 5e6, 0.03, 0.05), FrontPoint(2, 4e6, 0.2)),
    chosen=FrontPoint(1, 5e6, 0.03, 0.05),
    times_ms={"int8": 5.25, "f32": 9.5},
)


def test_a_report_says_what_each_layer_would_change() -> None:
    assert str(REPORT).splitlines() == [
        "1 of 3 layers in bytes, others in f32; rms error 5.0e-02 of 1.0e-01 allowed",
        "run whole, in turn: int8 5.250 ms, f32 9.500 ms",
        "",
        "layer     operator  in      error alone  the other way: us     error",
        "stem      Conv      bytes       3.0e-02               +1.5  -3.0e-02",
        "head <1>  Gemm      floats      2.0e-01               -0.2  +2.0e-01",
        "last      Add       floats                       no choice",
    ]


def test_a_picture_has_the_front_and_the_choice() -> None:
    svg = REPORT.to_svg()
    assert svg.count("<circle") == 4
    assert svg.count('class="chosen"') == 1
    assert "1 in bytes, 5.000 ms, error 3.0e-02, rms 5.0e-02 on the data" in svg


def test_a_report_is_read_from_the_model_s_metadata() -> None:
    proto = model_of(three_convolutions)
    assert PrecisionReport.of(proto) is None
    proto.metadata_props.add(key=REPORT_KEY, value=to_json(REPORT))
    assert PrecisionReport.of(proto) == REPORT
    plan = bl.load(proto, tune="model").plan
    assert plan.explain().endswith(f"which layers were quantised, when the file was made:\n{REPORT}")
    assert Plan.from_json(plan.to_json()).explain() == plan.explain()
    assert "quantised, when" not in bl.load(model_of(three_convolutions), tune="model").plan.explain()
    damaged = onnx.ModelProto.FromString(proto.SerializeToString())
    damaged.metadata_props[0].value = '{"metric": 3}'
    with pytest.raises(ModelError, match=r"'blocklayout\.precision' in the metadata of .* is damaged"):
        PrecisionReport.of(damaged)
    with pytest.raises(ModelError, match=r"'blocklayout\.precision' in the metadata of .* is damaged"):
        bl.load(damaged, tune="model").plan.explain()
