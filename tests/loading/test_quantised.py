"""Quantised models: the same answers on each way to a session, and what is told of their plans."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.inliner import inline_local_functions

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.model import BuildValue
from blocklayout.plan import Plan, make, make_plan
from tests.quantised import (
    BYTES,
    chain,
    check_within,
    dequantized,
    feed_of,
    kinds_in_bytes,
    model_of,
    quantized,
    reference,
    residual,
    results_of,
    several_readers,
    weights,
)


@pytest.fixture
def n_made(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many plans were made, and not recalled."""
    made: list[None] = []

    def counting(*arguments: Any, **options: Any) -> Plan:
        made.append(None)
        return make_plan(*arguments, **options)

    monkeypatch.setattr(make, "make_plan", counting)
    return lambda: len(made)


NETS = pytest.mark.parametrize("make_net", [chain, residual, several_readers], ids=lambda make: make.__name__)
Make = Callable[[bl.Builder, np.random.Generator], None]


def check_same(got: bl.Session, first: bl.Session, model: onnx.ModelProto) -> None:
    for one, other in zip(results_of(got, model), results_of(first, model), strict=True):
        np.testing.assert_array_equal(one, other)


@NETS
def test_a_remembered_plan_gives_the_same_answers(make_net: Make, tmp_path: Path, n_made: Callable[[], int]) -> None:
    model = model_of(make_net)
    onnx.save(model, tmp_path / "model.onnx")
    first = bl.load(tmp_path / "model.onnx")
    for source in (tmp_path / "model.onnx", tmp_path / "model.onnx", model):
        again = bl.load(source)
        assert again.plan == first.plan
        check_same(again, first, model)
    assert n_made() == 1


@NETS
def test_a_saved_session_gives_the_same_answers(make_net: Make, tmp_path: Path) -> None:
    model = model_of(make_net)
    first = bl.load(model, tune="model")
    first.save(tmp_path / "net.bl")
    again = bl.load(tmp_path / "net.bl")
    assert again.plan == first.plan
    check_same(again, first, model)


@NETS
def test_a_saved_plan_gives_the_same_answers(make_net: Make, tmp_path: Path, n_made: Callable[[], int]) -> None:
    model = model_of(make_net)
    first = bl.load(model, tune="model")
    first.plan.save(tmp_path / "plan.json")
    again = bl.load(model, plan=tmp_path / "plan.json")
    assert n_made() == 1
    assert again.plan == first.plan
    check_same(again, first, model)


@pytest.mark.parametrize("options", [{"tune": "measure", "tune_seconds": 0.3}, {"threads": 1}, {"threads": 2}], ids=str)
@pytest.mark.parametrize("make_net", [chain, residual], ids=lambda make: make.__name__)
def test_other_options_give_answers_as_exact(make_net: Make, options: dict[str, Any]) -> None:
    model = model_of(make_net)
    for got, wanted in zip(results_of(bl.load(model, **options), model), reference(model, feed_of(model)), strict=True):
        if wanted.dtype == np.float32:
            np.testing.assert_allclose(got, wanted, atol=0.031)
        else:
            check_within(got, wanted, quanta=2)


@pytest.mark.parametrize("given", [(2, 3, 12, 12), ((1, 4), 3, (12, 20), 12)], ids=str)
def test_plans_for_other_extents_follow(given: Any) -> None:
    model = model_of(residual)
    del model.graph.value_info[:]
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_param, dims[2].dim_param = "n", "h"
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "n"
    session = bl.load(model, shapes={"x": given}, tune="model")
    for n, height in ((2, 12), (1, 12), (3, 16), (4, 20)):
        feed = {"x": (np.random.default_rng(n).standard_normal((n, 3, height, 12)) * 2).astype(np.float32)}
        check_within(session.run(None, feed)[0], reference(model, feed)[0], quanta=2)
    assert len(session.plans) == 4
    if dnnl.sums_bytes_exactly():
        assert all("convolution" in kinds_in_bytes(plan) for plan in session.plans)


