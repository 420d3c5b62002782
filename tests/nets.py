"""Small networks that several tests run."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from blocklayout import Builder, Session


def he(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Convolution or matrix weights that keep activations near unit variance."""
    fan_in = int(np.prod(shape[1:]))
    weights: np.ndarray = (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
    return weights


def chain(channels: int = 17, size: int = 12, batch: int = 1, convs: int = 3) -> Builder:
    """conv-relu-conv-relu-...: a run that should stay in one layout. Odd channels, so padding is real."""
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", (batch, channels, size, size))
    for index in range(convs):
        bias = rng.standard_normal(channels).astype(np.float32)
        x = x.conv(he(rng, channels, channels, 3, 3), bias, pads=1, name=f"conv{index}").relu()
    b.output("y", x)
    return b


def residual(channels: int = 24, size: int = 14, batch: int = 2) -> Builder:
    """A stem, a residual block with a projection, one without, pooling and a classifier."""
    rng = np.random.default_rng(1)
    b = Builder()
    x = b.input("image", (batch, 3, size, size))
    stem = x.conv(he(rng, channels, 3, 3, 3), pads=1, name="stem").relu().max_pool(2, strides=2)
    wide = 2 * channels
    main = stem.conv(he(rng, wide, channels, 3, 3), pads=1, name="block1/a").relu()
    main = main.conv(he(rng, wide, wide, 3, 3), pads=1, name="block1/b")
    y = (main + stem.conv(he(rng, wide, channels, 1, 1), name="block1/project")).relu()
    z = y.conv(he(rng, wide, wide, 1, 1), name="block2/a").relu()
    z = z.conv(he(rng, wide, wide, 3, 3), pads=1, name="block2/b")
    z = (z + y).relu().global_average_pool().flatten()
    b.output("scores", z.gemm(he(rng, 10, wide), np.zeros(10, np.float32), trans_b=True).softmax())
    return b


def mobile() -> Builder:
    """Pointwise, depthwise, squeeze and excite, a residual, pooling and a concatenation; batch 1."""
    rng = np.random.default_rng(2)
    b = Builder()
    x = b.input("x", (1, 3, 20, 20)).conv(he(rng, 16, 3, 3, 3), pads=1, strides=2).clip(0, 6)
    y = x.conv(he(rng, 48, 16, 1, 1)).clip(0, 6).conv(he(rng, 48, 1, 3, 3), pads=1, group=48).clip(0, 6)
    y = y * y.global_average_pool().conv(he(rng, 48, 48, 1, 1)).sigmoid()
    y = y.conv(he(rng, 16, 48, 1, 1)) + x
    branches = [y.conv(he(rng, 8, 16, 1, 1)).relu(), y.conv(he(rng, 16, 16, 3, 3), pads=1).relu()]
    z = b.concat([*branches, y.max_pool(3, strides=1, pads=1)])
    z = z.conv(he(rng, 24, 40, 3, 3), strides=2, pads=1).relu().average_pool(2, strides=2)
    b.output("scores", z.flatten().gemm(he(rng, 5, 96), trans_b=True))
    return b


def free_model() -> onnx.ModelProto:
    """Two convolutions on images of any extents.

    A normalisation is folded into weights anew for each plan; they are the same ones, though.
    """
    rng = np.random.default_rng(0)
    constants = {"w0": he(rng, 17, 3, 3, 3), "w1": he(rng, 24, 17, 3, 3)}
    constants |= {name: np.abs(random_input((17,), seed)) + 0.5 for seed, name in enumerate("sbmv")}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c0", *"sbmv"], ["n0"]),
        helper.make_node("Relu", ["n0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "free",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3, "h", "w"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def random_input(shape: tuple[int, ...], seed: int = 7) -> np.ndarray:
    """Normally distributed f32 data."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def feed_of(session: Session, seed: int = 7) -> dict[str, np.ndarray]:
    """Random data for every input of a session whose extents are fixed."""
    feed = {}
    for info in session.get_inputs():
        shape = tuple(extent for extent in info.shape or () if isinstance(extent, int))
        feed[info.name] = random_input(shape, seed)
    return feed
