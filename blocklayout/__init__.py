"""blocklayout runs convolutional networks on CPUs and chooses every tensor's memory layout.

Importing it loads nothing but this file: each name is fetched from its home at first use. Names and signatures are in
the stub beside this file, which ``pytest tests/structure --update-golden`` writes.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

_NAMES = {
    "api": "load load_tensors save",
    "eager.compiled_step": "CompiledStep compile_step",
    "eager.offers": "candidates",
    "eager.tape": "Tape grad record value_and_grad",
    "errors": """
        BlockLayoutError BlockLayoutWarning CheckError ClosedError CostStoreWarning DeadlineExceededError DnnlError
        ExportError InputError InvalidArgumentsError LayoutError LayoutLossWarning LimitError ModelError OperatorError
        OutOfMemoryError PlainKernelWarning PlanError PlanMisfitWarning PlanStoreWarning PolicyWarning PositionError
        QueueFullError RefusedError StoppedError UnimplementedError UnsupportedError WatchError WatchWarning
    """,
    "show.inspector": "describe",
    "resource_limits": "limits",
    "loading.exporting": "export",
    "loading.targets": "merge_sessions",
    "layout": "FormatTag Layout MemoryDesc",
    "model": "Builder",
    "ops.registered": "register_operator",
    "plan": "Plan",
    "plan.precision": "PrecisionReport",
    "quantizing.quantize": "quantize",
    "quantizing.recipe": "QuantizationRecipe",
    "session": "Session",
    "torch.compiling": "compile explain_compile",
    "served": "Served",
    "tensor": """
        Tensor as_tensor channels_first channels_last contiguous_format empty empty_like from_array full full_like
        ones ones_like preserve_format rand_like randn_like reorder zeros zeros_like
    """,
    "layout_events": "Watch watch",
    "value_checks": "checking",
}
_HOMES = {name: f"blocklayout.{home}" for home, names in _NAMES.items() for name in names.split()}

_OPERATORS = ("blocklayout.eager", "blocklayout.eager.backward")
"""Homes of all other names: operators on Tensors, and their gradients."""

_LEAD_TO_TENSORS = (
    "blocklayout.api",
    "blocklayout.eager.compiled_step",
    "blocklayout.eager.tape",
    "blocklayout.session",
    "blocklayout.tensor",
)
"""Homes of names that make Tensors: operators are loaded with them."""


def _fetch(name: str) -> Any:
    if name == "__all__":
        operators = (each for home in _OPERATORS for each in import_module(home).__all__)
        return sorted({"__version__", "dnnl", "optim", "ray", "torch", *_HOMES, *operators})
    if name == "__version__":
        return _installed_version()
    if name in ("dnnl", "optim", "ray", "torch"):
        return import_module(f"blocklayout.{name}")
    if name in _HOMES:
        if _HOMES[name] in _LEAD_TO_TENSORS:
            import_module("blocklayout.eager")
        return getattr(import_module(_HOMES[name]), name)
    if not name.startswith("_") and find_spec(f"blocklayout.{name}") is None:  # else the import system's business
        for home in map(import_module, _OPERATORS):
            if name in home.__all__:
                return getattr(home, name)
    raise AttributeError(f"module 'blocklayout' has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    """Fetch a public name from its home, once."""
    from blocklayout.garbage import nothing_collected

    with nothing_collected():
        globals()[name] = value = _fetch(name)
    return value


def __dir__() -> list[str]:
    """The public names, fetched or not."""
    return sorted({*globals(), *_fetch("__all__")})


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 20 ms

    try:
        return version("blocklayout")
    except PackageNotFoundError:  # a checkout on sys.path
        return "0+unknown"
