"""Layer normalisation against ONNX's reference, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.ir import Wish
from blocklayout.layout import MemoryDesc
from blocklayout.model import BuildValue
from tests.ops.cases import Input, OpCase, Weights, problem_of
from tests.ops.harness import check_alternatives, check_case

IMAGE = (2, 17, 3, 5)


def layer_norm(shape: tuple[int, ...], *vectors: Input, n_outputs: int = 1, **attrs: Any) -> OpCase:
    return OpCase("LayerNormalization", (shape, *vectors), attrs, n_outputs=n_outputs)


CASES = [
    layer_norm((2, 9, 17), Weights((17,)), Weights((17,))),
    layer_norm((2, 9, 17), Weights((17,))),
    layer_norm(IMAGE, Weights((5,)), Weights((5,)), epsilon=1e-2),
    layer_norm(IMAGE, Weights((3, 5)), Weights((3, 5)), axis=2),
    layer_norm(IMAGE, Weights((17, 3, 5)), Weights((17, 3, 5)), axis=1),
    layer_norm(IMAGE, Weights((17, 1, 1)), Weights((1,)), axis=1),
    layer_norm(IMAGE, Weights(IMAGE), axis=0),
    layer_norm((2, 16, 3, 5), Weights((16, 3, 5)), axis=1),
    layer_norm((4, 10), (10,), (10,)),
    layer_norm(IMAGE, (17, 3, 5), Weights((17, 3, 5)), axis=-3),
    layer_norm((7,), Weights((7,))),
    layer_norm((4, 1), Weights((1,)), Weights((1,))),
    layer_norm((2, 6, 5, 1), Weights((1,)), Weights((1,))),
    layer_norm((2, 3, 2, 3, 2, 4), Weights((2, 4)), axis=4),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case: OpCase) -> None:
    ran = check_case(case)
    assert not any("ref" in impl for impl in ran.values())
    assert "plain" in ran


@pytest.mark.parametrize("case", [CASES[4], CASES[7]], ids=str)
def test_whole_images_are_normalised_in_channels_last(case: OpCase) -> None:
    assert "channels_last" in check_case(case)


def test_whole_images_are_normalised_in_blocks_without_padding() -> None:
    assert "blocked8" in check_case(CASES[7])
    assert "blocked8" not in check_case(CASES[4])


def test_channels_of_a_channels_last_image_are_rows() -> None:
    """What a Transpose makes of an image whose channels are the innermost."""
    lowered = layer_norm((2, 3, 5, 17), Weights((17,))).lowered()
    seen = MemoryDesc(IMAGE, "f32", "nhwc").permuted((0, 2, 3, 1))
    recipe = lowered.operator.lower(problem_of(lowered, (2, 3, 5, 17)), Wish(seen, seen), dnnl.Attr())
    assert recipe is not None
    assert recipe.steps[0].spec.memory_desc("src").dims == (30, 17)


def test_rows_that_are_scattered_are_not_normalised() -> None:
    lowered = layer_norm(IMAGE, Weights((5,))).lowered()
    assert lowered.operator.lower(problem_of(lowered, IMAGE), Wish("nhwc", "nhwc"), dnnl.Attr()) is None


def test_statistics_that_somebody_reads_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="mean"):
        layer_norm((4, 10), Weights((10,)), n_outputs=2).uninferred((4, 10), (4, 1))


def test_statistics_of_another_type_are_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="stash_type"):
        layer_norm((4, 10), Weights((10,)), stash_type=16).uninferred((4, 10))


def test_a_scale_for_each_row_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="other rows"):
        layer_norm((4, 10), Weights((4, 10))).uninferred((4, 10))


@pytest.mark.parametrize("scale", [(1,), (4, 10)])
def test_a_computed_scale_of_other_extents_is_unsupported(scale: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedError, match="run time"):
        layer_norm((4, 10), scale).uninferred((4, 10))


def test_a_scale_that_does_not_broadcast_is_refused() -> None:
    with pytest.raises(ModelError, match="broadcast"):
        layer_norm((4, 10), Weights((3,))).uninferred((4, 10))


def test_it_takes_no_post_ops() -> None:
    lowered = CASES[0].lowered()
    attr = dnnl.Attr((dnnl.Eltwise("relu"),))
    assert lowered.operator.lower(problem_of(lowered, (2, 9, 17)), Wish("plain", "plain"), attr) is None


def of_channels(x: BuildValue, scale: np.ndarray, shift: np.ndarray) -> BuildValue:
    centred = x - x.mean((1,), keepdims=True)
    deviation = ((centred * centred).mean((1,), keepdims=True) + 1e-5).sqrt()
    return centred / deviation * scale.reshape(-1, 1, 1) + shift.reshape(-1, 1, 1)


def test_channels_alone_are_normalised_by_one_step_in_channels_last() -> None:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((24, 24, 3, 3)).astype(np.float32)
    scale, shift = rng.standard_normal((2, 24)).astype(np.float32)
    x = rng.standard_normal((1, 24, 9, 9)).astype(np.float32)
    b = bl.Builder()
    b.output("y", of_channels(b.input("x", x.shape).conv(weights, pads=1), scale, shift).conv(weights))
    session = bl.load(b, layout="nhwc", io_layout={"x": "nhwc", "y": "nhwc"})
    norms = [step for step in session.plan.steps if step.spec.kind not in ("convolution", "reorder")]
    assert [step.spec.kind for step in norms] == ["layer_normalization"]
    normal = bl.conv(x, weights, pads=1).numpy()
    normal = (normal - normal.mean(1, keepdims=True)) / np.sqrt(normal.var(1, keepdims=True) + 1e-5)
    expected = bl.conv(normal * scale.reshape(-1, 1, 1) + shift.reshape(-1, 1, 1), weights).numpy()
    [found] = session.run(None, {"x": np.ascontiguousarray(x.transpose(0, 2, 3, 1))})
    assert np.abs(found.transpose(0, 3, 1, 2) - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("channels", [17, 32])
def test_a_channels_last_tensor_is_normalised_as_it_lies(channels: int) -> None:
    rng = np.random.default_rng(1)
    x = bl.reorder(rng.standard_normal((2, channels, 5, 4)).astype(np.float32), "channels_last")
    scale = rng.standard_normal((channels, 5, 4)).astype(np.float32)
    with bl.watch("raise"):
        found = x.permute(0, 2, 3, 1).layer_norm(scale[:, 0, 0].copy()).permute(0, 3, 1, 2)
    normal = x.numpy() - x.numpy().mean(1, keepdims=True)
    expected = normal / np.sqrt((normal**2).mean(1, keepdims=True) + 1e-5) * scale[:, :1, :1]
    assert found.desc.is_contiguous("channels_last")
    assert np.allclose(found.numpy(), expected, atol=1e-5)
    with bl.watch("record") as seen:
        of_images = bl.layer_norm(x, scale, axis=1)
    assert of_images.memory_format == "channels_last"
    assert [event.reason.split()[0] for event in seen] == ["scale"]
    assert np.allclose(of_images.numpy(), bl.layer_norm(x.numpy(), scale, axis=1).numpy(), atol=1e-5)


@pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_are_normalised_by_our_own_code(case: OpCase, dtype: str) -> None:
    ran = check_alternatives(case, dtype)
    assert {impl.partition(":")[0] for impls in ran.values() for impl in impls} == {"group_normalization"}
    assert "plain" in ran
