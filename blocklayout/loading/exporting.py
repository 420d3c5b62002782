"""Models with the layouts that a plan chose, as files for other runtimes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from blocklayout.errors import PlanError
from blocklayout.layout import FormatTag

if TYPE_CHECKING:
    from blocklayout.plan import Plan

_CHANNELS_LAST = tuple(FormatTag.parse(tag) for tag in ("nwc", "nhwc", "ndhwc"))


def export(
    source: Any, path: str | os.PathLike[str], plan: Plan | str | os.PathLike[str], *, functions: bool = True
) -> None:
    """Write a model with the channels-last regions of a plan, as an ONNX file that every runtime computes alike.

    Values that the plan has channels last are channels last in the file, with a Transpose at each border of such a
    region; a node on permuted axes is ONNX's own where that is expressible. Of an operator that ONNX has for channels
    first alone (a convolution, a pooling) there is a node of the domain ``blocklayout.channels_last``, such as
    ``Conv_2D``, with that meaning as a function in the file: a runtime that has kernels for it takes the node, any
    other one the function. Blocks of channels are none of ONNX's words, and are channels first in the file. Inputs,
    outputs and weights are as in the model; extents are those that the plan was made for, and normalisations are
    folded into weights.

    Args:
        source: The model, as for :func:`~blocklayout.load`; no saved session.
        path: Of the ``.onnx`` file; large weights go to ``<path>.data``.
        plan: Of a session of this model, or the file that :meth:`Plan.save` wrote.
        functions: Whether the file may have functions, which not every runtime reads. Without, operators that ONNX
            has for channels first alone stand between Transposes.

    Raises:
        PlanError: The plan is of another model, or cannot be read.
        ModelError: The model cannot be read, or the file not be written.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> b = bl.Builder()
        >>> b.output("y", b.input("x", (1, 3, 8, 8)).conv(np.ones((16, 3, 3, 3), np.float32)).relu())
        >>> bl.export(b, "last.onnx", bl.load(b, layout="nhwc").plan)  # doctest: +SKIP
    """
    from blocklayout import model
    from blocklayout.loading.zoo_names import source_named
    from blocklayout.model.channels_last import channels_last, functions_of
    from blocklayout.plan import Plan

    if not isinstance(plan, Plan | str | os.PathLike):
        raise PlanError(f"export: plan is a {type(plan).__name__}; give a session's plan, or the path of a saved one")
    plan = plan if isinstance(plan, Plan) else Plan.load(plan)
    made_for = {name: desc.dims for name, desc in plan.inputs}
    opened = model.open_model(source_named(source, made_for))
    free = model.free_extents(opened)
    unknown = [name for name in free if name not in made_for]
    if unknown:
        raise PlanError(f"export: the plan ({plan.model}) says nothing of the extents of the input {unknown[0]}")
    graph = model.simplify(model.read(opened, {name: made_for[name] for name in free}))
    program = model.lower(model.legalize(graph))
    if program.digest != plan.program:
        raise PlanError(
            f"export: the plan is of another model ({plan.model}), or of other extents; this is {program.name}"
        )
    formats = {name: desc.format_tag in _CHANNELS_LAST for name, desc in plan.formats.items()}
    rewritten = channels_last(graph, formats, functions=functions)
    model.write(rewritten, path, functions=tuple(functions_of(rewritten)))
