"""Weights of 8 bits as the library packs them: what lies behind their elements, in descriptors, files and reports."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from blocklayout import describe, dnnl
from blocklayout.dnnl import AnyDesc, Attr, MemoryDesc, Spec, c_desc, library
from blocklayout.errors import LayoutError, UnsupportedError
from tests.dnnl.caches import clear_descs

X = np.random.default_rng(0).integers(-100, 100, (1, 17, 9, 9)).astype(np.int8)
W = np.random.default_rng(1).integers(-60, 60, (33, 17, 3, 3)).astype(np.int8)


def convolution(*, has_zero_point: bool = False) -> Spec:
    """Of signed bytes; most CPUs add 128 to them, those with AMX keep sums for a zero point alone."""
    src, dst = MemoryDesc(X.shape, "s8", "nhwc"), MemoryDesc((1, 33, 9, 9), "f32", "nhwc")
    attr = Attr(zero_points=(("src", 0),)) if has_zero_point else Attr()
    asked = dnnl.convolution(src, AnyDesc(W.shape, "s8"), dst, pads=1, attr=attr, n_threads=1)
    return dnnl.resolve(asked).spec


@pytest.fixture
def packed() -> MemoryDesc:
    """Weights with sums behind them, as a query tells of them."""
    descs = (convolution(has_zero_point=each).memory_desc("weights") for each in (False, True))
    found = next((desc for desc in descs if desc.extra is not None), None)
    if found is None:
        pytest.skip(f"{dnnl.isa()} computes with signed bytes as they are")
    return found


def bare(desc: MemoryDesc) -> MemoryDesc:
    return MemoryDesc.from_dict({name: value for name, value in desc.to_dict().items() if name != "extra"})


def changed(desc: MemoryDesc, field: str, value: object) -> MemoryDesc:
    data = desc.to_dict()
    return MemoryDesc.from_dict(data | {"extra": data["extra"] | {field: value}})


def test_bytes_behind_the_elements_count(packed: MemoryDesc) -> None:
    assert packed.extra is not None
    assert packed.extra.flags
    assert packed.nbytes == bare(packed).nbytes + packed.extra.nbytes


def test_the_descriptor_goes_through_json_and_to_the_library(packed: MemoryDesc) -> None:
    again = MemoryDesc.from_dict(json.loads(json.dumps(packed.to_dict())))
    assert again == packed
    assert hash(again) == hash(packed)
    clear_descs()
    assert library.load().dnnl_memory_desc_get_size(c_desc.to_c(again).c) == packed.nbytes


def test_other_sums_are_another_layout(packed: MemoryDesc) -> None:
    plain = bare(packed)
    assert plain != packed
    assert not plain.readable_as(packed)
    assert not packed.readable_as(plain)
    assert not packed.physically_equal(plain)


@pytest.mark.parametrize("has_zero_point", [False, True])
def test_a_spec_with_packed_weights_resolves_to_itself(*, has_zero_point: bool) -> None:
    spec = convolution(has_zero_point=has_zero_point)
    assert dnnl.resolve(spec).spec == spec


def test_the_library_packs_and_computes_with_them() -> None:
    result = dnnl.Primitive(convolution())(src=X, weights=W)
    wide = np.pad(X.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    places = product(range(3), repeat=2)
    products = (
        np.einsum("nchw,oc->nohw", wide[:, :, i : i + 9, j : j + 9], W[:, :, i, j].astype(int)) for i, j in places
    )
    expected = np.sum(list(products), axis=0)
    # Without instructions for bytes the library halves the weights, and odd ones lose a bit.
    np.testing.assert_allclose(np.asarray(result), expected, atol=0.03 * np.abs(expected).max())


def test_what_only_the_library_can_do_is_refused(packed: MemoryDesc) -> None:
    attempts = (
        lambda: packed.pack(W),
        lambda: packed.unpack(np.zeros(packed.nbytes, np.int8)),
        lambda: packed.with_dtype("u8"),
        lambda: packed.permuted((1, 0, 2, 3)),
        lambda: packed.reshaped((1, *packed.dims)),
    )
    for attempt in attempts:
        with pytest.raises(LayoutError, match="which only the library keeps: reorder"):
            attempt()


def test_reports_say_so(packed: MemoryDesc) -> None:
    assert packed.extra is not None
    assert str(packed).endswith(f"with {packed.extra}")
    assert packed.named("weights").endswith(f"with {packed.extra}")
    assert "extra=Extra(" in repr(packed)
    text = describe(packed).to_text()
    assert f"{packed.extra.nbytes} bytes behind the elements" in text
    assert "not part of it" not in text


@pytest.mark.parametrize(("field", "value"), [("nbytes", -1), ("scale_adjust", "x"), ("flags", 3)])
def test_a_record_that_no_descriptor_has_is_refused(packed: MemoryDesc, field: str, value: object) -> None:
    with pytest.raises(LayoutError, match="extra"):
        changed(packed, field, value)


@pytest.mark.parametrize(("field", "value", "told"), [("flags", ["magic"], "magic"), ("nbytes", 4096, "counts other")])
def test_a_record_that_the_library_has_not_is_refused(packed: MemoryDesc, field: str, value: object, told: str) -> None:
    with pytest.raises(UnsupportedError, match=told):
        c_desc.to_c(changed(packed, field, value))


def test_another_version_of_the_library_is_not_read(packed: MemoryDesc, monkeypatch: pytest.MonkeyPatch) -> None:
    clear_descs()
    monkeypatch.setattr(library, "version", lambda: (3, 9, 9))
    with pytest.raises(UnsupportedError, match="oneDNN"):
        c_desc.to_c(packed)
