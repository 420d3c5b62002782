"""``quantize``: from a model in f32 and calibration data to a QDQ model."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from blocklayout.encoding import to_json
from blocklayout.errors import InputError, UnsupportedError
from blocklayout.ir import Demands
from blocklayout.loading.zoo_names import source_named
from blocklayout.model import Graph, Node, OnnxModel, open_model, read, simplified, simplify, to_model, whole_contents
from blocklayout.model.onnx_read import REPORT_KEY
from blocklayout.model.passes.rewrite import Draft
from blocklayout.quantizing.budget import METRICS, Metric, Search
from blocklayout.quantizing.calibration import Feeds, mean_errors, schemes_of
from blocklayout.quantizing.equalising import equalised
from blocklayout.quantizing.layers import Chosen, Layer, LayerInBytes, choose
from blocklayout.quantizing.observers import Scheme

if TYPE_CHECKING:
    from onnx import ModelProto

    from blocklayout.model import Builder
    from blocklayout.quantizing.recipe import QuantizationRecipe

OLDEST_OPSET = 13
"""The first with scales along an axis."""

_CONVERTED_TO = 17


def quantize(
    model: str | os.PathLike[str] | bytes | ModelProto | Builder | Graph | OnnxModel,
    calibration_data: Iterable[Any],
    recipe: QuantizationRecipe | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    metric: Metric | None = None,
    dtype: Literal["f32", "bf16"] = "f32",
    threads: int | None = None,
    measures_all: bool = False,
    progress: Callable[[str], None] | None = None,
) -> ModelProto:
    """A model with weights and activations of 8 bits, as an ONNX model with QuantizeLinear and DequantizeLinear.

    :func:`load` takes it, and so do other runtimes. Weights become signed bytes, biases integers of 32 bits.
    Ranges of activations are those seen as the model runs in f32 on calibration data. Extents that the model leaves
    free stay free where nothing in it was computed from them; else they are those of the first feed.

    Args:
        model: As for :func:`load`; in f32. Of an operator set before 13 it is converted first.
        calibration_data: Feeds like those of use, some hundred: dicts of arrays by input name, or arrays where there is
            one input. They are gone through twice where biases are corrected; those of an iterator are kept meanwhile,
            and all under a ``max_error``.
        recipe: Which operators are quantised, and how: a :class:`QuantizationRecipe`, its fields, JSON, or a ``.json``
            or ``.toml`` file.
        metric: Measures errors in place of the recipe's metric where that has a ``max_error``: a function of two lists
            of outputs, a list of arrays for each feed, of the quantised model and of the one in f32.
        dtype: Data type in which the rest will be computed, for times and errors under a ``max_error``.
        threads: That it will be run on, likewise; by default as many as this process may use.
        measures_all: Whether the error of each layer by itself is measured even where all of them together fit the
            budget: for the report that :class:`PrecisionReport` reads of the result.
        progress: Called with a few words before each stage and each feed.

    Raises:
        InputError: A recipe that is wrong, or that leaves nothing to quantise; no feeds, one that does not fit the
            model, or one for which a value is not finite; a value that is always 0.
        ModelError: As of :func:`load`.
        UnsupportedError: As of :func:`load`, or an old operator set that cannot be converted.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> b = bl.Builder()
        >>> weights = np.linspace(-1, 1, 4 * 3 * 3 * 3, dtype=np.float32).reshape(4, 3, 3, 3)
        >>> b.output("y", b.input("x", (1, 3, 8, 8)).conv(weights).relu())
        >>> data = [np.random.default_rng(seed).random((1, 3, 8, 8), np.float32) for seed in range(8)]
        >>> quantized = bl.quantize(b, data, {"max_error": "any"})  # all that can be, however small the gain
        >>> [node.op_type for node in quantized.graph.node]
        ['QuantizeLinear', 'DequantizeLinear', 'DequantizeLinear', 'DequantizeLinear', 'Conv', 'Relu']
        >>> error = bl.load(quantized)(data[0]) - bl.load(b)(data[0])
        >>> bool(np.abs(error).max() < 0.1)
        True
    """
    from blocklayout.api import load
    from blocklayout.quantizing.recipe import QuantizationRecipe

    recipe = QuantizationRecipe.of(recipe)
    tell = progress or (lambda _: None)
    tell("reading the model")
    opened = _in_new_operators(source_named(model))
    feeds = Feeds.of(calibration_data, _inputs(opened), tell)
    graph, is_free = _simplified(opened, feeds)
    graph = equalised(graph, choose(graph, recipe).layers) if recipe.equalisation else graph
    chosen = choose(graph, recipe)
    if not chosen.groups:
        raise InputError("recipe: it leaves nothing to quantise in this model, or that is quantised already")
    between = [name for name in chosen.groups if name not in (*graph.inputs, *graph.outputs)]
    watched = to_model(graph.replace(outputs=(*graph.outputs, *between)))
    if is_free:
        _free_extents(watched, opened)
    with load(watched, tune="model", recipes={"winograd": False}) as session:
        schemes = schemes_of(graph, chosen, recipe, session, feeds)
        layers = {name: _bytes_of(layer, schemes, recipe) for name, layer in chosen.layers.items()}
        errors = {}
        if recipe.bias_correction and layers:
            errors = mean_errors(graph, layers, schemes, session, feeds)

    def written(without: Collection[str]) -> Graph:
        some = choose(graph, recipe, without)
        return _Writer(graph, some, schemes).written({name: layers[name] for name in some.layers}, errors)

    report = None
    if recipe.max_error != "any":
        measure = (recipe.metric, METRICS[recipe.metric]) if metric is None else ("a function", metric)
        all_feeds = [feed for _, feed in feeds]
        n_threads = threads or dnnl.default_threads()
        search = Search(graph, chosen, written, all_feeds, measure, dtype, n_threads, tell)
        report = search.within(recipe.max_error, measures_all=measures_all)
    tell("writing the quantised model")
    result = to_model(written(report.left if report else ()))
    if report:
        result.metadata_props.add(key=REPORT_KEY, value=to_json(report))
    if is_free:
        _free_extents(result, opened)
    for key, text in opened.metadata.items() if isinstance(opened, OnnxModel) else ():
        if key != REPORT_KEY:  # of a model that was quantised in part before
            result.metadata_props.add(key=key, value=text)
    return result


def _in_new_operators(source: Any) -> OnnxModel | Graph:
    opened = open_model(source)
    if opened.opset >= OLDEST_OPSET:
        return opened
    from onnx import ModelProto, version_converter

    if isinstance(opened, Graph):
        proto = to_model(opened)
    elif isinstance(source, OnnxModel):
        raise UnsupportedError(
            f"{opened.name} is of operator set {opened.opset}: give its file, which can be converted"
        )
    else:
        contents = whole_contents(Path(source)) if isinstance(source, str | os.PathLike) else source
        proto = contents if isinstance(contents, ModelProto) else ModelProto.FromString(bytes(contents))
    try:
        return open_model(version_converter.convert_version(proto, _CONVERTED_TO))
    except (RuntimeError, version_converter.ConvertError) as error:
        said = f"{opened.name} is of operator set {opened.opset}, and cannot be converted to {_CONVERTED_TO}"
        raise UnsupportedError(f"{said}, which scales along an axis take: {error}") from error


def _inputs(opened: OnnxModel | Graph) -> tuple[str, ...]:
    return opened.inputs if isinstance(opened, Graph) else tuple(info.name for info in opened.signature.inputs)


def _simplified(opened: OnnxModel | Graph, feeds: Feeds) -> tuple[Graph, bool]:
    """The model without what folds, for the extents of the first feed, and whether it is the same for all others."""
    origin, feed = next(iter(feeds))
    try:
        graph = read(opened, {name: array.shape for name, array in feed.items()})
    except InputError as error:
        raise InputError(f"{origin}{error}") from error
    graph = graph.replace(demands=Demands())  # those on layouts are about kernels in f32
    if isinstance(opened, Graph):
        return simplify(graph), False
    result, for_all = simplified(graph, opened)
    return result, for_all is not None


def _free_extents(proto: ModelProto, opened: OnnxModel | Graph) -> None:
    """Leave extents of inputs and outputs free that the model leaves free, and say none of what lies between."""
    if isinstance(opened, Graph):
        return
    declared = {info.name: info for info in (*opened.signature.inputs, *opened.signature.outputs)}
    for info in (*proto.graph.input, *proto.graph.output):
        shape, known = info.type.tensor_type.shape, declared.get(info.name)
        extents = (known and known.extents) or (None,) * len(shape.dim)
        for dim, extent in zip(shape.dim, extents, strict=True):
            if not isinstance(extent, int):
                dim.Clear()
            if isinstance(extent, str):
                dim.dim_param = extent
    del proto.graph.value_info[:]


def _bytes_of(layer: Layer, schemes: Mapping[str, Scheme], recipe: QuantizationRecipe) -> LayerInBytes:
    otherwise = recipe.otherwise((layer.node.name, *layer.node.absorbed), layer.node.op_type)
    granularity = (None if otherwise == "f32" else otherwise.weights) or recipe.weights
    return layer.quantized(schemes[layer.source].scale, per_channel=granularity == "channel")


class _Writer:
    """Writes a graph anew, with changes to bytes and back."""

    def __init__(self, graph: Graph, chosen: Chosen, schemes: Mapping[str, Scheme]) -> None:
        self._graph, self._chosen, self._schemes = graph, chosen, schemes
        self._draft = Draft(graph)
        self._parameters: dict[str, tuple[str, str]] = {}
        self._dequantized: dict[str, str] = {}

    def written(self, layers: Mapping[str, LayerInBytes], errors: Mapping[str, np.ndarray]) -> Graph:
        """The graph; biases make up for the mean errors of layers, where there is one, or a place for one."""
        nodes = [each for name in self._graph.inputs for each in self._pair(name)]
        added = {
            each.layer.adding: each.layer.bias - errors[name]
            for name, each in layers.items()
            if each.layer.adding and each.layer.bias is not None and name in errors
        }
        for node in self._graph.nodes:
            if node.name in layers:
                nodes += self._layer(layers[node.name], errors.get(node.name))
            elif node.name in added:
                [known] = [name for name in node.inputs if self._graph.values[name].is_constant]
                corrected = self._draft.constant(f"{known}_corrected", added[node.name].astype(np.float32))
                nodes.append(node.renamed({known: corrected}))
            elif node.name in self._chosen.apart:
                nodes.append(node)
            else:
                nodes.append(node.replace(inputs=tuple(self._dequantized.get(name, name) for name in node.inputs)))
            nodes += (each for name in node.outputs for each in self._pair(name))
        return self._graph.replace(nodes=tuple(nodes), values=self._draft.values, as_read={}, renamed={}).validate()

    def _pair(self, name: str) -> Iterator[Node]:
        """Quantising of a value, and back, if it is quantised."""
        if name not in self._chosen.groups:
            return
        scheme, first = self._schemes[name], self._chosen.groups[name]
        if first not in self._parameters:
            zero_point = np.full_like(scheme.scale, scheme.zero_point, to_numpy(scheme.dtype))
            scale = self._draft.constant(f"{first}_scale", scheme.scale)
            self._parameters[first] = scale, self._draft.constant(f"{first}_zero_point", zero_point)
        shape = self._graph.shape(name)
        quantized = self._draft.value(f"{name}_quantized", shape, scheme.dtype)
        real = self._dequantized[name] = self._draft.value(f"{name}_dequantized", shape, "f32")
        attrs = {"axis": 1} if scheme.scale.ndim else {}
        yield Node(quantized, "QuantizeLinear", (name, *self._parameters[first]), (quantized,), attrs)
        yield Node(real, "DequantizeLinear", (quantized, *self._parameters[first]), (real,), attrs)

    def _layer(self, in_bytes: LayerInBytes, error: np.ndarray | None) -> Iterator[Node]:
        """A product of bytes, behind changes of its weights and bias to real numbers."""
        layer, scales = in_bytes.layer, in_bytes.scales
        bias = layer.bias if not layer.adding else None
        names = [self._dequantized[layer.source]]
        per_channel = {"axis": layer.axis} if scales.size > 1 else {}
        scales = scales if scales.size > 1 else scales.reshape(())
        yield from self._known(f"{layer.node.name}_weights", in_bytes.integers, scales, per_channel, names)
        if error is not None and layer.node.op_type != "MatMul":
            bias = -error if bias is None else bias - error
        if bias is not None:
            scales = (scales * self._schemes[layer.source].scale).astype(np.float32)
            steps = np.clip(np.rint(bias.astype(np.float64) / scales), -(2**31) + 1, 2**31 - 1).astype(np.int32)
            yield from self._known(
                f"{layer.node.name}_bias", steps, scales, {"axis": 0} if scales.size > 1 else {}, names
            )
        yield layer.node.replace(inputs=tuple(names))

    def _known(
        self, name: str, integers: np.ndarray, scales: np.ndarray, attrs: dict[str, int], names: list[str]
    ) -> Iterator[Node]:
        given = (self._draft.constant(f"{name}_quantized", integers), self._draft.constant(f"{name}_scale", scales))
        real = self._draft.value(f"{name}_dequantized", integers.shape, "f32")
        names.append(real)
        yield Node(real, "DequantizeLinear", given, (real,), attrs)
