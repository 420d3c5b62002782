"""Resolving and rebuilding: what is asked once, what is kept, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dnnl import resolution
from blocklayout.errors import DnnlError, InvalidArgumentsError, OutOfMemoryError, RefusedError, UnimplementedError
from tests.dnnl.running import assert_close, convolve, desc, random
from tests.refusing import Refusing

ANY = dnnl.AnyDesc
PLAIN = dnnl.MemoryDesc
DIMS = (2, 17, 5, 4)


def conv(n_threads: int = 1, dtype: str = "f32") -> dnnl.Spec:
    src, weights = ANY((1, 17, 8, 8), dtype), ANY((19, 17, 3, 3), dtype)
    return dnnl.convolution(src, weights, None, ANY((19,), dtype), pads=1, n_threads=n_threads)


def relu(layout: str = "plain") -> dnnl.Spec:
    return dnnl.eltwise(desc(DIMS, layout), None, "relu", n_threads=1)


def test_a_resolved_spec_lists_every_argument_with_its_layout() -> None:
    resolved = dnnl.resolve(conv()).spec
    assert resolved.is_resolved
    assert [name for name, _ in resolved.descs] == ["src", "weights", "bias", "dst"]
    assert all(isinstance(found, PLAIN) for _, found in resolved.descs)
    assert resolved.impl


def test_identical_specs_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = dnnl.resolve(conv())
    monkeypatch.setattr(resolution, "create_pd", lambda _: pytest.fail("asked again"))
    assert dnnl.resolve(conv()) is first
    again = dnnl.validate(dnnl.Spec.from_dict(conv().to_dict()))
    assert dnnl.resolve(again) is first


def test_refusals_are_remembered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = conv().replace(algorithm="convolution_winograd")
    with pytest.raises(UnimplementedError) as first:
        dnnl.resolve(spec)
    monkeypatch.setattr(resolution, "create_pd", lambda _: pytest.fail("asked again"))
    with pytest.raises(UnimplementedError) as second:
        dnnl.resolve(spec)
    assert str(first.value) == str(second.value)
    assert first.value.status == 3


def test_every_implementation_can_be_had_again() -> None:
    offered = list(dnnl.implementations(conv()))
    assert len({resolved.spec.impl for resolved in offered}) > 1
    assert dnnl.resolve(conv()) == offered[0]
    for resolved in offered:
        assert dnnl.resolve(resolved.spec) == resolved
        assert dnnl.resolve(dnnl.Spec.from_dict(resolved.spec.to_dict())) == resolved
        assert dnnl.Primitive(resolved.spec).spec == resolved.spec


def test_every_implementation_computes_the_same() -> None:
    x, w, b = random(1, 17, 8, 8), random(19, 17, 3, 3), random(19)
    expected = convolve(x, w, (1, 1), (1,) * 4, (0, 0)) + b.reshape(19, 1, 1)
    for resolved in dnnl.implementations(conv()):
        assert_close(one(dnnl.Primitive(resolved.spec)(src=x, weights=w, bias=b)), expected)


def one(result: np.ndarray | dict[str, np.ndarray]) -> np.ndarray:
    assert isinstance(result, np.ndarray)
    return result


def test_an_implementation_may_be_named_before_its_layouts() -> None:
    last = list(dnnl.implementations(conv()))[-1].spec
    assert dnnl.resolve(conv().replace(impl=last.impl)).spec == last


def test_an_implementation_that_is_not_offered_is_refused_with_those_that_are() -> None:
    with pytest.raises(UnimplementedError, match=r"named jit:avx1024 among those oneDNN offers: .*ref:any"):
        dnnl.resolve(conv().replace(impl="jit:avx1024"))


def test_a_resolved_spec_is_refused_where_the_library_says_otherwise() -> None:
    src = desc(DIMS, "plain")
    resolved = dnnl.resolve(dnnl.pooling(src, None, "max", 2, n_threads=1, prop_kind="forward_training")).spec
    workspace = resolved.memory_desc("workspace")
    other = tuple((n, workspace.with_dtype("s32") if n == "workspace" else d) for n, d in resolved.descs)
    assert workspace.dtype == "u8"
    with pytest.raises(DnnlError, match="has other descriptors"):
        dnnl.resolve(resolved.replace(descs=other))
    with pytest.raises(DnnlError, match="has other descriptors"):
        dnnl.Primitive(resolved.replace(descs=other))


def test_layouts_keep_the_names_their_owner_gave_them() -> None:
    n1hw = PLAIN((2, 1, 5, 4), "f32", "nhwc")
    resolved = dnnl.resolve(dnnl.eltwise(n1hw, PLAIN((2, 1, 5, 4), "f32", "nchw"), "relu", n_threads=1)).spec
    assert (resolved.memory_desc("src").tag, resolved.memory_desc("dst").tag) == ("nhwc", "nchw")


def test_what_the_library_chose_prints_by_its_role() -> None:
    w = dnnl.resolve(conv(1).replace(prop_kind="forward_training")).spec.memory_desc("weights")
    assert set(w.tag.lower()) >= set("oihw")


def each_name_first(ask: Callable[[dnnl.Spec], dnnl.Resolved], dims: tuple[int, ...], *names: str) -> list[dnnl.Spec]:
    """Answers to equal Specs whose layouts have these names, each asked first and then second."""
    specs = []
    for first, second in (names, reversed(names)):
        resolution._ask.cache_clear()
        resolution._ask_optimised.cache_clear()
        for name in (first, second):
            desc = PLAIN(dims, "f32", name)
            added = dnnl.Attr((dnnl.Binary("add", desc),))
            specs.append(ask(dnnl.eltwise(desc, None, "relu", attr=added, n_threads=1)).spec)
    return specs


@pytest.mark.parametrize("ask", [dnnl.resolve, lambda spec: dnnl.optimised(spec)[0]], ids=["resolve", "optimised"])
def test_equal_answers_read_alike_whoever_asked_first(ask: Callable[[dnnl.Spec], dnnl.Resolved]) -> None:
    specs = each_name_first(ask, (2, 17), "ab", "nc")
    assert len({(str(spec), json.dumps(spec.to_dict())) for spec in specs}) == 1


@pytest.mark.parametrize("ask", [dnnl.resolve, lambda spec: dnnl.optimised(spec)[0]], ids=["resolve", "optimised"])
def test_layouts_keep_their_names_whoever_asked_first(ask: Callable[[dnnl.Spec], dnnl.Resolved]) -> None:
    specs = each_name_first(ask, (1, 1, 1, 1), "nchw", "nhwc")
    assert [spec.memory_desc("src").memory_format for spec in specs] == [
        *("contiguous_format", "channels_last"),
        *("channels_last", "contiguous_format"),
    ]


def test_an_invalid_spec_reaches_no_c() -> None:
    broken = conv().replace(params=(("strides", (0, 0)), ("dilations", (0, 0)), ("pads", (0,) * 4)))
    for use in (dnnl.resolve, dnnl.Primitive, lambda spec: list(dnnl.implementations(spec))):
        with pytest.raises(InvalidArgumentsError, match="strides"):
            use(broken)


def test_bf16_is_unimplemented_where_the_cpu_has_none() -> None:
    if dnnl.has_bf16():
        pytest.skip("this CPU computes in bf16")
    with pytest.raises(UnimplementedError, match="bf16"):
        dnnl.resolve(conv(dtype="bf16"))


def test_weights_of_one_block_of_channels_out_stay_those_a_deconvolution_asked_for() -> None:
    src, dst = dnnl.MemoryDesc((2, 16, 6, 6), "f32", "nChw8c"), dnnl.MemoryDesc((2, 8, 12, 12), "f32", "nChw8c")
    spec = dnnl.deconvolution(src, dnnl.AnyDesc((8, 16, 2, 2), "f32"), dst, strides=(2, 2), n_threads=1)
    for offered in dnnl.implementations(spec):
        assert dnnl.resolve(offered.spec).spec == offered.spec


def test_what_is_not_created_is_passed_over_from_then_on(refusing: Refusing) -> None:
    first, second = (each.spec for each in list(dnnl.implementations(relu()))[:2])
    refusing.create(first.__eq__)
    assert dnnl.Primitive(relu()).spec == second
    with pytest.raises(UnimplementedError, match=f"oneDNN offers {first.impl}, and refused to create it"):
        dnnl.resolve(first)
    with pytest.raises(RefusedError, match=f"oneDNN offers {first.impl}, and refuses to create it: .*passed over"):
        dnnl.Primitive(first)
    assert first not in {each.spec for each in dnnl.optimised(relu())}
    assert refusing.met == [first]
    assert dict(dnnl.refusals()) == {first: "create"}


def test_our_own_is_passed_over_like_the_librarys(refusing: Refusing) -> None:
    src, weights = PLAIN((1, 16, 28, 28), "f32", "nhwc"), ANY((16, 16, 3, 3), "f32")
    spec = dnnl.convolution(src, weights, src, pads=1, n_threads=1)
    ours = [each.spec for each in dnnl.implementations(spec) if each.spec.impl.startswith("winograd")]
    for each in ours:
        resolution.refused(each, "run", DnnlError("a fake"))
        with pytest.raises(RefusedError):
            dnnl.Primitive(each)
    assert not any(each.spec.impl.startswith("winograd") for each in dnnl.implementations(spec))
    refusing.forget()
    assert ours == [each.spec for each in dnnl.implementations(spec) if each.spec.impl.startswith("winograd")]


@pytest.mark.usefixtures("refusing")
def test_a_favourite_of_ours_that_was_refused_is_none() -> None:
    spec = dnnl.eltwise(PLAIN((2, 16)), None, "swish", 1.0, n_threads=1)
    ours = dnnl.favourite(spec).spec
    if not ours.impl.startswith("functions"):
        pytest.skip("needs AVX2 and a compiler at installation")
    resolution.refused(ours, "run", DnnlError("a fake"))
    assert dnnl.favourite(spec) == dnnl.resolve(spec) == dnnl.optimised(spec)[0]


@pytest.mark.usefixtures("refusing")
def test_want_of_memory_is_no_refusal() -> None:
    error = OutOfMemoryError("none is left", 1)
    assert resolution.refused(dnnl.resolve(relu()).spec, "create", error) is error
    assert not dnnl.refusals()
