"""Models of one to three nodes of any operators, with extents, attributes and constants at which programs go wrong."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, defs, helper, numpy_helper

import blocklayout as bl
from fuzz.choices import Choices
from fuzz.doors._feeding import run

SUMMARY = "nodes of every operator"
SHARE = 4
NBYTES, SECONDS = 256 << 20, 5.0

NEWEST = defs.onnx_opset_version()
OPSETS = (NEWEST, 17, 13, NEWEST - 1, 21, 11, 9, 7, 18, 15)
TYPES = {
    "tensor(float)": TensorProto.FLOAT,
    "tensor(int64)": TensorProto.INT64,
    "tensor(uint8)": TensorProto.UINT8,
    "tensor(bool)": TensorProto.BOOL,
    "tensor(int8)": TensorProto.INT8,
    "tensor(float16)": TensorProto.FLOAT16,
    "tensor(int32)": TensorProto.INT32,
    "tensor(double)": TensorProto.DOUBLE,
    "tensor(string)": TensorProto.STRING,
    "tensor(bfloat16)": TensorProto.BFLOAT16,
}
TEXTS = (
    *("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "constant", "reflect", "edge", "wrap", "nearest", "linear"),
    *("cubic", "bilinear", "align_corners", "half_pixel", "tf_crop_and_resize", "floor", "ceil", "round_prefer_ceil"),
    *("forward", "reverse", "bidirectional", "Tanh", "Relu", "Affine", "DCR", "CRD", "mean", "sum", "none", "add"),
    *("mul", "max", "min", "ij,jk->ik", "...i,i...", "ii->i", "tanh", "gelu", "left", "right", "stretch", "avg"),
)


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    schemas: dict[int, list[Any]] = {}
    for opset in OPSETS:
        names = sorted({schema.name for schema in defs.get_all_schemas_with_history() if not schema.domain})
        found = [defs.get_schema(name, opset, "") for name in names if defs.has(name, opset, "")]
        schemas[opset] = [each for each in found if not each.deprecated and not _has_subgraph(each)]

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        opset = choices.pick(OPSETS)
        content = _Model(choices, opset, schemas[opset]).made().SerializeToString()
        (folder / "given.onnx").write_bytes(content)
        with bl.limits(nbytes=NBYTES, seconds=SECONDS):
            layout = choices.pick(("auto", "nhwc", "any", "blocked", "plain"))
            run(bl.load(content, tune="model", threads=1 + choices.below(2), layout=layout), choices)

    return attempt


def _has_subgraph(schema: Any) -> bool:
    return any(str(each.type).endswith(("GRAPH", "GRAPHS")) for each in schema.attributes.values())


class _Model:
    """A model that is drawn: its nodes, inputs and constants."""

    def __init__(self, choices: Choices, opset: int, schemas: list[Any]) -> None:
        self._choices, self._opset, self._schemas = choices, opset, schemas
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._constants: list[Any] = []
        self._written: list[str] = []
        self._shape = choices.extents()

    def made(self) -> ModelProto:
        for number in range(self._choices.pick((1, 1, 1, 2, 3))):
            self._add(self._choices.pick(self._schemas), number)
        results = self._written if self._choices.chance(2) else self._written[-1:]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
        graph = helper.make_graph(self._nodes, "nodes", self._inputs, outputs, self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self._opset)], ir_version=10)

    def _add(self, schema: Any, number: int) -> None:
        choices = self._choices
        most = min(schema.max_input, schema.min_input + 3)
        least = schema.min_input - choices.chance(24)
        n_inputs = max(0, least + choices.below(most - least + 1))
        bound: dict[str, str] = {}
        inputs = [self._input(schema, place, bound) for place in range(n_inputs)]
        n_outputs = schema.min_output + choices.below(
            min(schema.max_output, schema.min_output + 3) - schema.min_output + 1
        )
        outputs = ["" if choices.chance(12) else f"y{number}.{place}" for place in range(max(1, n_outputs))]
        node = helper.make_node(schema.name, inputs, outputs, name=f"node{number}")
        for name in sorted(schema.attributes):
            each = schema.attributes[name]
            if each.required or choices.chance(2):
                kind = str(each.type).rpartition(".")[2]
                value = self._attribute(kind)
                if value is not None:
                    attr_type = int(getattr(defs.OpSchema.AttrType, kind))
                    node.attribute.append(helper.make_attribute(name, value, attr_type=attr_type))
        self._nodes.append(node)
        self._written += [name for name in outputs if name]

    def _input(self, schema: Any, place: int, bound: dict[str, str]) -> str:
        """The name of a value: of a node before, of a constant, of an input of the graph, or none."""
        choices, formal = self._choices, schema.inputs[min(place, len(schema.inputs) - 1)]
        if place >= schema.min_input and choices.chance(4):
            return ""
        if self._written and choices.below(2) == 0:
            return choices.pick(self._written)
        allowed = [each for each in TYPES if each in formal.types]
        type_name = bound.setdefault(formal.type_str, choices.pick(allowed or ["tensor(float)"]))
        if choices.chance(16):
            type_name = choices.pick([*TYPES])
        dtype, name, shape = TYPES[type_name], f"x{len(self._inputs) + len(self._constants)}", self._extents()
        if any(each.startswith("seq(") for each in formal.types) and choices.below(2) == 0:
            self._inputs.append(helper.make_tensor_sequence_value_info(name, dtype, shape))
        elif dtype != TensorProto.STRING and (choices.below(3) == 0 or (place and dtype == TensorProto.INT64)):
            self._constants.append(numpy_helper.from_array(self._array(helper.tensor_dtype_to_np_dtype(dtype)), name))
        else:
            declared = [f"n{extent}" if choices.chance(8) else extent for extent in shape]
            self._inputs.append(helper.make_tensor_value_info(name, dtype, None if choices.chance(24) else declared))
        return name

    def _extents(self) -> tuple[int, ...]:
        choices, kind = self._choices, self._choices.below(8)
        if kind < 3:
            return self._shape
        if kind < 5:
            return tuple(1 if choices.below(3) == 0 else extent for extent in self._shape[choices.below(3) :])
        if kind == 7 and choices.chance(4):
            return tuple(max(0, choices.integer()) for _ in range(choices.below(5)))
        return choices.extents()

    def _array(self, dtype: np.dtype[Any]) -> np.ndarray:
        """A constant: a few numbers as of pads and axes, or a small tensor."""
        choices = self._choices
        is_few = dtype.kind == "i" or choices.below(2) == 0
        shape = ((choices.below(9),) if choices.below(4) else ()) if is_few else self._extents()
        if prod(filter(None, shape)) > 1 << 16:  # numpy refuses some without elements, too
            shape = ()
        n = prod(shape)
        if n > 64 or dtype.kind not in "if":
            return np.resize(np.arange(7), shape).astype(dtype)
        draw = self._small if dtype.kind == "i" else lambda: choices.number() if choices.chance(6) else self._small()
        with np.errstate(all="ignore"):
            return (
                np.array([draw() for _ in range(n)], np.int64 if dtype.kind == "i" else np.float64)
                .astype(dtype)
                .reshape(shape)
            )

    def _small(self) -> int:
        return self._choices.integer() if self._choices.chance(8) else self._choices.below(6) - 1

    def _attribute(self, kind: str) -> Any:
        choices = self._choices
        if kind.startswith("INT"):
            return [self._small() for _ in range(choices.below(7))] if kind == "INTS" else self._small()
        if kind.startswith("FLOAT"):
            return [choices.number() for _ in range(choices.below(4))] if kind == "FLOATS" else choices.number()
        if kind.startswith("STRING"):
            return [choices.pick(TEXTS) for _ in range(choices.below(4))] if kind == "STRINGS" else choices.pick(TEXTS)
        dtype = np.dtype(choices.pick((np.float32, np.int64, np.uint8)))
        return numpy_helper.from_array(self._array(dtype)) if kind == "TENSOR" else None
