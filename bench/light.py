"""Whole ImageNet networks to measure and compare with: real graphs, random weights.

The ``onnx`` package carries nine classic networks without their weights: nodes of type ConstantOfShape
stand for most of them and fill each with 0.02. So filled, a network has the same output for every input,
which proves little. `light_model` draws every parameter at random from a seed, so that activations neither
die out nor explode; `smoke_case` is the network as the package has it, with the
package's own input and output.

Source: ``onnx/backend/test/data/light`` and ``onnx/backend/test/runner`` of the onnx package, Apache-2.0.
"""

from __future__ import annotations

import math
import zlib
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct

from blocklayout.errors import ModelError, UnsupportedError
from blocklayout.zoo._layers import BALANCE, BRANCH_GAIN

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

NAMES = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)

# Factor of the scale of a normalisation that ends one of two branches that are added to each other, so that sums do not
# grow; BRANCH_GAIN is that of a branch beside the identity.
BESIDE_BRANCH = 0.7

# Normal values are drawn so many at a time, by several threads.
PIECE = 1 << 22


class SmokeCase(NamedTuple):
    """A network as published, its inputs and expected outputs by name."""

    model: onnx.ModelProto
    inputs: dict[str, NDArray[np.float32]]
    outputs: dict[str, NDArray[np.float32]]


class Use(Struct, frozen=True):
    """The node that computes with a constant, as which of its inputs, and what stands around that node."""

    node: onnx.NodeProto
    position: int
    is_rectified: bool  # what the node reads has lost half of its variance to a Relu
    branch_scale: float  # for what ends a residual branch, else 1

    @property
    def is_parameter(self) -> bool:
        """Whether arithmetic is done with the constant, as opposed to one that is a shape."""
        return self.node.op_type in {"Conv", "Gemm", "BatchNormalization", "Mul", "Add"}


def light_model(name: str, seed: int = 0) -> onnx.ModelProto:
    """One of `NAMES` with random weights, the same at every call with one ``seed``.

    Convolutions and matrix products get He weights: normal, with variance 2 / fan-in behind a Relu and
    1 / fan-in elsewhere. Normalisations get variances in 0.5..1.5, scales near 1 (less at the end of a
    residual branch), and biases and means that differ. The few parameters that come with the package are
    replaced too, for trained statistics do not suit random weights. All become initializers and are no
    longer graph inputs.

    Args:
        name: The network.
        seed: Whence all weights come; each parameter's values depend on the seed and its name alone.

    Raises:
        ModelError: There is no such network.
        UnsupportedError: The installed onnx package carries no networks.

    Example:
        >>> model = light_model("squeezenet")
        >>> [value.name for value in model.graph.input], len(model.graph.initializer)
        (['data_0'], 52)
    """
    import onnx

    model = _published(name)
    graph = model.graph
    shapes, uses = _constant_shapes(graph), _uses(graph)
    kept = [tensor for tensor in graph.initializer if tensor.name in uses and not uses[tensor.name].is_parameter]
    _remove_constants(graph)
    graph.initializer.extend(kept)
    for parameter, shape in shapes.items():
        if parameter in uses and uses[parameter].is_parameter:
            generator = np.random.default_rng((seed, zlib.crc32(parameter.encode())))
            values = _random_values(uses[parameter], shape, generator)
            # In place: a tensor made first and then added would be copied, and the largest is 400 MB.
            data = values.astype("<f4", copy=False).tobytes()
            graph.initializer.add(name=parameter, data_type=onnx.TensorProto.FLOAT, dims=shape, raw_data=data)
    model.ir_version = max(model.ir_version, 4)  # the first in which initializers need not be inputs
    return model


def random_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """A standard normal array for each input that no initializer feeds, by name."""
    constant = {tensor.name for tensor in model.graph.initializer}
    generator = np.random.default_rng(seed)
    return {
        value.name: generator.standard_normal([each.dim_value for each in value.type.tensor_type.shape.dim], np.float32)
        for value in model.graph.input
        if value.name not in constant
    }


def smoke_case(name: str) -> SmokeCase:
    """One of `NAMES` as published, with the input and output its publisher tests it with.

    Outputs are to agree within a relative 1e-3 (``densenet121``: 2e-3), as the publisher has it.

    Raises:
        ModelError: There is no such network.
        UnsupportedError: The installed onnx package carries no networks.

    Example:
        >>> case = smoke_case("squeezenet")
        >>> {name: array.shape for name, array in (case.inputs | case.outputs).items()}
        {'data_0': (1, 3, 224, 224), 'softmaxout_1': (1, 1000, 1, 1)}
    """
    import onnx
    from onnx import numpy_helper

    model = _published(name)
    inputs = {}
    for value_name, noise in random_inputs(model).items():
        ramp = np.arange(noise.size).reshape(noise.shape) / noise.size
        inputs[value_name] = ramp.astype(np.float32)
    tensor = onnx.TensorProto.FromString(_read(f"light_{name}_output_0.pb"))
    return SmokeCase(model, inputs, {model.graph.output[0].name: numpy_helper.to_array(tensor)})


