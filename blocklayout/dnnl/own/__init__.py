"""Implementations of our own, which stand beside the library's: one module each, found by its name.

A module has ``OURS``. ``impl`` of a Spec that it computes is its name, a colon and the instruction set:
``winograd:avx2``. Nobody else needs to know which there are.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from math import inf, log
from operator import add
from typing import TYPE_CHECKING, Any, TypeGuard

from msgspec import Struct
from msgspec.structs import asdict, replace

from blocklayout.dnnl import library
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import Attr, Binary, Eltwise, PostOp, Sum
from blocklayout.dnnl.native import native
from blocklayout.dnnl.spec import Spec
from blocklayout.dtypes import BYTE_DTYPES
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from blocklayout.dnnl.memory import Memory
    from blocklayout.dnnl.primitive_desc import Resolved

_MAX_CACHED = 256

LANES = {"avx512_core_bf16": 16, "avx512_core_vnni": 16, "avx512_core": 16, "avx2": 8, "sse41": 4}
"""Instruction sets there is code for, and floats in a vector; oneDNN asks for the last one."""


class OwnPrimitive:
    """A problem in C and the function that takes it, which runs in place of ``dnnl_primitive_execute``."""

    __slots__ = ("_arguments", "c", "execute")

    def __init__(self, function: str, problem: Any, arguments: Sequence[str]) -> None:
        self.c = problem
        self.execute = getattr(native(), function)
        self._arguments = arguments

    def c_args(self, memories: Mapping[str, Memory]) -> Any:
        """The array of arguments that ``execute`` takes."""
        c_args = ffi.new("dnnl_exec_arg_t[]", len(self._arguments))
        for c_arg, name in zip(c_args, self._arguments, strict=True):
            c_arg.memory = memories[name].c if name in memories else ffi.NULL
        return c_args

    def destroy(self) -> None:
        """There is nothing to give back."""


class Tail(Struct, frozen=True):
    """The function of a result: times ``slope`` where it is negative, then between ``low`` and ``high``."""

    slope: float = 1.0
    low: float = -inf
    high: float = inf

    @classmethod
    def of(cls, function: PostOp) -> Tail | None:
        """A (leaky) ReLU, or a clip that leaves padding zero; ``None`` for all others."""
        if not isinstance(function, Eltwise):
            return None
        if function.algorithm == "eltwise_relu":
            return cls(slope=function.alpha)
        if function.algorithm in ("eltwise_clip", "eltwise_clip_v2") and function.alpha <= 0 <= function.beta:
            return cls(low=function.alpha, high=function.beta)
        return None


class LongTail(Tail, frozen=True):
    """Where there is a ``gate``, times this function of an odd polynomial of itself plus ``gate_beta``.

    The polynomial has factors ``gate_alphas`` of the powers 1, 3, 5 and so on. Then ``linear_alpha`` times that plus
    ``linear_beta``.
    """

    gate: int = 0
    gate_alphas: tuple[float, ...] = ()
    gate_beta: float = 0.0
    linear_alpha: float = 1.0
    linear_beta: float = 0.0

    @property
    def in_c(self) -> dict[str, Any]:
        """The fields of a ``bl_tail_t``."""
        return {**asdict(self), "n_gate_alphas": len(self.gate_alphas)}


_LOGISTIC, _LINEAR = 1, 2
"""Gates: ``BL_LOGISTIC_GATE`` and ``BL_LINEAR_GATE`` in C."""

_GATES = {
    **dict.fromkeys(("eltwise_swish", "eltwise_gelu_tanh", "eltwise_gelu_erf"), _LOGISTIC),
    "eltwise_hardswish": _LINEAR,
}
"""Of functions that are their argument times another."""

_GELU_ALPHAS = {
    "eltwise_gelu_tanh": (1.5957691, 0.07135481),
    "eltwise_gelu_erf": (1.595768, 0.07266856, -6.625756e-5, -1.1048104e-4, 7.938317e-6, -2.668988e-7, 3.611366e-9),
}
"""Polynomials of which the logistic function is the gate: that of the second is the normal distribution's within 7e-8.

