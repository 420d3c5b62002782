"""Gradients of pooling, eltwise, batch normalisation and inner product against numpy, in every layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dnnl.enums import ALGORITHMS
from blocklayout.errors import InvalidArgumentsError
from tests.dnnl.primitives.test_elementwise import ELTWISE
from tests.dnnl.running import LAYOUTS, Array, assert_close, desc, execute, random

DIMS = (2, 17, 6, 4)
PLAIN = desc(DIMS, "plain")
HALF = desc((2, 17, 3, 2), "plain")


def backward_specs(layout: str) -> Iterator[dnnl.Spec]:
    """One of each kind and direction."""
    x, y, flat = desc(DIMS, layout), desc(HALF.dims, layout), desc((2, 5), "plain")
    weights = x.resized((5, *DIMS[1:]))
    for algorithm in ALGORITHMS["pooling"]:
        yield dnnl.pooling_backward(x, y, algorithm, 2, 2)
    yield dnnl.eltwise_backward(x, x, x, "tanh")
    yield dnnl.eltwise_backward(x, x, x, "tanh_use_dst_for_bwd")
    for flags in ("", "use_scale", "use_scale|use_shift"):
        yield dnnl.batch_normalization_backward(x, x, x, 1e-3, flags)
    yield dnnl.batch_normalization_backward(x, x, x, 1e-3, prop_kind="backward_data")
    yield dnnl.inner_product_backward_data(x, weights, flat)
    yield dnnl.inner_product_backward_weights(x, weights, flat, dnnl.MemoryDesc((5,)))
    yield dnnl.inner_product_backward_weights(x, weights, flat)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_specs_can_be_saved_walked_and_had_again(layout: str) -> None:
    for spec in backward_specs(layout):
        assert dnnl.validate(dnnl.Spec.from_dict(spec.to_dict())) == spec
        found = [*dnnl.implementations(spec)]
        assert found
        for resolved in found:
            assert resolved.spec.is_resolved
            assert dnnl.resolve(resolved.spec) == resolved
            assert dnnl.validate(dnnl.Spec.from_dict(resolved.spec.to_dict())) == resolved.spec


def arguments_of(spec: dnnl.Spec) -> set[str]:
    return {name for name, _ in dnnl.resolve(spec).spec.descs}


def test_arguments() -> None:
    found = [arguments_of(spec) for spec in backward_specs("plain")]
    assert found[:3] == [{"diff_src", "diff_dst", "workspace"}] + [{"diff_src", "diff_dst"}] * 2
    assert found[3:5] == [{"src", "diff_dst", "diff_src"}, {"dst", "diff_dst", "diff_src"}]
    read = {"src", "mean", "variance", "diff_dst", "diff_src"}
    assert found[5:8] == [read, read | {"scale", "diff_scale"}, read | {"scale", "diff_scale", "diff_shift"}]
    assert found[8] == read
    assert found[9] == {"diff_src", "weights", "diff_dst"}
    assert found[10] == {"src", "diff_weights", "diff_bias", "diff_dst"}
    assert found[11] == {"src", "diff_weights", "diff_dst"}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ["avg_include_padding", "avg_exclude_padding"])
def test_average_pooling_is_adjoint(algorithm: str, layout: str) -> None:
    x, grad = random(*DIMS), random(2, 17, 3, 3, seed=1)
    window = (algorithm, 3, (2, 2), (1, 1, 1, 2))
    y = execute(dnnl.pooling(desc(DIMS, layout), None, *window), {"src": x})["dst"]
    spec = dnnl.pooling_backward(desc(DIMS, layout), desc(grad.shape, layout), *window)
    found = execute(spec, {"diff_dst": grad})["diff_src"]
    assert_close(np.array(np.vdot(found, x)), np.array(np.vdot(grad, y)), 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_max_pooling_reads_the_workspace_of_the_forward(layout: str) -> None:
    x, grad = random(*DIMS), random(*HALF.dims, seed=1)
    forward = dnnl.Primitive(
        dnnl.pooling(desc(DIMS, layout), desc(HALF.dims, layout), "max", 2, 2, prop_kind="forward_training")
    )
    found = forward.compute(src=x)
    backward = dnnl.Primitive(dnnl.pooling_backward(desc(DIMS, layout), desc(HALF.dims, layout), "max", 2, 2))
    diff_src = backward(diff_dst=grad, workspace=found["workspace"])
    assert isinstance(diff_src, np.ndarray)
    y = x.reshape(2, 17, 3, 2, 2, 2).max(axis=(3, 5))
    spread = grad.repeat(2, axis=2).repeat(2, axis=3)
    assert_close(diff_src, np.where(x == y.repeat(2, axis=2).repeat(2, axis=3), spread, 0), 0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS["eltwise"] if name != "eltwise_round"])
def test_eltwise(algorithm: str, layout: str) -> None:
    name = algorithm.removeprefix("eltwise_").removesuffix("_use_dst_for_bwd")
    alpha, beta, function = ELTWISE[name]
    x, grad = random(*DIMS), random(*DIMS, seed=1)
    x = np.abs(x) if name in ("sqrt", "log", "pow") else x
    wide = x.astype(np.float64)
    slope = (function(wide + 1e-6, alpha, beta) - function(wide - 1e-6, alpha, beta)) / 2e-6
    md = desc(DIMS, layout)
    spec = dnnl.eltwise_backward(md, md, md, algorithm, alpha, beta)
    uses_dst = algorithm.endswith("_use_dst_for_bwd")
    data = {"dst": function(wide, alpha, beta).astype(np.float32)} if uses_dst else {"src": x}
    assert_close(execute(spec, {**data, "diff_dst": grad})["diff_src"], grad * slope, 5e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("flags", ["", "use_scale", "use_scale|use_shift", "use_global_stats|use_scale|use_shift"])
def test_batch_normalization(flags: str, layout: str) -> None:
    x, grad, scale = random(*DIMS), random(*DIMS, seed=1), random(17, seed=2)
    axes, md = (0, 2, 3), desc(DIMS, layout)
    mean, variance = x.mean(axis=axes, dtype=np.float64), x.var(axis=axes, dtype=np.float64)
    given: dict[str, Array] = {"src": x, "diff_dst": grad, "mean": mean.astype("f"), "variance": variance.astype("f")}
    if "scale" in flags:
        given["scale"] = scale
    found = execute(dnnl.batch_normalization_backward(md, md, md, 1e-3, flags), given)
    mean, spread = (each.reshape(17, 1, 1) for each in (mean, np.sqrt(variance + 1e-3)))
    standard = (x - mean) / spread
    along = (grad * standard).sum(axis=axes)
    centred = grad - grad.mean(axis=axes, keepdims=True) - standard * along.reshape(17, 1, 1) / (2 * 6 * 4)
    factor = scale.reshape(17, 1, 1) if "scale" in flags else 1
    assert_close(found["diff_src"], factor * (grad if "global" in flags else centred) / spread, 1e-4)
    if "scale" in flags:
        assert_close(found["diff_scale"], along, 1e-4)
    if "shift" in flags:
        assert_close(found["diff_shift"], grad.sum(axis=axes), 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inner_product(layout: str) -> None:
    x, w, grad = random(*DIMS), random(5, *DIMS[1:], seed=1), random(2, 5, seed=2)
    md, weights, flat = desc(DIMS, layout), desc(w.shape, layout), desc((2, 5), "plain")
    spec = dnnl.inner_product_backward_data(md, weights, flat)
    assert dnnl.multiply_adds(spec) == 2 * w.size
    data = execute(spec, {"weights": w, "diff_dst": grad})["diff_src"]
    assert_close(data, np.tensordot(grad.astype(np.float64), w, (1, 0)))
    spec = dnnl.inner_product_backward_weights(md, weights, flat, dnnl.AnyDesc((5,)))
    assert dnnl.multiply_adds(spec) == 2 * w.size
    found = execute(spec, {"src": x, "diff_dst": grad})
    assert_close(found["diff_weights"], np.tensordot(grad.astype(np.float64).T, x, (1, 0)))
    assert_close(found["diff_bias"], grad.sum(axis=0))


def test_what_means_nothing_is_refused() -> None:
    flat, post_op = desc((2, 5), "plain"), dnnl.Attr((dnnl.Eltwise("relu"),))
    cases: dict[str, Callable[[], dnnl.Spec]] = {
        "diff_dst has extents": lambda: dnnl.pooling_backward(PLAIN, PLAIN, "max", 2, 2),
        "diff_src has no layout": lambda: dnnl.pooling_backward(dnnl.AnyDesc(DIMS), HALF, "max", 2, 2),
        "eltwise_round is flat": lambda: dnnl.eltwise_backward(PLAIN, PLAIN, PLAIN, "round"),
        "alpha is -1.0": lambda: dnnl.eltwise_backward(PLAIN, PLAIN, PLAIN, "relu_use_dst_for_bwd", -1.0),
        "alpha is '1'": lambda: dnnl.eltwise_backward(PLAIN, PLAIN, PLAIN, "elu", "1"),  # type: ignore[arg-type]
        "weights has extents": lambda: dnnl.inner_product_backward_data(PLAIN, HALF, flat),
        "diff_weights has extents": lambda: dnnl.inner_product_backward_weights(PLAIN, HALF, flat),
        "prop_kind 'forward'": lambda: dnnl.batch_normalization_backward(PLAIN, PLAIN, prop_kind="forward"),
        "with use_scale or use_shift give backward": lambda: dnnl.batch_normalization_backward(
            PLAIN, PLAIN, flags="use_shift", prop_kind="backward_data"
        ),
        "diff_dst is a str": lambda: dnnl.batch_normalization_backward(PLAIN, "nchw"),  # type: ignore[arg-type]
    }
    for message, make in cases.items():
        with pytest.raises(InvalidArgumentsError, match=message):
            make()
    spec = dnnl.eltwise_backward(PLAIN, PLAIN, PLAIN, "relu").replace(attr=post_op)
    with pytest.raises(InvalidArgumentsError, match="gradients take none"):
        dnnl.validate(spec)
