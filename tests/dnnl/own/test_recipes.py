"""What all convolutions of our own have in common: descriptors that were given, and threads."""

from __future__ import annotations

import pytest

from blocklayout import dnnl
from blocklayout.dnnl import library, own
from blocklayout.layout import MemoryDesc

N = 64

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2"), reason="needs AVX2 and a compiler at installation"
)

WEIGHTS = {"depthwise": (N, 1, 1, 3, 3), "grouped": (N // 8, 8, 8, 3, 3)}
TAGS = {"depthwise": "nhwc" if dnnl.has_isa("avx512_core") else "nChw8c"}
DTYPES = {"byte_products": ("u8", "s8")}
ABSENT = {"byte_products": dnnl.sums_bytes_exactly(), "direct": dnnl.has_isa("avx512_core_amx")}
NAMES = [name for name in own.recipes() if not ABSENT.get(name)]


def offered(name: str, bias: dnnl.Desc) -> list[dnnl.Spec]:
    src, weights = DTYPES.get(name, ("f32", "f32"))
    image = MemoryDesc((1, N, 8, 8), src, TAGS.get(name, "nhwc"))
    packed = dnnl.AnyDesc(WEIGHTS.get(name, (N, N, 3, 3)), weights)
    spec = dnnl.convolution(image, packed, image, bias, pads=1, n_threads=2)
    return [each.spec for each in own.offers(spec) if own.name_of(each.spec.impl) == name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bias", [dnnl.AnyDesc((N,)), MemoryDesc((N,))])
def test_a_bias_that_is_dense_is_taken(name: str, bias: dnnl.Desc) -> None:
    [spec] = offered(name, bias)
    assert spec.desc("bias") == MemoryDesc((N,))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bias", [MemoryDesc((N,), offset=16), MemoryDesc((N,), strides=(2,))])
def test_a_bias_that_lies_otherwise_is_left_to_the_library(name: str, bias: MemoryDesc) -> None:
    assert not offered(name, bias)


@pytest.mark.parametrize("name", NAMES)
def test_none_is_offered_where_the_library_has_no_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "is_sequential", lambda: True)
    assert not offered(name, dnnl.AnyDesc((N,)))
