"""Demands on kernels in the metadata of ONNX files, where other runtimes pass over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from blocklayout.errors import ModelError, PlanError
from blocklayout.ir import Demands

if TYPE_CHECKING:
    from onnx import ModelProto

DEMANDS_KEY = "blocklayout.demands"
"""Key of the entry among ``metadata_props`` of a model: JSON, by option."""

_Option = Literal["pin", "expect", "precision"]


def demands_text(demands: Demands) -> str:
    """Demands without functions, as the text of the entry."""
    record = {option: getattr(demands, option) for option in demands.__struct_fields__ if getattr(demands, option)}
    return msgspec.json.encode(record, order="sorted").decode()


def demands_in(proto: ModelProto, origin: str) -> Demands:
    """The demands that a model's metadata state; none where there is no entry.

    Raises:
        ModelError: The entry is damaged.
    """
    texts = [entry.value for entry in proto.metadata_props if entry.key == DEMANDS_KEY]
    if not texts:
        return Demands()
    try:
        [record] = [msgspec.json.decode(text, type=dict[_Option, dict[str, str]]) for text in texts]
        return Demands.of(record.get("pin"), record.get("expect"), record.get("precision"))
    except (ValueError, RecursionError, PlanError) as error:
        message = f"the entry {DEMANDS_KEY!r} in the metadata of {origin} is damaged: {error}"
        raise ModelError(f"{message}; remove it, or save the model anew") from error
