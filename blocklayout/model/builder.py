"""Networks written in Python: one call an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout import dtypes
from blocklayout.errors import LayoutError, ModelError, close_names
from blocklayout.ir import Demands
from blocklayout.ir.value import Value
from blocklayout.model.graph import Graph, Node, constant_value, fresh_name
from blocklayout.model.infer import evaluate
from blocklayout.model.onnx_read import OLDEST_OPSET
from blocklayout.model.passes.rewrite import bypass
from blocklayout.model.scales import check_scales
from blocklayout.model.schemas import attributes_as_given, attributes_as_specified, literal_as_array, schema_or_none
from blocklayout.model.shapes import as_shape
from blocklayout.model.types import to_elem_type
from blocklayout.operators import Operators
from blocklayout.tensor import Tensor, contiguous_format

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike
    from onnx import ModelProto
    from onnx.defs import OpSchema

    from blocklayout.operators import Extents

DEFAULT_OPSET = 20
"""Old enough for the runtimes in use, new enough for Gelu and LayerNormalization."""


class Builder:
    """A network that is being written, in ONNX words.

    Each call checks its operator at once and returns a value of known extents and type. Arrays may
    stand wherever a value may; they become constants, without a copy.

    Args:
        name: The model's.
        opset: Version of ONNX's operator set to write in, 7 at least.

    Raises:
        ModelError: The operator set is too old.

    Example:
        >>> b = Builder()
        >>> x = b.input("x", (1, 3, 8, 8))
        >>> y = x.conv(np.ones((3, 3, 3, 3), np.float32), pads=1, name="stem").relu()
        >>> b.output("y", b.op("HardSwish", y) + x)
        >>> print(b.to_graph())
        model, opset 20
        x: f32 (1, 3, 8, 8) input
        stem = Conv(x, stem.W; pads=(1, 1, 1, 1))  # stem
        relu_1 = Relu(stem)  # relu_1
        hardswish_2 = HardSwish(relu_1)  # hardswish_2
        y = Add(hardswish_2, x)  # add_3
        y: f32 (1, 3, 8, 8) output
    """

    def __init__(self, name: str = "model", opset: int = DEFAULT_OPSET) -> None:
        if opset < OLDEST_OPSET:
            raise ModelError(f"operator set {opset} is too old to be written; give {OLDEST_OPSET} or a later one")
        self.name = name
        self.opset = opset
        self._values: dict[str, Value] = {}
        self._nodes: list[Node] = []
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._output_sources: dict[str, str] = {}
        self._expected: dict[str, str] = {}
        self._formats: dict[str, str] = {}
        self._pinned: dict[str, str] = {}

    def input(self, name: str, shape: Sequence[int], dtype: DTypeLike = "f32") -> BuildValue:
        """Something the caller will feed.

        Args:
            name: Unused so far.
            shape: Every extent, in logical order such as NCHW.
            dtype: ``f32``, ``bf16``, ``s64``, ..., or numpy's or ml_dtypes' type.

        Raises:
            ModelError: The name is taken, or an extent or the data type is impossible.
        """
        try:
            named = dtypes.named(dtype)
        except LayoutError as error:
            raise ModelError(f"input {name!r}: {error}") from None
        self._check_free(name, "input")
        self._inputs.append(name)
        return self._add(Value(name, as_shape(name, shape, ModelError), named))

    def constant(self, array: ArrayLike, name: str | None = None) -> BuildValue:
        """An array that is known now. Of a Tensor, :func:`blocklayout.save` keeps the format too.

        Raises:
            ModelError: The name is taken.
            UnsupportedError: ONNX has no tensor of this type.
        """
        if name is not None:
            self._check_free(name, "constant")
        known = name or fresh_name("constant", self._values)
        self._keep_format(array, known)
        return self._add(constant_value(known, _native(np.asarray(array))))

    def op(self, op_type: str, *args: Any, name: str | None = None, n_outputs: int = 1, **attrs: Any) -> Any:
        """Any operator of ONNX's own operator set, or a registered one.

        Args:
            op_type: As ONNX writes it, ``HardSwish``; of a registered operator ``my.domain.Foo``.
            args: Its inputs in ONNX order: values, arrays, numbers; ``None`` where an optional one is absent.
            name: Of the node and its first output; by default made of op type and index, ``conv_3``.
            n_outputs: How many outputs to make.
            attrs: Its attributes as ONNX names them; ``None`` leaves one out.

        Returns:
            The output, or a tuple of them where ``n_outputs`` is not 1.

        Raises:
            ModelError: No such operator or attribute, or arguments against its specification.
            UnsupportedError: The extents of an output depend on data.
        """
        domain, _, own_name = op_type.rpartition(".")
        schema = None if domain else self._schema(op_type)
        if name is not None:
            self._check_free(name, "node")
        node_name = name or fresh_name(f"{own_name.lower()}_{len(self._nodes)}", self._values)
        converted = attributes_as_specified(op_type, attrs, schema) if schema else attributes_as_given(op_type, attrs)
        inputs = self._arguments(node_name, op_type, schema, args)
        outputs = (node_name, *(fresh_name(f"{node_name}.{index}", self._values) for index in range(1, n_outputs)))
        input_names = tuple(value.name if value is not None else "" for value in inputs)
        node = Node(node_name, op_type, input_names, outputs[:n_outputs], converted, domain)
        check_scales(node, {value.name: value for value in inputs if value is not None}, self.opset)
        results = [value for value in evaluate(node, inputs, self.opset) if value is not None]
        if not all(value.is_constant for value in results):
            self._nodes.append(node)
        self._values |= {value.name: value for value in inputs if value is not None}
        handles = tuple(self._add(value) for value in results)
        return handles[0] if n_outputs == 1 else handles

    def concat(self, values: Sequence[BuildValue | np.ndarray], axis: int = 1, name: str | None = None) -> BuildValue:
        """Tensors side by side along ``axis``."""
        result: BuildValue = self.op("Concat", *values, axis=axis, name=name)
        return result

    def output(self, name: str, value: BuildValue) -> None:
        """Return ``value`` to the caller under ``name``.

        Raises:
            ModelError: The name is taken, or ``value`` is not this builder's.
        """
        source = self._own(value, f"output {name!r}").name
        if name in self._outputs:
            raise ModelError(f"there is an output {name!r} already; give another name")
        if name != source:
            self._check_free(name, "output")
            self._add(Value(name, value.shape, value.dtype))
            self._nodes.append(Node(name, "Identity", (source,), (name,)))
            self._output_sources[name] = source
        self._outputs.append(name)

    def expect(self, value: BuildValue, layout: str) -> None:
        """State the format in which a value must come, which is checked when the network is planned.

        Raises:
            ModelError: ``value`` is not this builder's.
        """
        self._expected[self._own(value, f"the value expected in {layout}").name] = layout

    def pin(self, value: BuildValue, layout: str) -> None:
        """State the format in which a value must be written; the rest of the network is chosen around it.

        Raises:
            ModelError: ``value`` is not this builder's.
        """
        self._pinned[self._own(value, f"the value pinned to {layout}").name] = layout

    @property
    def expected(self) -> dict[str, str]:
        """The formats that values must come in, by the names they have in the finished network."""
        return self._finished(self._expected)

    @property
    def pinned(self) -> dict[str, str]:
        """The formats that values must be written in, likewise."""
        return self._finished(self._pinned)

    def _finished(self, formats: Mapping[str, str]) -> dict[str, str]:
        renamed = {source: name for name, source in self._output_sources.items()}
        return {renamed.get(name, name): layout for name, layout in formats.items()}

    def to_graph(self) -> Graph:
        """The network so far, in the graph form.

        Raises:
            ModelError: It has no output.
        """
        if not self._outputs:
            raise ModelError(f"the model {self.name!r} has no output; call output(name, value)")
        inputs, outputs = tuple(self._inputs), tuple(self._outputs)
        values, formats = dict(self._values), dict(self._formats)
        graph = Graph(self.name, self.opset, tuple(self._nodes), values, inputs, outputs, formats=formats)
        graph = bypass(graph, self._output_sources)
        return graph.replace(demands=Demands(self.pinned, self.expected)).opened()

    def to_onnx(self) -> ModelProto:
        """The network so far as a checked ONNX model, which other runtimes can load.

        Raises:
            ModelError: It has no output, or its weights exceed protobuf's limit.
        """
        from blocklayout.model.onnx_write import to_model

        return to_model(self.to_graph())

    def _add(self, value: Value) -> BuildValue:
        self._values[value.name] = value
        return BuildValue(self, value)

    def _keep_format(self, given: Any, name: str) -> None:
        if isinstance(given, Tensor) and given.memory_format != contiguous_format:
            self._formats[name] = given.desc.format_tag.text

    def _check_free(self, name: Any, what: str) -> None:
        if not isinstance(name, str) or not name:
            raise ModelError(f"the name of an {what} must be a string that is not empty, not {name!r}")
        if name in self._values:
            raise ModelError(f"{what} {name!r}: there is a value of this name; give another name")

    def _own(self, value: Any, what: str) -> Value:
        if not isinstance(value, BuildValue):
            raise ModelError(f"{what} must be a value of this builder, not {type(value).__name__}")
        if value.builder is not self:
            raise ModelError(f"{what} is {value.name!r} of another builder; build the whole network with one")
        return value.value

    def _schema(self, op_type: str) -> OpSchema:
        schema = schema_or_none(op_type, self.opset)
        if schema is not None and not schema.deprecated:
            return schema
        from onnx import defs

        if defs.has(op_type):
            since = defs.get_schema(op_type).since_version
            raise ModelError(f"{op_type} is not in operator set {self.opset}; use Builder(opset={since})")
        known = [each.name for each in defs.get_all_schemas() if not each.domain]
        close = close_names(op_type, known)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ModelError(f"ONNX has no operator {op_type!r}{hint}")

    def _arguments(
        self, node_name: str, op_type: str, schema: OpSchema | None, args: Sequence[Any]
    ) -> list[Value | None]:
        known = [arg.value.dtype if isinstance(arg, BuildValue) else None for arg in args]
        values: list[Value | None] = []
        taken = {*self._values, node_name}
        for index, arg in enumerate(args):
            formal = schema.inputs[min(index, len(schema.inputs) - 1)] if schema and schema.inputs else None
            what = f"node {node_name!r}: {op_type}'s input {formal.name if formal else index!r}"
            if arg is None:
                values.append(None)
            elif isinstance(arg, BuildValue):
                values.append(self._own(arg, what))
            else:
                array = literal_as_array(arg, what, schema, index, known)
                name = fresh_name(f"{node_name}.{formal.name if formal else index}", taken)
                values.append(constant_value(name, _native(array)))
                self._keep_format(arg, name)
                taken.add(name)
        return values


class BuildValue(Operators):
    """A tensor of the network that is being built.

    Every operator's method is :meth:`blocklayout.model.Builder.op` in short; arrays become constants.

    Attributes:
        builder: Whose value it is.
        value: Its name, extents and data type.
    """

    def __init__(self, builder: Builder, value: Value) -> None:
        self.builder = builder
        self.value = value

    @property
    def name(self) -> str:
        """The name it has until it is made an output."""
        return self.value.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical extents."""
        return self.value.shape

    @property
    def dtype(self) -> str:
        """Data type, by oneDNN's names."""
        return self.value.dtype

    def expect(self, layout: str) -> BuildValue:
        """This value, which must come in a format, such as ``nChw8c`` or ``channels_last``: checked by each plan.

        Example:
            >>> from blocklayout import Builder
            >>> b = Builder()
            >>> b.output("y", b.input("x", (1, 16, 8, 8)).relu().expect("channels_first"))
            >>> b.expected
            {'y': 'channels_first'}
        """
        self.builder.expect(self, layout)
        return self

    def pin(self, layout: str) -> BuildValue:
        """This value, which must be written in a format, such as ``nChw8c``: others are chosen around it.

        Example:
            >>> from blocklayout import Builder
            >>> b = Builder()
            >>> b.output("y", b.input("x", (1, 16, 8, 8)).relu().pin("channels_last"))
            >>> b.pinned
            {'y': 'channels_last'}
        """
        self.builder.pin(self, layout)
        return self

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype} {self.shape}>"

    def astype(self, dtype: str) -> BuildValue:
        """The values in another data type, converted as ONNX does."""
        result: BuildValue = self.builder.op("Cast", self, to=to_elem_type(dtypes.named(dtype)))
        return result

    def __bool__(self) -> bool:
        raise ModelError(f"{self!r} has no truth: its elements are known when the network runs")

    def _op(self, op_type: str, *operands: Any, name: str | None = None, **attrs: Any) -> Any:
        while operands and operands[-1] is None:
            operands = operands[:-1]
        schema = schema_or_none(op_type, self.builder.opset)
        n_inputs = len(operands) if schema is None else schema.max_input
        if len(operands) > n_inputs:  # attributes of older versions became inputs
            from onnx import defs

            newest = [formal.name for formal in defs.get_schema(op_type).inputs]
            attrs |= zip(newest[n_inputs:], operands[n_inputs:], strict=False)
        return self.builder.op(op_type, *operands[:n_inputs], name=name, **attrs)

    def _reaching(self, output_shape: tuple[int, ...], strides: Extents, pads: Extents) -> Extents:
        n_spatial = len(self.shape) - 2
        steps = (strides,) * n_spatial if isinstance(strides, int) else strides
        around = (pads,) * n_spatial if isinstance(pads, int) else pads
        begin, end = around[:n_spatial], around[-n_spatial:]
        kernel = [
            extent - (n - 1) * step + first + last
            for extent, n, step, first, last in zip(output_shape[2:], self.shape[2:], steps, begin, end, strict=False)
        ]
        if output_shape[:2] != self.shape[:2] or len(output_shape) != len(self.shape) or min(kernel) < 1:
            wanted = f"{self.shape[:2]} and {n_spatial} extents that hold its windows"
            raise ModelError(f"output_shape is {output_shape}; {self.name!r} of shape {self.shape} takes {wanted}")
        return kernel

    def _window(self, **attrs: Extents) -> dict[str, Extents | None]:
        n_spatial = len(self.shape) - 2
        spread: dict[str, Extents | None] = {}
        for attr, given in attrs.items():
            each = (given,) * n_spatial if isinstance(given, int) else tuple(given)
            n_wanted = 2 * n_spatial if attr == "pads" else n_spatial
            each = each * 2 if attr == "pads" and len(each) == n_spatial else each
            if len(each) != n_wanted:
                what = f"{self.name!r} of shape {self.shape} has {n_spatial} spatial dimensions"
                rule = f"give one number, or {n_wanted} of them"
                raise ModelError(f"{attr} {given!r} has {len(each)} values; {what}: {rule}")
            default = 0 if attr in ("pads", "output_padding") else 1
            is_default = attr != "kernel_shape" and all(number == default for number in each)
            spread[attr] = None if is_default else each
        return spread


def _native(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("="), copy=False)
