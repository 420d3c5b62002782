"""Recurrent layers, each a node of ONNX's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, lowers

_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
"""PyTorch's gates, by their numbers, in ONNX's order."""


@lowers("lstm.input", "gru.input")
def _recurrent(w: NodeWriter, x: BuildValue, hx: Any, params: Sequence[BuildValue], *args: Any) -> tuple[Any, ...]:
    has_biases, num_layers, dropout, train, bidirectional, batch_first = args
    op_type, states = w.name.upper(), hx if isinstance(hx, list) else [hx]
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
        first, end = layer * n_directions, (layer + 1) * n_directions
        each = [params[start * n_params : (start + 1) * n_params] for start in range(first, end)]
        weights = [_stacked(w, _GATES[op_type], direction) for direction in zip(*each, strict=True)]
        bias = w.op("Concat", *weights[2:], axis=1) if has_biases else None
        initial = [state if num_layers == 1 else w.op("Slice", state, [first], [end], [0]) for state in states]
        y, *ends = w.op(
            op_type,
            *(x, *weights[:2], bias, None, *initial),
            n_outputs=1 + len(states),
            hidden_size=width,
            direction="bidirectional" if bidirectional else "forward",
            linear_before_reset=1 if op_type == "GRU" else None,
        )
        x = w.reshape(w.transpose(y, (0, 2, 1, 3)), (steps, batch, n_directions * width))
        for ended, state in zip(last, ends, strict=True):
            ended.append(state)
    x = w.transpose(x, (1, 0, 2)) if batch_first else x
    return x, *(ended[0] if num_layers == 1 else w.op("Concat", *ended, axis=0) for ended in last)


def _stacked(w: NodeWriter, gates: Sequence[int], params: Sequence[BuildValue]) -> Any:
    """Parameters of each direction, with their gates in ONNX's order."""
    parts = [w.op("Split", each, axis=0, num_outputs=len(gates), n_outputs=len(gates)) for each in params]
    rows = [w.op("Unsqueeze", w.op("Concat", *(part[gate] for gate in gates), axis=0), [0]) for part in parts]
    return rows[0] if len(rows) == 1 else w.op("Concat", *rows, axis=0)
