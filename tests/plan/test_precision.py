"""Kernels in a data type of their own: results, conversions, fusion, and what is refused."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl, model, zoo
from blocklayout.ir import Demands, Names, Wish
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.rewrite import Draft
from blocklayout.plan import POLICIES
from blocklayout.plan.candidates.propose import Proposer
from blocklayout.plan.candidates.recipes import TileRecipes
from blocklayout.plan.candidates.tiles import fuse
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.costs.model import CostModel
from blocklayout.plan.network import propose_all
from blocklayout.zoo import digits
from tests import nets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

needs_bf16 = pytest.mark.skipif(not dnnl.has_bf16(), reason="this CPU computes nothing in bf16")

Precision = dict[str, str]


@cache
def graph_of(network: str) -> Graph:
    source: Any = digits.model_bytes() if network == "digits" else zoo.build(network, size=40).to_graph()
    shapes = {"image": (4, 1, 8, 8)} if network == "digits" else None
    return model.legalize(model.simplify(model.read(source, shapes)))


def feed_of(network: str) -> dict[str, np.ndarray]:
    if network == "digits":
        return {"image": digits.held_out()[0][:4]}
    return {"x": nets.random_input((1, 3, 40, 40))}


def dtypes_of(plan: bl.Plan) -> dict[str, set[str]]:
    """The data types of the activations that each kernel's own steps read and write."""
    found: dict[str, set[str]] = {}
    for step in plan.steps:
        if not step.is_reorder:
            sides = {operand.desc.dtype for arg, operand in step.operands if arg == "dst" or arg.startswith("src")}
            found.setdefault(step.kernel, set()).update(sides)
    return found


def rounded(draft: Draft, node: Node) -> None:
    """Compute a node in f32 of operands in bf16, and round its result: vectors such as biases stay f32."""
    nodes = []

    def cast(name: str, to: str) -> str:
        narrow, wide = draft.fresh_name(f"{name}.{node.name}.bf16"), to or draft.fresh_name(f"{name}.{node.name}.f32")
        draft.values[narrow] = bl.ir.Value(narrow, draft.values[name].shape, "bf16")
        draft.values[wide] = bl.ir.Value(wide, draft.values[name].shape, "f32")
        nodes.extend(
            [Node(narrow, "Cast", (name,), (narrow,), {"to": 16}), Node(wide, "Cast", (narrow,), (wide,), {"to": 1})]
        )
        return wide

    wide = [name and draft.values[name].dtype == "f32" and len(draft.values[name].shape) > 1 for name in node.inputs]
    inputs = tuple(cast(name, "") if is_wide else name for name, is_wide in zip(node.inputs, wide, strict=True))
    exact = draft.fresh_name(f"{node.name}.exact")
    draft.values[exact] = bl.ir.Value(exact, draft.values[node.outputs[0]].shape, "f32")
    nodes.append(node.replace(inputs=inputs, outputs=(exact, *node.outputs[1:])))
    cast(exact, node.outputs[0])
    draft.replace(node, *nodes)


@cache
def expected(network: str, kernels: frozenset[str]) -> np.ndarray:
    """The result by ``onnx.reference``, with some nodes in bf16."""
    graph = graph_of(network)
    draft = Draft(graph)
    for node in graph.nodes:
        if node.name in kernels:
            rounded(draft, node)
    results: Any = ReferenceEvaluator(model.to_model(draft.result())).run(None, feed_of(network))
    return np.asarray(results[0], np.float32)


def error(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max() / np.abs(other).max())


def in_bf16(network: str, precision: Precision, dtype: str) -> frozenset[str]:
    program = model.lower(graph_of(network))
    wanted = {
        each.name: each.wanted for each in Demands(precision=precision).settled(Demands(), Names.of(program)).precision
    }
    computing = [kernel.name for kernel in program.kernels if kernel.info.role not in ("view", "plain")]
    return frozenset(name for name in computing if wanted.get(name, dtype) == "bf16")


NETWORKS = {"squeezenet1_1": "fire6.*", "digits": "*conv*"}
PLANNED = [("squeezenet1_1", "auto"), *(("digits", policy) for policy in POLICIES)]