``(1 + tanh(y)) / 2`` is the logistic function of ``2 * y``.
"""


def tail_of(attr: Attr, n_before: int = 0) -> LongTail | None:
    """The post-ops behind the sum of result, bias and addend; ``None`` where there is no code for them.

    ``n_before`` stand before the addend, and count as a bias.
    """
    post_ops = list(attr.post_ops[n_before:])
    if post_ops and (post_ops[0] == Sum() or addend_of(attr, n_before)):
        del post_ops[0]
    found = LongTail()
    while post_ops and isinstance(last := post_ops[-1], Eltwise) and last.algorithm == "eltwise_linear":
        alpha, beta = found.linear_alpha, found.linear_beta
        found = LongTail(linear_alpha=alpha * last.alpha, linear_beta=alpha * last.beta + beta)
        del post_ops[-1]
    if not post_ops:
        return found
    function, *others = post_ops
    if others or not isinstance(function, Eltwise):
        return None
    if gate := _GATES.get(function.algorithm):
        alphas = _GELU_ALPHAS.get(function.algorithm, (function.alpha,))
        if gate == _LINEAR:
            return replace(found, gate=gate, gate_alphas=alphas, gate_beta=function.beta)
        return replace(found, gate=gate, gate_alphas=tuple(-alpha / log(2) for alpha in alphas))  # by powers of two
    is_relu = (function.algorithm, function.alpha) == ("eltwise_relu", 0)
    bounds = Tail(low=0.0) if is_relu else Tail.of(function)
    return None if bounds is None else replace(found, **asdict(bounds))


def addend_of(attr: Attr, n_before: int = 0) -> Binary | None:
    """The post-op that adds another tensor before anything else, or behind so many."""
    first = next(iter(attr.post_ops[n_before:]), None)
    return first if isinstance(first, Binary) and first.algorithm == "binary_add" else None


def addend_name(attr: Attr, n_before: int = 0) -> str:
    """The argument that is added before anything else: the result's old values, or another tensor; none if empty."""
    has_sum = next(iter(attr.post_ops[n_before:]), None) == Sum()
    return f"post_op_{n_before}_src_1" if addend_of(attr, n_before) else "dst" if has_sum else ""


def image_fields(spec: Spec, n_before: int = 0) -> dict[str, Any]:
    """Of a convolution's problem: threads and vectors, where channels of images lie, padding in front, and the tail.

    ``n_before`` post-ops stand before the addend. Of a matrix product, each row is an image of one pixel.
    """
    src, dst = spec.memory_desc("src"), spec.memory_desc("dst")
    pad_top, pad_left, *_ = spec.param("pads") if spec.kind == "convolution" else (0, 0)
    (height, width), (dst_height, dst_width) = (desc.dims[2:] or (1, 1) for desc in (src, dst))
    return {
        "lanes": lanes_of(spec.impl),
        "n_threads": spec.n_threads,
        "n_images": src.dims[0],
        "height": height,
        "width": width,
        "dst_height": dst_height,
        "dst_width": dst_width,
        "pad_top": pad_top,
        "pad_left": pad_left,
        "src": _place(src),
        "dst": _place(dst),
        "tail": (tail_of(spec.attr, n_before) or LongTail()).in_c,
    }


def _place(desc: MemoryDesc) -> dict[str, int]:
    """Where the channels of an image lie, as a ``bl_place_t``: side by side, or in blocks of some."""
    image, group, row, pixel = desc.strides if desc.ndims > 2 else (*desc.strides, *desc.strides[:1] * 2)
    is_blocked = bool(desc.inner_blks)
    return {
        "image": image,
        "group": group if is_blocked else 0,
        "channels": desc.inner_blks[0] if is_blocked else desc.dims[1],
        "row": row,
        "pixel": pixel,
    }


def is_open_to_recipes(spec: Spec, algorithms: Collection[str] = ("convolution_direct",)) -> bool:
    """Whether it is a convolution of some elements that code of ours may compute, as inference asks for it.

    It asks for one of these algorithms, its bias is f32, and there is code for its post-ops. It is none where the
    library has no threads: then nobody sees to it that regions of ours are opened by few threads.
    """
    is_inference = (spec.kind, spec.prop_kind) == ("convolution", "forward_inference") and spec.algorithm in algorithms
    if not is_inference or library.is_sequential():
        return False
    is_known = tail_of(spec.attr) is not None and (not spec.has("bias") or spec.desc("bias").dtype == "f32")
    return is_known and 0 not in (*spec.desc("src").dims, *spec.desc("dst").dims)


