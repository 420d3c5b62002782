"""Recurrent layers, each a node of ONNX's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, integers, lowers

_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
"""PyTorch's gates, by their numbers, in ONNX's order."""


@lowers("aten.lstm.input")
def _lstm(w: NodeWriter, *args: Any) -> tuple[Any, ...]:
    return _recurrent(w, "LSTM", *args)


@lowers("aten.gru.input")
def _gru(w: NodeWriter, x: BuildValue, hx: BuildValue, *args: Any) -> tuple[Any, ...]:
    return _recurrent(w, "GRU", x, [hx], *args)


def _recurrent(w: NodeWriter, op_type: str, x: BuildValue, states: Sequence[BuildValue], *args: Any) -> tuple[Any, ...]:
    params, has_biases, num_layers, dropout, train, bidirectional, batch_first = args
    if (train and dropout) or len(x.shape) != 3:
        raise w.refuse("dropout in training, or a sequence that is no batch")
    n_params, n_directions = 4 if has_biases else 2, 2 if bidirectional else 1
    if len(params) != n_params * n_directions * num_layers:
        raise w.refuse("projections of the state")
    width = states[0].shape[-1]
    x = w.transpose(x, (1, 0, 2)) if batch_first else x
    steps, batch, _ = x.shape
    last: list[list[BuildValue]] = [[] for _ in states]
    for layer in range(num_layers):
        rows = [layer * n_directions, (layer + 1) * n_directions]
        first = rows[0] * n_params
        each = [params[start : start + n_params] for start in range(first, rows[1] * n_params, n_params)]
        weights = [_stacked(w, op_type, [direction[index] for direction in each]) for index in range(n_params)]
        bias = w.op("Concat", *weights[2:], axis=1) if has_biases else None
        initial = [state if num_layers == 1 else w.op("Slice", state, *map(integers, (*rows, 0))) for state in states]
        y, *ends = w.op(
            op_type,
            *(x, *weights[:2], bias, None, *initial),
            n_outputs=1 + len(states),
            hidden_size=width,
            direction="bidirectional" if bidirectional else "forward",
            linear_before_reset=1 if op_type == "GRU" else None,
        )
        x = w.reshape(w.transpose(y, (0, 2, 1, 3)), (steps, batch, n_directions * width))
        for ended, end in zip(last, ends, strict=True):
            ended.append(end)
    x = w.transpose(x, (1, 0, 2)) if batch_first else x
    return x, *(ended[0] if num_layers == 1 else w.op("Concat", *ended, axis=0) for ended in last)


def _stacked(w: NodeWriter, op_type: str, params: Sequence[BuildValue]) -> Any:
    """Parameters of each direction, with their gates in ONNX's order."""
    gates = _GATES[op_type]
    parts = [w.op("Split", each, axis=0, num_outputs=len(gates), n_outputs=len(gates)) for each in params]
    ordered = [w.op("Concat", *(part[gate] for gate in gates), axis=0) for part in parts]
    rows = [w.op("Unsqueeze", each, integers(0)) for each in ordered]
    return rows[0] if len(rows) == 1 else w.op("Concat", *rows, axis=0)
