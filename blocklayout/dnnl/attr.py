"""Attributes of a primitive as plain data: post-ops, scales, zero points and math mode."""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import force_setattr

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.enums import full_algorithm, values
from blocklayout.dtypes import itemsize
from blocklayout.encoding import InfiniteField
from blocklayout.errors import InvalidArgumentsError

_MANY = 1 << 12  # bit sets of 12 dimensions; no kernel or stride is as large

MAX_POST_OPS = 32
"""oneDNN takes no more post-ops than this."""

FPMATH_MODES = tuple(values("fpmath_mode"))
"""Implicit down-conversions that may be allowed for f32 computations."""


class Sum(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="sum"):
    """``dst = op(...) + scale * (dst - zero_point)``: accumulates onto the destination.

    Attributes:
        dtype: Data type to read the destination as; empty for its own.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.Attr(post_ops=(dnnl.Sum(0.5), dnnl.Eltwise("relu"))).post_ops[0]
        Sum(scale=0.5, zero_point=0, dtype='')
    """

    scale: float = 1.0
    zero_point: int = 0
    dtype: str = ""

    def __post_init__(self) -> None:
        if not math.isfinite(self.scale):
            raise InvalidArgumentsError(f"Sum: scale is {self.scale}; give a finite number")
        force_setattr(self, "scale", float(self.scale))
        if not -(2**31) <= self.zero_point < 2**31:
            raise InvalidArgumentsError(f"Sum: zero_point is {self.zero_point}; 32 bits must hold it")
        if self.dtype:
            itemsize(self.dtype)


class Eltwise(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="eltwise"):
    """An element-wise function of the result; ``relu`` and ``eltwise_relu`` name the same algorithm.

    Example:
        >>> Eltwise("clip", 0, 6)
        Eltwise(algorithm='eltwise_clip', alpha=0.0, beta=6.0)
    """

    algorithm: str
    alpha: InfiniteField = 0.0
    beta: InfiniteField = 0.0

    def __post_init__(self) -> None:
        force_setattr(self, "algorithm", full_algorithm("eltwise", self.algorithm))
        force_setattr(self, "alpha", float(self.alpha))
        force_setattr(self, "beta", float(self.beta))
        check_eltwise(self.algorithm, self.alpha, self.beta)


class Binary(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="binary"):
    """A binary operation of the result and a second tensor.

    Fast with ``src1`` of exactly the destination's layout, or of extents (1, C, 1, ...) or
    all ones; any other runs on a reference kernel.

    Attributes:
        src1: Descriptor of the second operand, which must have a layout before the primitive
            is made; ``None`` until somebody knows it.

    Example:
        >>> import blocklayout as bl
        >>> from blocklayout import dnnl
        >>> dnnl.Binary("add", bl.MemoryDesc((1, 16, 8, 8), "f32", "nhwc")).algorithm
        'binary_add'
    """

    algorithm: str
    src1: Desc | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "algorithm", full_algorithm("binary", self.algorithm))


class Prelu(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="prelu"):
    """A leaky ReLU whose slopes are an f32 tensor.

    Attributes:
        mask: Bit i set: one slope for each index along dimension i; 0: a single slope.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.Prelu(mask=2)  # a slope for each channel
        Prelu(mask=2)
    """

    mask: int

    def __post_init__(self) -> None:
        if not 0 <= self.mask < _MANY:
            raise InvalidArgumentsError(
                f"Prelu: mask {self.mask} is negative or huge; set bit i for slopes along dimension i"
            )