def convolution_descs(
    spec: Spec, src: MemoryDesc, weights: MemoryDesc, dst: MemoryDesc, n_before: int = 0
) -> dict[str, Desc] | None:
    """Of all arguments of a convolution, where code reads and writes these; ``None`` where others were given.

    A bias is f32 and dense, an addend lies as the result does, and none of them has an offset. Padding stays zero.
    ``n_before`` post-ops stand before the addend.
    """
    tail = tail_of(spec.attr, n_before)
    if dst.n_padding and tail is not None and tail.linear_beta:
        return None
    found: dict[str, Desc] = {"src": src, "weights": weights}
    if spec.has("bias"):
        found["bias"] = MemoryDesc(spec.desc("bias").dims, "f32")
    found["dst"] = dst
    addend = addend_of(spec.attr, n_before)
    if addend is not None:
        if addend.src1 != dst:
            return None
        found[addend_name(spec.attr, n_before)] = dst
    given = ((name, desc) for name, desc in spec.descs if name in found and isinstance(desc, MemoryDesc))
    return found if all(desc == found[name] and not desc.offset0 for name, desc in given) else None


def is_channels_last(desc: MemoryDesc) -> bool:
    """Whether channels lie side by side, without blocks or padding; pixels and rows may have gaps between them."""
    return not desc.inner_blks and desc.strides[1] == 1 and desc.padded_dims == desc.dims


def is_whole_bytes(desc: Desc) -> TypeGuard[MemoryDesc]:
    """Whether it has bytes and nothing else: in any order, without padding or an offset."""
    if not isinstance(desc, MemoryDesc) or desc.dtype not in BYTE_DTYPES:
        return False
    return desc.is_dense and not desc.n_padding and not desc.offset0 and desc.n_elements > 0


NUMBERS = ("scale_src", "scale_weights", "scale_dst", "zero_point_src", "zero_point_dst")
"""Arguments of a convolution of bytes, in the order in which C takes them."""


def are_known_bytes(spec: Spec) -> bool:
    """Whether source, weights and results of a convolution are bytes as code of ours takes them.

    Each tensor has one scale and zero point at most, weights one scale for all or one for each channel; there is no
    addend.
    """
    are_bytes = {spec.desc("src").dtype, spec.desc("dst").dtype} <= {*BYTE_DTYPES}
    is_simple = has_known_numbers(spec) and not addend_name(spec.attr)
    return are_bytes and spec.desc("weights").dtype == "s8" and is_simple


def has_known_numbers(spec: Spec, *zero_points: tuple[str, int]) -> bool:
    """Whether source and result have one scale and zero point at most, weights a scale for all or for each channel.

    There may be these ``zero_points``, too.
    """
    masks = {("src", 0), ("weights", 0), ("weights", _of_channels(spec)), ("dst", 0)}
    return masks >= {*spec.attr.scales} and {("src", 0), ("dst", 0), *zero_points} >= {*spec.attr.zero_points}


def fields_of_bytes(spec: Spec) -> dict[str, Any]:
    """Of a convolution's problem: whether it is one of bytes, and what these are."""
    return {
        "are_bytes": spec.desc("src").dtype in BYTE_DTYPES,
        "src_is_signed": spec.desc("src").dtype == "s8",
        "dst_is_signed": spec.desc("dst").dtype == "s8",
        "has_scales": dict(spec.attr.scales).get("weights") == _of_channels(spec),
    }


def _of_channels(spec: Spec) -> int:
    """The mask of scales that each channel of results has its own of: its dimension, or two where there are groups."""
    if spec.kind == "matmul":
        return 0b10
    return 0b11 if len(spec.desc("weights").dims) > len(spec.desc("src").dims) else 0b1


