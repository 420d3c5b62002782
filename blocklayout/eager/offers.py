"""Candidates: layouts in which an operator computes, implementations and prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl, ops
from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.eager.call import Op
from blocklayout.eager.planning import OperatorCall, plan_for
from blocklayout.errors import BlockLayoutError, InputError, ModelError, closest
from blocklayout.ir import TensorInfo
from blocklayout.ir.operator import LAYOUT_NAMES
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.layout.ordering import as_tag
from blocklayout.model.schemas import least_arity, specified_op_types
from blocklayout.plan import Machine

if TYPE_CHECKING:
    from blocklayout.ir.result_format import Followed
    from blocklayout.model import BuildValue
    from blocklayout.plan import Plan

    Input: TypeAlias = "tuple[int, ...] | TensorInfo | np.ndarray | None"

How: TypeAlias = Literal["native", "view", "copy", "reorder", "reference", "plain", "none"]
HOWS: Mapping[How, str] = {
    "native": "computed in the layout",
    "view": "no byte is moved",
    "copy": "nothing is computed, elements are copied: in a network it may be a view",
    "reorder": "computed in another layout, with reorders before or behind",
    "reference": "by an unoptimised implementation of oneDNN's",
    "plain": "by onnx.reference, on row-major arrays",
    "none": "not at all",
}
"""Meanings, as for people."""

_MEMORY_FORMATS = {"plain": "contiguous_format", "nhwc": "channels_last"}
_BLOCKS = {f"blocked{size}": size for size in (4, 8, 16)}


class Offer(Struct, frozen=True, kw_only=True):
    """An operator whose tensors are in one layout.

    Attributes:
        op_type: The operator's.
        layout: Of its tensors, as asked for.
        how: One of :data:`HOWS`.
        implementations: Of its steps, reorders left aside.
        computes_in: Layouts of sources and results for these.
        n_reorders: Reorders of its tensors.
        ns: Estimated time of a run, reorders included.
        priced_by: Where that comes from.
        reason: Why it is not computed, for ``none``.
    """

    op_type: str
    layout: str
    how: How
    implementations: tuple[str, ...] = ()
    computes_in: tuple[str, ...] = ()
    n_reorders: int = 0
    ns: float = 0.0
    priced_by: str = ""
    reason: str = ""


class Sample(Struct, frozen=True):
    """A problem of an operator: inputs in ONNX order, attributes, and its application if it is none of ONNX's."""

    inputs: tuple[Input, ...]
    attrs: Mapping[str, Any] = {}
    build: Callable[..., Any] | None = None


def candidates(
    op_type: str, *inputs: Input, layouts: str | Sequence[str] | None = None, dtype: str = "f32", **attrs: Any
) -> tuple[Offer, ...]:
    """Layouts in which an operator computes on this CPU, implementations and prices, as ``bl.op`` would run it.

    Args:
        op_type: As ONNX writes it, or that of a registered operator.
        inputs: In ONNX order: extents of a tensor, or an array that is a constant; by default those of a sample.
        layouts: The format that the tensors are in, such as ``nhwc``, or several; by default plain, channels last and
            the blocks of this CPU. Tensors of another rank than the first are row-major.
        dtype: Data type of the tensors.
        attrs: The attributes as ONNX names them; a sample has some of its own.

    Returns:
        For each layout the way that is cheapest, or an offer that says why it cannot be planned.

    Raises:
        ModelError: No such operator.
        InputError: No such data type, or an input that is neither extents nor an array.
        LayoutError: No such layout.

    Example:
        >>> import blocklayout as bl
        >>> [offer.how for offer in bl.candidates("Relu", (1, 16, 8, 8), layouts=("nchw", "nhwc"))]
        ['native', 'native']
    """
    if dtype not in FLOATS:
        raise InputError(f"candidates: dtype {dtype!r}; give one of {', '.join(FLOATS)}")
    if op_type not in all_op_types():
        raise ModelError(f"candidates: no operator {op_type!r}; {closest(op_type, all_op_types())}")
    asked = (layouts,) if isinstance(layouts, str) else layouts or default_layouts()
    for layout in asked:
        if layout not in (*_MEMORY_FORMATS, *LAYOUT_NAMES):
            FormatTag.parse(layout)
    for place, given in enumerate(inputs):
        is_known = isinstance(given, np.ndarray) or given is None
        if not _are_extents(given) and (not place or not is_known):
            needed = "extents, or an array of a constant" if place else "the extents of a tensor"
            raise InputError(f"candidates: input {place} of {op_type} is {given!r:.60}; give {needed}")
    sample = sample_of(op_type)
    if inputs:
        known: list[Any] = [*inputs]
        sample = Sample(tuple(tuple(each) if isinstance(each, list) else each for each in known), build=sample.build)
    sample = replace(sample, attrs={**sample.attrs, **attrs})
    return tuple(_offer(op_type, sample, layout, dtype) for layout in asked)


