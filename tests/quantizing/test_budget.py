"""Quantising within a budget of error: what is left in f32, and how errors are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout.dnnl import own
from blocklayout.errors import InputError
from blocklayout.plan.precision import PrecisionReport
from blocklayout.quantizing.budget import Search, disagreement, rms

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = (1, 3, 24, 24)


@pytest.fixture(autouse=True)
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks as small as these may be no faster in bytes, and the times of short runs differ from run to run."""
    monkeypatch.setattr(Search, "_times_ms", lambda *_: {})


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    scale = np.float32(np.prod(shape[1:])) ** -0.5
    return np.random.default_rng((seed, *shape)).standard_normal(shape, np.float32) * scale


def net(*, ends_in_softmax: bool = False) -> bl.Builder:
    """Two convolutions, of which the second has channels of very different ranges, pooled, and a product."""
    b = bl.Builder()
    ranges = np.geomspace(1e-3, 30, 32, dtype=np.float32)[:, None, None, None]
    first = b.input("x", SHAPE).conv(weights(32, 3, 3, 3), pads=1, name="first").relu()
    second = first.conv(weights(32, 32, 3, 3) * ranges, pads=1, name="second").relu().max_pool(2, strides=2)
    third = second.conv(weights(32, 32, 3, 3, seed=1) / ranges.T[..., None].reshape(1, 32, 1, 1), pads=1, name="third")
    y = third.relu().global_average_pool().flatten().gemm(weights(32, 10))
    b.output("y", y.softmax(1) if ends_in_softmax else y)
    return b


def feeds(n: int = 10) -> list[np.ndarray]:
    return [np.random.default_rng(seed).standard_normal(SHAPE, np.float32) for seed in range(n)]


def outputs(model: Any) -> list[list[np.ndarray]]:
    with bl.load(model, tune="model", recipes={"winograd": False}) as session:
        return [[np.asarray(session(feed))] for feed in feeds()]


def made(max_error: Any, *, builder: bl.Builder | None = None, **options: Any) -> tuple[onnx.ModelProto, Any]:
    model = bl.quantize(builder or net(), feeds(), {"max_error": max_error, "weights": "tensor"}, **options)
    onnx.checker.check_model(model, full_check=True)
    return model, PrecisionReport.of(model)


def in_bytes(model: onnx.ModelProto) -> set[str]:
    """Names of the products whose weights are bytes."""
    dequantized = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    return {node.name for node in model.graph.node if len(node.input) > 1 and node.input[1] in dequantized}


@pytest.mark.parametrize("max_error", [1e-7, 0.003, 0.02, 0.1, 0.5])
def test_the_error_is_within_the_budget(max_error: float) -> None:
    model, report = made(max_error)
    error = rms(outputs(model), outputs(net()))
    assert error <= max_error
    assert report.error == pytest.approx(error, rel=1e-3, abs=1e-6)
    products = {layer.node for layer in report.layers if layer.in_bytes and layer.op_type in ("Conv", "Gemm")}
    assert in_bytes(model) == products
    assert not products & {*report.left}


@pytest.mark.skipif(not own.multiplies_bytes(), reason="no kernel computes products of bytes on this CPU")
def test_more_is_quantised_the_more_error_is_allowed() -> None:
    counts = [len(in_bytes(made(max_error)[0])) for max_error in (1e-7, 0.02, 1.0)]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert 0 < counts[1] < counts[2]


def test_where_nothing_fits_the_model_stays_as_it_is() -> None:
    model, report = made(1e-9)
    assert not [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert (report.error, report.chosen.n_in_bytes) == (0, 0)
    assert "0 of" in str(report)
    np.testing.assert_allclose(outputs(model), outputs(net()), rtol=1e-4, atol=1e-5)


def test_errors_of_layers_are_measured_only_where_that_is_needed() -> None:
    told: list[str] = []
    _, report = made(10.0, progress=told.append)
    assert not [text for text in told if text.startswith("the error of layer")]
    assert (report.front, {layer.error for layer in report.layers}) == ((), {None})
    _, report = made(10.0, measures_all=True, progress=told.append)
    assert [text for text in told if text.startswith("the error of layer")]
    assert all(layer.error > 0 for layer in report.layers)
    errors, times = ([getattr(point, name) for point in report.front] for name in ("estimated_error", "ns"))
    assert errors == sorted(errors)
    assert times == sorted(times, reverse=True)
    assert report.front[0].n_in_bytes == 0


def test_a_layer_s_error_is_that_before_a_last_softmax() -> None:
    reports = [made(10.0, builder=net(ends_in_softmax=last), measures_all=True)[1] for last in (False, True)]
    plain, soft = ({layer.node: layer.error for layer in report.layers} for report in reports)
    assert soft == pytest.approx(plain, rel=1e-3)


def test_a_function_measures_errors() -> None:
    seen = []

    def metric(found: Any, expected: Any) -> float:
        seen.append([(len(each), each[0][0].shape) for each in (found, expected)])
        return 0.25

    _, report = made(0.3, metric=metric)
    if report.chosen.n_in_bytes:
        assert seen[0] == [(10, (1, 10)), (10, (1, 10))]
        assert (report.metric, report.error) == ("a function", 0.25)


def test_measures_of_error() -> None:
    true = [[np.array([[3.0, 4.0], [0.0, 1.0]]), np.ones(2)], [np.array([[2.0, 1.0], [1.0, 0.0]]), np.ones(2)]]
    assert rms(true, true) == disagreement(true, true) == 0
    found = [[true[0][0], np.array([1.0, 2.0])], [np.array([[1.0, 2.0], [1.0, 0.0]]), true[1][1]]]
    assert rms(found, true) == pytest.approx(0.5)  # of the second output: 1 of 4, whose root is a half
    assert disagreement(found, true) == 0.25


@pytest.mark.parametrize("max_error", [0, -1, "none"])
def test_a_budget_is_a_positive_number_or_any(max_error: Any) -> None:
    with pytest.raises(InputError, match="recipe: max_error"):
        made(max_error)


def test_a_model_that_only_moves_elements_has_no_layer_to_measure() -> None:
    b = bl.Builder()
    b.output("y", b.input("x", SHAPE).max_pool(2, strides=2))
    _, report = made(0.1, builder=b, measures_all=True)
    assert (report.layers, report.front, report.chosen.n_in_bytes) == ((), (), 0)


def test_a_picture_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    report = made(10.0)[1]
    report.save(tmp_path / "front.svg")
    assert (tmp_path / "front.svg").read_text() == report.to_svg()
    with pytest.raises(InputError, match=r"the picture cannot be written to .*nowhere.*: No such file"):
        report.save(tmp_path / "nowhere" / "front.svg")
