"""LSTM, GRU and RNN: the library's recurrent layers, and in numpy with all options; attention as a recurrence.

And LSTMs of bytes: onnxruntime's own, and the part of it that is left where the products of its source are apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
from msgspec.structs import replace

from blocklayout import dnnl, ir
from blocklayout.layout import MemoryDesc
from blocklayout.ops._answers import is_known, is_source
from blocklayout.ops._layouts import argument, has_argument, plain

Function = Callable[[np.ndarray], np.ndarray]

_N_INPUTS = 8
_EXACT_IN_F32 = 256
"""Channels from which on a sum of products of bytes, each less its zero point, may be none of the numbers of f32."""

DEFAULT_ACTIVATIONS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
_OF_CELL_STATE = 2
"""Index among an LSTM's activations of the one that no gate has."""


class Activation(NamedTuple):
    """A function of one number: ONNX's name in lower case, and its parameters, or the defaults."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


_FUNCTIONS: Mapping[str, tuple[Callable[[np.ndarray, float, float], np.ndarray], tuple[float, ...]]] = {
    "affine": (lambda x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "relu": (lambda x, _alpha, _beta: np.maximum(x, 0), ()),
    "leakyrelu": (lambda x, alpha, _beta: np.where(x < 0, alpha * x, x), (0.01,)),
    "thresholdedrelu": (lambda x, alpha, _beta: np.where(x > alpha, x, 0), (1.0,)),
    "tanh": (lambda x, _alpha, _beta: np.tanh(x), ()),
    "scaledtanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), (1.0, 1.0)),
    "sigmoid": (lambda x, _alpha, _beta: 1 / (1 + np.exp(-x)), ()),
    "hardsigmoid": (lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), (0.2, 0.5)),
    "elu": (lambda x, alpha, _beta: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x), (1.0,)),
    "softsign": (lambda x, _alpha, _beta: x / (1 + np.abs(x)), ()),
    "softplus": (lambda x, _alpha, _beta: np.logaddexp(0, x), ()),
}
"""Functions of an element and two parameters, with the defaults of those that each takes."""


def activations(op_type: str, attrs: Mapping[str, Any], n_sides: int) -> list[tuple[Activation, ...]]:
    """The activations of each direction.

    Raises:
        ValueError: There is none of a name, or there are too few.

    Example:
        >>> activations("RNN", {"activations": ["LeakyRelu"], "activation_alpha": [0.2]}, 1)
        [(Activation(name='leakyrelu', alpha=0.2, beta=0.0),)]
    """
    default = DEFAULT_ACTIVATIONS[op_type]
    n_functions = len(default) * n_sides
    given = list(attrs.get("activations") or default * n_sides)
    names = [name.lower() for name in given[:n_functions]]  # an RNN's default is of two directions
    if len(names) < n_functions or not set(names) <= set(_FUNCTIONS):
        raise ValueError(f"activations are {given}: {len(default)} for each direction, of {', '.join(_FUNCTIONS)}")
    parameters = [iter(attrs.get(f"activation_{which}") or ()) for which in ("alpha", "beta")]
    # Parameters are given in the order of the functions that take them.
    found = [
        Activation(name, *(float(next(left, usual)) for left, usual in zip(parameters, _FUNCTIONS[name][1])))  # noqa: B905
        for name in names
    ]
    return [tuple(found[start : start + len(default)]) for start in range(0, len(found), len(default))]


class _Side(NamedTuple):
    """One direction's parameters, and its states before the first step; and the node's attributes."""

    attrs: Mapping[str, Any]
    functions: tuple[Function, ...]
    weights: np.ndarray
    recurrent: np.ndarray
    bias: np.ndarray
    peepholes: np.ndarray
    state: np.ndarray
    cell: np.ndarray


_Step = Callable[[_Side, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""The next state and cell state, of the products with the source, and the present ones."""