def default_layouts() -> tuple[str, ...]:
    """The layouts that are asked about: those that this CPU has kernels for."""
    return "plain", "nhwc", *Machine(dnnl.isa(), 1).block_names


def all_op_types() -> tuple[str, ...]:
    """Every operator of ONNX's, and those known here beside them, sorted."""
    return tuple(sorted({*specified_op_types(), *ops.known()}))


def _are_extents(given: Any) -> bool:
    return isinstance(given, tuple | list) and all(type(extent) is int and extent > 0 for extent in given)


def _offer(op_type: str, sample: Sample, layout: str, dtype: str) -> Offer:
    try:
        operands = {f"x{place}": _operand(each, dtype) for place, each in enumerate(sample.inputs)}
        planned = plan_for(_problem(op_type, sample, _in_layout(operands, layout)))
    except BlockLayoutError as error:
        return Offer(op_type=op_type, layout=layout, how="none", reason=" ".join(str(error).split()))
    if all(each is not None for each in planned.fixed):
        return Offer(op_type=op_type, layout=layout, how="view")
    plan = planned.ready.plan
    steps = [step for step in plan.steps if not step.is_reorder]
    chosen = (each for choice in plan.rationale.choices for each in choice.chosen.layouts)
    return Offer(
        op_type=op_type,
        layout=layout,
        how=_how(plan, len(steps)),
        implementations=tuple(step.spec.impl for step in steps),
        computes_in=tuple(dict.fromkeys(each.named("src") for each in chosen if isinstance(each, MemoryDesc))),
        n_reorders=len(plan.reorders),
        ns=plan.cost_ns,
        priced_by=plan.rationale.priced_by,
    )


