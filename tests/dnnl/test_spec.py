"""Specs: data that is checked, compared, hashed, pickled and written."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl.enums import ALGORITHMS
from blocklayout.dnnl.primitives import kind_of
from blocklayout.errors import BlockLayoutError, InvalidArgumentsError
from tests.dnnl.running import LAYOUTS, desc

ANY = dnnl.AnyDesc
PLAIN = dnnl.MemoryDesc

floats = st.floats(-1e3, 1e3, width=32)
extents = st.integers(1, 40)
layouts = st.sampled_from(LAYOUTS)
dims_4d = st.tuples(extents, extents, extents, extents)


@st.composite
def post_ops(draw: st.DrawFn, dst: tuple[int, ...]) -> dnnl.PostOp:
    algorithm = draw(st.sampled_from(ALGORITHMS["eltwise"]).filter(lambda name: "clip" not in name))
    alpha = draw(floats.filter(bool))
    src1 = draw(st.sampled_from([ANY(dst), PLAIN((1, dst[1], 1, 1)), desc(dst, "blocked8"), None]))
    made: list[dnnl.PostOp] = [
        dnnl.Sum(draw(floats)),
        dnnl.Eltwise(algorithm, alpha, draw(floats)),
        dnnl.Eltwise("clip", 0, float("inf")),
        dnnl.Binary(draw(st.sampled_from(ALGORITHMS["binary"])), src1),
        dnnl.Prelu(draw(st.integers(0, 15))),
    ]
    return draw(st.sampled_from(made))


@st.composite
def attrs(draw: st.DrawFn, dst: tuple[int, ...]) -> dnnl.Attr:
    scales = draw(st.sampled_from([(), (("src", 0),), (("dst", 2),)]))
    return dnnl.Attr(
        tuple(draw(st.lists(post_ops(dst), max_size=3))), scales, (), draw(st.sampled_from(["strict", "any"]))
    )


@st.composite
def convolutions(draw: st.DrawFn) -> dnnl.Spec:
    n, ic, oc, extent, kernel = (draw(extents) for _ in range(5))
    stride, dilation = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    pad = (kernel - 1) * (dilation + 1)
    dst = (n, oc, (extent - 1) // stride + 1, (extent - 1) // stride + 1)
    layout = draw(st.sampled_from([*LAYOUTS, "any"]))
    make = ANY if layout == "any" else (lambda dims: desc(dims, layout))
    return dnnl.convolution(
        make((n, ic, extent, extent)),
        ANY((oc, ic, kernel, kernel)),
        make(dst),
        draw(st.sampled_from([None, ANY((oc,))])),
        strides=stride,
        pads=(0, 0, pad, pad),
        dilations=dilation,
        prop_kind=draw(st.sampled_from(["forward_inference", "forward_training"])),
        attr=draw(attrs(dst)),
        n_threads=draw(st.integers(1, 4)),
    )


@st.composite
def followers(draw: st.DrawFn) -> dnnl.Spec:
    dims = draw(dims_4d)
    src = desc(dims, draw(layouts))
    return draw(
        st.sampled_from(
            [
                dnnl.eltwise(src, None, "linear", draw(floats), draw(floats), n_threads=1),
                dnnl.eltwise(src, None, "clip", 0, float("inf"), n_threads=1),
                dnnl.binary(src, PLAIN((1, dims[1], 1, 1)), None, "mul", n_threads=1),
                dnnl.sum([src, src], None, [draw(floats), 1], n_threads=1),
                dnnl.concat([src, src], None, draw(st.integers(-4, 3)), n_threads=2),
                dnnl.pooling(src, None, "avg_exclude_padding", 3, 2, 2, n_threads=1),
                dnnl.batch_normalization(src, None, 1e-5, "use_scale|use_global_stats", n_threads=1),
                dnnl.layer_normalization(src, None, 1e-5, ["use_shift"], n_threads=1),
                dnnl.resampling(src, None, "linear", (2, 1.5), n_threads=1),
                dnnl.reduction(src, PLAIN((dims[0], 1, 1, 1)), "sum", n_threads=1)
                if dims[1:] != (1, 1, 1)
                else dnnl.reorder(src, PLAIN(dims), n_threads=1),
                dnnl.lrn(src, None, local_size=3, n_threads=1),
                dnnl.softmax(src, None, -3, "log", n_threads=1),
                dnnl.shuffle(src, None, 1, dims[1], n_threads=1),
                dnnl.prelu(src, ANY((1, dims[1], 1, 1)), n_threads=1),
            ]
        )
    )


@given(st.one_of(convolutions(), followers()))
def test_json_gives_the_same_spec_back(spec: dnnl.Spec) -> None:
    text = json.dumps(spec.to_dict(), allow_nan=False)
    again = dnnl.validate(dnnl.Spec.from_dict(json.loads(text)))
    assert again == spec
    assert hash(again) == hash(spec)
    assert str(again) == str(spec)


@given(convolutions(), convolutions())
def test_equality_is_that_of_the_data(one: dnnl.Spec, other: dnnl.Spec) -> None:
    assert (one == other) == (one.to_dict() == other.to_dict())
    assert len({one, other}) == (1 if one == other else 2)


def test_equal_specs_read_alike_whatever_their_layouts_are_called() -> None:
    descs = [PLAIN((1, 3, 4, 4), "f32", tag) for tag in ("nhwc", "acdb")]
    attrs = [dnnl.Attr((dnnl.Binary("add", desc),)) for desc in descs]
    one, other = (
        dnnl.eltwise(desc, None, "relu", attr=attr, n_threads=1) for desc, attr in zip(descs, attrs, strict=True)
    )
    assert one == other
    assert (str(one), one.to_dict()) == (str(other), other.to_dict())
    assert dnnl.Spec.from_dict(one.to_dict()) == one


def conv(**changes: Any) -> dnnl.Spec:
    arguments: dict[str, Any] = {"src": ANY((1, 3, 8, 8)), "weights": ANY((16, 3, 3, 3)), "n_threads": 1} | changes
    return dnnl.convolution(**arguments)


def test_a_pickle_carries_no_hash_of_this_process() -> None:
    spec = conv()
    hash(spec)
    assert pickle.dumps(spec) == pickle.dumps(conv())
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_every_kind_has_a_constructor_and_rules() -> None:
    for kind in dnnl.kinds():
        assert callable(getattr(dnnl, kind))
        assert callable(kind_of(kind).validate)
    with pytest.raises(InvalidArgumentsError, match="no kind of primitive 'conv'; there are batch_normalization"):
        kind_of("conv")


def test_threads_default_to_what_the_process_may_use() -> None:
    assert conv(n_threads=None).n_threads == dnnl.default_threads()


def test_destinations_are_inferred_in_the_sources_type() -> None:
    spec = conv(src=ANY((1, 3, 8, 8), "bf16"), weights=ANY((16, 3, 3, 3), "bf16"), strides=2, pads=(0, 1, 1, 0))
    assert spec.desc("dst") == ANY((1, 16, 4, 4), "bf16")


SRC = PLAIN((2, 17, 5, 4))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.pop("kind"),
        lambda data: data.update(kind="conv"),
        lambda data: data.update(kind=7),
        lambda data: data.update(colour="red"),
        lambda data: data.update(descs=7),
        lambda data: data["descs"].pop(),
        lambda data: data["descs"].append(data["descs"][0]),
        lambda data: data["descs"][0].pop(),
        lambda data: data["descs"][0][1].update(dims=[1, 3]),
        lambda data: data["descs"][0][1].update(dims=[1, 3, 8.5, 8]),
        lambda data: data["descs"][0][1].update(dtype="f31"),
        lambda data: data.update(params=[["strides", [1]], *data["params"][1:]]),
        lambda data: data.update(params=[["strides", [True, 1]], *data["params"][1:]]),
        lambda data: data.update(params=[["strides", {"h": 1}], *data["params"][1:]]),
        lambda data: data["params"].pop(),
        lambda data: data.update(n_threads=0),
        lambda data: data.update(n_threads="2"),
        lambda data: data.update(algorithm="convolution_fft"),
        lambda data: data.update(attr={"post_ops": [{"kind": "tanh"}]}),
        lambda data: data.update(attr={"post_ops": [{"kind": "eltwise"}]}),
        lambda data: data.update(attr={"post_ops": [{"kind": "eltwise", "algorithm": "step"}]}),
    ],
)
def test_damaged_data_is_refused(damage: Any) -> None:
    data = conv(bias=ANY((16,))).to_dict()
    damage(data)
    with pytest.raises(BlockLayoutError):
        dnnl.validate(dnnl.Spec.from_dict(data))


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything inside."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inside:
        yield (*path, key)
        yield from leaves(value, (*path, key))


scalars: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just([]) | st.just({})
)


@given(st.one_of(convolutions(), followers()), st.data())
def test_whatever_is_in_the_data_is_a_spec_or_refused(spec: dnnl.Spec, data: st.DataObject) -> None:
    damaged = copy.deepcopy(spec.to_dict())
    path = data.draw(st.sampled_from(list(leaves(damaged))))
    place = damaged
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = data.draw(scalars | st.integers(0, 9))
    try:
        read = dnnl.validate(dnnl.Spec.from_dict(damaged))
    except BlockLayoutError:
        return
    assert dnnl.validate(dnnl.Spec.from_dict(read.to_dict())) == read


@pytest.mark.parametrize("data", [None, [], "conv", 7])
def test_what_is_no_data_is_refused(data: Any) -> None:
    with pytest.raises(InvalidArgumentsError, match="not a saved Spec"):
        dnnl.validate(dnnl.Spec.from_dict(data))


def test_unknown_names_are_refused_with_the_known() -> None:
    spec = conv()
    with pytest.raises(InvalidArgumentsError, match="there are src, weights, dst"):
        spec.desc("bias")
    with pytest.raises(InvalidArgumentsError, match="there are strides, dilations, pads"):
        spec.param("axis")
    with pytest.raises(InvalidArgumentsError, match="no layout yet"):
        spec.memory_desc("src")


def test_multiply_adds() -> None:
    assert dnnl.multiply_adds(conv(pads=1)) == 16 * 8 * 8 * 3 * 3 * 3
    grouped = dnnl.convolution(ANY((2, 32, 8, 8)), ANY((4, 8, 8, 3, 3)), pads=1, n_threads=1)
    assert dnnl.multiply_adds(grouped) == 2 * 32 * 8 * 8 * 8 * 9
    deconv = dnnl.deconvolution(ANY((1, 8, 4, 4)), ANY((3, 8, 2, 2)), strides=2, n_threads=1)
    assert dnnl.multiply_adds(deconv) == 8 * 4 * 4 * 3 * 2 * 2
    assert dnnl.multiply_adds(dnnl.inner_product(ANY((5, 7, 2)), ANY((3, 7, 2)), n_threads=1)) == 5 * 7 * 2 * 3
    assert dnnl.multiply_adds(dnnl.matmul(ANY((4, 5, 6)), ANY((1, 6, 7)), n_threads=1)) == 4 * 5 * 6 * 7
    assert dnnl.multiply_adds(dnnl.eltwise(SRC, None, "relu", n_threads=1)) == 0
    forward = dnnl.convolution(ANY((2, 3, 8, 8)), ANY((16, 3, 3, 3)), pads=1, n_threads=1)
    backward = dnnl.convolution_backward_data(
        ANY((2, 3, 8, 8)), ANY((16, 3, 3, 3)), ANY((2, 16, 8, 8)), pads=1, n_threads=1
    )
    assert dnnl.multiply_adds(backward) == dnnl.multiply_adds(forward)


def test_multiply_adds_on_padding_are_those_of_the_padded_weights() -> None:
    src, dst = desc((1, 17, 4, 4), "blocked8"), desc((1, 9, 4, 4), "blocked8")
    spec = dnnl.convolution(src, dnnl.MemoryDesc((9, 17, 3, 3), "f32", "OIhw8i8o"), dst, pads=1, n_threads=1)
    assert dnnl.multiply_adds(spec) == 16 * 17 * 9 * 9
    assert dnnl.multiply_adds(spec, padded=True) == 16 * 24 * 16 * 9
    assert dnnl.multiply_adds(conv(pads=1), padded=True) == dnnl.multiply_adds(conv(pads=1))


def test_bytes_moved_count_padding() -> None:
    assert dnnl.eltwise(SRC, SRC, "relu", n_threads=1).nbytes_moved == 2 * 2 * 17 * 5 * 4 * 4
    blocked = desc(SRC.dims, "blocked8")
    assert dnnl.reorder(SRC, blocked, n_threads=1).nbytes_moved == 2 * (17 + 24) * 5 * 4 * 4
    assert conv().nbytes_moved == 4 * (3 * 8 * 8 + 16 * 3 * 3 * 3 + 16 * 6 * 6)
