"""What NaN and infinities become, from runs of every operator alone in each layout and as a post-op.

``ONEDNN_MAX_CPU_ISA=AVX2 python -m tests.ops.special_values`` prints those of ``docs/reference/special-values.md``.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from blocklayout import dnnl
from blocklayout.ir import Wish
from blocklayout.layout import MemoryDesc
from tests.ops.cases import OpCase, Weights, problem_of
from tests.ops.harness import assert_padding_is_zero, resolved, run_recipe, run_step

LAYOUTS = ("plain", "channels_last", "blocked8", "blocked16")
NAN, INF = math.nan, math.inf
SPECIAL = (NAN, INF, -INF)
IMAGE = (1, 17, 2, 2)
"""One block and a part of the next."""

KINDS = ("vectorised", "scalar")
"""Of a convolution's code: made for the shape (jit, brgconv), or for a matrix product and what comes after it."""

ABSENT = "-"

ELTWISE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Relu": ("Relu", {}),
    "LeakyRelu": ("LeakyRelu", {}),
    "Elu": ("Elu", {}),
    "Clip (-1, 1)": ("Clip", {"min": -1.0, "max": 1.0}),
    "Clip (1, 2)": ("Clip", {"min": 1.0, "max": 2.0}),
    "Sigmoid": ("Sigmoid", {}),
    "Tanh": ("Tanh", {}),
    "HardSigmoid": ("HardSigmoid", {}),
    "HardSwish": ("HardSwish", {}),
    "Mish": ("Mish", {}),
    "Gelu": ("Gelu", {}),
    "Gelu (tanh)": ("Gelu", {"approximate": "tanh"}),
    "Softplus": ("Softplus", {}),
    "Exp": ("Exp", {}),
    "Log": ("Log", {}),
    "Sqrt": ("Sqrt", {}),
    "Abs": ("Abs", {}),
    "Neg": ("Neg", {}),
    "Reciprocal": ("Reciprocal", {}),
    "Round": ("Round", {}),
}
_OPSETS = {"Clip": 6, "Mish": 18, "Gelu": 20, "HardSwish": 18}

BINARY: Sequence[tuple[str, str, float, float]] = (
    ("Add", "NaN + 1", NAN, 1),
    ("Add", "inf + -inf", INF, -INF),
    ("Sub", "inf - inf", INF, INF),
    ("Mul", "NaN * 0", NAN, 0),
    ("Mul", "inf * 0", INF, 0),
    ("Div", "1 / 0", 1, 0),
    ("Div", "0 / 0", 0, 0),
    ("Div", "inf / inf", INF, INF),
    ("Max", "max(NaN, 1)", NAN, 1),
    ("Max", "max(1, NaN)", 1, NAN),
    ("Min", "min(NaN, 1)", NAN, 1),
    ("Min", "min(1, NaN)", 1, NAN),
)

WINDOWS: Sequence[tuple[str, tuple[float, ...]]] = (
    ("NaN among 1", (1, NAN, 1, 1)),
    ("NaN first", (NAN, 1, 1, 1)),
    ("all NaN", (NAN,) * 4),
    ("inf among 1", (1, INF, 1, 1)),
    ("-inf among 1", (1, -INF, 1, 1)),
    ("all -inf", (-INF,) * 4),
)


def tables() -> str:
    """The document's tables, computed now."""
    parts = (_eltwise_table(), _binary_table(), _window_table())
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _eltwise_table() -> Iterator[str]:
    yield "| of NaN / inf / -inf | alone | post-op, vectorised | post-op, scalar | ONNX |"
    yield "|---" * 5 + "|"
    for name, (op_type, attrs) in ELTWISE.items():
        case = OpCase(op_type, (IMAGE,), attrs, opset=_OPSETS.get(op_type, 17))
        alone = " / ".join(_alone(case, {"in_0": value}) for value in SPECIAL)
        fused = [_fused(case, value) for value in SPECIAL]
        onnx = " / ".join(_reference(case, {"in_0": value}) for value in SPECIAL)
        posts = [" / ".join(found.get(kind, ABSENT) for found in fused) for kind in KINDS]
        yield "| " + " | ".join([name, alone, *posts, onnx]) + " |"


def _binary_table() -> Iterator[str]:
    yield "| operands | alone | post-op, vectorised | post-op, scalar | ONNX |"
    yield "|---" * 5 + "|"
    for op_type, name, first, second in BINARY:
        case = OpCase(op_type, (IMAGE, IMAGE))
        values = {"in_0": first, "in_1": second}
        fused = _fused(case, first, second)
        posts = [fused.get(kind, ABSENT) for kind in KINDS]
        yield "| " + " | ".join([name, _alone(case, values), *posts, _reference(case, values)]) + " |"


