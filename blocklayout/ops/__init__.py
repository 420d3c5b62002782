"""The operators: one file per family, found by walking this package's modules.

A class here that derives from :class:`blocklayout.ir.Facts` and names its ``op_types`` is an operator; nothing
else has to know of it. Primitives compute those that derive from :class:`blocklayout.ir.BaseOperator`, and
``onnx.reference`` the others.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from blocklayout import ir
from blocklayout.ops.registered import Registered, is_registered, registered_op_types

__all__ = ["facts_of", "find", "known", "op_type_named", "op_types"]


def find(op_type: str) -> type[ir.BaseOperator] | None:
    """The operator that computes an op type, ONNX's by primitives or a registered one; ``None`` if there is none.

    Example:
        >>> find("Conv").__name__
        'Conv'
        >>> find("NoSuchOperator") is None
        True
    """
    found = facts_of(op_type)
    return found if issubclass(found, ir.BaseOperator) else None


def facts_of(op_type: str) -> type[ir.Facts]:
    """The facts about an op type of ONNX's, or of a registered one; none are known of an unknown one.

    Example:
        >>> facts_of("Sin").is_elementwise, facts_of("NoSuchOperator").is_elementwise
        (True, False)
    """
    return _operators().get(op_type) or (Registered if is_registered(op_type) else ir.Facts)


@cache
def op_type_named(function: str) -> str:
    """The ONNX op type that a function in Python is named after; empty where none is.

    Example:
        >>> op_type_named("conv_transpose"), op_type_named("batch_norm")
        ('ConvTranspose', '')
    """
    by_lower_case = {op_type.lower(): op_type for op_type in _operators()}
    return by_lower_case.get(function.replace("_", ""), "")


def op_types() -> tuple[str, ...]:
    """Every ONNX op type that primitives compute, sorted; those of steps of training are not ONNX's.

    Example:
        >>> "Conv" in op_types()
        True
    """
    return tuple(sorted(op_type for op_type in _public() if find(op_type) is not None))


def known() -> tuple[str, ...]:
    """Every op type that something is known of here: ONNX's, ours but for those of training, and registered ones.

    Example:
        >>> {"Conv", "Sin", "ChannelShuffle"} <= set(known())
        True
    """
    return *_public(), *registered_op_types()


def _public() -> tuple[str, ...]:
    """Op types but for those of steps of training, which are of a domain of their own."""
    return tuple(op_type for op_type in _operators() if "." not in op_type)


@cache
def _operators() -> Mapping[str, type[ir.Facts]]:
    found: dict[str, type[ir.Facts]] = {}
    for module_info in pkgutil.iter_modules(__path__, f"{__name__}."):
        module = importlib.import_module(module_info.name)
        # Imported classes belong to the module they come from.
        own = (each for each in vars(module).values() if getattr(each, "__module__", "") == module.__name__)
        for operator in (each for each in own if isinstance(each, type) and issubclass(each, ir.Facts)):
            for op_type in operator.op_types:
                if op_type in found:
                    raise RuntimeError(f"{op_type} is implemented by {found[op_type].__module__} and {module.__name__}")
                found[op_type] = operator
    return MappingProxyType(found)
