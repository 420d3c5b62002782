"""PyTorch as it is run on CPUs: channels last, eagerly or compiled by inductor with frozen weights.

It reads no ONNX files; ``onnx2torch`` makes modules of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

NEEDS = ("onnx2torch",)

_DETECTORS = ("nms", "qnms")
_FORMATS = {4: "channels_last", 5: "channels_last_3d"}

_declared: list[Any] = []


def import_converter(torch: Any) -> None:
    """Import ``onnx2torch``, and with it torchvision, even one that was built for another torch.

    The converter needs torchvision for operators of detection networks alone. Beside a torch for CPUs, torchvision as
    it is on the index does not load its own library, and then fails for want of two operators: it is enough to
    declare them.
    """
    try:
        import_module("onnx2torch")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in _DETECTORS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)  # they go with it
        import_module("onnx2torch")


def open_eager(torch: Any, path: str, n_threads: int, dtype: str) -> Callable[[Mapping[str, Any]], list[Any]]:
    """A module that is run as it is."""
    module, names = _module(torch, path, n_threads, dtype)
    return partial(_run, torch, module, names, dtype)


def open_compiled(torch: Any, path: str, n_threads: int, dtype: str) -> Callable[[Mapping[str, Any]], list[Any]]:
    """A module that inductor compiles at its first run; its weights are constants then."""
    config: Any = import_module("torch._inductor.config")
    config.freezing = True
    module, names = _module(torch, path, n_threads, dtype)
    return partial(_run, torch, torch.compile(module), names, dtype)


def _module(torch: Any, path: str, n_threads: int, dtype: str) -> tuple[Any, list[str]]:
    """The module of an ONNX file, and the names of its inputs in order."""
    import onnx
    import onnx2torch

    torch.set_num_threads(n_threads)
    model = onnx.load(path)
    _lend_converters(model)
    constants = {constant.name for constant in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    module = onnx2torch.convert(model).eval()
    ndims = max((len(value.type.tensor_type.shape.dim) for value in inputs), default=0)
    if ndims in _FORMATS:
        module = module.to(memory_format=getattr(torch, _FORMATS[ndims]))
    if dtype == "bf16":
        module = module.to(torch.bfloat16)
    return module, [value.name for value in inputs]


def _lend_converters(model: Any) -> None:
    """Let operators that are younger than the converter be read by the rules of their last version that it knows.

    Younger versions mostly take more data types. Where one means something else, the outputs say so.
    """
    from onnx import defs
    from onnx2torch.node_converters.registry import add_converter, get_converter

    opsets = {opset.domain: opset.version for opset in model.opset_import}
    for op_type, domain in {(node.op_type, node.domain) for node in model.graph.node}:
        newest = wanted = defs.get_schema(op_type, opsets[domain], domain).since_version
        while wanted:
            try:
                converter = get_converter(op_type, wanted, domain)
            except NotImplementedError:
                wanted = _version_before(wanted, op_type, domain)
                continue
            if wanted != newest:
                add_converter(op_type, newest, domain)(converter)
            break


def _version_before(version: int, op_type: str, domain: str) -> int:
    """The version of an operator before one; 0 if it was the first."""
    from onnx import defs

    if version <= 1 or not defs.has(op_type, version - 1, domain):
        return 0
    return int(defs.get_schema(op_type, version - 1, domain).since_version)


def _run(torch: Any, module: Any, names: list[str], dtype: str, feeds: Mapping[str, Any]) -> list[Any]:
    with torch.no_grad():
        outputs = module(*(_tensor(torch, feeds[name], dtype) for name in names))
    several = outputs if isinstance(outputs, list | tuple) else [outputs]
    return [(output.float() if output.dtype == torch.bfloat16 else output).numpy() for output in several]


def _tensor(torch: Any, array: Any, dtype: str) -> Any:
    tensor = torch.from_numpy(array)
    wide = torch.bfloat16 if dtype == "bf16" and tensor.is_floating_point() else tensor.dtype
    if tensor.ndim not in _FORMATS:
        return tensor.to(wide)
    return tensor.to(wide, memory_format=getattr(torch, _FORMATS[tensor.ndim]))
