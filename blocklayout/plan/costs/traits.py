"""Features of a primitive that its time depends on, as a few numbers, for comparison with recorded primitives."""

from __future__ import annotations

from functools import lru_cache
from math import log2, prod
from typing import TYPE_CHECKING, NamedTuple

from blocklayout.dnnl import Eltwise, multiply_adds

if TYPE_CHECKING:
    from blocklayout.dnnl import Spec
    from blocklayout.layout import MemoryDesc

_MAX_CACHED = 8192
_LEAST = 2.0**-10
_ALIGNED = 16
"""Channels that fill a vector register; others are computed in part on padding, or one by one."""

_TAIL = "+"
"""Marks layouts whose last block is filled in part: such channels are often handled one by one."""

_NAMED_BY_ALGORITHM = frozenset({"eltwise", "binary", "pooling", "reduction"})
_CHEAP = frozenset({"relu", "clip", "clip_v2", "linear", "hardswish", "hardsigmoid", "abs", "square", "sqrt", "round"})
"""Functions of single elements without exponentials."""


class SpecClass(NamedTuple):
    """Primitives whose times follow from their numbers by one rule.

    Attributes:
        kind: Of primitive, and its algorithm where that decides what is computed.
        impl: The implementation, with the instruction set.
        dtypes: Of source and result.
        layouts: Of source and result, in one word each.
    """

    kind: str
    impl: str
    dtypes: str
    layouts: str

    @property
    def is_f32(self) -> bool:
        """Whether it computes in f32."""
        return self.dtypes.startswith("f32")

    @property
    def isa(self) -> str:
        """The instruction set of the implementation, else of the machine."""
        return self.impl.rpartition("@" if "@" in self.impl else ":")[2]

    def wider(self) -> tuple[SpecClass, ...]:
        """Classes that hold this one, the narrowest first: of any layouts, any instruction set, the whole kind."""
        family = self.impl.partition("@")[0]
        family = family.rpartition(":")[0] or family
        any_layouts = _TAIL if _TAIL in self.layouts else ""
        kind, dtypes = self.kind, self.dtypes  # without _replace, which takes four times as long
        narrower = (
            SpecClass(kind, self.impl, dtypes, any_layouts),
            SpecClass(kind, family, dtypes, any_layouts),
            SpecClass(kind, "", dtypes, ""),
        )
        widened = self._widened()
        rest = (SpecClass(kind, "", "", ""),) if widened == self else (widened, *widened.wider())
        return (*narrower, *rest)

    def alike(self) -> tuple[SpecClass, ...]:
        """Classes of another kind that do the same work by the same kernels, the narrowest first.

        The implementation of a deconvolution names the convolution that computes it, if one does.
        """
        _, _, impl = self.impl.partition("+")
        if self.kind != "deconvolution" or not impl:
            return ()
        convolution = self._replace(kind="convolution", impl=impl.replace("_strided", ""))
        return (convolution, *convolution.wider())

    def _widened(self) -> SpecClass:
        """In f32 for f16: its kernels widen each number as they read it, and compute in f32."""
        if "f16" not in self.dtypes and "fp16" not in self.impl:
            return self
        dtypes = " ".join("f32" if dtype == "f16" else dtype for dtype in self.dtypes.split())
        return self._replace(dtypes=dtypes, impl=self.impl.replace("avx512_core_fp16", "avx512_core"))


NUMBERS = (
    ("multiply_adds", 1.0),
    ("nbytes", 1.0),
    ("channels_in", 0.5),
    ("channels_out", 0.5),
    ("groups", 0.7),
    ("pixels_in", 0.7),
    ("pixels_out", 0.7),
    ("window", 1.0),
    ("stride", 1.0),
    ("eltwise_post_ops", 0.5),
    ("costly_post_ops", 0.5),
    ("other_post_ops", 0.5),
    ("aligned_in", 0.7),
    ("aligned_out", 0.7),
    ("batch", 1.0),
    ("sources", 0.5),
)
"""Features that are compared, and the weight of a difference; sizes are logarithms to base 2."""


