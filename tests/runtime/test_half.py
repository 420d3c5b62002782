"""Sessions, files and Tensors in f16: computed in where the CPU can, stored in f16 elsewhere."""

from __future__ import annotations

import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.eager import planning
from blocklayout.eager.call import Op
from blocklayout.ir.result_format import Followed
from blocklayout.tensor.tensor_file import open_tensors, write_tensors
from tests import nets

TOLERANCE = 4e-3
"""Largest error, relative to the largest result: some roundings of 2 ** -11 one after the other."""

POLICIES = ("auto", "any", "blocked", "nhwc", "plain", "per-op")
NETWORKS = (nets.chain, nets.residual, nets.mobile)
CONVERTED = "ignore:the model is declared in f16"


def declared_in_half(channels: int = 17, size: int = 9) -> onnx.ModelProto:
    """Two convolutions with all numbers in f16."""
    rng = np.random.default_rng(0)
    weights = {"v": nets.he(rng, channels, 3, 3, 3), "w": nets.he(rng, channels, channels, 3, 3)}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "half",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, (1, 3, size, size))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, (1, channels, size - 2, size - 2))],
        [numpy_helper.from_array(array.astype(np.float16), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feed(size: int = 9) -> np.ndarray:
    return nets.random_input((1, 3, size, size)).astype(np.float16)


def answer(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """By the reference, all in f32."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for info in (*wide.graph.input, *wide.graph.output):
        info.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in wide.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    results: Any = ReferenceEvaluator(wide).run(None, {"x": x.astype(np.float32)})
    return np.asarray(results[0])


def assert_close(actual: np.ndarray, expected: np.ndarray) -> None:
    error = np.abs(actual.astype(np.float32) - expected).max() / np.abs(expected).max()
    assert error <= TOLERANCE


@cache
def in_f32(network: Any) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """A feed, and what a network answers to it."""
    session = bl.load(network(), layout="plain")
    fed = nets.feed_of(session)
    return fed, session.run(None, fed)


def steps_in_half(plan: bl.Plan) -> int:
    return sum(any(operand.desc.dtype == "f16" for operand in step.dsts) for step in plan.steps)


@pytest.mark.needs_f16
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_answers_are_those_in_f32(network: Any, policy: str) -> None:
    half = bl.load(network(), layout=policy, dtype="f16")
    assert half.plan.dtype == "f16"
    fed, exact = in_f32(network)
    for actual, expected in zip(half.run(None, fed), exact, strict=True):
        assert actual.dtype == np.float32
        assert_close(actual, expected)


@pytest.mark.needs_f16
def test_a_policy_computes_in_f16_where_there_is_a_kernel() -> None:
    plan = bl.load(nets.mobile(), layout="nhwc", dtype="f16").plan
    assert steps_in_half(plan) > len(plan.steps) / 2
    assert not plan.reference_steps


@pytest.mark.needs_f16
def test_what_has_no_kernel_in_f16_is_computed_in_f32_and_counted() -> None:
    pinned = bl.load(nets.chain(), layout="nhwc", dtype="f16", pin={"conv1": "nChw16c"}).plan
    assert [step.kernel for step in pinned.wide_steps] == ["conv1"]
    assert {each.kernel for each in pinned.steps if each.is_conversion} >= {"conv1"}
    assert f"1 steps in f32, {len(pinned.conversions)} conversions" in str(pinned)
    assert not pinned.reference_steps


def test_a_plan_in_f32_has_no_steps_that_are_wider() -> None:
    plan = bl.load(nets.chain()).plan
    assert plan.wide_steps == plan.conversions == ()
    assert "conversions" not in str(plan)


@pytest.mark.needs_f16
def test_a_depthwise_convolution_with_a_bias_has_a_kernel_of_its_own() -> None:
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (1, 48, 14, 14))
    b.output("y", x.conv(nets.he(rng, 48, 1, 3, 3), rng.standard_normal(48).astype(np.float32), pads=1, group=48))
    half = bl.load(b, layout="nhwc", dtype="f16", io_layout={"x": "nhwc", "y": "nhwc"})
    assert any(step.spec.impl.startswith("brdgmm_dw") for step in half.plan.steps)
    x_array = nets.random_input((1, 14, 14, 48))
    assert_close(half(x_array), bl.load(b, io_layout={"x": "nhwc", "y": "nhwc"})(x_array))


@pytest.mark.filterwarnings(CONVERTED)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_model_declared_in_f16_agrees_with_the_reference(policy: str) -> None:
    model = declared_in_half()
    dtype = "f32" if dnnl.missing_isa("f16") else "f16"
    session = bl.load(model, dtype=dtype, layout=policy)
    assert session.plan.dtype == dtype
    y = session(feed())
    assert y.dtype == np.float16
    assert_close(y, answer(model, feed()))


def test_a_model_declared_in_f16_is_computed_in_f32_unless_f16_is_asked_for() -> None:
    possible = "needs a CPU" if dnnl.missing_isa("f16") else "computes in it"
    with pytest.warns(UserWarning, match=f"declared in f16 and computed in f32.*dtype='f16' {possible}"):
        session = bl.load(declared_in_half())
    assert session.plan.dtype == "f32"
    assert_close(session(feed()), answer(declared_in_half(), feed()))


@pytest.mark.needs_f16
def test_saved_plans_and_sessions(tmp_path: Path) -> None:
    network = nets.mobile()
    session = bl.load(network, dtype="f16", layout="nhwc")
    fed = nets.feed_of(session)
    expected = session.run(None, fed)
    session.plan.save(tmp_path / "plan.json")
    session.save(tmp_path / "net.session")
    for again in (bl.load(network, plan=tmp_path / "plan.json"), bl.load(tmp_path / "net.session")):
        assert again.plan == session.plan
        for actual, wanted in zip(again.run(None, fed), expected, strict=True):
            np.testing.assert_array_equal(actual, wanted)


@pytest.mark.needs_f16
@pytest.mark.filterwarnings("ignore::blocklayout.LayoutLossWarning")
@pytest.mark.parametrize("memory_format", ["channels_last", "contiguous_format", "nChw16c"])
def test_eager_operators_compute_in_f16(memory_format: str) -> None:
    rng = np.random.default_rng(0)
    image, weights = rng.standard_normal((2, 16, 9, 9)), rng.standard_normal((24, 16, 3, 3)) / 12
    x, w = (bl.as_tensor(each.astype(np.float16)) for each in (image, weights))
    y = bl.conv(x.to(memory_format=memory_format), w, pads=1)
    assert y.dtype == "f16"
    exact = bl.conv(x.astype("f32"), w.astype("f32"), pads=1)
    assert_close(y.numpy(), exact.numpy())
    assert bl.relu(y).dtype == bl.max_pool(y, 2).dtype == "f16"


@pytest.mark.needs_f16
def test_eager_plans_are_in_f16() -> None:
    desc = bl.MemoryDesc((2, 16, 9, 9), "f16", "nhwc")
    op = Op("relu", ("x",), lambda x: x.relu(), lambda descs, *_: Followed(descs[0]), op_type="Relu")
    problem = planning.OperatorCall(op, {}, {"x": desc})
    plan = planning.plan_for(problem).ready.plan
    assert plan.dtype == "f16"
    assert steps_in_half(plan) == len(plan.steps)


def weights_in_half(tmp_path: Path) -> tuple[bl.Session, Path]:
    """A session in f32 of a model with 72 KiB of weights in f16, and its file."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = bl.load(declared_in_half(64), dtype="f32", recipes={"winograd": False})
    session.save(tmp_path / "half.session")
    return session, tmp_path / "half.session"


def test_weights_in_f16_are_stored_so_and_unpacked_once_with_a_notice(tmp_path: Path) -> None:
    session, path = weights_in_half(tmp_path)
    packed = session.memory().packed_nbytes
    assert path.stat().st_size < packed
    with pytest.warns(UserWarning, match="weights stored in f16 were unpacked to f32") as told:
        again = bl.load(path)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert again.memory().packed_nbytes == packed
    np.testing.assert_array_equal(again(feed()), session(feed()))
    again.save(path)
    assert path.stat().st_size < packed


def test_weights_that_f16_cannot_hold_are_mapped_as_they_are(tmp_path: Path) -> None:
    session = bl.load(nets.chain(64), recipes={"winograd": False})
    session.save(tmp_path / "wide.session")
    again = bl.load(tmp_path / "wide.session")
    assert again.memory().mapped_nbytes == session.memory().packed_nbytes


def test_a_session_file_that_names_a_tensor_it_has_not_is_refused(tmp_path: Path) -> None:
    _, path = weights_in_half(tmp_path)
    file = open_tensors(path)
    told = file.text.replace('"tensor":"', '"tensor":"q', 1)
    write_tensors(path, told, {name: np.array(tensor) for name, tensor in file.tensors.items()})
    with pytest.raises(bl.ModelError, match="packed: there is no tensor q"):
        bl.load(path)


CHILD = """
import sys, warnings
import numpy as np
import blocklayout as bl

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    session = bl.load(sys.argv[1])
    y = session(np.load(sys.argv[2]))
[message] = [str(each.message) for each in told]
assert "avx512_core_fp16" in message and "AVX512-FP16" in message, message
assert y.dtype == np.float16 and session.plan.dtype == "f32"
np.save(sys.argv[3], y)
try:
    bl.load(sys.argv[1], dtype="f16")
except bl.UnsupportedError as error:
    print(error)
"""


def test_a_cpu_without_f16_says_once_what_it_lacks(tmp_path: Path, tree_environ: dict[str, str]) -> None:
    files = [tmp_path / name for name in ("half.onnx", "x.npy", "y.npy")]
    onnx.save(declared_in_half(), files[0])
    np.save(files[1], feed())
    environ = tree_environ | {"ONEDNN_MAX_CPU_ISA": "SSE41"}
    command = [sys.executable, "-c", CHILD, *map(str, files)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "dtype='f16' needs a CPU with AVX512-FP16 (avx512_core_fp16); this one runs sse41"
    assert_close(np.load(files[2]), answer(declared_in_half(), feed()))
