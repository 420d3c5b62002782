"""Attention as a recurrence: a matrix of state for each head, updated and read once for each position."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from blocklayout import ir


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