def _problem(op_type: str, sample: Sample, operands: Mapping[str, Any]) -> OperatorCall:
    attrs = dict(sample.attrs)

    def build(x: Any, *others: Any) -> Any:
        return x.builder.op(op_type, x, *others, **attrs)

    facts = ops.facts_of(op_type)
    arrays = (MemoryDesc(each.shape or (1,)) if isinstance(each, np.ndarray) else each for each in operands.values())
    descs = [each for each in arrays if each is not None]

    def rule(_: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
        return facts.result_format(descs, dims, dtype)

    return OperatorCall(Op(op_type, (), sample.build or build, rule, op_type=op_type), {}, operands)


def _operand(given: Input, dtype: str) -> TensorInfo | np.ndarray | None:
    if isinstance(given, np.ndarray):
        return given.astype(to_numpy(dtype)) if given.dtype == np.float32 else given
    return TensorInfo(given, dtype) if isinstance(given, tuple) else given


def _in_layout(operands: Mapping[str, TensorInfo | np.ndarray | None], layout: str) -> dict[str, Any]:
    """With descriptors in place of extents; an InputError where no tensor is first, or the layout none of its rank."""
    first = next(iter(operands.values()), None)
    if not isinstance(first, TensorInfo):
        raise InputError("the first input must be a tensor: give its extents")
    ndims = len(first.dims)
    tag = _MEMORY_FORMATS.get(layout, layout)
    if tag in _BLOCKS and ndims > len("nc"):
        tag = FormatTag((0, 1, *range(2, ndims)), (_BLOCKS[tag],), (1,)).text
    descs: dict[str, Any] = dict(operands)
    for name, each in operands.items():
        if isinstance(each, TensorInfo):
            is_alike = len(each.dims) == ndims
            descs[name] = MemoryDesc(each.dims, each.dtype, as_tag(tag, ndims) if is_alike else None)
    return descs


def _how(plan: Plan, n_steps: int) -> How:
    if plan.plain_steps:
        return "plain"
    if plan.reference_steps:
        return "reference"
    if not n_steps:
        return "copy" if plan.reorders else "view"
    return "reorder" if plan.reorders else "native"


IMAGE = (1, 64, 28, 28)
_C, _PIXELS = IMAGE[1], IMAGE[2:]
_MASK, _WHOLE, _BYTES = TensorInfo(IMAGE, "bool"), TensorInfo(IMAGE, "s32"), TensorInfo(IMAGE, "u8")


def _numbers(*shape: int) -> np.ndarray:
    return np.full(shape, 0.5, np.float32)


def _whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _between_bytes(x: BuildValue) -> BuildValue:
    """A function of numbers that bytes stand for, quantised."""
    numbers = x.builder.op("DequantizeLinear", x, np.array(0.05, np.float32)).sigmoid()
    quantized: BuildValue = x.builder.op("QuantizeLinear", numbers, np.array(1 / 255, np.float32))
    return quantized


_SCALES = np.array([1, 1, 2, 2], np.float32)
_WINDOW = Sample((IMAGE,), {"kernel_shape": (2, 2), "strides": (2, 2)})
_MATRICES = (_C, 256)
_OVER_CHANNELS = Sample((IMAGE,), {"axis": 1})
_INDICES = TensorInfo(IMAGE, "s64")
_LABELLED = Sample(((16, 10), TensorInfo((16,), "s64")))
_SAMPLES: Mapping[str, Sample] = {
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), Sample((IMAGE, IMAGE))),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _LABELLED),
    **{
        name: Sample(((16, 1, 64), _numbers(1, gates * 32, 64), _numbers(1, gates * 32, 32)), {"hidden_size": 32})
        for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
    },
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _WINDOW),
    **dict.fromkeys(("And", "Or", "Xor"), Sample((_MASK, _MASK))),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), Sample((_WHOLE, _WHOLE))),
    **dict.fromkeys(("ArgMax", "ArgMin", "Hardmax", "LogSoftmax", "LpNormalization", "Softmax"), _OVER_CHANNELS),
    **dict.fromkeys(("CumProd", "CumSum"), Sample((IMAGE, np.array(1, np.int64)))),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), Sample((IMAGE,), {"blocksize": 2})),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), Sample((IMAGE, _numbers(_PIXELS[-1])))),
    "BatchNormalization": Sample((IMAGE, *[_numbers(_C)] * 4)),
    "BitShift": Sample((_BYTES, _BYTES), {"direction": "LEFT"}),
    "BitwiseNot": Sample((_WHOLE,)),
    "ByteTable": Sample((_BYTES,), build=_between_bytes),
    "Cast": Sample((_BYTES,), {"to": 1}),
    "CastLike": Sample((_BYTES, IMAGE)),
    "ChannelShuffle": Sample((IMAGE,), build=lambda x: x.channel_shuffle(4)),
    "Clip": Sample((IMAGE, _numbers(), np.array(6, np.float32))),
    "Concat": Sample((IMAGE, IMAGE), {"axis": 1}),
    "Conv": Sample((IMAGE, _numbers(_C, _C, 3, 3)), {"pads": (1, 1, 1, 1)}),
    "ConvTranspose": Sample((IMAGE, _numbers(_C, _C, 2, 2)), {"strides": (2, 2)}),
    "CenterCropPad": Sample((IMAGE, _whole(1, _C, 20, 20))),
    "ConvInteger": Sample((_BYTES, np.ones((_C, _C, 3, 3), np.uint8))),
    "DeformConv": Sample((IMAGE, _numbers(_C, _C, 3, 3), (1, 18, 28, 28)), {"pads": (1, 1, 1, 1)}),
    "DequantizeLinear": Sample((_BYTES, np.array(0.5, np.float32))),
    "Einsum": Sample((IMAGE, IMAGE), {"equation": "nchw,nchw->nc"}),
    "EyeLike": Sample((_MATRICES,)),
    "Expand": Sample(((1, _C, 1, 1), _whole(*IMAGE))),
    "Gather": Sample((IMAGE, _whole(0, 2, 4)), {"axis": 1}),
    "GatherElements": Sample((IMAGE, _INDICES)),
    "GatherND": Sample((IMAGE, np.zeros((1, 1), np.int64))),
    "Gemm": Sample((_MATRICES, _numbers(256, 128))),
    "GridSample": Sample((IMAGE, (1, *_PIXELS, 2))),
    "GroupNormalization": Sample((IMAGE, _numbers(_C), _numbers(_C)), {"num_groups": 8}),
    "InstanceNormalization": Sample((IMAGE, _numbers(_C), _numbers(_C))),
    "LRN": Sample((IMAGE,), {"size": 5}),
    "MatMul": Sample((IMAGE, _numbers(_PIXELS[-1], 64))),
    "MatMulInteger": Sample((_BYTES, np.ones((_PIXELS[-1], 64), np.uint8))),
    "MaxUnpool": Sample(((1, _C, 14, 14), TensorInfo((1, _C, 14, 14), "s64")), _WINDOW.attrs),
    "Not": Sample((_MASK,)),
    "PRelu": Sample((IMAGE, _numbers(_C, 1, 1))),
    "Pad": Sample((IMAGE, _whole(0, 0, 1, 1, 0, 0, 1, 1))),
    "Pow": Sample((IMAGE, np.array(3, np.float32))),
    "QuantizeLinear": Sample((IMAGE, np.array(0.5, np.float32), np.array(0, np.uint8))),
    "Reshape": Sample((IMAGE, _whole(1, _C, -1))),
    "Resize": Sample((IMAGE, None, _SCALES)),
    "RoiAlign": Sample((IMAGE, (4, 4), TensorInfo((4,), "s64"))),
    "ScatterElements": Sample((IMAGE, _INDICES, IMAGE)),
    "ScatterND": Sample((IMAGE, np.zeros((1, 1), np.int64), IMAGE)),
    "Slice": Sample((IMAGE, _whole(16), _whole(48), _whole(1))),
    "Split": Sample((IMAGE, _whole(32, 32)), {"axis": 1, "n_outputs": 2}),
    "Squeeze": Sample((IMAGE, _whole(0))),
    "Tile": Sample((IMAGE, _whole(1, 1, 2, 2))),
    "TopK": Sample((IMAGE, _whole(5)), {"axis": 1, "n_outputs": 2}),
    "Transpose": Sample((IMAGE,), {"perm": (0, 2, 3, 1)}),
    "Unsqueeze": Sample((IMAGE, _whole(0))),
    "Upsample": Sample((IMAGE, _SCALES)),
    "Where": Sample((_MASK, IMAGE, IMAGE)),
}
"""Where others are wanted than as many images as an operator has inputs."""


def sample_of(op_type: str) -> Sample:
    """A problem of an operator: images of 64 channels."""
    if op_type in _SAMPLES:
        return _SAMPLES[op_type]
    n_inputs, n_outputs = least_arity(op_type)
    attrs: dict[str, Any] = {"n_outputs": n_outputs} if n_outputs > 1 else {}
    if op_type.startswith("Reduce"):
        return Sample((IMAGE, _whole(2, 3)), attrs)
    return Sample((IMAGE,) * n_inputs, attrs)