def test_rows_of_a_batch_are_those_of_one() -> None:
    model = model_of(residual)
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    images = np.random.default_rng(0).standard_normal((5, 3, 12, 12)).astype(np.float32) * 2
    [expected] = reference(model, {"x": images})
    with bl.load(model, tune="model", streams=2, threads=2, batching=(4, 5.0)) as session:
        futures = [session.submit({"x": image}) for image in images]
        for future, wanted in zip(futures, expected, strict=True):
            check_within(future.result(20.0)[0], wanted, quanta=2)


OTHER_MACHINE = """
import sys
import numpy as np
import blocklayout as bl
session = bl.load(sys.argv[1])
assert {plan.isa for plan in session.plans} == {"sse41"}
np.save(sys.argv[3], session.run(None, {"x": np.load(sys.argv[2])})[0])
"""


@pytest.mark.skipif(dnnl.isa() == "sse41", reason="there is no lower instruction set than this CPU's")
def test_a_file_for_several_instruction_sets(tmp_path: Path, tree_environ: dict[str, str]) -> None:
    model = model_of(residual)
    path, image, result = (tmp_path / name for name in ("net.bl", "image.npy", "result.npy"))
    with bl.load(model, threads=1, tune="model") as session:
        session.save(path, targets=("sse41", dnnl.isa()))
        check_same(bl.load(path), session, model)
    np.save(image, feed_of(model)["x"])
    subprocess.run(
        [sys.executable, "-c", OTHER_MACHINE, *map(str, (path, image, result))],
        env=tree_environ | {"ONEDNN_MAX_CPU_ISA": "SSE41"},
        check=True,
        timeout=120,
    )
    check_within(np.load(result), reference(model, feed_of(model))[0], quanta=2)


@pytest.mark.parametrize("functions", [True, False])
def test_an_exported_file_is_quantised_still(tmp_path: Path, *, functions: bool) -> None:
    model = model_of(residual)
    first = bl.load(model, layout="nhwc", tune="model")
    bl.export(model, tmp_path / "out.onnx", first.plan, functions=functions)
    told = inline_local_functions(onnx.load(tmp_path / "out.onnx"))
    again = bl.load(tmp_path / "out.onnx", layout="nhwc", tune="model")
    [expected] = reference(model, feed_of(model))
    check_within(reference(told, feed_of(model))[0], expected)
    check_within(results_of(again, model)[0], expected, quanta=2)
    assert kinds_in_bytes(again.plan) == kinds_in_bytes(first.plan)


@pytest.mark.parametrize(("dtype", "zero"), [(np.uint8, 128), (np.int8, 5)])
def test_an_exported_file_has_a_zero_point_for_each_scale(tmp_path: Path, dtype: Any, zero: int) -> None:
    def make(b: bl.Builder, rng: np.random.Generator) -> None:
        x = dequantized(b.input("x", (1, 16, 9, 8), "u8"), 0.03, 7)
        w = dequantized(b.constant(rng.integers(0, 127, (16, 16, 3, 3)).astype(dtype)), 1e-3, zero)
        b.output("y", x.conv(w) * rng.uniform(1, 2, (16, 1, 1)).astype(np.float32))

    model = model_of(make)
    bl.export(model, tmp_path / "out.onnx", bl.load(model, tune="model").plan)
    [got], [expected] = (results_of(bl.load(each), model) for each in (tmp_path / "out.onnx", model))
    check_within(expected, reference(model, feed_of(model))[0])
    check_within(got, expected)


def of_scale(scale: float, zero: int, of_weights: float = 1e-3) -> onnx.ModelProto:
    def make(b: bl.Builder, rng: np.random.Generator) -> None:
        x = dequantized(b.input("x", (1, 16, 8, 8), "u8"), scale, zero)
        y = dequantized(b.input("z", (1, 16, 8, 8), "s8"), 0.04)
        b.output("sum", quantized((x + y).relu(), "u8", 0.05, 3))
        b.output("conv", quantized(x.conv(weights(rng, b, 16, 16, 3, 3, scale=of_weights)), "s8", 0.06))

    return model_of(make)