def spec_class(spec: Spec, isa: str) -> SpecClass:
    """The class of a resolved Spec, or of a reorder as its constructor gives it.

    Args:
        spec: What to classify.
        isa: Instruction set of the machine: implementations of any depend on it.
    """
    src, dst = _ends(spec)
    kind = f"{spec.kind} {spec.algorithm}" if spec.kind in _NAMED_BY_ALGORITHM else spec.kind
    if spec.kind == "layer_normalization" and prod(src.dims[:-1]) < spec.n_threads:
        kind += " of few rows"  # threads are idle
    impl = spec.impl
    if not impl.rpartition(":")[2].startswith(("avx", "sse")):
        impl += "@" + (isa if "gemm" in impl and src.dtype != "f32" else _family(isa))
    return SpecClass(kind, impl, f"{src.dtype} {dst.dtype}", f"{_layout_word(src)} {_layout_word(dst)}")


def spec_numbers(spec: Spec) -> tuple[float, ...]:
    """The numbers of a Spec, as :data:`NUMBERS` names them."""
    src, dst = _ends(spec)
    params = dict(spec.params)
    groups, stride = 1, prod(params.get("strides") or (1,))
    window: float = prod(params.get("kernel") or (1,))
    if spec.kind in ("convolution", "deconvolution"):
        weights = spec.memory_desc("weights").dims
        groups = weights[0] if len(weights) > src.ndims else 1
        window = prod(weights[2 - src.ndims :]) if src.ndims > 2 else 1
    if spec.kind == "deconvolution":  # each result has one tap of so many
        window, stride = window / stride, 1
    functions = [each.algorithm for each in spec.attr.post_ops if isinstance(each, Eltwise)]
    n_cheap = sum(name.removeprefix("eltwise_") in _CHEAP for name in functions)
    channels_in, channels_out = (desc.dims[1] if desc.ndims > 1 else 1 for desc in (src, dst))
    return (
        _log2(1 + multiply_adds(spec, padded=True)),
        _log2(1 + spec.nbytes_moved),
        _log2(channels_in / groups),
        _log2(channels_out / groups),
        _log2(groups),
        _log2(prod(src.dims[2:])),
        _log2(prod(dst.dims[2:])),
        _log2(window),
        _log2(stride),
        n_cheap,
        len(functions) - n_cheap,
        len(spec.attr.post_ops) - len(functions),
        float(channels_in % _ALIGNED == 0),
        float(channels_out % _ALIGNED == 0),
        log2(max(src.dims[0], 1)),
        sum(name.startswith("src") for name, _ in spec.descs),
    )


def _log2(size: float) -> float:
    return log2(size) if size > _LEAST else log2(_LEAST)


def _ends(spec: Spec) -> tuple[MemoryDesc, MemoryDesc]:
    src = spec.memory_desc("src" if spec.has("src") else "src_0")
    return src, spec.memory_desc("dst") if spec.has("dst") else src


def _family(isa: str) -> str:
    """Instruction sets with registers of one size."""
    return "avx512" if isa.startswith("avx512") else isa


@lru_cache(maxsize=_MAX_CACHED)
def _layout_word(desc: MemoryDesc) -> str:
    """Where channels lie: first, last or between; and how many in a block."""
    order = sorted((axis for axis in range(desc.ndims) if desc.dims[axis] > 1), key=lambda axis: -desc.strides[axis])
    word = "first" if desc.is_contiguous() or 1 not in order else "last" if order[-1] == 1 else "between"
    if not desc.inner_blks:
        return word
    is_first = 1 not in order or all(axis in (0, 1) for axis in order[: order.index(1)])
    tail = "" if desc.dims == desc.padded_dims else _TAIL
    return f"{'first' if is_first else word}{prod(desc.inner_blks)}{tail}"