@needs_bf16
@pytest.mark.parametrize(("network", "policy"), PLANNED)
def test_a_part_of_a_network_computes_in_bf16(network: str, policy: str) -> None:
    precision = {NETWORKS[network]: "bf16"}
    kernels = in_bf16(network, precision, "f32")
    # What is expected rounds what a direct convolution reads, and no more.
    session = bl.load(graph_of(network), layout=policy, precision=precision, recipes={"winograd": False})
    result = session.run(None, feed_of(network))[0]
    exact, mixed = expected(network, frozenset()), expected(network, kernels)
    assert error(mixed, exact) > 1e-4
    # Sums in another order, here or in the reference, may be rounded to the neighbour in bf16.
    assert error(result, mixed) < error(mixed, exact) / 5
    computing = dtypes_of(session.plan)
    assert {kernel for kernel, dtypes in computing.items() if "bf16" in dtypes} == kernels & computing.keys()


@needs_bf16
@pytest.mark.parametrize(("network", "policy"), PLANNED)
def test_a_part_of_a_network_in_bf16_computes_in_f32(network: str, policy: str) -> None:
    precision = {NETWORKS[network]: "f32"}
    session = bl.load(graph_of(network), dtype="bf16", layout=policy, precision=precision)
    result = session.run(None, feed_of(network))[0]
    mixed = expected(network, in_bf16(network, precision, "bf16"))
    assert error(result, mixed) < 2e-2
    computing = dtypes_of(session.plan)
    wide = in_bf16(network, {}, "bf16") - in_bf16(network, precision, "bf16")
    assert {dtype for kernel in wide & computing.keys() for dtype in computing[kernel]} == {"f32"}
    if policy not in ("auto", "per-op"):
        assert any("bf16" in dtypes for dtypes in computing.values())


@needs_bf16
@pytest.mark.parametrize("network", NETWORKS)
def test_all_of_a_network_may_be_kept_in_f32(network: str) -> None:
    session = bl.load(graph_of(network), dtype="bf16", precision={"*": "f32"})
    result = session.run(None, feed_of(network))[0]
    assert error(result, expected(network, frozenset())) < 1e-5
    assert {dtype for dtypes in dtypes_of(session.plan).values() for dtype in dtypes} == {"f32"}


@needs_bf16
def test_conversions_are_reorders_with_price_and_reason() -> None:
    plan = bl.load(nets.chain(24), precision={"conv1": "bf16", "relu_3": "bf16"}, layout="nhwc").plan
    told = [reorder.reason for reorder in plan.reorders]
    assert "conv0 wrote nhwc, conv1 reads nhwc in bf16" in told
    assert "conv1 wrote nhwc in bf16, conv2 reads nhwc" in told
    assert all(reorder.cost_ns > 0 for reorder in plan.reorders)
    assert "f32, conv1 in bf16, relu_3 in bf16, " in str(plan)
    assert "nhwc:bf16" in str(plan)


@needs_bf16
@pytest.mark.parametrize(
    ("precision", "is_fused"), [({"conv1": "bf16"}, False), ({"conv1": "bf16", "Relu": "bf16"}, True)]
)
def test_post_ops_fuse_where_they_are_of_one_precision(precision: Precision, *, is_fused: bool) -> None:
    plan = bl.load(nets.chain(24), precision=precision).plan
    [choice] = [choice for choice in plan.choices if choice.kernel == "conv1"]
    assert ("relu_3" in choice.nodes) == is_fused


@needs_bf16
@pytest.mark.parametrize("network", [nets.residual, nets.mobile])
def test_saved_plans_and_sessions_keep_it(network: Any, tmp_path: Path) -> None:
    first = bl.load(network(), precision={"Conv": "bf16"})
    feed = nets.feed_of(first)
    [result] = first.run(None, feed)
    first.plan.save(tmp_path / "plan.json")
    first.save(tmp_path / "net.session")
    for options in (
        {},
        {"precision": {"Conv": "bf16"}},
        {"precision": lambda k: "bf16" if k.op_type == "Conv" else None},
    ):
        planned = bl.load(network(), plan=tmp_path / "plan.json", precision=options.get("precision"))
        saved = bl.load(tmp_path / "net.session", precision=options.get("precision"))
        for again in (planned, saved):
            assert again.plan == first.plan
            np.testing.assert_array_equal(again.run(None, feed)[0], result)
    said = r"the plan was made with precision Conv=bf16, and precision Relu=bf16 \(.*\) is asked for"
    for source, plan in ((network(), tmp_path / "plan.json"), (tmp_path / "net.session", None)):
        if network is nets.residual:
            with pytest.raises(bl.PlanError, match=said):
                bl.load(source, plan=plan, precision={"Relu": "bf16"})
        with pytest.raises(bl.PlanError, match=r"made with precision Conv=bf16, and precision \*=f32 "):
            bl.load(source, plan=plan, precision={"*": "f32"})