def compute(op_type: str, attrs: Mapping[str, Any], inputs: Sequence[np.ndarray | None]) -> tuple[np.ndarray, ...]:
    """All results of ``LSTM``, ``GRU`` or ``RNN``, of inputs in ONNX's order, ``None`` if absent."""
    given: tuple[Any, ...] = (*inputs, *(None,) * (_N_INPUTS - len(inputs)))
    x, weights, recurrent, bias, lengths, state, cell, peepholes = given
    swapped = partial(np.swapaxes, axis1=0, axis2=1)
    if attrs.get("layout"):
        x, state, cell = (None if each is None else swapped(each) for each in (x, state, cell))
    n_sides, width, n_states = recurrent.shape
    zeros = np.zeros((n_sides, x.shape[1], n_states), x.dtype)
    parameters = (
        weights,
        recurrent,
        np.zeros((n_sides, 2 * width), x.dtype) if bias is None else bias,
        np.zeros((n_sides, 3 * n_states), x.dtype) if peepholes is None else peepholes,
        zeros if state is None else state,
        zeros if cell is None else cell,
    )
    functions = _functions(op_type, attrs, n_sides)
    is_reverse = attrs.get("direction") == "reverse"
    results = []
    for side in range(n_sides):
        of_side = _Side(attrs, functions[side], *(each[side] for each in parameters))
        products = x @ of_side.weights.T
        results.append(_one_way(_STEPS[op_type], of_side, products, lengths, is_reverse=is_reverse or side == 1))
    of_sides = zip(*results, strict=True)
    y, last, last_cell = (np.stack(each, axis) for each, axis in zip(of_sides, (1, 0, 0), strict=True))
    if attrs.get("layout"):
        return y.transpose(2, 0, 1, 3), swapped(last), swapped(last_cell)
    return y, last, last_cell


def _activations_of(node: ir.NodeInfo, op_type: str, n_sides: int) -> list[tuple[Activation, ...]]:
    """As :func:`activations`, with errors that name the node."""
    try:
        return activations(op_type, node.attrs, n_sides)
    except ValueError as error:
        raise node.wrong(*str(error).split(": ", 1)) from None


def _functions(op_type: str, attrs: Mapping[str, Any], n_sides: int) -> list[tuple[Function, ...]]:
    """The activations of each direction; those of gates on clipped sources, as onnxruntime has it."""
    limit = attrs.get("clip") or np.inf

    def made(activation: Activation, index: int) -> Function:
        of_element, (_, alpha, beta) = _FUNCTIONS[activation.name][0], activation
        if limit == np.inf or index == _OF_CELL_STATE:
            return lambda x: of_element(x, alpha, beta)
        return lambda x: of_element(np.clip(x, -limit, limit), alpha, beta)

    return [tuple(map(made, side, range(len(side)))) for side in activations(op_type, attrs, n_sides)]