class Implementation(Struct, frozen=True, kw_only=True):
    """An implementation of our own: a function in C, and the Specs that it computes.

    Attributes:
        kinds: The kinds of primitive that it computes.
        isas: The instruction sets there is code for, best first, by what is asked for; the first that the library may
            use is the one. Code for any has none.
        offer: The descriptors of all arguments of a Spec of these kinds that names it; ``None`` where there is no code
            for that.
        fields: Those of the problem in C, from a Spec that was settled so.
        arguments: Names of the execution arguments of such a Spec, in the order of the function in C; ``scratchpad``
            among them where it needs one.
        function: Its name in C of such a Spec, by default ``bl_`` and its own name.
        c_type: The type of the problem, by default the function's name and ``_t``.
        compute_ns: Estimate of the nanoseconds that its arithmetic takes, from such a Spec, floating-point operations a
            nanosecond at the peak, and the number of threads.
        total_ns: Those of a run, from these and the nanoseconds in which its bytes are moved: one after the other by
            default.
        multiply_adds: Multiplications that it does for such a Spec, each with an addition; none by default.
        is_favourite: Whether it is offered for such a Spec before the library's own favourite, since it is hardly ever
            slower.
        algorithms: Functions of each element that it computes faster alone than the library does as post-ops.
        rule: That a run which ends with ``invalid_arguments`` found broken by the contents of an argument.
    """

    kinds: tuple[str, ...]
    offer: Callable[[Spec], Mapping[str, Desc] | None]
    fields: Callable[[Spec], Mapping[str, Any]]
    arguments: Callable[[Spec], Sequence[str]]
    function: Callable[[Spec], str] = lambda spec: f"bl_{name_of(spec.impl)}"
    c_type: str = ""
    compute_ns: Callable[[Spec, float, int], float] = lambda *_: 0.0
    total_ns: Callable[[float, float], float] = add
    isas: Callable[[Spec], Sequence[str]] = lambda _: ("avx512_core", "avx2", "sse41")
    multiply_adds: Callable[[Spec], int] = lambda _: 0
    is_favourite: Callable[[Spec], bool] = lambda _: False
    algorithms: tuple[str, ...] = ()
    rule: str = ""

    def settled(self, spec: Spec, impl: str) -> Resolved | None:
        """The Spec under this name with the descriptors of all arguments; ``None`` where it does not compute it."""
        from blocklayout.dnnl.primitive_desc import Resolved  # which asks for implementations

        asked = spec.settled(impl=impl)
        descs = self.offer(asked)
        if descs is None:
            return None
        found = asked.settled(descs=tuple(descs.items()))
        if "scratchpad" not in self.arguments(found):
            return Resolved(found, 0)
        nbytes = getattr(native(), f"{self.function(found)}_scratchpad")(self._problem(found))
        return Resolved(found, int(nbytes))

    def create(self, spec: Spec) -> OwnPrimitive:
        """The primitive of a Spec that it settled."""
        return OwnPrimitive(self.function(spec), self._problem(spec), self.arguments(spec))

    def _problem(self, spec: Spec) -> Any:
        """In C, with the library's function by which the code finds the bytes of its arguments."""
        get_data = ffi.cast("bl_get_data_t", library.load().dnnl_memory_get_data_handle)
        c_type = self.c_type or f"{self.function(spec)}_t"
        return ffi.new(f"{c_type} *", {"get_data": get_data, **self.fields(spec)})


def name_of(impl: str) -> str:
    """An implementation's name without its instruction set: ``winograd`` of ``winograd:avx2``."""
    return impl.partition(":")[0]


@lru_cache(maxsize=_MAX_CACHED)
def implementation(impl: str) -> Implementation | None:
    """Our implementation of this name; ``None`` for the library's.

    Example:
        >>> implementation("winograd:avx2") is None, implementation("brgconv:avx2") is None
        (False, True)
    """
    return _load(name_of(impl)) if name_of(impl) in _names() else None


def offers(spec: Spec) -> Iterator[Resolved]:
    """The Spec as each of ours settles it that computes it here, and that it names if it names one."""
    for name in _names():
        ours = _load(name)
        if spec.kind not in ours.kinds or native() is None:
            continue
        isas = ours.isas(spec)
        isa = next(filter(library.has_isa, isas), None)
        impl = f"{name}:{isa or 'any'}"
        if (isa or not isas) and spec.impl in ("", impl) and (settled := ours.settled(spec, impl)):
            yield settled


def recipes() -> tuple[str, ...]:
    """Names of those that compute convolutions in place of the library's."""
    return tuple(name for name in _names() if "convolution" in _load(name).kinds)


def is_favourite(spec: Spec) -> bool:
    """Whether a resolved Spec's implementation is one of ours that precedes the library's favourite."""
    ours = implementation(spec.impl)
    return ours is not None and ours.is_favourite(spec)


def is_faster_alone(function: Eltwise) -> bool:
    """Whether code of ours computes a function faster than the library does as a post-op."""
    return native() is not None and library.has_isa("avx2") and function.algorithm in _load("functions").algorithms


def multiplies_bytes() -> bool:
    """Whether there are exact products of bytes: by instructions of the CPU, or by code of ours."""
    has_ours = native() is not None and library.has_isa("avx2") and not library.is_sequential()
    return has_ours or library.sums_bytes_exactly()


def lanes_of(impl: str) -> int:
    """Floats in a vector of the instruction set that one of ours is for."""
    return LANES[impl.partition(":")[2]]


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(name for _, name, _ in pkgutil.iter_modules(__path__)))


@cache
def _load(name: str) -> Implementation:
    ours: Implementation = importlib.import_module(f"{__name__}.{name}").OURS
    return ours
