"""PyTorch's own samples of its operators, traced to core ATen, lowered, run, and compared with eager PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import blocklayout as bl
from blocklayout.errors import UnsupportedError
from blocklayout.torch.aten_writer import TABLE
from blocklayout.torch.graph import as_array, decompositions, read_fx

TOLERANCE = 1e-5
"""Of floats, relative to the largest result, or to 0.1 where that is less."""


_OF_TIES = frozenset(("aten.topk.default", "aten.sort.default"))
UNSPECIFIED = ("empty", "bernoulli", "multinomial", "dropout", "rand", "normal", "rrelu")
"""Parts of names of operators with results that nothing specifies."""


@dataclass(frozen=True)
class Outcome:
    """What became of one sample.

    Attributes:
        overloads: The ATen overloads of its graph.
        refused: Why it is not lowered; empty where it is.
        error: What is wrong with the results; empty where they are right.
    """

    overloads: frozenset[str]
    refused: str = ""
    error: str = ""


def traced(
    op: Any, dtype: torch.dtype, n_samples: int
) -> Iterator[tuple[torch.fx.GraphModule, list[torch.Tensor], Any]]:
    """Graph, inputs and eager results of an OpInfo's first samples; those that cannot be traced are left out."""
    if any(each in op.name for each in UNSPECIFIED):
        return
    for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=False), n_samples):
        leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        at = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors = [leaves[index].detach().clone() for index in at]

        def call(*given: torch.Tensor, leaves: Any = leaves, spec: Any = spec, at: Any = at) -> Any:
            filled = list(leaves)
            for index, tensor in zip(at, given, strict=True):
                filled[index] = tensor
            first, args, kwargs = pytree.tree_unflatten(filled, spec)
            returned = op(first, *args, **kwargs)
            return [each for each in pytree.tree_leaves(returned) if isinstance(each, torch.Tensor)]

        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = call(*[tensor.clone() for tensor in tensors])
                table = decompositions()
                decomposed = make_fx(call, table, tracing_mode="fake")(*tensors)
                functional = torch.func.functionalize(decomposed, remove="mutations")  # decompositions write in place
                graph = make_fx(functional, table, tracing_mode="fake")(*tensors)
        except Exception:  # noqa: BLE001 - results of which extents depend on data, complex numbers, ...
            continue
        graph.graph.eliminate_dead_code()
        if expected:
            yield graph, tensors, expected


def overloads_of(graph: torch.fx.GraphModule) -> frozenset[str]:
    """The ATen overloads of a graph."""
    found = (node.target for node in graph.graph.nodes if node.op == "call_function")
    return frozenset(str(each) for each in found if isinstance(each, torch._ops.OpOverload))


def outcome(graph: torch.fx.GraphModule, tensors: list[torch.Tensor], expected: list[torch.Tensor]) -> Outcome:
    """Lowers and runs a graph, and compares."""
    overloads = overloads_of(graph)
    try:
        read = read_fx(graph)
    except UnsupportedError as error:
        return Outcome(overloads, refused=str(error))
    try:
        feed = {name: as_array(tensor, name) for name, tensor in zip(read.inputs, tensors, strict=True)}
        results = bl.load(read.builder, tune="model").run(None, feed)
    except Exception as error:  # noqa: BLE001 - each counts
        return Outcome(overloads, error=f"{type(error).__name__}: {error}")
    in_any_order = overloads & _OF_TIES and any(not tensor.is_floating_point() for tensor in tensors)
    for found, right in zip(results, expected, strict=True):
        if in_any_order and right.dtype == torch.int64 and right is expected[-1]:
            continue  # indices of equal elements
        if message := difference(np.asarray(found), as_array(right, "result")):
            return Outcome(overloads, error=message)
    return Outcome(overloads)


def difference(found: np.ndarray, right: np.ndarray) -> str:
    """What differs; empty where two arrays are equal within the tolerance."""
    if (found.shape, found.dtype) != (right.shape, right.dtype):
        return f"{found.dtype} {found.shape} for {right.dtype} {right.shape}"
    tolerance = TOLERANCE
    if right.dtype.itemsize == 2 and right.dtype.kind not in "iu":
        found, right, tolerance = found.astype(np.float32), right.astype(np.float32), 2e-2
    if right.dtype.kind != "f":
        return "" if np.array_equal(found, right) else f"{np.sum(found != right)} of {right.size} elements differ"
    finite = np.isfinite(right)
    if not np.array_equal(found[~finite], right[~finite], equal_nan=True):
        return "NaN and infinities differ"
    largest = np.abs(right[finite]).max(initial=0)
    apart = np.abs(found[finite] - right[finite]).max(initial=0)
    return "" if apart <= tolerance * max(largest, 0.1) else f"{apart:.1e} apart, the largest is {largest:.1e}"


def outcomes_by_overload(
    n_each: int | None = None,
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.int64, torch.bool),
    n_samples: int = 2,
) -> dict[str, list[tuple[str, Outcome]]]:
    """For each overload, outcomes of samples that have it, with their operators' names.

    Args:
        n_each: Only operators that bear an overload's name, or are of ``nn.functional``, and no samples of which each
            overload has so many outcomes already; ``None`` is all.
        dtypes: Types of the samples' tensors.
        n_samples: The first of each operator and type.
    """
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, list[tuple[str, Outcome]]] = {}
    packets = {name.split(".")[1] for name in TABLE}
    for op in op_db:
        if n_each is not None and op.aten_name not in packets and not op.name.startswith("nn."):
            continue
        for dtype in (each for each in dtypes if each in op.supported_dtypes("cpu")):
            for graph, tensors, expected in traced(op, dtype, n_samples):
                overloads = overloads_of(graph)
                if n_each is None or any(len(found.get(each, ())) < n_each for each in overloads):
                    result = outcome(graph, tensors, expected)
                    for each in overloads:
                        found.setdefault(each, []).append((op.name, result))
    return found
