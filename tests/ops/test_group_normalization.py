"""Group normalisation against ONNX's reference, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.ir import Wish
from blocklayout.plan import Machine
from tests.ops.cases import OpCase, Weights, problem_of
from tests.ops.harness import check_alternatives, check_case

IMAGE = (2, 32, 3, 5)
needs_compiler = pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")


def group_norm(shape: tuple[int, ...], n_groups: int, opset: int = 21, **attrs: Any) -> OpCase:
    vector = Weights((shape[1] if opset >= 21 else n_groups,))
    return OpCase("GroupNormalization", (shape, vector, vector), {"num_groups": n_groups, **attrs}, opset=opset)


CASES = [
    group_norm(IMAGE, 4),
    group_norm(IMAGE, 4, opset=18),
    group_norm(IMAGE, 16, epsilon=1e-2),
    group_norm(IMAGE, 1),
    group_norm(IMAGE, 1, opset=18),
    group_norm(IMAGE, 32),
    group_norm(IMAGE, 32, opset=18),
    group_norm((2, 6, 3, 5), 3),
    group_norm((1, 6, 9), 2),
    group_norm((2, 16, 2, 3, 4), 2),
    group_norm((3, 4, 1, 1), 2, opset=18),
    group_norm((2, 17, 3, 5), 1),
    group_norm((2, 4, 2, 3, 2, 2), 2),
    group_norm((4, 6), 3),
]

SHARED = OpCase(
    "GroupNormalization", (IMAGE, np.full(32, 2, np.float32), np.ones(32, np.float32)), {"num_groups": 4}, 21
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    ran = check_case(case)
    assert "plain" in ran
    if dnnl.isa() not in ("sse41", "avx"):
        assert not any("ref" in impl for impl in ran.values())


@pytest.mark.skipif(not dnnl.has_isa("avx2"), reason="without AVX2 nothing but a reference scales blocks by channel")
@pytest.mark.parametrize("case", [group_norm(IMAGE, 2), group_norm(IMAGE, 2, opset=18), group_norm(IMAGE, 1)], ids=str)
def test_blocks_within_a_group_stay(case: OpCase) -> None:
    widest = Machine(dnnl.isa(), 1).block_names[0]
    assert widest in check_case(case)


def test_blocks_narrower_than_a_register_stay_where_a_group_has_one_scale() -> None:
    assert "blocked8" in check_case(group_norm(IMAGE, 4, opset=18))


def test_groups_within_a_block_are_scattered() -> None:
    lowered = group_norm(IMAGE, 16).lowered()
    problem = problem_of(lowered, IMAGE)
    assert lowered.operator.lower(problem, Wish("blocked8", "blocked8"), dnnl.Attr()) is None
    assert lowered.operator.lower(problem, Wish("nhwc", "nhwc"), dnnl.Attr()) is None


def test_one_group_is_normalised_in_channels_last() -> None:
    assert "channels_last" in check_case(group_norm((2, 17, 3, 5), 1))


def test_groups_of_one_channel_are_instances() -> None:
    assert type(group_norm(IMAGE, 32).lowered().operator).__name__ == "InstanceNormalization"


def test_channels_that_share_their_scale_are_scaled_in_groups() -> None:
    assert SHARED.lowered().operator == group_norm(IMAGE, 4, opset=18).lowered().operator
    check_case(SHARED)


@pytest.mark.parametrize("case", [CASES[0], SHARED], ids=str)
def test_functions_of_the_result_go_with_it(case: OpCase) -> None:
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    model.graph.node.append(onnx.helper.make_node("LeakyRelu", ["out_0"], ["y"]))
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, IMAGE))
    session = bl.load(model)
    [y] = session.run(None, case.feeds)
    np.testing.assert_allclose(y, np.where(case.expected > 0, case.expected, 0.01 * case.expected), atol=1e-5)
    kinds = [step.spec.kind for step in session.plan.steps]
    assert kinds in (["layer_normalization", "binary"], ["group_normalization"])


def test_groups_that_do_not_divide_the_channels_are_refused() -> None:
    with pytest.raises(ModelError, match="divide 32"):
        group_norm(IMAGE, 5).uninferred(IMAGE)


def test_another_number_of_scales_is_refused() -> None:
    vector = Weights((4,))
    with pytest.raises(ModelError, match=r"\[32\]"):
        OpCase("GroupNormalization", (IMAGE, vector, vector), {"num_groups": 4}, opset=21).uninferred(IMAGE)


def test_statistics_of_another_type_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="stash_type"):
        group_norm(IMAGE, 4, stash_type=10).uninferred(IMAGE)


def test_scales_computed_at_run_time_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="scale"):
        OpCase("GroupNormalization", (IMAGE, (32,), (32,)), {"num_groups": 4}, opset=21).uninferred(IMAGE)


def test_padding_of_pixels_does_not_count() -> None:
    assert set(check_case(group_norm((2, 16, 6, 5), 4), layouts=("plain", "abCd4c"))) == {"plain"}


@needs_compiler
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("case", [each for each in CASES if each.attrs["num_groups"] != 32], ids=str)
def test_our_own_code_normalises_any_groups_in_every_layout(case: OpCase, dtype: str) -> None:
    ran = check_alternatives(case, dtype)
    assert {impl.partition(":")[0] for impls in ran.values() for impl in impls} == {"group_normalization"}
    assert {"plain", "channels_last", "blocked8", "blocked16"} <= set(ran)


@needs_compiler
def test_scales_behind_one_group_are_one_step_with_it() -> None:
    """What exporters write for a normalisation of whole sounds before opset 21."""
    rng = np.random.default_rng(0)
    x = rng.normal(5, 2, (1, 24, 5000)).astype(np.float32)
    scale, shift = rng.standard_normal((2, 24, 1)).astype(np.float32)
    b = bl.Builder()
    normal = b.input("x", x.shape).reshape((1, 1, -1)).instance_norm(np.ones(1, "f4"), np.zeros(1, "f4"), 1e-8)
    b.output("y", normal.reshape(x.shape) * scale + shift)
    session = bl.load(b, tune="model", threads=2)
    expected = (x - x.mean(dtype=np.float64)) / x.std(dtype=np.float64) * scale + shift
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, atol=1e-5)
    assert [step.spec.kind for step in session.plan.steps if step.spec.kind != "reorder"] == ["group_normalization"]


def test_a_group_that_our_own_code_would_take_is_computed_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blocklayout.dnnl.own.native", lambda: None)
    case = group_norm((1, 12, 77), 3)
    assert check_alternatives(case) == {}
    assert "plain" in check_case(case)