def _one_way(
    step: _Step, side: _Side, products: np.ndarray, lengths: np.ndarray | None, *, is_reverse: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The states of all steps, zero behind a sequence's end, and the last ones."""
    n_steps, n_batch, _ = products.shape
    state, cell = side.state, side.cell
    y = np.zeros((n_steps, n_batch, state.shape[-1]), products.dtype)
    for t in reversed(range(n_steps)) if is_reverse else range(n_steps):
        following = step(side, products[t], state, cell)
        if lengths is None:
            state, cell = following
            y[t] = state
            continue
        is_inside = (t < lengths)[:, None]
        state, cell = (np.where(is_inside, *pair) for pair in zip(following, (state, cell), strict=True))
        y[t] = np.where(is_inside, state, 0)
    return y, state, cell


def _rnn(side: _Side, products: np.ndarray, state: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    [function] = side.functions
    return function(products + state @ side.recurrent.T + sum(np.split(side.bias, 2))), cell


def _gru(side: _Side, products: np.ndarray, state: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    f, g = side.functions
    n_states = state.shape[-1]
    gates, last = slice(2 * n_states), slice(2 * n_states, None)
    of_source, of_state = np.split(side.bias, 2)
    sums = products[:, gates] + state @ side.recurrent[gates].T + of_source[gates] + of_state[gates]
    update, reset = np.split(f(sums), 2, -1)
    recurrent = side.recurrent[last].T
    if side.attrs.get("linear_before_reset"):
        reached = reset * (state @ recurrent + of_state[last])
    else:
        reached = (reset * state) @ recurrent + of_state[last]
    return (1 - update) * g(products[:, last] + of_source[last] + reached) + update * state, cell


def _lstm(side: _Side, products: np.ndarray, state: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _gated(side, products + state @ side.recurrent.T + sum(np.split(side.bias, 2)), cell)


def _gated(side: _Side, sums: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An LSTM's next state and cell, of the sums of its gates but for peepholes."""
    f, g, h = side.functions
    into, out, forget, new = np.split(sums, 4, -1)
    of_input, of_output, of_forget = np.split(side.peepholes, 3)
    into = f(into + of_input * cell)
    forget = 1 - into if side.attrs.get("input_forget") else f(forget + of_forget * cell)
    cell = forget * cell + into * g(new)
    return f(out + of_output * cell) * h(cell), cell


_STEPS: Mapping[str, _Step] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


_CELLS = {"LSTM": "vanilla_lstm", "GRU": "vanilla_gru", "RNN": "vanilla_rnn"}
_GATE_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (0, 1, 2), "RNN": (0,)}
"""ONNX's gates (iofc, zrh) in the library's order (ifco, uro)."""

_PEEPHOLE_ORDER = (0, 2, 1)
_DIRECTIONS = {
    "forward": "unidirectional_left2right",
    "reverse": "unidirectional_right2left",
    "bidirectional": "bidirectional_concat",
}
_ACTIVATIONS = {
    "tanh": "eltwise_tanh",
    "relu": "eltwise_relu",
    "leakyrelu": "eltwise_relu",
    "sigmoid": "eltwise_logistic",
}
"""The activations that the plain cell has."""

_RESULTS = ("dst", "dst_iter", "dst_iter_c")
"""The primitive's, in the order of the node's outputs."""

_LIKE_BLOCKS = ("vanilla_lstm", "vanilla_rnn")
"""The cells that have weights in blocks in f32."""

_TOO_SMALL_TO_SHARE = 400_000
"""Multiplications of a step below which threads wait for one another longer than a second one saves."""


class Recurrent(ir.BaseOperator, frozen=True):
    """A recurrent layer in one or both directions.

    Attributes:
        n_states: Channels of a direction's state.
        results: The primitive's that the node's outputs are, in order, without unread ones.
        is_batch_first: Whether sequences precede steps and directions, in all operands.
        activation: Of the plain cell.
        alpha: The slope of that where it is a leaky ReLU.
    """

    op_types: ClassVar[tuple[str, ...]] = tuple(_CELLS)
    role: ClassVar[ir.Role] = ir.Role.CHOOSER
    any_output: ClassVar[bool] = True
    needs = (
        is_source(3, 3),
        *(is_known(index, name) for index, name in ((1, "W"), (2, "R"), (3, "B"), (4, "sequence_lens"), (7, "P"))),
    )

    cell: str
    direction: str
    n_states: int
    results: tuple[str, ...]
    is_batch_first: bool = False
    activation: str = "eltwise_tanh"
    alpha: float = 0.0

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        _check_extents(node)
        functions = _activations_of(node, node.op_type, node.shape(1)[0])
        if refusal := _not_in_the_library(node, functions):
            return refusal
        is_linear_first = node.op_type == "GRU" and node.flag_attr("linear_before_reset")
        [name, alpha, _] = functions[0][-1]
        operator = cls(
            "lbr_gru" if is_linear_first else _CELLS[node.op_type],
            _DIRECTIONS[node.string_attr("direction", tuple(_DIRECTIONS))],
            node.shape(2)[-1],
            tuple(name for name, value in zip(_RESULTS, node.outputs, strict=False) if value is not None),
            node.flag_attr("layout"),
            _ACTIVATIONS[name],
            alpha,
        )
        arrays = _constants(node, is_linear_first=is_linear_first)
        states = {"src_iter": node.input(5), "src_iter_c": node.input(6)}
        if node.op_type == "LSTM" and (operator.results != ("dst",) or states != dict.fromkeys(states)):
            # The library takes both states or none, and cell states in and out in one data type.
            sides, batch = node.shape(1)[0], node.shape(0)[0 if operator.is_batch_first else 1]
            outer = (batch, sides) if operator.is_batch_first else (sides, batch)
            zeros = np.zeros((*outer, operator.n_states), np.float32)
            arrays |= {arg: zeros for arg, value in states.items() if value is None}
        lowered = operator.bind({"src": node.input(0), **states}, arrays)
        _, *others = (value for value in node.outputs if value is not None)
        return replace(lowered, others=dict(zip(operator.results[1:], others, strict=True)))

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        def run(*inputs: np.ndarray | None, out: np.ndarray | tuple[np.ndarray | None, ...]) -> None:
            outs = out if isinstance(out, tuple) else (out,)
            for array, result in zip(outs, compute(node.op_type, node.attrs, inputs), strict=False):
                if array is not None:
                    array[...] = result

        return run

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        # Steps first, or sequences first as where it is row-major.
        tags = {"any": "abc", "plain": "abc", "channels_last": "bac"}
        src, dst = _with_channels_last(wish.src, tags, argument(problem, "src")), self._dst(problem, wish)
        if src is None or dst is None or attr.post_ops:
            return None
        _, batch = self._extents(problem)
        outer = (batch, self._n_sides) if self.is_batch_first else (self._n_sides, batch)
        state = MemoryDesc((*outer, self.n_states), src.dtype)
        n_multiplied = batch * prod(argument(problem, "weights_iter").dims) // self._n_sides
        held = {arg: state for arg in ("src_iter", "src_iter_c") if has_argument(problem, arg)}
        written = ("dst_iter", "dst_iter_c") if "src_iter_c" in held else self.results
        descs = {"src": src, "dst": dst} | held | {arg: state for arg in written if arg != "dst"}
        has_peepholes = has_argument(problem, "weights_peephole")
        spec = dnnl.rnn(
            weights=self._weights(problem, wish, "weights"),
            weights_iter=self._weights(problem, wish, "weights_iter"),
            weights_peephole=plain(argument(problem, "weights_peephole")) if has_peepholes else None,
            bias=plain(argument(problem, "bias")),
            algorithm=self.cell,
            direction=self.direction,
            activation=self.activation,
            alpha=self.alpha,
            n_threads=1 if n_multiplied < _TOO_SMALL_TO_SHARE else problem.n_threads,
            **{arg: self._seen(arg, desc) for arg, desc in descs.items()},
        )
        operands = {arg: _operand(arg, self.results) for arg, _ in spec.descs}
        step = ir.RecipeStep(spec, tuple(sorted(operands.items())))
        unread = {arg for arg in descs if arg in _RESULTS and arg not in self.results}
        temporaries = tuple((operands[arg], desc) for arg, desc in descs.items() if arg in unread)
        return ir.Recipe((step,), temporaries, tuple((operands[arg], descs[arg]) for arg in descs if arg not in unread))

    @property
    def _n_sides(self) -> int:
        return 2 if self.direction == "bidirectional_concat" else 1

    def _dst(self, problem: ir.Problem, wish: ir.Wish) -> MemoryDesc | None:
        """The states of all steps, those of both directions side by side."""
        steps, batch = self._extents(problem)
        if self.is_batch_first:
            dims, steps_first, batch_first = (batch, steps, self._n_sides, self.n_states), "bacd", "abcd"
            tags = {"any": steps_first, "plain": batch_first, "channels_last": steps_first}
        else:
            dims, batch_first = (steps, self._n_sides, batch, self.n_states), "cabd"
            steps_first = "abcd" if self._n_sides == 1 else "acbd"
            tags = {"any": steps_first, "plain": steps_first, "channels_last": batch_first}
        info = ir.TensorInfo(dims, problem.dst.dtype)
        if self.results[0] != "dst":  # they are unread
            return MemoryDesc(dims, info.dtype, steps_first) if wish.dst in ("any", "plain") else None
        desc = _with_channels_last(wish.dst, tags, info)
        sides = 2 if self.is_batch_first else 1
        return desc if desc is None or self._n_sides == 1 or desc.strides[sides] == self.n_states else None

    def _extents(self, problem: ir.Problem) -> tuple[int, int]:
        first, second, _ = argument(problem, "src").dims
        return (second, first) if self.is_batch_first else (first, second)

    def _seen(self, arg: str, desc: MemoryDesc) -> MemoryDesc:
        """An operand as the primitive sees it: (steps, batch, channels), or (layers, sides, batch, channels)."""
        if arg not in ("src", "dst"):
            ordered = desc.permuted((1, 0, 2)) if self.is_batch_first else desc
            return MemoryDesc((1, *ordered.dims), desc.dtype, strides=(desc.n_elements, *ordered.strides))
        of_steps, of_batch = (1, 0) if self.is_batch_first else (0, desc.ndims - 2)
        width = desc.dims[-1] * (self._n_sides if arg == "dst" else 1)
        steps, batch = desc.dims[of_steps], desc.dims[of_batch]
        # A stride along an extent of 1 is any: the library is faster where it is that of a row-major tensor.
        batch_stride = width if batch == 1 else desc.strides[of_batch]
        step_stride = batch * batch_stride if steps == 1 else desc.strides[of_steps]
        return MemoryDesc((steps, batch, width), desc.dtype, strides=(step_stride, batch_stride, 1))

    def _weights(self, problem: ir.Problem, wish: ir.Wish, name: str) -> dnnl.Desc:
        """In blocks where the library has some, or row-major, which it multiplies by gemm."""
        info = argument(problem, name)
        has_blocks = self.cell in _LIKE_BLOCKS or (self.cell == "vanilla_gru" and info.dtype != "f32")
        is_asked = has_blocks and not wish.src == wish.dst == "plain"
        return dnnl.AnyDesc(info.dims, info.dtype) if is_asked else plain(info)


def _operand(arg: str, results: Sequence[str]) -> str:
    """The kernel's name for an argument: its result is the first of the node's outputs that is read."""
    if arg == results[0]:
        return "dst"
    return "unread" if arg == "dst" else arg


def _with_channels_last(layout: str | MemoryDesc, tags: Mapping[str, str], info: ir.TensorInfo) -> MemoryDesc | None:
    """The wished descriptor, if channels are innermost in it; a named layout is a tag of this operator's own."""
    if layout in ir.LAYOUT_NAMES and layout not in tags:
        return None
    desc = ir.wished_desc(tags.get(layout, layout) if isinstance(layout, str) else layout, info)
    if isinstance(desc, MemoryDesc) and desc.is_dense and not desc.inner_blks and desc.strides[-1] == 1:
        return desc
    return None


def _check_extents(node: ir.NodeInfo) -> None:
    direction, n_gates = node.string_attr("direction", tuple(_DIRECTIONS)), len(_GATE_ORDER[node.op_type])
    n_sides = 2 if direction == "bidirectional" else 1
    src, n_states = node.required(0, "X").shape, (node.required(2, "R").shape or (0,))[-1]
    batch = src[0 if node.flag_attr("layout") else 1]
    width = n_gates * n_states
    if node.int_attr("hidden_size", n_states) != n_states:
        raise node.wrong(f"attribute hidden_size is {node.attrs['hidden_size']}", f"R makes it {n_states}")
    state = (batch, n_sides, n_states) if node.flag_attr("layout") else (n_sides, batch, n_states)
    extents = {
        "W": (n_sides, width, src[2]),
        "R": (n_sides, width, n_states),
        "B": (n_sides, 2 * width),
        "sequence_lens": (batch,),
        "initial_h": state,
        "initial_c": state,
        "P": (n_sides, 3 * n_states),
    }
    for index, (name, dims) in enumerate(extents.items(), start=1):
        value = node.input(index)
        if value is not None and value.shape != dims:
            rule = f"{batch} sequences, {n_sides} directions and R's {n_states} states make them {list(dims)}"
            raise node.wrong(f"{name} ({value.name}) has extents {list(value.shape)}", rule)


def _not_in_the_library(node: ir.NodeInfo, functions: Sequence[Sequence[Activation]]) -> ir.Refusal | None:
    """Options that no primitive has."""
    if node.attrs.get("clip"):
        return node.refused(f"attribute clip is {node.attrs['clip']}", "primitives clip nothing")
    if node.op_type == "LSTM" and node.flag_attr("input_forget"):
        return node.refused("attribute input_forget is set", "primitives have a forget gate of its own")
    lengths, steps = node.constant(4), node.shape(0)[1 if node.flag_attr("layout") else 0]
    if lengths is not None and (lengths != steps).any():
        return node.refused(f"sequence_lens are {lengths.tolist()!s:.60}", f"primitives compute all {steps} steps")
    names = {tuple(function.name for function in side) for side in functions}
    if node.op_type != "RNN" and names != {DEFAULT_ACTIVATIONS[node.op_type]}:
        return node.refused(f"activations are {sorted(names)}", "primitives have sigmoid and tanh")
    if node.op_type == "RNN" and (len(set(functions)) > 1 or functions[0][0].name not in _ACTIVATIONS):
        return node.refused(f"activations are {sorted(names)}", f"primitives have one of {', '.join(_ACTIVATIONS)}")
    return None


def _constants(node: ir.NodeInfo, *, is_linear_first: bool) -> dict[str, np.ndarray]:
    """Weights, biases and peepholes as the library has them, views where gates keep their order."""
    order, n_states = _GATE_ORDER[node.op_type], node.shape(2)[-1]
    arrays = {}
    for index, name in enumerate(("weights", "weights_iter"), start=1):
        by_gate = _by_gate(node.known(node.required(index, name), name), order)
        arrays[name] = by_gate.transpose(0, 3, 1, 2)[None]
    bias = node.constant(3)
    of_src = of_state = np.zeros((node.shape(1)[0], len(order), n_states), np.float32)
    if bias is not None:
        of_src, of_state = (_by_gate(half, order) for half in np.split(bias, 2, axis=1))
    joint = of_src + of_state
    if is_linear_first:
        joint = np.concatenate((joint[:, :-1], of_src[:, -1:], of_state[:, -1:]), axis=1)
    arrays["bias"] = joint[None]
    if (peepholes := node.constant(7)) is not None:
        arrays["weights_peephole"] = _by_gate(peepholes, _PEEPHOLE_ORDER)[None]
    return arrays


def _by_gate(array: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Gates as a dimension of their own behind the directions, in another order: a view where that is the same."""
    n_sides, width, *rest = array.shape
    gates = array.reshape(n_sides, len(order), width // len(order), *rest)
    return gates if list(order) == sorted(order) else gates[:, list(order)]


_TYPES: Mapping[str, tuple[type, ...]] = {"activations": (tuple, list), "clip": (float, int), "input_forget": (int,)}
"""Of attributes."""


class DynamicQuantizeLSTM(ir.Facts, frozen=True):
    """onnxruntime's own, which is written out before there are kernels."""

    op_types = ("com.microsoft.DynamicQuantizeLSTM",)

    @classmethod
    def inferred(cls, node: ir.NodeInfo) -> Sequence[tuple[tuple[int, ...], str]]:
        x, recurrent = node.required(0, "X"), node.required(2, "R").shape
        if (len(x.shape), len(recurrent), x.dtype) != (3, 3, "f32"):
            what = f"X ({x.name}) is {x.dtype} {list(x.shape)}, R of extents {list(recurrent)}"
            raise node.wrong(what, "both have three dimensions, and X is f32")
        (n_steps, batch, width), size = x.shape, recurrent[1]
        n_sides = 2 if node.string_attr("direction", tuple(_DIRECTIONS)) == "bidirectional" else 1
        for name, types in _TYPES.items():  # no schema has been asked
            if not isinstance(given := node.attrs.get(name, types[0]()), types):
                raise node.wrong(f"attribute {name} is {given!r}", f"it must be {types[0].__name__}")
        if not all(isinstance(name, str) for name in node.attrs.get("activations", ())):
            raise node.wrong("attribute activations has numbers", "it names functions")
        _activations_of(node, "LSTM", n_sides)
        state, of_side = (n_sides, batch, size), ((n_sides,), (n_sides, 4 * size))
        allowed: Mapping[int, tuple[str, *tuple[tuple[int, ...], ...]]] = {
            1: ("W", (n_sides, width, 4 * size)),
            2: ("R", (n_sides, size, 4 * size)),
            3: ("B", (n_sides, 8 * size)),
            5: ("initial_h", state),
            6: ("initial_c", state),
            7: ("P", (n_sides, 3 * size)),
            **{8 + index: (name, *of_side) for index, name in enumerate(("W_scale", "W_zero", "R_scale", "R_zero"))},
        }
        for index, (name, *dims) in allowed.items():
            value = node.input(index)
            if value is not None and value.shape not in dims:
                raise node.wrong(f"{name} ({value.name}) has extents {list(value.shape)}", f"{list(dims[0])} is right")
        return ((n_steps, *state), "f32"), (state, "f32"), (state, "f32")


class DynamicLSTM(ir.BaseOperator, frozen=True):
    """An LSTM of bytes of whose gates, (steps * batch, 4 * states) for each direction, the source made its part.

    Behind these inputs, of which the second may be absent, are weights of states, their scale and zero point, the
    states before the first step, and peepholes. A state is quantised at each step, for all sequences together.
    """

    op_types = ("blocklayout.DynamicLSTM",)
    role = ir.Role.CHOOSER
    any_output = True
    needs = (
        is_source(2, 2, ("f32",)),
        *(is_known(index, name) for index, name in ((2, "R"), (3, "R_scale"), (4, "R_zero_point"))),
    )

    extents: tuple[int, int, int, int]
    results: tuple[str, ...]
    is_reverse: bool

    @classmethod
    def inferred(cls, node: ir.NodeInfo) -> Sequence[tuple[tuple[int, ...], str]]:
        state = node.shape(5)
        return ((node.shape(0)[0] // max(state[1], 1), *state), "f32"), (state, "f32"), (state, "f32")

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        (state, _), (n_sides, _, size) = cls.inferred(node)[0], node.shape(5)
        names = {tuple(function.name for function in side) for side in _activations_of(node, "LSTM", n_sides)}
        if node.attrs.get("clip") or node.flag_attr("input_forget") or node.has_input(7) or len(names) > 1:
            return node.refused("it has peepholes, or clips, or has no gate to forget", "the kernel has none of these")
        if names != {DEFAULT_ACTIVATIONS["LSTM"]}:
            return node.refused(f"activations are {sorted(names)}", "the kernel has sigmoid and tanh")
        read = tuple(name for name, value in zip(_RESULTS, node.outputs, strict=False) if value is not None)
        operator = cls(state, read, node.attrs.get("direction") == "reverse")  # type: ignore[arg-type]  # four extents
        if not dnnl.has_optimised(operator._spec(1)):
            return node.refused("nothing here computes it", "its steps are computed one by one")
        weights, scale, zero = (node.known(node.required(index, "R"), "R") for index in (2, 3, 4))
        zero = zero.astype(np.int32)
        if weights.dtype == np.uint8:
            weights, zero = (weights ^ np.uint8(128)).view(np.int8), zero - 128
        columns = ((each.reshape(n_sides, -1) + np.zeros((1, 4 * size), each.dtype)) for each in (scale, zero))
        arrays = dict(zip(("weights_iter", "scale", "zero_point"), (weights, *columns), strict=True))
        sources = dict(zip(("src", "src_1"), node.inputs[:2], strict=True)) | dict(
            zip(("src_iter", "src_iter_c"), node.inputs[5:7], strict=True)
        )
        _, *others = (value for value in node.outputs if value is not None)
        return operator.bind(sources, arrays, dict(zip(read[1:], others, strict=True)))

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        n_sides, batch, size = node.shape(5)
        functions = _functions("LSTM", node.attrs, n_sides)

        def run(*inputs: Any, out: Any) -> None:
            first, second, recurrent, scale, zero, state, cell, peepholes = (*inputs, None)[:8]
            results = []
            for index in range(n_sides):
                peeps = np.zeros(3 * size, np.float32) if peepholes is None else peepholes[index]
                nothing = np.zeros(0, np.float32)
                of_side = (functions[index], nothing, nothing, nothing, peeps, state[index], cell[index])
                side, products = _Side(node.attrs, *of_side), (second if index else first).reshape(-1, batch, 4 * size)
                step = _step_of_bytes(*(each[index] for each in (recurrent, scale, zero)))
                is_reverse = node.attrs.get("direction") == "reverse" or index == 1
                results.append(_one_way(step, side, products, None, is_reverse=is_reverse))
            of_sides = zip(*results, strict=True)
            for array, each, axis in zip(out if isinstance(out, tuple) else (out,), of_sides, (1, 0, 0), strict=False):
                if array is not None:
                    array[...] = np.stack(each, axis)

        return run

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        wished = (wish.src_desc(argument(problem, "src")), wish.dst_desc(problem.dst))
        are_plain = all(isinstance(desc, dnnl.AnyDesc) or desc.is_contiguous() for desc in wished)
        if attr.post_ops or not are_plain or problem.dst.dtype != "f32":
            return None
        spec = self._spec(problem.n_threads)
        operands = {arg: _operand(arg, self.results) for arg, _ in spec.descs}
        unread = () if "dst" in self.results else ((operands["dst"], spec.memory_desc("dst")),)
        return ir.Recipe((ir.RecipeStep(spec, tuple(sorted(operands.items()))),), unread)

    def _spec(self, n_threads: int) -> dnnl.Spec:
        n_steps, n_sides, batch, size = self.extents
        state, columns = MemoryDesc((n_sides, batch, size)), MemoryDesc((n_sides, 4 * size))
        gates = MemoryDesc((n_steps * batch, 4 * size))
        return dnnl.dynamic_lstm(
            gates,
            MemoryDesc((n_sides, size, 4 * size), "s8", "aCB16b32c2b"),
            columns,
            columns.with_dtype("s32"),
            state,
            state,
            MemoryDesc(self.extents),
            src_1=gates if n_sides > 1 else None,
            **{name: state for name in self.results if name != "dst"},
            is_reverse=self.is_reverse,
            n_threads=min(n_threads, n_sides),
        )


def _step_of_bytes(weights: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> _Step:
    """A step of an LSTM whose state is quantised by ONNX's formula; sums of products are exact."""
    wide = np.float64 if len(weights) >= _EXACT_IN_F32 else np.float32
    centred = weights.astype(wide) - zero

    def step(side: _Side, products: np.ndarray, state: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        low, high = min(state.min(), 0), max(state.max(), 0)
        unit = np.float32((high - low or 1) / np.float32(255))
        point = np.rint(np.clip(-low / unit, 0, 255))
        quanta = np.clip(np.rint(state / unit) + point, 0, 255) - point
        sums = (quanta.astype(wide) @ centred).astype(np.float32)
        return _gated(side, products + sums * (unit * scale), cell)

    return step


class LinearAttention(ir.Facts, frozen=True):
    """Attention without a softmax; the state may decay, and may be corrected by its value for a key."""

    op_types = ("LinearAttention",)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        n_queries, n_heads = node.int_attr("q_num_heads", 1), node.int_attr("kv_num_heads", 1)
        scale = node.float_attr("scale", 0.0) or 1 / math.sqrt(node.shape(0)[-1] // n_queries)

        def attend(query: np.ndarray, key: np.ndarray, value: np.ndarray, *given: ir.Given, out: Any) -> None:
            past, decay, beta = (*given, None, None, None)[:3]
            result, present = out if isinstance(out, tuple) else (out, None)
            q, k, v = (_heads(x, n) for x, n in ((query, n_queries), (key, n_heads), (value, n_heads)))
            state = np.zeros((*k.shape[:2], k.shape[-1], v.shape[-1]), np.float32)
            if past is not None:
                state[...] = past
            kept = None if decay is None else np.exp(_heads(decay, n_heads))[..., None]
            corrected = None if beta is None else _heads(beta, beta.shape[-1])
            read = np.empty((*q.shape[:3], v.shape[-1]), np.float32)
            grouped = (*k.shape[:2], n_queries // n_heads)
            for step in range(q.shape[2]):
                if kept is not None:
                    state *= kept[:, :, step]
                column, row = k[:, :, step, :, None], v[:, :, step, None, :]
                if corrected is not None:
                    row = corrected[:, :, step, None] * (row - column.swapaxes(2, 3) @ state)
                state += column * row
                queries = q[:, :, step].reshape(*grouped, -1)
                read[:, :, step] = (queries @ state).reshape(read.shape[0], n_queries, -1)
            if result is not None:
                result[...] = (read * scale).swapaxes(1, 2).reshape(result.shape)
            if present is not None:
                present[...] = state

        return attend


def _heads(x: np.ndarray, n: int) -> np.ndarray:
    """(batch, position, head and element) as (batch, head, position, element), in f32."""
    return x.reshape(*x.shape[:2], n, -1).swapaxes(1, 2).astype(np.float32)