class DepthwiseConv(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="depthwise_conv"):
    """A square depthwise convolution over the result of a 1x1 convolution.

    Attributes:
        kernel: Extent of the kernel, both dimensions.
        padding: Zeros before the first element of each dimension.
        bias_dtype: Empty for no bias.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.DepthwiseConv(stride=2).kernel
        3
    """

    kernel: int = 3
    stride: int = 1
    padding: int = 1
    weights_dtype: str = "f32"
    bias_dtype: str = ""
    dst_dtype: str = "f32"

    def __post_init__(self) -> None:
        if not (0 < self.kernel < _MANY and 0 < self.stride < _MANY and 0 <= self.padding < _MANY):
            given = f"kernel {self.kernel}, stride {self.stride}, padding {self.padding}"
            raise InvalidArgumentsError(
                f"DepthwiseConv: {given}; the kernel and stride are at least 1, the padding at least 0"
            )
        for dtype in (self.weights_dtype, self.bias_dtype or "f32", self.dst_dtype):
            itemsize(dtype)

    def dst_extent(self, extent: int) -> int:
        """Height or width after it.

        The zeros behind the last element are as many as make the extent ``extent / stride`` rounded up.

        Example:
            >>> DepthwiseConv(stride=2).dst_extent(7)
            4
        """
        return -(-extent // self.stride)


PostOp = Sum | Eltwise | Binary | Prelu | DepthwiseConv


class Attr(Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes of a primitive. The scratchpad always belongs to the caller.

    Attributes:
        post_ops: Applied to the result in this order.
        scales: ``(argument, mask)`` pairs; the factors are f32 and given at execution as
            ``scale_src`` and so on. Bit i of the mask: one factor for each index along
            dimension i; 0: a single factor.
        zero_points: Likewise, s32, as ``zero_point_src`` and so on.
        fpmath: Down-conversion allowed for f32: ``strict``, ``bf16``, ``f16``, ``tf32`` or ``any``.

    Example:
        >>> Attr((Sum(), Eltwise("relu")), scales=[("weights", 1)]).scales
        (('weights', 1),)
    """

    post_ops: tuple[PostOp, ...] = ()
    scales: tuple[tuple[str, int], ...] = ()
    zero_points: tuple[tuple[str, int], ...] = ()
    fpmath: str = "strict"

    def __post_init__(self) -> None:
        force_setattr(self, "post_ops", tuple(self.post_ops))
        for name in ("scales", "zero_points"):
            if getattr(self, name) != ():
                force_setattr(self, name, _masks(name, getattr(self, name)))
        for index, post_op in enumerate(self.post_ops):
            if not isinstance(post_op, PostOp):
                raise InvalidArgumentsError(
                    f"Attr: post_ops[{index}] is {post_op!r}; give Sum, Eltwise, Binary, Prelu, ..."
                )
        if len(self.post_ops) > MAX_POST_OPS:
            raise InvalidArgumentsError(f"Attr: {len(self.post_ops)} post-ops; oneDNN takes at most {MAX_POST_OPS}")
        if self.fpmath not in FPMATH_MODES:
            raise InvalidArgumentsError(
                f"Attr: fpmath {self.fpmath!r} does not exist; give one of {', '.join(FPMATH_MODES)}"
            )

    @property
    def depthwise(self) -> DepthwiseConv | None:
        """The depthwise convolution among the post-ops."""
        return next((post_op for post_op in self.post_ops if isinstance(post_op, DepthwiseConv)), None)

    @property
    def has_sum(self) -> bool:
        """Whether the primitive reads its destination."""
        return any(isinstance(post_op, Sum) for post_op in self.post_ops)


def check_eltwise(algorithm: str, alpha: float, beta: float) -> None:
    """Refuse NaN, a clip whose bounds are crossed, and ``soft_relu`` with alpha 0, by an InvalidArgumentsError."""
    if math.isnan(alpha) or math.isnan(beta):
        raise InvalidArgumentsError(f"{algorithm}: alpha {alpha}, beta {beta}; neither may be NaN")
    if algorithm.startswith("eltwise_clip") and beta < alpha:
        raise InvalidArgumentsError(f"{algorithm}: alpha {alpha} is the lower bound and may not exceed beta {beta}")
    if algorithm == "eltwise_soft_relu" and alpha == 0:
        raise InvalidArgumentsError(
            f"{algorithm}: computes log(1 + exp(alpha * x)) / alpha, so alpha may not be 0; 1 is usual"
        )


def _masks(name: str, pairs: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    masks = tuple((str(argument), int(mask)) for argument, mask in pairs)
    for argument, mask in masks:
        if not 0 <= mask < _MANY:
            raise InvalidArgumentsError(
                f"Attr: {name} has mask {mask} for {argument}; masks are bit sets of 12 dimensions"
            )
    if len({argument for argument, _ in masks}) != len(masks):
        raise InvalidArgumentsError(f"Attr: {name} names an argument twice; give each argument one mask")
    return masks


NO_ATTR = Attr()
"""No post-ops, no scales, strict math."""
