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


def attention() -> bl.Builder:
    """Heads, transposes, a normalisation and a mask."""
    generator = np.random.default_rng(0)
    b = bl.Builder()
    x, mask = b.input("x", (2, 6, 8)), b.input("mask", (2, 1, 1, 6))
    heads = []
    for _ in range(3):
        rows = b.op("MatMul", x, b.constant(generator.standard_normal((8, 8)).astype(np.float32)))
        heads.append(b.op("Transpose", b.op("Reshape", rows, b.constant(np.array([2, 6, 2, 4]))), perm=[0, 2, 1, 3]))
    scores = b.op("MatMul", heads[0], b.op("Transpose", heads[1], perm=[0, 1, 3, 2])) + mask
    mixed = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), heads[2]), perm=[0, 2, 1, 3])
    flat = b.op("Reshape", mixed, b.constant(np.array([2, 6, 8]))) + x
    weights = b.constant(np.ones(8, np.float32))
    b.output("y", b.op("LayerNormalization", flat, weights, weights, axis=-1))
    return b


def image_in_parts() -> bl.Builder:
    """Concatenations, slices, pads, an enlargement and groups."""
    generator = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (1, 8, 6, 6))
    grouped = x.conv(generator.standard_normal((8, 4, 3, 3)).astype(np.float32), pads=1, group=2).relu()
    left, right = b.op("Split", grouped, axis=1, n_outputs=2, num_outputs=2)
    padded = b.op("Pad", left, b.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])))
    large = b.op("Resize", right, None, b.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    part = b.op("Slice", large, *(b.constant(np.array(each)) for each in ([0, 0], [8, 8], [2, 3])))
    joined = b.op("Concat", part, b.op("Clip", padded, b.constant(np.float32(0)), b.constant(np.float32(6))), axis=1)
    b.output("mean", b.op("GlobalAveragePool", joined))
    b.output("y", b.op("ConvTranspose", joined, b.constant(np.ones((8, 3, 2, 2), np.float32)), strides=[2, 2]))
    return b


ALL = (convolutions, in_numpy, recurrent, attention, image_in_parts)
