"""blocklayout runs neural networks on CPUs, in memory layouts chosen by cost.

    import blocklayout as bl

    session = bl.load("model.onnx")        # or a Builder, an exported program
    outputs = session.run(None, {"x": x})  # session(x) takes arrays by position
    print(session.plan.explain())          # each layout and reorder, and why

Networks:
    load, save, Session       a model becomes a session, its layouts chosen
    Builder                   a network written in Python
    Plan, describe            a choice of layouts, explained; one in words
    compile, explain_compile  a PyTorch module in the place of itself;
                              torch.compile(module, backend="blocklayout") too
    quantize                  int8 within a budget of error; QuantizationRecipe
                              says how, a PrecisionReport what came out
    bench                     time in each layout, or beside other runtimes
    export, merge_sessions    sessions for other machines
    register_operator         an operator of your own
    watch, checking           each reorder of a block of code; values proven

Tensors:
    Tensor                    values in any layout: plain, strided, in blocks
    as_tensor, reorder        numpy, PyTorch, DLPack without a copy; reorders
    zeros, ones, full, ...    and others that numpy and PyTorch have
    MemoryDesc, FormatTag     a layout itself; nChw16c and its like
    conv, relu, matmul, ...   ONNX's operators; bl.op("Erf", x) is any of them
    conv_backward, ...        their gradients, in the forward's formats
    record, grad              a tape, and gradients of what it saw
    compile_step              a step of training as one plan

Modules:
    bl.dnnl       primitives of oneDNN, one by one
    bl.eager      all operators; each is bl.conv and so on, too.
                  Gradients are in bl.eager.backward
    bl.errors     errors and warnings; each is bl.LayoutError and so on, too
    bl.layout     descriptors, tags and offsets
    bl.optim      optimisers, in any layout
    bl.ray        Ray Data, Ray Serve and Ray Train
    bl.serve      futures and counts of Session.submit
    bl.torch      operators inside PyTorch
    bl.zoo        networks to try, such as bl.zoo.digits

help(bl.load) explains every option; blocklayout --help is the command line.
"""

# Importing this loads nothing but this file: each name is fetched from its home at first use. Names and signatures are
# in the stub beside it, which ``pytest tests/structure --update-golden`` writes. There is no ``__all__``: with one,
# ``help`` prints every class in full.

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

_NAMES = {
    "api": "load load_tensors save",
    "commands.bench": "bench",
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


_MODULES = ("dnnl", "eager", "errors", "layout", "optim", "ray", "serve", "torch", "zoo")


def _public_names() -> list[str]:
    operators = (each for home in _OPERATORS for each in import_module(home).__all__)
    return sorted({"__version__", *_MODULES, *_HOMES, *operators})


def _fetch(name: str) -> Any:
    if name == "__version__":
        return _installed_version()
    if name in _MODULES:
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
    """Public names, except operators, gradients and errors: those are listed by their own modules."""
    return sorted({"__version__", *_MODULES, *_HOMES} - {*_NAMES["errors"].split()})


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 20 ms

    try:
        return version("blocklayout")
    except PackageNotFoundError:  # a checkout on sys.path
        return "0+unknown"
