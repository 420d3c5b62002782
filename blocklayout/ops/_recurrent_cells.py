"""Recurrent operators in numpy, with all their options: a loop over the steps, one product of matrices in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]

_N_INPUTS = 8
N_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULT_ACTIVATIONS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
_OF_CELL_STATE = 2
"""Index among an LSTM's activations of the one that no gate has."""


class Activation(NamedTuple):
    """A function of one number.

    Attributes:
        name: ONNX's, in lower case.
        alpha: Its first parameter; the default where it has none.
        beta: Its second.
    """

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
    given = [_text(name) for name in attrs.get("activations") or default * n_sides]
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
    """One direction's parameters, and its states before the first step."""

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
    """``LSTM``, ``GRU`` or ``RNN`` of ONNX; all results, the last cell state among them.

    Args:
        op_type: The operator.
        attrs: The node's.
        inputs: In ONNX's order; ``None`` where an optional one is absent.
    """
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
    step = _STEPS[op_type](attrs)
    is_reverse = _text(attrs.get("direction", "forward")) == "reverse"
    results = []
    for side in range(n_sides):
        of_side = _Side(functions[side], *(each[side] for each in parameters))
        results.append(_one_way(step, of_side, x, lengths, is_reverse=is_reverse or side == 1))
    y, last, last_cell = (
        np.stack(each, axis) for each, axis in zip(zip(*results, strict=True), (1, 0, 0), strict=True)
    )
    if attrs.get("layout"):
        return y.transpose(2, 0, 1, 3), swapped(last), swapped(last_cell)
    return y, last, last_cell


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


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
    step: _Step, side: _Side, x: np.ndarray, lengths: np.ndarray | None, *, is_reverse: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The states of all steps, zero behind a sequence's end, and the last ones."""
    n_steps, n_batch, _ = x.shape
    state, cell = side.state, side.cell
    y = np.zeros((n_steps, n_batch, state.shape[-1]), x.dtype)
    products = x @ side.weights.T
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


def _rnn(attrs: Mapping[str, Any]) -> _Step:
    del attrs

    def step(side: _Side, products: np.ndarray, state: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        [function] = side.functions
        return function(products + state @ side.recurrent.T + sum(np.split(side.bias, 2))), cell

    return step


def _gru(attrs: Mapping[str, Any]) -> _Step:
    is_linear_first = bool(attrs.get("linear_before_reset"))

    def step(side: _Side, products: np.ndarray, state: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        f, g = side.functions
        n_states = state.shape[-1]
        gates, last = slice(2 * n_states), slice(2 * n_states, None)
        of_source, of_state = np.split(side.bias, 2)
        sums = products[:, gates] + state @ side.recurrent[gates].T + of_source[gates] + of_state[gates]
        update, reset = np.split(f(sums), 2, -1)
        recurrent = side.recurrent[last].T
        if is_linear_first:
            reached = reset * (state @ recurrent + of_state[last])
        else:
            reached = (reset * state) @ recurrent + of_state[last]
        return (1 - update) * g(products[:, last] + of_source[last] + reached) + update * state, cell

    return step


def _lstm(attrs: Mapping[str, Any]) -> _Step:
    is_coupled = bool(attrs.get("input_forget"))

    def step(side: _Side, products: np.ndarray, state: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        f, g, h = side.functions
        into, out, forget, new = np.split(products + state @ side.recurrent.T + sum(np.split(side.bias, 2)), 4, -1)
        of_input, of_output, of_forget = np.split(side.peepholes, 3)
        into = f(into + of_input * cell)
        forget = 1 - into if is_coupled else f(forget + of_forget * cell)
        cell = forget * cell + into * g(new)
        return f(out + of_output * cell) * h(cell), cell

    return step


_STEPS: Mapping[str, Callable[[Mapping[str, Any]], _Step]] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}