def test_a_plan_of_other_scales_is_none_of_this_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    seen = []
    for numbers in ((0.03, 7), (0.02, 7), (0.03, 9), (0.03, 7), (0.03, 7, 0.7e-3)):
        model = of_scale(*numbers)
        onnx.save(model, path)
        expected = reference(model, feed_of(model))
        for source in (path, model):
            session = bl.load(source)
            for got, wanted in zip(results_of(session, model), expected, strict=True):
                check_within(got, wanted)
        seen.append(session.plan)
    assert len({plan.program for plan in seen[:4]}) == 3
    first, other = of_scale(0.03, 7), of_scale(0.02, 7)
    with pytest.raises(bl.PlanError, match="another model"):
        bl.load(other, plan=seen[0])
    for got, wanted in zip(
        results_of(bl.load(first, plan=seen[0]), first), reference(first, feed_of(first)), strict=True
    ):
        check_within(got, wanted)


def test_a_model_of_a_builder_keeps_its_bytes(tmp_path: Path) -> None:
    b = bl.Builder(opset=21)
    residual(b, np.random.default_rng(0))
    bl.save(b, tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    stored = {tensor.name for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.INT8}
    assert sum(node.op_type == "DequantizeLinear" and node.input[0] in stored for node in model.graph.node) == 7
    for session in (bl.load(tmp_path / "model.onnx", tune="model"), bl.load(b, tune="model")):
        assert "convolution" in kinds_in_bytes(session.plan) or not dnnl.sums_bytes_exactly()
        check_within(session.run(None, feed_of(model))[0], reference(model, feed_of(model))[0], quanta=2)


# --- what is told of them


@pytest.mark.usefixtures("wide_screen")
@NETS
def test_plans_tell_of_bytes(make_net: Make) -> None:
    session = bl.load(model_of(make_net), tune="model")
    text = str(session.plan)
    assert re.search(r":[us]8\b", text)
    told = session.plan.explain()
    assert re.search(r":[us]8\b", told)
    if dnnl.sums_bytes_exactly() and make_net is not several_readers:
        assert re.search(r"convolution .*:[us]8, .*:s8.* -> ", text)


@NETS
def test_reports_tell_of_bytes(make_net: Make, tmp_path: Path) -> None:
    model = model_of(make_net)
    session = bl.load(model, tune="model")
    report = session.report(feed_of(model), n_runs=1)
    record = report.to_dict()
    dtypes = {desc["dtype"] for desc in record["plan"]["descs"]}
    assert dtypes & {*BYTES}
    report.save(tmp_path / "report.html")
    assert str(session.profile(feed_of(model), n_runs=1))


SHAPE = (1, 16, 9, 8)
Body = Callable[[BuildValue, np.random.Generator], BuildValue]


def by(x: BuildValue, integers: np.ndarray, scale: Any = 1e-3, zero: int = 0, **attrs: int) -> BuildValue:
    """A convolution by constant bytes."""
    return x.conv(dequantized(x.builder.constant(integers), scale, np.full(np.shape(scale), zero), **attrs))


def of_channels(x: BuildValue) -> BuildValue:
    """The same as bytes with a scale for each channel."""
    scales, zeros = np.linspace(0.01, 0.05, 16), np.zeros(16)
    return dequantized(quantized(x, "s8", scales, zeros, axis=1), scales, zeros, axis=1)


SIGNED, SQUARE = np.arange(-128, 128).astype(np.int8).reshape(16, 16, 1, 1), (16, 16, 1, 1)
IN_FLOATS: dict[str, tuple[Body, str]] = {
    "zero point": (
        lambda x, _: by(x, SIGNED, zero=5),
        "is in s8 around 5, and its primitive takes weights in s8 around 0",
    ),
    "unsigned": (lambda x, _: by(x, SIGNED.view(np.uint8)), "is in u8 around 0, and its primitive takes weights in s8"),
    "axis": (lambda x, rng: x.conv(weights(rng, x.builder, *SQUARE, axis=1)), "for each index of dimension 1, and its"),
    "channels": (
        lambda x, rng: of_channels(x).conv(weights(rng, x.builder, *SQUARE)),
        "for each index of dimension 1$",
    ),
    "weights alone": (
        lambda x, rng: x.exp().conv(weights(rng, x.builder, *SQUARE)),
        "is not in bytes with one zero point",
    ),
    "scaled": (
        lambda x, rng: x.reshape((16, 72)).gemm(weights(rng, x.builder, 72, 8, axis=1), alpha=0.3),
        "is not the stored bytes, but computed of them",
    ),
    "matrix": (
        lambda x, rng: x.reshape((16, 72)).gemm(
            weights(rng, x.builder, 72, 8, axis=1), np.eye(16, 8, dtype=np.float32)
        ),
        "no primitive computes this Gemm with bytes",
    ),
    "Softmax": (lambda x, _: x.softmax(axis=1), "no primitive computes this Softmax with bytes"),
    "numpy": (lambda x, _: x.builder.op("CumSum", x, np.int64(1)), "no primitive computes this CumSum with bytes"),
    "zero points": (
        lambda x, _: x * dequantized(x.builder.input("other", SHAPE, "u8"), 0.03, 7),
        "binary_mul of bytes takes no such zero points",
    ),
    "moved": (
        lambda x, _: x.builder.op("Pad", x, np.array([0, 0, 1, 1] * 2), np.float32(0.3)),
        "only bytes of one scale and zero point are moved",
    ),
    "result": (lambda x, _: x.exp().softmax(axis=1), "bytes stand for its result, and for nothing that it reads"),
}


@pytest.mark.filterwarnings("ignore::blocklayout.PlainKernelWarning")
@pytest.mark.parametrize("name", IN_FLOATS)
def test_an_explanation_says_why_there_are_floats(name: str) -> None:
    body, reason = IN_FLOATS[name]

    def make_net(b: bl.Builder, rng: np.random.Generator) -> None:
        b.output("y", quantized(body(dequantized(b.input("x", SHAPE, "u8"), 0.03, 7), rng)))

    plan = bl.load(model_of(make_net), tune="model").plan
    assert [each for _, each in plan.in_floats if re.search(reason, each)]
    said = plan.explain().partition("in floats, since nothing on offer computes with bytes:\n")[2]
    assert all(f"  {each}\n" in said and kernel in said for kernel, each in plan.in_floats)
    assert Plan.from_json(plan.to_json()) == plan


def test_an_explanation_names_the_types_that_nothing_is_offered_for() -> None:
    def make_net(b: bl.Builder, rng: np.random.Generator) -> None:
        del rng
        x = dequantized(b.input("x", SHAPE, "u8"), 0.03, 7)
        b.output("y", quantized(x.transpose((0, 1, 3, 2)).matmul(x)))

    [(_, reason)] = bl.load(model_of(make_net), tune="model").plan.in_floats
    assert reason == "nothing exact and optimised reads src in u8 and weights in u8 and writes u8"
    [(_, reason)] = bl.load(model_of(make_net), tune="model", precision={"MatMul": "f32"}).plan.in_floats
    assert reason == "f32 is demanded"


def test_nothing_is_said_of_floats_where_there_are_no_bytes_or_all_is_in_bytes() -> None:
    def make_net(b: bl.Builder, rng: np.random.Generator) -> None:
        del rng
        b.output("y", b.input("x", SHAPE).conv(np.ones((16, 16, 3, 3), np.float32)).softmax(axis=1))

    plan = bl.load(model_of(make_net), tune="model").plan
    assert "in_floats" not in plan.to_json()
    assert "in floats" not in plan.explain()
    if dnnl.sums_bytes_exactly():
        assert not bl.load(model_of(chain), tune="model").plan.in_floats


def test_a_plan_that_follows_another_has_its_reasons() -> None:
    def make_net(b: bl.Builder, rng: np.random.Generator) -> None:
        x = dequantized(b.input("x", SHAPE, "u8"), 0.03, 7)
        b.output("y", quantized(x.softmax(axis=1).conv(weights(rng, b, 16, 16, 3, 3))))

    model = model_of(make_net)
    del model.graph.value_info[:]
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    session = bl.load(model, shapes={"x": (2, *SHAPE[1:])})
    session.run(None, {"x": np.zeros((3, *SHAPE[1:]), np.uint8)})
    first, other = session.plans
    assert first.in_floats
    assert first.in_floats == other.in_floats
