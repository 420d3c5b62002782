"""The cost model: nanoseconds of a step from its work, its bytes and its implementation's class."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct, field

from blocklayout.dnnl import is_reference, multiply_adds, own
from blocklayout.ir import HostSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blocklayout.dnnl import Spec
    from blocklayout.ir import RecipeStep
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.costs.machine import Machine

_COMPUTE_SHARES = (
    ("ref", 0.002),
    ("x64:gemm", 0.45),
    ("gemm", 0.45),
    ("jit_dw", 0.32),
    ("brdgmm_dw", 0.26),
    ("brgconv_1x1", 0.86),
    ("brg", 0.94),
    ("jit_1x1", 0.88),
    ("jit_deconvolution", 0.20),
    ("jit", 0.80),
)
"""Share of the peak that a class of implementations reaches, by prefix of its name.

Medians over the convolutions of ResNet-50, SqueezeNet, DenseNet, GoogLeNet, Inception, EfficientNet, MobileNet and
ShuffleNet with cold weights, f32, on an AVX2 machine with 2 threads; layouts make little difference within a class.
"""

_DIRECT_1X1_SHARE, _DIRECT_1X1_SHARE_512 = 0.38, 0.66
"""Of an implementation for windows of any size that is given one of a single element, in f32; with AVX-512.