def _window_table() -> Iterator[str]:
    yield "| of four values | MaxPool | AveragePool | ReduceMax | ReduceSum | Softmax |"
    yield "|---" * 6 + "|"
    axes = np.array([2, 3], np.int64)
    cases = [
        *(OpCase(op_type, (IMAGE,), {"kernel_shape": [2, 2]}) for op_type in ("MaxPool", "AveragePool")),
        *(OpCase(op_type, (IMAGE, axes), opset=18) for op_type in ("ReduceMax", "ReduceSum")),
    ]
    softmax = OpCase("Softmax", ((1, 17, 1, 4),))
    for name, window in WINDOWS:
        row = np.array(window, np.float32)
        cells = [_alone(case, {"in_0": row.reshape(2, 2)}) for case in cases]
        # Which elements beside a NaN become NaN depends on the length of a vector.
        is_certain = not np.isnan(row).any() or bool(np.isnan(row).all())
        cells.append(_alone(softmax, {"in_0": row}) if is_certain else "some NaN")
        yield "| " + " | ".join([name, *cells]) + " |"


Values = Mapping[str, "float | np.ndarray"]


def _fed(case: OpCase, values: Values) -> OpCase:
    """The case with these values in place of random ones."""
    fresh = dataclasses.replace(case)
    for name, value in values.items():
        fresh.feeds[name][...] = value
    return fresh


def _reference(case: OpCase, values: Values) -> str:
    with np.errstate(all="ignore"):
        return _text(_rows(_fed(case, values).expected))


def _alone(case: OpCase, values: Values) -> str:
    """What it gives in each layout; said once where all agree."""
    fresh = _fed(case, values)
    lowered = fresh.lowered()
    shape = case.node.outputs[0].shape if case.node.outputs[0] else ()
    fresh.__dict__["expected"] = np.zeros(shape, np.float32)
    problem = problem_of(lowered, shape)
    found: dict[str, str] = {}
    for layout in LAYOUTS:
        recipe = lowered.operator.lower(problem, Wish(layout, layout), dnnl.Attr())
        if recipe is not None:
            steps = [resolved(step) for step in recipe.steps]
            found[layout] = _text(_rows(run_recipe(fresh, lowered, steps, recipe)))
    return _agreed(found)


def _agreed(found: Mapping[str, str]) -> str:
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{value} ({layout})" for layout, value in found.items())


def _rows(result: np.ndarray) -> np.ndarray:
    """What one channel holds, which must be what all hold."""
    rows = result.reshape(IMAGE[1], -1)
    np.testing.assert_array_equal(rows, np.broadcast_to(rows[0], rows.shape))
    row: np.ndarray = rows[0]
    return row


def _fused(case: OpCase, value: float, other: float | None = None) -> dict[str, str]:
    """What it gives as the post-op of a convolution whose bias is the special value, by kind of code."""
    lowered = case.lowered()
    use = lowered.operator.as_post_op(next(iter(lowered.sources)), problem_of(lowered, IMAGE))
    if use is None or use.post_op is None:
        return {}
    producer = OpCase("Conv", ((1, 8, 2, 2), Weights((17, 8, 1, 1)), np.full(17, value, np.float32)))
    found: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    for layout in LAYOUTS:
        kind, text = _convolved(producer, use.post_op, layout, other)
        found[kind][layout] = text
    return {kind: _agreed(texts) for kind, texts in found.items() if texts}


def _convolved(producer: OpCase, post_op: dnnl.PostOp, layout: str, other: float | None) -> tuple[str, str]:
    """The kind of code that ran, and what it gave."""
    lowered = producer.lowered()
    wish, problem = Wish(layout, layout), problem_of(lowered, IMAGE)
    dst = wish.dst_desc(problem.dst)
    assert isinstance(dst, MemoryDesc)
    if isinstance(post_op, dnnl.Binary):
        post_op = dnnl.Binary(post_op.algorithm, dst)
    recipe = lowered.operator.lower(problem, wish, dnnl.Attr((post_op,)))
    assert recipe is not None
    step = resolved(recipe.steps[0])
    arrays = {"src": np.ones((1, 8, 2, 2)), "weights": np.zeros((17, 8, 1, 1)), "bias": lowered.constants["bias"]}
    if other is not None:
        arrays["post_op_0_src_1"] = np.full(IMAGE, other, np.float32)
    buffers: dict[str, tuple[MemoryDesc, np.ndarray]] = {}
    run_step(step, arrays, buffers)
    kind = KINDS[1] if step.spec.impl.startswith(("ref", "x64:gemm")) else KINDS[0]
    assert_padding_is_zero(*buffers["dst"])
    return kind, _text(_rows(dst.unpack(buffers["dst"][1])))


def _text(values: np.ndarray) -> str:
    """Numbers as a table shows them; one where all are alike."""
    texts = [_number(float(value)) for value in values]
    return texts[0] if len(set(texts)) == 1 else " ".join(texts)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "0" if value == 0 else f"{value:.4g}"


if __name__ == "__main__":
    sys.stdout.write(tables())
