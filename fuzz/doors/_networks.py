"""Small networks that doors make plans and sessions of."""

from __future__ import annotations

import numpy as np

import blocklayout as bl


def convolutions() -> bl.Builder:
    """Two convolutions, a pooling, a sum and a product of matrices: blocks, reorders and views."""
    generator = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return generator.standard_normal(shape).astype(np.float32)

    b = bl.Builder()
    x = b.input("x", (1, 3, 12, 12))
    first = x.conv(weights(17, 3, 3, 3), pads=1).relu()
    second = first.conv(weights(17, 17, 3, 3), weights(17), pads=1, name="second") + first
    pooled = b.op("MaxPool", second, kernel_shape=[2, 2], strides=[2, 2])
    b.output("image", pooled)
    b.output("y", b.op("MatMul", b.op("Flatten", pooled), b.constant(weights(17 * 36, 5))))
    return b


def in_numpy() -> bl.Builder:
    """Nodes that no primitive computes, and one that ``onnx.reference`` does."""
    b = bl.Builder()
    x = b.input("x", (2, 3, 4))
    b.output("sums", b.op("CumSum", x, b.constant(np.array(1))))
    b.output("signs", b.op("Sign", b.op("Softmax", x)))
    return b


def recurrent() -> bl.Builder:
    """A layer of each kind of cell, and a pooling and its inverse."""
    generator = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (5, 2, 4))
    for op_type, n_gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        weights, again = (generator.standard_normal((1, n_gates * 8, n)).astype(np.float32) for n in (4, 8))
        results = b.op(op_type, x, b.constant(weights), b.constant(again), n_outputs=2, hidden_size=8)
        b.output(op_type.lower(), results[0])
    image = b.input("image", (1, 16, 8, 8))
    pooled, places = b.op("MaxPool", image, kernel_shape=[2, 2], strides=[2, 2], n_outputs=2)
    b.output("unpooled", b.op("MaxUnpool", pooled, places, kernel_shape=[2, 2], strides=[2, 2]))
    return b