@needs_bf16
def test_plans_of_other_precisions_are_not_mistaken_for_each_other(tmp_path: Path) -> None:
    bl.save(nets.chain(24), tmp_path / "chain.onnx")
    for source in (nets.chain(24), tmp_path / "chain.onnx"):
        for precision in ({"conv1": "bf16"}, None, {"conv2": "bf16"}, {"conv1": "bf16"}):
            narrow = {
                kernel
                for kernel, dtypes in dtypes_of(bl.load(source, precision=precision).plan).items()
                if "bf16" in dtypes
            }
            assert narrow == {*(precision or ())}


@needs_bf16
def test_a_function_is_asked_anew_though_the_file_is_known(tmp_path: Path) -> None:
    bl.save(nets.chain(24), tmp_path / "chain.onnx")
    for name in ("conv0", "conv1", "conv0"):
        plan = bl.load(tmp_path / "chain.onnx", precision=lambda k, name=name: "bf16" if k.name == name else None).plan
        assert [each.name for each in plan.precision] == [name]


@needs_bf16
def test_an_edited_precision_is_refused() -> None:
    plan = bl.load(nets.chain(24), precision={"conv1": "bf16"}).plan
    for edited in (
        plan.to_json().replace('"wanted":"bf16"', '"wanted":"f32"'),
        plan.to_json().replace('"name":"conv1","wanted"', '"name":"conv2","wanted"'),
    ):
        assert edited != plan.to_json()
        with pytest.raises(bl.PlanError):
            bl.load(nets.chain(24), plan=bl.Plan.from_json(edited))


def test_types_that_activations_do_not_have_are_refused_where_they_are_given() -> None:
    for source, shapes in ((nets.chain(), None), (nets.free_model(), None)):
        with pytest.raises(bl.PlanError, match=r"precision Conv=fp33: activations are computed in one of f32, bf16"):
            bl.load(source, shapes=shapes, precision={"Conv": "fp33"})


@pytest.mark.skipif(dnnl.has_bf16(), reason="this CPU computes in bf16")
def test_bf16_where_the_cpu_has_none_is_refused() -> None:
    with pytest.raises(bl.UnsupportedError, match=r"precision Conv=bf16 .*needs a CPU with AVX-512"):
        bl.load(nets.chain(), precision={"Conv": "bf16"})


def test_a_view_has_no_precision_but_a_pattern_passes_over_it() -> None:
    with pytest.raises(bl.PlanError, match="precision flatten_15=f32: flatten_15 is a view, which computes nothing"):
        bl.load(nets.residual(), precision={"flatten_15": "f32"})
    plan = bl.load(nets.residual(), precision={"*": "f32"}).plan
    assert "flatten_15" not in {each.name for each in plan.precision}


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_what_the_reference_computes_has_no_precision() -> None:
    b = bl.Builder()
    x = b.input("x", (1, 4, 8, 8)).relu()
    b.output("y", b.op("Det", x, name="det"))
    with pytest.raises(bl.PlanError, match=r"precision det=f32: det is computed by no primitive"):
        bl.load(b, precision={"det": "f32"})


@needs_bf16
def test_all_kernels_of_a_node_have_its_precision() -> None:
    b = bl.Builder()
    x = b.input("x", (1, 4, 8, 8))
    b.output("y", b.op("Celu", x.relu(), alpha=0.5, name="celu").relu())
    plan = bl.load(b, precision={"celu": "bf16"}).plan
    assert len(plan.precision) > 1
    assert {each.name for each in plan.precision} == {
        k.name for c in plan.choices for k in c.kernels if "celu" in k.nodes
    }


