"""Operators of onnxruntime's own, as those of ONNX's set: it writes them into files that it optimised or quantised.

ONNX's own convolution and product of quantised tensors are written out, too, so that these are computed in one way.

Each operator is a function in the words of a :class:`Builder`: its positional parameters are the inputs, its keywords
the attributes with their defaults, and it returns the outputs. A node with an attribute that its function does not
take is refused.

Source: docs/ContribOperators.md of onnxruntime 1.31, and its kernels.
"""

# ruff: noqa: N803, PLR0913, PLR0917 - inputs and attributes are as many, and have the names, that files have

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.dtypes import to_numpy
from blocklayout.errors import BlockLayoutError, ModelError, UnsupportedError
from blocklayout.model.builder import Builder
from blocklayout.model.graph import Node, fresh_name, live_nodes

if TYPE_CHECKING:
    from blocklayout.ir.value import Value
    from blocklayout.model.builder import BuildValue

    Given = BuildValue | None
    """An optional input."""
    Stored = tuple[BuildValue, BuildValue, Given]
    """Three inputs: integers, and the scale and zero point by which they stand for numbers."""
    Scheme = tuple[BuildValue, Given]
    """Two inputs: a scale and a zero point."""

_PARTS: Mapping[str, Sequence[str]] = {"Stored": ("", "_scale", "_zero_point"), "Scheme": ("_scale", "_zero_point")}
"""By the type of a parameter, endings of the names of inputs that it stands for."""

DOMAIN = "com.microsoft"
_FIRST_OPSET_OF_LAYER_NORMALIZATION = 17
_FIRST_OPSET_OF_SCALES = 10
_FIRST_OPSET_OF_SCALES_ALONG_AXIS = 13
_FIRST_OPSET_OF_OTHER_SCALES = 19
_FIRST_OPSET_OF_SOFTMAX_ALONG_AXIS = 13
_FAR_BELOW = np.finfo(np.float32).min

_REFUSED_INPUTS = {
    "Attention": {6: "past_sequence_length"},
    "DynamicQuantizeLSTM": {4: "sequence_lens"},
    "MultiHeadAttention": {8: "past_sequence_length", 9: "cache_indirection"},
}
"""Optional inputs that are not implemented here: by operator, their names by index. Functions do without them."""

_REFUSED_ATTRIBUTES = {"Attention": ("do_rotary", "past_present_share_buffer", "rotary_embedding_dim")}
"""Attributes that must be 0, likewise."""


class NotDoneError(Exception):
    """An input or an attribute that is not implemented here; the message names it."""


def is_known(op_type: str) -> bool:
    """Whether :func:`nodes_of` takes such nodes; ``op_type`` has the domain before it."""
    return op_type.startswith(f"{DOMAIN}.") and op_type.removeprefix(f"{DOMAIN}.") in OPERATORS


def nodes_of(node: Node, values: dict[str, Value], opset: int) -> tuple[Node, ...]:
    """The nodes that compute the same as one of onnxruntime's own; their constants are added to ``values``.

    Raises:
        ModelError: The node contradicts its operator.
        UnsupportedError: It has an attribute or an input that is not done here.
    """
    where = f"node {node.name!r} ({node.op_type})"
    b = Builder(opset=opset)
    names = {f"input {index}": name for index, name in enumerate(dict.fromkeys(filter(None, node.inputs)))}
    given = {real: _handle(b, name, values[real]) for name, real in names.items()}
    results = _called(node, [given.get(name) for name in node.inputs], where)
    for index, name in enumerate(node.outputs):
        if not name:
            continue
        result = results[index] if index < len(results) else None
        if result is None:
            raise UnsupportedError(f"{where}: its output {index}, {name!r}, is read; that is not computed here")
        b.output(f"output {index}", result)
        names[f"output {index}"] = name
    graph = b.to_graph()
    for name in graph.values:
        names.setdefault(name, fresh_name(f"{node.name}.{name}", values))
    outputs = {name for name in node.outputs if name}
    for name, value in graph.values.items():
        if value.data is not None and (names[name] not in values or names[name] in outputs):
            values[names[name]] = value.renamed(names)
    nodes = live_nodes(graph.nodes, graph.outputs)
    made = [each.renamed(names).replace(name=f"{node.name}.{each.name}") for each in nodes]
    return tuple(each.replace(name=node.name) if node.outputs[0] in each.outputs else each for each in made)


