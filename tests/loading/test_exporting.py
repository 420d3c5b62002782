"""Models with the layouts of a plan: channels-last regions in ONNX words, and the same answers in every runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.inliner import inline_local_functions
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import model, zoo
from blocklayout.model.channels_last import DOMAIN, channels_last, functions_of
from tests import nets

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.BlockLayoutWarning")
RNG = np.random.default_rng(0)


def exported(source: Any, path: Path, **wishes: Any) -> tuple[bl.Session, onnx.ModelProto]:
    session = bl.load(source, **{"layout": "nhwc"} | wishes)
    bl.export(source, path, session.plan)
    proto = onnx.load(path)
    onnx.checker.check_model(proto)
    return session, proto


def as_reference(proto: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    return cast("list[np.ndarray]", ReferenceEvaluator(proto).run(None, feed))


def shapes_of(proto: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    infos = (*proto.graph.input, *proto.graph.value_info, *proto.graph.output)
    return {info.name: tuple(extent.dim_value for extent in info.type.tensor_type.shape.dim) for info in infos}


def image_net() -> bl.Builder:
    """Operators that ONNX has on any axis: none of them needs channels first."""
    rng = np.random.default_rng(1)
    b = bl.Builder()
    x = b.input("x", (2, 16, 9, 7)).conv(nets.he(rng, 17, 16, 3, 3), pads=1, name="stem").relu()
    left, right = b.op("Split", b.concat([x, x * nets.he(rng, 17, 1, 1)]), np.array([17, 17]), axis=1, n_outputs=2)
    y = b.op("Pad", left + right.sigmoid(), np.array([0, 0, 1, 1, 0, 0, 1, 1]))
    y = y.softmax(axis=1) - b.op("ReduceMean", y, np.array([2, 3]))
    b.output("map", y.conv(nets.he(rng, 8, 17, 1, 1)))
    b.output("large", b.op("Resize", y, None, np.array([1, 1, 2, 2], np.float32), mode="linear"))
    b.output("sums", b.op("ReduceSum", y, np.array([2, 3]), keepdims=0))
    return b


NETS: dict[str, Callable[[], bl.Builder]] = {
    "chain": nets.chain,
    "residual": nets.residual,
    "mobile": nets.mobile,
    "image": image_net,
}


@pytest.mark.parametrize(
    ("name", "layout"), [*product(NETS, ("nhwc", "auto")), ("mobile", "blocked"), ("mobile", "plain")]
)
def test_it_computes_the_same(name: str, layout: str, tmp_path: Path) -> None:
    session, proto = exported(NETS[name](), tmp_path / "out.onnx", layout=layout)
    feed = nets.feed_of(session)
    wanted = session.run(None, feed)
    for got in (
        as_reference(inline_local_functions(proto), feed),
        bl.load(tmp_path / "out.onnx").run(None, feed),
    ):
        for one, other in zip(wanted, got, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(one).max())


def test_a_run_has_transposes_at_its_borders_alone(tmp_path: Path) -> None:
    _, proto = exported(nets.chain(), tmp_path / "out.onnx", pin=dict.fromkeys(("conv0", "conv1", "conv2"), "nhwc"))
    counts = Counter(node.op_type for node in proto.graph.node)
    assert counts == {"Transpose": 2, "Conv_2D": 3, "Relu": 3}
    shapes = shapes_of(proto)
    assert all(shapes[node.output[0]] == (1, 12, 12, 17) for node in proto.graph.node if node.op_type != "Transpose")
    assert (shapes["x"], shapes["y"]) == ((1, 17, 12, 12), (1, 17, 12, 12))
    assert [(each.domain, each.name) for each in proto.functions] == [(DOMAIN, "Conv_2D")]


def test_what_onnx_has_on_any_axis_is_its_own_node(tmp_path: Path) -> None:
    graph = model.simplify(model.read(image_net()))

    formats = {name: len(value.shape) == 4 for name, value in graph.values.items()}
    rewritten = channels_last(graph, formats)
    counts = Counter(node.op_type for node in rewritten.nodes)
    assert counts["Transpose"] == 3  # the input's, and those of two outputs
    assert counts[f"{DOMAIN}.Conv_2D"] == 2
    assert {node.op_type for node in rewritten.nodes if node.domain} == {f"{DOMAIN}.Conv_2D", f"{DOMAIN}.Resize_2D"}
    [softmax] = [node for node in rewritten.nodes if node.op_type == "Softmax"]
    assert softmax.attrs["axis"] == 3
    model.write(rewritten, tmp_path / "all.onnx", functions=tuple(functions_of(rewritten)))
    feed = {"x": RNG.standard_normal((2, 16, 9, 7)).astype(np.float32)}
    for one, other in zip(
        bl.load(image_net()).run(None, feed), bl.load(tmp_path / "all.onnx").run(None, feed), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(one).max())


def test_without_functions_all_nodes_are_onnx_s(tmp_path: Path) -> None:
    session = bl.load(nets.mobile(), layout="nhwc")
    bl.export(nets.mobile(), tmp_path / "out.onnx", session.plan, functions=False)
    proto = onnx.load(tmp_path / "out.onnx")
    assert not proto.functions
    assert {each.domain for each in proto.opset_import} == {""}
    assert Counter(node.op_type for node in proto.graph.node)["Transpose"] > 2
    feed = nets.feed_of(session)
    [wanted] = session.run(None, feed)
    np.testing.assert_allclose(as_reference(proto, feed)[0], wanted, atol=1e-4 * np.abs(wanted).max())


def test_weights_lie_as_they_were(tmp_path: Path) -> None:
    b = nets.residual()
    _, proto = exported(b, tmp_path / "out.onnx")
    weights = {each.name: tuple(each.dims) for each in proto.graph.initializer}
    for name, value in model.simplify(model.read(b)).values.items():
        if value.is_constant and len(value.shape) == 4:
            assert weights[name] == value.shape


@pytest.mark.parametrize("ndims", [3, 5])
def test_other_ranks_have_functions_of_their_own(ndims: int, tmp_path: Path) -> None:
    b = bl.Builder()
    spatial = (9, 8, 7)[: ndims - 2]
    kernel = (3,) * (ndims - 2)
    x = b.input("x", (1, 16, *spatial)).conv(nets.he(RNG, 16, 16, *kernel), pads=1).relu().max_pool(2)
    b.output("y", x)
    session, proto = exported(b, tmp_path / "out.onnx")
    feed = nets.feed_of(session)
    [got] = bl.load(tmp_path / "out.onnx").run(None, feed)
    np.testing.assert_allclose(session.run(None, feed)[0], got, atol=1e-4)
    assert {each.name for each in proto.functions} <= {f"Conv_{ndims - 2}D", f"MaxPool_{ndims - 2}D"}


def test_free_extents_are_those_of_the_plan(tmp_path: Path) -> None:
    source = nets.free_model()
    name = source.graph.input[0].name
    ndims = len(source.graph.input[0].type.tensor_type.shape.dim)
    session = bl.load(source, layout="nhwc", shapes={name: (2, 3, 10, 8)[:ndims]})
    bl.export(source, tmp_path / "out.onnx", session.plan)
    assert shapes_of(onnx.load(tmp_path / "out.onnx"))[name] == (2, 3, 10, 8)


def test_saved_plans_do_as_well_and_others_are_refused(tmp_path: Path) -> None:
    b = nets.chain()
    plan = bl.load(b, layout="nhwc").plan
    plan.save(tmp_path / "plan.json")
    bl.export(b, tmp_path / "one.onnx", plan)
    bl.export(b, tmp_path / "two.onnx", tmp_path / "plan.json")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()
    with pytest.raises(bl.PlanError, match="export: the plan is of another model"):
        bl.export(nets.residual(), tmp_path / "out.onnx", plan)
    with pytest.raises(bl.PlanError):
        bl.export(b, tmp_path / "out.onnx", tmp_path / "absent.json")
    with pytest.raises(bl.PlanError, match=r"export: .*float"):
        bl.export(b, tmp_path / "out.onnx", 3.0)  # type: ignore[arg-type]
    assert not (tmp_path / "out.onnx").exists()


def test_runtimes_that_know_the_domain_need_no_function(tmp_path: Path) -> None:
    _, proto = exported(nets.chain(), tmp_path / "out.onnx", pin=dict.fromkeys(("conv0", "conv1", "conv2"), "nhwc"))
    [function] = proto.functions
    assert [node.op_type for node in function.node] == ["Transpose", "Conv", "Transpose"]
    [first, *_] = [node for node in proto.graph.node if node.domain == DOMAIN]
    assert {each.name: helper.get_attribute_value(each) for each in first.attribute} == {"pads": [1, 1, 1, 1]}


def assert_onnxruntime_agrees(source: bl.Builder, path: Path, *, functions: bool) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = bl.load(source, layout="nhwc", tune="model")
    bl.export(source, path, session.plan, functions=functions)
    feed = nets.feed_of(session)
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for one, other in zip(session.run(None, feed), theirs.run(None, feed), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(one).max())


@pytest.mark.parametrize("functions", [True, False])
def test_onnxruntime_computes_operators_on_any_axis(functions: bool, tmp_path: Path) -> None:  # noqa: FBT001
    assert_onnxruntime_agrees(image_net(), tmp_path / "out.onnx", functions=functions)


@pytest.mark.parametrize("functions", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "shufflenet_v2_x0_5",
        *(
            pytest.param(each, marks=pytest.mark.full_size)
            for each in ("squeezenet1_1", "mobilenet_v2", "resnet18", "efficientnet_b0")
        ),
    ],
)
def test_onnxruntime_computes_the_same(name: str, functions: bool, tmp_path: Path) -> None:  # noqa: FBT001
    assert_onnxruntime_agrees(zoo.build(name, size=96), tmp_path / "out.onnx", functions=functions)