@needs_bf16
@pytest.mark.parametrize(
    ("around", "algorithms"),
    [
        ("Relu", {"convolution_direct"}),
        ("Pad", {"convolution_direct"}),
        ("BatchNormalization", {"convolution_direct", "convolution_winograd", "convolution_winograd_domain"}),
        ("Add", {"convolution_direct", "convolution_winograd", "convolution_winograd_domain"}),
        ("Add of a row, a step apart", {"convolution_direct"}),
    ],
)
def test_what_rounds_more_is_on_offer_where_several_operators_would(around: str, algorithms: set[str]) -> None:
    b = bl.Builder()
    x = b.input("x", (1, 64, 14, 14))
    weights, ones = nets.random_input((64, 64, 3, 3)), np.ones(64, np.float32)
    y = x.conv(weights, pads=1)
    results: dict[str, Callable[[], bl.model.BuildValue]] = {
        "Relu": y.relu,
        "Pad": lambda: b.op("Pad", x, np.array([0, 0, 1, 1, 0, 0, 1, 1])).conv(weights),
        "BatchNormalization": lambda: y.batch_norm(ones, ones, ones, ones),
        "Add": lambda: y + x,
        "Add of a row, a step apart": lambda: y + b.input("row", (1, 1, 1, 14)),
    }
    b.output("y", results[around]())
    program = model.lower(model.legalize(model.simplify(b.to_graph())))
    [tile] = fuse(program, "bf16", 2)
    candidates = TileRecipes(tile, "bf16", 2).wished(Wish("channels_last", "channels_last"))
    specs = [step.spec for candidate in candidates for step in candidate.steps]
    found = {spec.algorithm for spec in specs if isinstance(spec, dnnl.Spec) and spec.kind == "convolution"}
    has_code = dnnl.has_native_executor() and dnnl.has_isa("avx512_core_bf16") and not dnnl.has_isa("avx512_core_amx")
    assert found == (algorithms if has_code else {"convolution_direct"})
    plan = bl.load(b, dtype="bf16", layout="nhwc", tune="model").plan
    assert bl.Plan.from_json(plan.to_json()) == plan


@needs_bf16
@pytest.mark.parametrize(
    ("is_residual", "rougher"), [(False, [True, True, False, True, True, False]), (True, [True] * 6)]
)
def test_no_more_than_two_in_a_row_round_more_unless_there_are_sums(*, is_residual: bool, rougher: list[bool]) -> None:
    b = bl.Builder()
    x, ones = b.input("x", (1, 64, 28, 28)), np.ones(64, np.float32)
    for index in range(6):
        y = x.conv(nets.random_input((64, 64, 3, 3)), pads=1).batch_norm(ones, ones, ones, ones)
        x = (y + x if is_residual else y).relu()
        x = x.max_pool(2) if index == 0 else x
    b.output("y", x)
    program = model.lower(model.legalize(model.simplify(b.to_graph())))
    costs = CostModel(Machine(dnnl.isa(), 2))
    network = propose_all(program, fuse(program, "bf16", 2), Proposer(costs, "bf16"))
    found = [
        any(isinstance(step.spec, dnnl.Spec) and dnnl.is_rougher(step.spec) for each in offered for step in each.steps)
        for tile, offered in zip(network.tiles, network.candidates, strict=True)
        if tile.main.info.op_type == "Conv"
    ]
    has_code = dnnl.has_native_executor() and dnnl.has_isa("avx512_core_bf16")
    assert found == (rougher if has_code else [False] * 6)


@needs_bf16
@pytest.mark.parametrize("network", ["resnet18", "googlenet"])
def test_products_of_bf16_in_winograds_method_add_little_to_a_networks_error(network: str) -> None:
    source = zoo.build(network, size=64).to_graph()
    feed = {"x": nets.random_input((1, 3, 64, 64))}
    exact = bl.load(source).run(None, feed)[0]
    with_it, without = (bl.load(source, dtype="bf16", recipes=recipes) for recipes in (None, {"winograd": False}))
    errors = [np.linalg.norm(each.run(None, feed)[0] - exact) / np.linalg.norm(exact) for each in (with_it, without)]
    assert errors[0] < 1.5 * errors[1]


@pytest.mark.skipif(dnnl.missing_isa("f16") is None, reason="this CPU computes in f16")
@pytest.mark.filterwarnings("ignore:the model is declared in f16")
@pytest.mark.parametrize("layout", POLICIES)
def test_halves_are_converted_where_they_lie(layout: str) -> None:
    """What changes its type changes no order with it: the library is slow there."""
    rng, dims = np.random.default_rng(0), (1, 16, 9, 9)
    weights = numpy_helper.from_array(rng.standard_normal((16, 16, 3, 3)).astype(np.float16), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, dims) for name in "xy"]
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [weights])
    session = bl.load(helper.make_model(graph, ir_version=8), layout=layout, threads=1)
    x = rng.standard_normal(dims).astype(np.float16)
    wanted: Any = ReferenceEvaluator(helper.make_model(graph, ir_version=8)).run(None, {"x": x})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted[0], rtol=0.02, atol=0.1)
    moves = [(entry.source, entry.desc) for entry in session.plan.entries]
    specs = [step.spec for step in session.plan.steps if step.is_reorder]
    moves += [(spec.memory_desc("src"), spec.memory_desc("dst")) for spec in specs]
    assert all(src.dtype == dst.dtype or src.with_dtype(dst.dtype) == dst for src, dst in moves)