def _handle(b: Builder, name: str, value: Value) -> BuildValue:
    return b.input(name, value.shape, value.dtype) if value.data is None else b.constant(value.data, name)


def _called(node: Node, inputs: Sequence[Given], where: str) -> Sequence[Given]:
    op_type = node.op_type.removeprefix(f"{DOMAIN}.")
    write, refused_inputs = OPERATORS[op_type], _REFUSED_INPUTS.get(op_type, {})
    refused = {name: node.attr(name, 0) for name in _REFUSED_ATTRIBUTES.get(op_type, ())}
    parameters = inspect.signature(write).parameters.values()
    known = {each.name: each for each in parameters if each.kind is each.KEYWORD_ONLY}
    is_open = any(each.kind is each.VAR_KEYWORD for each in parameters)
    for name in node.attrs:
        if name not in known and name not in refused and not is_open:
            names = ", ".join((*known, *refused))
            raise UnsupportedError(f"{where}: the attribute {name!r} is not known here; known are {names}")
    missing = [name for name, each in known.items() if each.default is each.empty and name not in node.attrs]
    given, absent = _given(parameters, [each for index, each in enumerate(inputs) if index not in refused_inputs])
    for name in (*missing, *absent):
        raise ModelError(f"{where}: {name!r} is missing; it is required")
    refused |= {name: inputs[index] for index, name in refused_inputs.items() if index < len(inputs)}
    for name, value in refused.items():
        if value is not None and value != 0:
            raise UnsupportedError(f"{where}: {name!r} is given; that is not done here")
    try:
        result = write(*given, **{name: value for name, value in node.attrs.items() if name not in refused})
    except NotDoneError as error:
        raise UnsupportedError(f"{where}: {error}") from None
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from error
    except BlockLayoutError:
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:  # of inputs and attributes that do not fit
        raise ModelError(f"{where} with {len(inputs)} inputs: {error}") from error
    return result if isinstance(result, tuple) else (result,)


def _given(parameters: Iterable[inspect.Parameter], inputs: Sequence[Given]) -> tuple[list[Any], list[str]]:
    """Arguments for positional parameters, of inputs in order, and names of inputs that are missing."""
    given, missing, left = [], [], list(inputs)
    for each in (each for each in parameters if each.kind is each.POSITIONAL_ONLY):
        parts = _PARTS.get(each.annotation, ("",))
        values, left = [*left, *[None] * len(parts)][: len(parts)], left[len(parts) :]
        for part, value in zip(parts, values, strict=True):
            if value is None and each.annotation != "Given" and part != "_zero_point":
                missing.append(each.name + part)
        given.append(values if len(parts) > 1 else values[0])
    return [*given, *left], missing


def _op(op_type: str, x: BuildValue, *others: Given, **attrs: Any) -> BuildValue:
    result: BuildValue = x.builder.op(op_type, x, *others, **attrs)
    return result


# --- activations, and operators that they are fused with


def _gelu(x: BuildValue, /) -> BuildValue:
    one = _op("Erf", x * 0.5**0.5) + 1.0
    return x * one * 0.5


def _fast_gelu(x: BuildValue, bias: Given = None, /) -> BuildValue:
    x = _plus(x, bias)
    cubic = x + x * x * x * 0.044715
    return x * ((cubic * math.sqrt(2 / math.pi)).tanh() + 1.0) * 0.5


