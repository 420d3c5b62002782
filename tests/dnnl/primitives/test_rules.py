"""Arguments that cannot be right are refused before any C call, by name and rule."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, isfunction, signature
from typing import Any

import pytest

from blocklayout import dnnl
from blocklayout.errors import BlockLayoutError, InvalidArgumentsError

ANY = dnnl.AnyDesc
PLAIN = dnnl.MemoryDesc


def conv(**changes: Any) -> dnnl.Spec:
    arguments: dict[str, Any] = {"src": ANY((1, 3, 8, 8)), "weights": ANY((16, 3, 3, 3)), "n_threads": 1} | changes
    return dnnl.convolution(**arguments)


CONVOLUTION_MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"weights": ANY((16, 4, 3, 3))}, r"weights \(16, 4, 3, 3\) take 4 channels; src has 3"),
    ({"weights": ANY((16, 3, 3))}, "weights has 3 dimensions; src of 4 makes it 4, or 5 with groups"),
    ({"weights": ANY((16, 3, 12, 9))}, "kernel spans more than the padded src"),
    ({"weights": ANY((16, 3, 9, 9))}, "kernel spans more than the padded src"),
    ({"weights": ANY((16, 3, 0, 3))}, "each extent must be at least 1"),
    ({"src": ANY((1, 3))}, "src has 2 dimensions; convolution takes 3 to 5"),
    ({"src": None}, "src"),
    ({"src": (1, 3, 8, 8)}, "src is a tuple; give a MemoryDesc or an AnyDesc"),
    ({"src": ANY((1, -3, 8, 8))}, "none may be negative"),
    ({"dst": ANY((1, 16, 8, 8))}, r"dst has extents \(1, 16, 8, 8\); .* makes them \(1, 16, 6, 6\)"),
    ({"bias": ANY((8,))}, r"bias has extents \(8,\); one for each channel"),
    ({"bias": ANY((16,), "f16")}, "bias is f16"),
    ({"weights": ANY((16, 3, 3, 3), "bf16")}, "weights is bf16; a source of f32 takes f32"),
    ({"strides": 0}, "strides"),
    ({"strides": (1, 1, 1)}, "strides has 3 entries; 2 spatial dimensions"),
    ({"pads": (1, 1)}, "pads has 2 entries; 2 spatial .* .all begins, then all ends"),
    ({"pads": -1}, "pads"),
    ({"pads": "same"}, "pads"),
    ({"dilations": -1}, "dilations"),
    ({"algorithm": "fft"}, "'fft' does not exist; give one of convolution_direct"),
    ({"prop_kind": "backward"}, "prop_kind 'backward' does not exist here"),
    ({"n_threads": 0}, "n_threads is 0; give 1 to"),
]


@pytest.mark.parametrize(("changes", "message"), CONVOLUTION_MISTAKES)
def test_a_wrong_convolution_names_argument_and_rule(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=message):
        conv(**changes)


SRC = PLAIN((2, 17, 5, 4))
OTHER_MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "any has no favourite": (lambda: dnnl.eltwise(ANY(SRC.dims), None, "relu"), "src has no layout and eltwise has no"),
    "no algorithm": (lambda: dnnl.eltwise(SRC), "algorithm '' does not exist; give one of eltwise_relu"),
    "crossed clip": (lambda: dnnl.eltwise(SRC, None, "clip", 2, 1), "alpha 2.* lower bound"),
    "nan": (lambda: dnnl.eltwise(SRC, None, "linear", float("nan")), "NaN"),
    "soft_relu": (lambda: dnnl.eltwise(SRC, None, "soft_relu"), "alpha may not be 0"),
    "other extents": (lambda: dnnl.eltwise(SRC, PLAIN((2, 17)), "relu"), "dst has extents"),
    "broadcast": (
        lambda: dnnl.binary(SRC, PLAIN((2, 16, 5, 4)), None, "add"),
        "each must be equal, or one of the two 1",
    ),
    "ranks": (lambda: dnnl.binary(SRC, PLAIN((17, 5, 4)), None, "add"), "put extents of 1 in front"),
    "no sources": (lambda: dnnl.sum([]), "one descriptor or more"),
    "scales": (lambda: dnnl.sum([SRC, SRC], None, [1.0]), "scales has 1 entries; there are 2 sources"),
    "sum extents": (lambda: dnnl.sum([SRC, PLAIN((2, 17))]), "src_1 has extents"),
    "concat extents": (lambda: dnnl.concat([SRC, PLAIN((2, 3, 5, 5))], None, 1), "src_1 has extents"),
    "axis": (lambda: dnnl.concat([SRC], None, 4), "axis is 4; 4 dimensions make it -4 to 3"),
    "softmax axis": (lambda: dnnl.softmax(SRC, None, 7), "axis is 7"),
    "kernel": (lambda: dnnl.pooling(SRC, None, "max", 0), "kernel is"),
    "large kernel": (lambda: dnnl.pooling(SRC, None, "max", 8), "spans more than the padded source"),
    "large pads": (lambda: dnnl.pooling(SRC, None, "max", 2, 1, 2), r"pads is .* below the \(2, 2\)"),
    "flags": (lambda: dnnl.batch_normalization(SRC, flags="use_bias"), "flags has 'use_bias'; give names among"),
    "epsilon": (lambda: dnnl.batch_normalization(SRC, epsilon=-1.0), "epsilon is -1"),
    "relu in layers": (lambda: dnnl.layer_normalization(SRC, flags="fuse_norm_relu"), "layer_normalization takes"),
    "stat": (lambda: dnnl.layer_normalization(SRC, stat=PLAIN((2, 17))), "mean has extents"),
    "local size": (lambda: dnnl.lrn(SRC, local_size=0), "local_size is 0"),
    "slopes": (lambda: dnnl.prelu(SRC, ANY((1, 16, 1, 1))), "weights has extents"),
    "nothing reduced": (lambda: dnnl.reduction(SRC, SRC, "sum"), "at least one must be 1"),
    "no axes": (lambda: dnnl.reduction(SRC, None, "sum"), "give one of them"),
    "norm": (lambda: dnnl.reduction(SRC, None, "norm_lp_sum", 0.5, axes=(1,)), "p is 0.5; a norm takes at least 1"),
    "factors": (lambda: dnnl.resampling(SRC, PLAIN((2, 17, 9, 9)), "linear", 2), "does not round down"),
    "no factors": (lambda: dnnl.resampling(SRC), "give one of them"),
    "group size": (lambda: dnnl.shuffle(SRC, None, 1, 4), "must divide the axis' extent 17"),
    "columns": (lambda: dnnl.matmul(ANY((2, 3)), ANY((4, 5))), "weights has 4 rows; the source has 3 columns"),
    "batches": (lambda: dnnl.matmul(ANY((2, 3, 4)), ANY((3, 4, 5))), "each must be equal"),
    "bias": (lambda: dnnl.matmul(ANY((2, 3)), ANY((3, 5)), None, ANY((5,))), "bias has extents"),
    "features": (lambda: dnnl.inner_product(ANY((2, 3, 4)), ANY((5, 3, 5))), "weights has extents"),
    "reorder": (lambda: dnnl.reorder(SRC, PLAIN((2, 17))), "dst has extents"),
    "reorder to any": (lambda: dnnl.reorder(SRC, ANY(SRC.dims)), "dst has no layout"),
    "deconvolution": (
        lambda: dnnl.deconvolution(ANY((1, 4, 4, 4)), ANY((2, 4, 3, 3)), ANY((1, 2, 9, 9)), strides=3),
        r"makes them \(1, 2, 12, 12\)",
    ),
    "scale": (lambda: dnnl.Sum(float("inf")), "finite"),
    "mask": (lambda: dnnl.Prelu(-1), "negative"),
    "fpmath": (lambda: dnnl.Attr(fpmath="fast"), "fpmath 'fast' does not exist"),
    "no post-op": (lambda: dnnl.Attr(("relu",)), r"post_ops\[0\] is 'relu'"),  # type: ignore[arg-type]
    "twice": (lambda: dnnl.Attr(scales=(("src", 0), ("src", 1))), "twice"),
    "depthwise": (lambda: dnnl.DepthwiseConv(kernel=0), "at least 1"),
}


@pytest.mark.parametrize("name", OTHER_MISTAKES)
def test_a_wrong_primitive_names_argument_and_rule(name: str) -> None:
    make, message = OTHER_MISTAKES[name]
    with pytest.raises(BlockLayoutError, match=message):
        make()


REPEATED = PLAIN((4, 16), strides=(16, 0))


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("src", lambda: dnnl.inner_product(REPEATED, PLAIN((8, 16)), n_threads=1)),
        ("src", lambda: dnnl.layer_normalization(REPEATED.with_dtype("bf16"), n_threads=1)),
        ("src_0", lambda: dnnl.sum([REPEATED.with_dtype("s32")] * 2, scales=[1.0, 1.0], n_threads=1)),
        ("dst", lambda: dnnl.reorder(PLAIN((4, 16)), REPEATED, n_threads=1)),
    ],
    ids=["inner product", "layer normalisation", "sum", "reorder"],
)
def test_strides_of_0_do_not_reach_the_library(name: str, spec: Callable[[], dnnl.Spec]) -> None:
    """Some implementations divide by them, some read beyond, and the process ends."""
    with pytest.raises(InvalidArgumentsError, match=f"{name} is .*, which repeats elements"):
        [*dnnl.implementations(spec())]


def test_a_reorder_reads_strides_of_0() -> None:
    assert [*dnnl.implementations(dnnl.reorder(REPEATED, PLAIN((4, 16)), n_threads=1))]


@pytest.mark.parametrize(
    "spec",
    [
        lambda: dnnl.inner_product(ANY((1, 16)), ANY((2**32, 16)), n_threads=1),
        lambda: dnnl.convolution(ANY((1, 1, 1, 1)), ANY((2**31, 1, 1, 1)), n_threads=1),
        lambda: dnnl.deconvolution(ANY((1, 2**32, 1, 1)), ANY((1, 2**32, 1, 1)), n_threads=1),
        lambda: dnnl.matmul(PLAIN((2**32, 16)), PLAIN((16, 16)), n_threads=1),
    ],
    ids=["inner product", "convolution", "deconvolution", "matmul"],
)
def test_extents_that_the_library_counts_in_32_bits(spec: Callable[[], dnnl.Spec]) -> None:
    """It would divide by what is left of them, and the process end."""
    with pytest.raises(InvalidArgumentsError, match="takes up to 1073741824 of each"):
        [*dnnl.implementations(spec())]


@pytest.mark.parametrize(
    ("constructor", "descs", "keyword"),
    [
        (dnnl.softmax, [PLAIN((2, 3))], "threads"),
        (dnnl.binary, [PLAIN((2, 3)), PLAIN((2, 3))], "prop_kind"),
        (dnnl.convolution_backward_data, [ANY((1, 3, 8, 8)), ANY((16, 3, 3, 3)), ANY((1, 16, 6, 6))], "prop_kind"),
        (dnnl.rnn, [ANY((1,) * n) for n in (3, 5, 5, 4)], "src_itr"),
    ],
)
def test_a_keyword_that_it_does_not_have_is_a_type_error_of_the_constructor(
    constructor: Callable[..., dnnl.Spec], descs: list[dnnl.Desc], keyword: str
) -> None:
    with pytest.raises(TypeError, match=rf"{constructor.__name__}\(\) got an unexpected keyword argument '{keyword}'"):
        constructor(*descs, **{keyword: "forward_training"})


@pytest.mark.parametrize("name", [name for name in dnnl.__all__ if isfunction(getattr(dnnl, name))])
def test_a_functions_signature_names_every_argument(name: str) -> None:
    kinds = {each.kind for each in signature(getattr(dnnl, name)).parameters.values()}
    assert not kinds & {Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL}