def _published(name: str) -> onnx.ModelProto:
    import onnx

    if name not in NAMES:
        raise ModelError(f"no network is named {name!r}; there are {', '.join(NAMES)}")
    return onnx.load_from_string(_read(f"light_{name}.onnx"))


def _read(file: str) -> bytes:
    path = resources.files("onnx").joinpath("backend", "test", "data", "light", file)
    if not path.is_file():
        raise UnsupportedError(
            f"the installed onnx package lacks {file}: its wheels on PyPI carry it, some builds do not"
        )
    return path.read_bytes()


def _uses(graph: onnx.GraphProto) -> dict[str, Use]:
    """By value name: who first computes with it, seen through changes of its shape."""
    consumers: dict[str, tuple[onnx.NodeProto, int]] = {}
    for node in reversed([node for node in graph.node if node.op_type != "ConstantOfShape"]):
        consumers |= {name: (node, position) for position, name in enumerate(node.input)}
    producers = {name: node for node in graph.node for name in node.output}
    scales = _branch_scales(graph, producers)
    uses = {}
    for name in consumers:
        node, position = consumers[name]
        while position == 0 and node.op_type in {"Reshape", "Unsqueeze"} and node.output[0] in consumers:
            node, position = consumers[node.output[0]]
        uses[name] = Use(node, position, _is_rectified(node, producers), scales.get(node.output[0], 1.0))
    return uses


def _is_rectified(node: onnx.NodeProto, producers: dict[str, onnx.NodeProto]) -> bool:
    """Whether a node reads the output of a Relu, directly or through nodes that keep its variance.

    MaxPool is none of these: the largest of several rectified values has about the variance that Relu took.
    """
    source = producers.get(node.input[0])
    while source is not None and source.op_type in {"AveragePool", "Concat", "Dropout", "LRN", "Reshape", "Transpose"}:
        source = producers.get(source.input[0])
    return source is not None and source.op_type == "Relu"


def _branch_scales(graph: onnx.GraphProto, producers: dict[str, onnx.NodeProto]) -> dict[str, float]:
    """By the name of a normalised value that is summed: what to multiply it by."""
    scales: dict[str, float] = {}
    for node in graph.node:
        if node.op_type == "Sum":
            branches = [name for name in node.input if producers[name].op_type == "BatchNormalization"]
            scales |= dict.fromkeys(branches, BRANCH_GAIN if len(branches) == 1 else BESIDE_BRANCH)
    return scales


def _constant_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Shapes of all constants, stored and generated, by name."""
    from onnx import numpy_helper

    stored = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {name: tuple(tensor.dims) for name, tensor in stored.items()}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = tuple(numpy_helper.to_array(stored[node.input[0]]).tolist())
    return shapes


def _remove_constants(graph: onnx.GraphProto) -> None:
    """Leave the nodes that compute and the inputs that a caller must feed."""
    constant = {tensor.name for tensor in graph.initializer}
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    inputs = [value for value in graph.input if value.name not in constant]
    for field in ("node", "input", "initializer"):
        graph.ClearField(field)
    graph.node.extend(nodes)
    graph.input.extend(inputs)


def _random_values(use: Use, shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.float32]:
    match use.node.op_type, use.position:
        case ("Conv" | "Gemm", 1):
            return _normal(generator, shape, ((2 if use.is_rectified else 1) / _fan_in(use.node, shape)) ** 0.5)
        case ("BatchNormalization", 4):
            return generator.uniform(0.5, 1.5, shape).astype(np.float32)
        case ("BatchNormalization", 1):
            factor = BALANCE * use.branch_scale
            return generator.uniform(0.9 * factor, 1.1 * factor, shape).astype(np.float32)
        case ("Mul", _):
            return generator.uniform(0.9, 1.1, shape).astype(np.float32)
        case _:  # biases and means
            return _normal(generator, shape, 0.1)


def _fan_in(node: onnx.NodeProto, shape: tuple[int, ...]) -> int:
    """How many products are summed for one output."""
    if node.op_type == "Conv":
        return math.prod(shape[1:])
    is_transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return shape[-1] if is_transposed else shape[-2]


def _normal(generator: np.random.Generator, shape: tuple[int, ...], deviation: float) -> NDArray[np.float32]:
    """Normal values with mean 0, drawn in pieces by several threads; the pieces depend on the size alone."""
    values = np.empty(math.prod(shape), np.float32)
    pieces = [values[start : start + PIECE] for start in range(0, values.size, PIECE)]

    def fill(source: np.random.Generator, piece: NDArray[np.float32]) -> None:
        source.standard_normal(dtype=np.float32, out=piece)
        piece *= np.float32(deviation)

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, generator.spawn(len(pieces)), pieces))
    return values.reshape(shape)