Half and four fifths of what those for single elements reach, on machines of two kinds; in bf16 it is as much.
"""

_OTHER_COMPUTE_SHARE = 0.4
_GEMM_MATMUL_SHARE = 0.9
_INNER_PRODUCT_SHARE = 0.28
_RECURRENT_SHARE = 0.4
_RECURRENT_HALF_SPEED_SEQUENCES = 1.5
"""Sequences at which a recurrent layer is half as fast as with many: each step multiplies a matrix of so many rows."""

_GEMM_HALF_SPEED_CHANNELS = 16
"""Channels of a group at which a convolution by gemm is half as fast as without groups; its matrices are thin."""

_TRAFFIC_SHARES = (
    ("", "ref", 0.005),
    ("layer_normalization", "simple", 0.03),
    ("pooling", "simple_nhwc", 0.15),
    ("pooling", "simple", 0.02),
    ("batch_normalization", "ncsp", 0.08),
    ("batch_normalization", "nspc", 0.015),
)
"""Share of the bandwidth, by kind of primitive and prefix of the implementation; the rest streams."""

_SIMPLE_NARROW_SHARE = 0.4
"""Of these shares, where each element is widened before it is computed with."""

_HOST_COSTS = {
    "plain": (50_000.0, 0.5),
    "numpy": (5_000.0, 1.0),
    "registered": (10_000.0, 1.0),
    "copy": (5_000.0, 2.0),
    "zero_padding": (5_000.0, 2.0),
}
"""Nanoseconds to begin, and bytes per nanosecond after that, of what numpy computes in place of a primitive."""

_DOUBT = 0.4
"""The spread of measured over modelled times, within most classes and between them, on machines of two kinds."""

_BLOCKED_LRN_SHARE = 0.11
_CHANNELS_LAST_NORMALIZATION_SHARE = 0.9

_BRGEMM_HALF_SPEED_ROWS = 16
"""Rows of a matrix at which a product by brgemm is half as fast, in a batch: each matrix is a product of its own."""


class Costs(Protocol):
    """Prices, in nanoseconds, on one machine."""

    @property
    def machine(self) -> Machine:
        """The machine these costs hold for."""
        ...

    @property
    def source(self) -> str:
        """Where they come from, in words."""
        ...

    def step_ns(self, spec: Spec | HostSpec) -> float:
        """Nanoseconds of one execution of a resolved Spec."""
        ...

    def reorder_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Nanoseconds of bringing bytes from one layout to another."""
        ...

    def doubt(self, spec: Spec | HostSpec) -> float:
        """How far off the price of a step may be: the standard deviation of its logarithm."""
        ...

    def reorder_doubt(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """How far off the price of a reorder may be."""
        ...


class Price(NamedTuple):
    """A price and how far it can be trusted.

    Attributes:
        ns: Nanoseconds.
        doubt: How far off it may be: the standard deviation of its logarithm; 0.1 is some 10 %.
    """

    ns: float
    doubt: float


class CostsOver(Struct, frozen=True, dict=True):
    """Costs that know more than a model does. Derive from this, and price Specs and reorders.

    Attributes:
        model: Prices the rest.
    """

    model: Costs

    def price(self, spec: Spec) -> Price:
        """Price of one execution of a resolved Spec."""
        return Price(self.model.step_ns(spec), self.model.doubt(spec))

    def reorder_price(self, src: MemoryDesc, dst: MemoryDesc) -> Price:
        """Price of bringing bytes from one layout to another."""
        if isinstance(self.model, CostsOver):
            return self.model.reorder_price(src, dst)
        return Price(self.model.reorder_ns(src, dst), self.model.reorder_doubt(src, dst))

    @property
    def machine(self) -> Machine:
        return self.model.machine

    @property
    def source(self) -> str:
        return self.model.source

    def step_ns(self, spec: Spec | HostSpec) -> float:
        return self.model.step_ns(spec) if isinstance(spec, HostSpec) else self.price(spec).ns

    def doubt(self, spec: Spec | HostSpec) -> float:
        return self.model.doubt(spec) if isinstance(spec, HostSpec) else self.price(spec).doubt

    def reorder_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        return self.reorder_price(src, dst).ns

    def reorder_doubt(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        return self.reorder_price(src, dst).doubt


def price_of(costs: Costs, spec: Spec) -> Price:
    """Of a resolved Spec, or of a reorder as its constructor gives it."""
    if is_asked(spec):
        ends = spec.memory_desc("src"), spec.memory_desc("dst")
        return Price(costs.reorder_ns(*ends), costs.reorder_doubt(*ends))
    return Price(costs.step_ns(spec), costs.doubt(spec))


def is_asked(spec: Spec) -> bool:
    """Whether it is a reorder as its constructor gives it; a step's is resolved."""
    return spec.kind == "reorder" and not spec.impl


def steps_ns(costs: Costs, steps: Iterable[RecipeStep]) -> float:
    """Nanoseconds of resolved steps, one after the other."""
    return sum(costs.step_ns(step.spec) for step in steps)


class CostModel(Struct, frozen=True):
    """Estimates of what steps and reorders cost on a machine; instant, and the same every time."""

    machine: Machine
    _reorders: dict[tuple[MemoryDesc, MemoryDesc], float] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return "the model"

    def step_ns(self, spec: Spec | HostSpec) -> float:
        """Nanoseconds of one execution of a resolved Spec: the slower of its arithmetic and its memory traffic."""
        if isinstance(spec, HostSpec):
            return _host_ns(spec)
        if ours := own.implementation(spec.impl):
            compute_ns = ours.compute_ns(spec, self.machine.peak_flops(spec.impl, "f32"), self.machine.n_threads)
            return self.machine.step_ns + compute_ns + self._traffic_ns(spec)
        return self.machine.step_ns + max(self._compute_ns(spec), self._traffic_ns(spec))

    def reorder_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        key = (src, dst)
        if key not in self._reorders:
            moved = src.nbytes + dst.nbytes
            self._reorders[key] = self.machine.step_ns + moved / self.machine.reorder_bandwidth
        return self._reorders[key]

    def doubt(self, spec: Spec | HostSpec) -> float:  # noqa: ARG002 - as others are asked
        return _DOUBT

    def reorder_doubt(self, src: MemoryDesc, dst: MemoryDesc) -> float:  # noqa: ARG002
        return _DOUBT

    def _compute_ns(self, spec: Spec) -> float:
        flops = 2 * multiply_adds(spec, padded=True)
        if not flops:
            return 0.0
        dtype = spec.desc("src").dtype
        return flops / (_compute_share(spec) * self.machine.peak_flops(spec.impl, dtype))

    def _traffic_ns(self, spec: Spec) -> float:
        return spec.nbytes_moved / (self.machine.bandwidth * _traffic_share(spec))


def _compute_share(spec: Spec) -> float:
    if spec.kind == "rnn":
        sequences = spec.memory_desc("src").dims[1]
        return _RECURRENT_SHARE * sequences / (sequences + _RECURRENT_HALF_SPEED_SEQUENCES)
    share = next((s for prefix, s in _COMPUTE_SHARES if spec.impl.startswith(prefix)), _OTHER_COMPUTE_SHARE)
    if spec.impl.startswith("jit:") and _is_pointwise(spec):
        return _DIRECT_1X1_SHARE_512 if "avx512" in spec.impl else _DIRECT_1X1_SHARE
    if spec.kind == "inner_product" and not is_reference(spec.impl):
        return _INNER_PRODUCT_SHARE
    if spec.kind == "matmul" and spec.impl.startswith("br"):
        *batch, rows, _ = spec.memory_desc("dst").dims
        return share * rows / (rows + _BRGEMM_HALF_SPEED_ROWS) if prod(batch) > 1 else share
    if "gemm" not in spec.impl or spec.impl.startswith("br"):
        return share
    if spec.kind == "matmul":
        return _GEMM_MATMUL_SHARE
    weights, src = spec.memory_desc("weights").dims, spec.memory_desc("src").dims
    channels = weights[2] if len(weights) > len(src) else _GEMM_HALF_SPEED_CHANNELS * 100
    return share * channels / (channels + _GEMM_HALF_SPEED_CHANNELS)


def _is_pointwise(spec: Spec) -> bool:
    if spec.kind != "convolution":
        return False
    n_spatial = spec.memory_desc("src").ndims - 2
    return set(spec.memory_desc("weights").dims[-n_spatial:]) == {1}


def _host_ns(spec: HostSpec) -> float:
    start, bandwidth = _HOST_COSTS[spec.kind]
    return start + spec.nbytes_moved / bandwidth


def _traffic_share(spec: Spec) -> float:
    if spec.kind == "rnn":
        return 1.0
    for kind, prefix, share in _TRAFFIC_SHARES:
        if spec.impl.startswith(prefix) and kind in ("", spec.kind):
            return share * (_SIMPLE_NARROW_SHARE if spec.memory_desc("dst").dtype in ("bf16", "f16") else 1.0)
    dst = spec.memory_desc("dst")
    if spec.kind == "layer_normalization":  # a row is one thread's
        return min(prod(dst.dims[:-1]) / spec.n_threads, 1.0)
    if spec.kind == "lrn" and dst.inner_blks:
        return _BLOCKED_LRN_SHARE
    if spec.kind == "batch_normalization" and not dst.inner_blks and not dst.is_contiguous():
        return _CHANNELS_LAST_NORMALIZATION_SHARE
    return 1.0