def _activated(x: BuildValue, activation: str, parameters: Sequence[float]) -> BuildValue:
    case: tuple[Any, ...] = (activation, *parameters)
    match case:
        case [""]:
            return x
        case ["Relu" | "Tanh" | "Sigmoid"]:
            return _op(activation, x)
        case ["Silu"]:
            return x * x.sigmoid()
        case ["LeakyRelu", alpha]:
            return x.leaky_relu(alpha)
        case ["Clip", low, high]:
            return x.clip(low, high)
        case ["HardSigmoid", alpha, beta]:
            return x.hard_sigmoid(alpha, beta)
    given = f"{activation!r} with 'activation_params' {list(parameters)}"
    raise NotDoneError(f"the attribute 'activation' {given} is unknown")


def _fused_conv(
    x: BuildValue,
    weights: BuildValue,
    bias: Given = None,
    addend: Given = None,
    /,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    **window: Any,
) -> BuildValue:
    return _activated(_plus(_op("Conv", x, weights, bias, **window), addend), activation, activation_params)


def _nhwc_conv(x: BuildValue, weights: BuildValue, bias: Given = None, /, **window: Any) -> BuildValue:
    """All channels last, those of the weights too."""
    images, kernels = (each.transpose((0, 3, 1, 2)) for each in (x, weights))
    return _op("Conv", images, kernels, bias, **window).transpose((0, 2, 3, 1))


def _fused_gemm(
    a: BuildValue,
    b: BuildValue,
    c: Given = None,
    /,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> BuildValue:
    y = a.gemm(b, c, alpha=alpha, beta=beta, trans_a=bool(transA), trans_b=bool(transB))
    parameters = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    return _op(activation, y, **parameters) if activation else y


def _fused_matmul(
    a: BuildValue,
    b: BuildValue,
    /,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> BuildValue:
    product = _turned(a, transA, transBatchA).matmul(_turned(b, transB, transBatchB))
    return product if alpha == 1 else product * alpha


def _turned(x: BuildValue, is_transposed: int, is_batch_first: int) -> BuildValue:
    """The rows, which stand before the batch if ``is_batch_first``, behind it; then rows and columns exchanged."""
    order = [*range(len(x.shape))]
    if len(order) > 1 and is_batch_first:
        order.insert(len(order) - 2, order.pop(0))
    if len(order) > 1 and is_transposed:
        order.append(order.pop(-2))
    return x if order == sorted(order) else x.transpose(order)


# --- normalisations


def _layer_normalization(
    x: BuildValue,
    scale: BuildValue,
    bias: Given = None,
    /,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> BuildValue:
    """As ONNX has it from operator set 17 on; onnxruntime writes it into files of older ones, too."""
    _check_is_f32(stash_type)
    if x.builder.opset >= _FIRST_OPSET_OF_LAYER_NORMALIZATION:
        return _op("LayerNormalization", x, scale, bias, axis=axis, epsilon=epsilon)
    axes = tuple(range(axis % len(x.shape), len(x.shape)))
    centred = x - x.reduce_mean(axes)
    variance = (centred * centred).reduce_mean(axes)
    return _plus(centred / (variance + epsilon).sqrt() * scale, bias)


def _rms_normalization(
    x: BuildValue, scale: BuildValue, /, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[BuildValue, BuildValue]:
    _check_is_f32(stash_type)
    squares = (x * x).reduce_mean(tuple(range(axis % len(x.shape), len(x.shape))))
    deviation = (squares + epsilon).sqrt()
    return x / deviation * scale, deviation.reciprocal()


def _check_is_f32(stash_type: int) -> None:
    if stash_type != 1:
        raise NotDoneError(f"the attribute 'stash_type' is {stash_type}; statistics are computed in f32, which is 1")


def _skip_layer_normalization(
    x: BuildValue,
    skip: BuildValue,
    scale: BuildValue,
    shift: Given = None,
    bias: Given = None,
    /,
    *,
    epsilon: float = 1e-12,
) -> tuple[Given, ...]:
    total = _plus(x + skip, bias)
    return _layer_normalization(total, scale, shift, epsilon=epsilon), None, None, total


def _skip_rms_normalization(
    x: BuildValue, skip: BuildValue, scale: BuildValue, bias: Given = None, /, *, epsilon: float = 1e-12
) -> tuple[Given, ...]:
    total = _plus(x + skip, bias)
    normal, inverse = _rms_normalization(total, scale, epsilon=epsilon)
    return normal, None, inverse, total


def _embed_layer_normalization(
    ids: BuildValue,
    segment_ids: Given,
    words: BuildValue,
    positions: BuildValue,
    segments: Given,
    scale: BuildValue,
    shift: BuildValue,
    mask: Given = None,
    position_ids: Given = None,
    /,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Given, ...]:
    """Rows of three tables, added; and how many words of each sentence a mask lets through."""
    del mask_index_type  # whether there is a second output, which the node says as well
    b, (batch, length) = ids.builder, ids.shape
    place = positions.slice([0], [length], [0]) if position_ids is None else _op("Gather", positions, position_ids)
    total = _op("Gather", words, ids) + place
    if segments is not None and segment_ids is not None:
        total = total + _op("Gather", segments, segment_ids)
    counts = b.constant(np.zeros(batch, np.int32)) if mask is None else mask.reduce_sum((1,), keepdims=False)
    return _layer_normalization(total, scale, shift, epsilon=epsilon), counts, total


# --- attention


def _attention(
    x: BuildValue,
    weights: BuildValue,
    bias: Given = None,
    mask: Given = None,
    past: Given = None,
    attention_bias: Given = None,
    /,
    *,
    num_heads: int,
    unidirectional: int = 0,
    qkv_hidden_sizes: Sequence[int] = (),
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
) -> tuple[Given, ...]:
    """Query, key and value are products of one source and parts of the weights."""
    sizes = tuple(qkv_hidden_sizes) or (weights.shape[-1] // 3,) * 3
    # a product for each part: as one, its slices would have to be copied
    starts = np.cumsum([0, *sizes]).tolist()
    query, key, value = (
        _heads(
            _plus(x.matmul(_part(weights, start, size)), bias if bias is None else _part(bias, start, size)), num_heads
        )
        for start, size in zip(starts, sizes, strict=False)
    )
    present = None
    if past is not None:
        old_key, old_value = (past.slice([index], [index + 1], [0]).reshape(past.shape[1:]) for index in range(2))
        key, value = (x.builder.concat(pair, 2) for pair in ((old_key, key), (old_value, value)))
    if key.shape == value.shape:
        present = x.builder.concat([each.reshape((1, *each.shape)) for each in (key, value)], 0)
    added = attention_bias, _hidden(mask, query, key, mask_filter_value), _future(query, key, unidirectional)
    return _attended(query, key, value, scale, *added)[0], present


def _multi_head_attention(
    query: BuildValue,
    key: Given = None,
    value: Given = None,
    bias: Given = None,
    mask: Given = None,
    attention_bias: Given = None,
    past_key: Given = None,
    past_value: Given = None,
    /,
    *,
    num_heads: int,
    unidirectional: int = 0,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
) -> tuple[Given, ...]:
    """Query, key and value as three tensors, as one, or as a query and the two others."""
    b = query.builder
    if key is None:
        if value is not None or len(query.shape) != 5:
            raise NotDoneError(f"without 'key', 'query' must be of (batch, length, heads, 3, size), not {query.shape}")
        query, key, value = (_unpacked(query, index) for index in range(3))
    elif value is None:
        if len(key.shape) != 5:
            raise NotDoneError(f"without 'value', 'key' must be of (batch, length, heads, 2, size), not {key.shape}")
        key, value = (_unpacked(key, index) for index in range(2))
    if bias is not None:
        start = 0
        given = [query, key, value]
        for index, each in enumerate(given):
            if len(each.shape) == 3:
                given[index] = each + _part(bias, start, each.shape[-1])
                start += each.shape[-1]
        query, key, value = given
    query, key, value = (each if len(each.shape) == 4 else _heads(each, num_heads) for each in (query, key, value))
    if past_key is not None and past_value is not None:
        key, value = b.concat([past_key, key], 2), b.concat([past_value, value], 2)
    added = attention_bias, _hidden(mask, query, key, mask_filter_value), _future(query, key, unidirectional)
    result, scores = _attended(query, key, value, scale, *added)
    return result, key, value, scores


def _attended(
    query: BuildValue, key: BuildValue, value: BuildValue, scale: float, *added: BuildValue | np.ndarray | None
) -> tuple[BuildValue, BuildValue]:
    """Values by how well their keys match each query, heads side by side again; and how well that is."""
    batch, n_heads, n_queries, size = query.shape
    scores = query.matmul(key.transpose((0, 1, 3, 2))) * (scale or size**-0.5)
    for each in added:
        scores = _plus(scores, each)
    result = scores.softmax().matmul(value).transpose((0, 2, 1, 3))
    return result.reshape((batch, n_queries, n_heads * value.shape[-1])), scores


def _hidden(mask: Given, query: BuildValue, key: BuildValue, far_below: float) -> Given:
    """To be added to scores: ``far_below`` where a mask hides a key, else 0."""
    if mask is None:
        return None
    batch, _, n_queries, _ = query.shape
    n_keys = key.shape[2]
    places = np.arange(n_keys, dtype=np.int32)
    match mask.shape:
        case (n,) if n in (batch, 2 * batch):
            edges = mask.reshape((-1, 1, 1, 1))
            seen = edges.slice([0], [batch], [0]).greater(places)
            if n > batch:
                seen = _op("And", seen, edges.slice([batch], [n], [0]).less_or_equal(places))
        case (n, m) if (n, m) == (batch, n_keys):
            seen = mask.greater(0).reshape((n, 1, 1, m))
        case (n, m, k) if (n, m, k) == (batch, n_queries, n_keys):
            seen = mask.greater(0).reshape((n, 1, m, k))
        case _:
            known = (batch,), (2 * batch,), (batch, n_keys), (batch, n_queries, n_keys)
            raise NotDoneError(f"the mask has extents {mask.shape}; known are {', '.join(map(str, known))}")
    return (1.0 - seen.astype(query.dtype)) * far_below


def _future(query: BuildValue, key: BuildValue, is_causal: int) -> np.ndarray | None:
    """To be added to scores, so that no query sees keys behind it."""
    n_queries, n_keys = query.shape[2], key.shape[2]
    if not is_causal or n_queries == 1:
        return None
    return np.triu(np.full((n_queries, n_keys), _FAR_BELOW, np.float32), 1 + n_keys - n_queries)


def _heads(x: BuildValue, num_heads: int) -> BuildValue:
    batch, length, size = x.shape
    if size % num_heads:
        raise NotDoneError(f"the attribute 'num_heads' is {num_heads}; it must divide {size}")
    return x.reshape((batch, length, num_heads, size // num_heads)).transpose((0, 2, 1, 3))


def _unpacked(x: BuildValue, index: int) -> BuildValue:
    """One of several tensors side by side, (batch, heads, length, size)."""
    batch, length, n_heads, _, size = x.shape
    return x.slice([index], [index + 1], [3]).reshape((batch, length, n_heads * size))


def _part(x: BuildValue, start: int, size: int) -> BuildValue:
    return x.slice([start], [start + size], [len(x.shape) - 1])


def _plus(x: BuildValue, y: BuildValue | np.ndarray | None) -> BuildValue:
    return x if y is None else x + y


# --- quantised


def _dynamic_matmul(
    a: BuildValue, b: BuildValue, b_scale: BuildValue, b_zero: Given = None, bias: Given = None, /
) -> BuildValue:
    quantized, scale, zero = a.builder.op("DynamicQuantizeLinear", a, n_outputs=3)
    return _matmul_to_float(quantized, b, scale, b_scale, zero, b_zero, bias)


def _matmul_to_float(
    a: BuildValue,
    b: BuildValue,
    a_scale: BuildValue,
    b_scale: BuildValue,
    a_zero: Given = None,
    b_zero: Given = None,
    bias: Given = None,
    /,
) -> BuildValue:
    product = _op("MatMulInteger", a, b, a_zero, b_zero).astype("f32")
    return _plus(product * (a_scale * b_scale), bias)


def _matmul_of_bits(
    a: BuildValue,
    b: BuildValue,
    scales: BuildValue,
    zeros: Given = None,
    groups: Given = None,
    bias: Given = None,
    /,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
) -> BuildValue:
    """Weights of few bits, several in a byte, as floats; each block along K, or each group, has a scale."""
    del accuracy_level  # what is computed in floats is as accurate as any
    index = a.builder.constant(np.arange(K) // block_size) if groups is None else groups

    def beside(x: BuildValue) -> BuildValue:
        return _op("Gather", x.reshape((N, -1)), index, axis=1).astype("f32")

    if zeros is not None and zeros.dtype == "u8":
        zeros = _of_bits(zeros.reshape((N, -1)), bits)
    weights = _of_bits(b.reshape((N, -1)), bits).slice([0], [K], [1]).astype("f32")
    weights = (weights - (2.0 ** (bits - 1) if zeros is None else beside(zeros))) * beside(scales)
    return _plus(a.matmul(weights.transpose((1, 0))), bias)


def _of_bits(x: BuildValue, bits: int) -> BuildValue:
    """Numbers of so many bits, of which several lie in each byte of a row, the first in the lowest bits."""
    if bits == 8:
        return x
    if bits not in (2, 4):
        raise NotDoneError(f"the attribute 'bits' is {bits}; it is 2, 4 or 8 here")

    def moved(x: BuildValue, n: int, direction: str) -> BuildValue:
        return _op("BitShift", x, x.builder.constant(np.array(n, np.uint8)), direction=direction)

    parts = [moved(moved(x, 8 - bits - at, "LEFT"), 8 - bits, "RIGHT") for at in range(0, 8, bits)]
    return x.builder.concat([part.reshape((*x.shape, 1)) for part in parts], 2).reshape((x.shape[0], -1))


def _dequantized(x: BuildValue, scale: BuildValue, zero: Given = None, /, *, axis: int = 1) -> BuildValue:
    if _is_in_onnx(x.dtype, scale):
        return _linear("DequantizeLinear", x, scale, zero, axis)
    shape = _beside(x, scale, axis)
    steps = x.astype(scale.dtype)
    if zero is not None:
        steps = steps - zero.astype(scale.dtype).reshape(shape)
    return steps * scale.reshape(shape)


def _quantized(y: BuildValue, scale: BuildValue, zero: Given = None, /, *, axis: int = 1) -> BuildValue:
    dtype = "u8" if zero is None else zero.dtype
    if _is_in_onnx(dtype, scale) and y.dtype == scale.dtype:
        return _linear("QuantizeLinear", y, scale, zero, axis)
    shape = _beside(y, scale, axis)
    limits = np.iinfo(to_numpy(dtype))
    steps = (y / scale.reshape(shape)).round()
    if zero is not None:
        steps = steps + zero.astype(y.dtype).reshape(shape)
    return steps.clip(float(limits.min), float(limits.max)).astype(dtype)


def _is_in_onnx(dtype: str, scale: BuildValue) -> bool:
    """Whether the operator set changes this type by such scales: of more than one dimension it never does."""
    first = _FIRST_OPSET_OF_SCALES if math.prod(scale.shape) == 1 else _FIRST_OPSET_OF_SCALES_ALONG_AXIS
    first = max(first, _FIRST_OPSET_OF_OTHER_SCALES if scale.dtype != "f32" else 0)
    is_flat = math.prod(scale.shape) == max(scale.shape, default=1)
    return is_flat and dtype in ("u8", "s8", "s32") and scale.builder.opset >= first


def _linear(op_type: str, x: BuildValue, scale: BuildValue, zero: Given, axis: int) -> BuildValue:
    """One of ONNX's two changes of type, whose scales and zero points are equally many."""
    n = max(math.prod(scale.shape), 1 if zero is None else math.prod(zero.shape))
    given = [each if each is None else _repeated(each, n) for each in (scale, zero)]
    return _op(op_type, x, *given, axis=axis if n > 1 else None)


def _repeated(x: BuildValue, n: int) -> BuildValue:
    if n == 1 or x.shape == (n,):
        return x.reshape(()) if n == 1 and x.shape else x
    return x.reshape((n,)) if math.prod(x.shape) == n else _op("Expand", x, x.builder.constant(np.array([n], np.int64)))


def _beside(x: BuildValue, scale: BuildValue, axis: int) -> tuple[int, ...]:
    """The extents in which scales and zero points of one dimension, or of the whole, broadcast to a tensor."""
    if len(scale.shape) > 1:
        return scale.shape
    return (-1, *(1,) * (len(x.shape) - 1 - axis % len(x.shape))) if max(scale.shape, default=1) > 1 else ()


def _quantized_conv(
    x: Stored, w: Stored, y: Scheme, bias: Given = None, /, *, channels_last: int = 0, **window: Any
) -> BuildValue:
    if channels_last:
        raise NotDoneError("the attribute 'channels_last' is 1; images come channels first here")
    real_bias = None if bias is None else _dequantized(bias, x[1] * w[1], axis=0)
    weights = _dequantized(*w, axis=0)
    return _quantized(_op("Conv", _dequantized(*x), weights, real_bias, **window), *y)


def _of_one(x: Stored, y: Scheme, /, *, of: str, **attrs: Any) -> BuildValue:
    """One of ONNX's operators between two changes of type."""
    if attrs.pop("channels_last", 0):
        raise NotDoneError("the attribute 'channels_last' is 1; images come channels first here")
    if attrs.pop("opset", _FIRST_OPSET_OF_SOFTMAX_ALONG_AXIS) < _FIRST_OPSET_OF_SOFTMAX_ALONG_AXIS:
        raise NotDoneError("the attribute 'opset' is below 13; a softmax is of one dimension here")
    return _quantized(_op(of, _dequantized(*x), **attrs), *y)


def _of_two(a: Stored, b: Stored, c: Scheme, /, *, of: str, axes: tuple[int, int, int] = (1, 1, 1)) -> BuildValue:
    """Likewise; ``axes`` are the dimensions along which there are scales. Between them everything is of f32."""
    a_scale, b_scale, c_scale = (each.astype("f32") for each in (a[1], b[1], c[0]))
    left, right = _dequantized(a[0], a_scale, a[2], axis=axes[0]), _dequantized(b[0], b_scale, b[2], axis=axes[1])
    return _quantized(_op(of, left, right), c_scale, c[1], axis=axes[2])


def _quantized_gemm(
    a: Stored,
    b: Stored,
    c: Given = None,
    y_scale: Given = None,
    y_zero: Given = None,
    /,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> BuildValue:
    """Real where there is no scale for the result; the addend's includes ``alpha``."""
    addend = None if c is None else _dequantized(c, a[1] * b[1] * alpha, axis=-1)
    left, right = _dequantized(*a), _dequantized(*b, axis=0 if transB else 1)
    y = left.gemm(right, addend, alpha=alpha, trans_a=bool(transA), trans_b=bool(transB))
    return y if y_scale is None else _quantized(y, y_scale, y_zero)


def _quantized_where(condition: BuildValue, x: Stored, y: Stored, z: Scheme, /) -> BuildValue:
    return _quantized(_op("Where", condition, _dequantized(*x), _dequantized(*y)), *z)


def _concat(y: Scheme, /, *sources: BuildValue, axis: int) -> BuildValue:
    parts = [_dequantized(*sources[index : index + 3]) for index in range(0, len(sources), 3)]
    return _quantized(y[0].builder.concat(parts, axis), *y)


def _dynamic_lstm(
    x: BuildValue,
    weights: BuildValue,
    recurrent: BuildValue,
    bias: Given,
    hidden: Given,
    cell: Given,
    peepholes: Given,
    weights_scale: BuildValue,
    weights_zero: BuildValue,
    recurrent_scale: BuildValue,
    recurrent_zero: BuildValue,
    /,
    **attrs: Any,
) -> tuple[BuildValue, ...]:
    """The source is quantised as a whole, and its products, of bytes, are computed for all steps at once."""
    if attrs.get("activation_alpha") or attrs.get("activation_beta"):
        raise NotDoneError("there are attributes activation_alpha or activation_beta; activations have no numbers here")
    b, (length, batch, _), (n_sides, size, _) = x.builder, x.shape, recurrent.shape
    in_bytes, x_scale, x_zero = b.op("DynamicQuantizeLinear", x.reshape((length * batch, -1)), n_outputs=3)
    gates: list[Given] = []
    for index in range(n_sides):
        w, scale, zero = (_of_direction(each, index) for each in (weights, weights_scale, weights_zero))
        own_bias = None if bias is None else _of_direction(bias, index)
        if own_bias is not None:
            own_bias = own_bias.slice([0], [4 * size], [0]) + own_bias.slice([4 * size], [8 * size], [0])
        gates.append(_matmul_to_float(in_bytes, w, x_scale, scale, x_zero, zero, own_bias))
    nothing = b.constant(np.zeros((n_sides, batch, size), np.float32))
    states = [nothing if each is None else each for each in (hidden, cell)]
    sums = [*gates, None][:2]
    of_states = recurrent, recurrent_scale, recurrent_zero, *states, peepholes
    results: tuple[BuildValue, ...] = b.op("blocklayout.DynamicLSTM", *sums, *of_states, n_outputs=3, **attrs)
    return results


def _of_direction(x: BuildValue, index: int) -> BuildValue:
    return x.slice([index], [index + 1], [0]).reshape(x.shape[1:])


OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Attention": _attention,
    "BiasGelu": lambda x, bias, /: _gelu(x + bias),
    "DequantizeLinear": _dequantized,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "DynamicQuantizeLSTM": _dynamic_lstm,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu,
    "LayerNormalization": _layer_normalization,
    "MatMulIntegerToFloat": _matmul_to_float,
    "MatMulNBits": _matmul_of_bits,
    "MultiHeadAttention": _multi_head_attention,
    "NhwcConv": _nhwc_conv,
    "QGemm": _quantized_gemm,
    "QLinearAdd": partial(_of_two, of="Add"),
    "QLinearAveragePool": partial(_of_one, of="AveragePool"),
    "QLinearConcat": _concat,
    "QLinearConv": _quantized_conv,
    "QLinearGlobalAveragePool": partial(_of_one, of="GlobalAveragePool"),
    "QLinearLeakyRelu": partial(_of_one, of="LeakyRelu"),
    "QLinearMatMul": partial(_of_two, of="MatMul", axes=(-2, -1, -2)),
    "QLinearMul": partial(_of_two, of="Mul"),
    "QLinearSigmoid": partial(_of_one, of="Sigmoid"),
    "QLinearSoftmax": partial(_of_one, of="Softmax"),
    "QLinearWhere": _quantized_where,
    "QuantizeLinear": _quantized,
    "QuickGelu": lambda x, /, *, alpha=1.702: x * (x * alpha).sigmoid(),
    "SimplifiedLayerNormalization": _rms_normalization,
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_rms_normalization,
    "TransposeMatMul": _fused_matmul,
}
"""By op type in :data:`DOMAIN`, or in ONNX's own set."""
