"""PyTorch as it is run on CPUs: channels last, eagerly or compiled by inductor with frozen weights.

It reads no ONNX files; ``onnx2torch`` makes modules of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any

NEEDS = ("onnx2torch",)

_DETECTORS = ("nms", "qnms")
_FORMATS = {4: "channels_last", 5: "channels_last_3d"}

_declared: list[Any] = []


def _module_of(name: str) -> Any:
    """Modules that a peer imports; the package itself imports none of them."""
    return import_module(name)


def import_converter(torch: Any) -> None:
    """Import ``onnx2torch``, and with it torchvision, even one that was built for another torch.

    The converter needs torchvision for operators of detection networks alone. Beside a torch for CPUs, torchvision as
    it is on the index does not load its own library, and then fails for want of two operators: it is enough to
    declare them.
    """
    try:
        _module_of("onnx2torch")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in _DETECTORS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)  # they go with it
        _module_of("onnx2torch")


def open_eager(torch: Any, path: str, n_threads: int, dtype: str) -> Callable[[Mapping[str, Any]], list[Any]]:
    """A module that is run as it is."""
    module, names = converted(torch, path, n_threads, dtype)
    return partial(_run, torch, module, names, dtype)


def open_compiled(torch: Any, path: str, n_threads: int, dtype: str) -> Callable[[Mapping[str, Any]], list[Any]]:
    """A module that inductor compiles at its first run; its weights are constants then."""
    _module_of("torch._inductor.config").freezing = True
    module, names = converted(torch, path, n_threads, dtype)
    return partial(_run, torch, torch.compile(module), names, dtype)


def open_ours(torch: Any, path: str, n_threads: int, dtype: str) -> Callable[[Mapping[str, Any]], list[Any]]:
    """A module that our backend compiles at its first run, on tensors as they are fed.

    PyTorch would change their order on threads of its own, which keep a CPU for milliseconds after that.
    """
    module, names = converted(torch, path, n_threads, dtype)
    backend = _module_of("blocklayout.torch").backend
    compiled = torch.compile(module, backend=backend, options={"threads": n_threads})

    def run(feeds: Mapping[str, Any]) -> list[Any]:
        with torch.no_grad():
            outputs = compiled(*(torch.from_numpy(feeds[name]) for name in names))
        return [output.numpy() for output in (outputs if isinstance(outputs, list | tuple) else [outputs])]

    return run


def converted(torch: Any, path: str, n_threads: int, dtype: str) -> tuple[Any, list[str]]:
    """The module of an ONNX file, which computes in ``dtype``, and the names of its inputs in order; sets threads."""
    torch.set_num_threads(n_threads)
    model = _module_of("onnx").load(path)
    constants = {constant.name: constant for constant in model.graph.initializer}
    _fix_axes(model, constants)
    _fix_bounds(model)
    _lend_gelu(torch)
    _lend_converters(model)
    inputs = [value for value in model.graph.input if value.name not in constants]
    module = _module_of("onnx2torch").convert(model).eval()
    _settle_extents(torch, module)
    ndims = max((len(value.type.tensor_type.shape.dim) for value in inputs), default=0)
    if ndims in _FORMATS:
        module = module.to(memory_format=getattr(torch, _FORMATS[ndims]))
    if dtype == "bf16":
        module = module.to(torch.bfloat16)
    return module, [value.name for value in inputs]


def _fix_axes(model: Any, constants: Mapping[str, Any]) -> None:
    """Write the axes of reductions as attributes, as before opset 18: the converter knows them so."""
    onnx = _module_of("onnx")
    for node in model.graph.node:
        if node.op_type.startswith("Reduce") and len(node.input) == 2 and node.input[1] in constants:
            axes = onnx.numpy_helper.to_array(constants[node.input.pop()]).tolist()
            node.attribute.append(onnx.helper.make_attribute("axes", axes))


def _fix_bounds(model: Any) -> None:
    """Give a Clip without a lower bound the least of all: the converter takes an absent one for a computed one."""
    onnx = _module_of("onnx")
    for node in model.graph.node:
        if node.op_type == "Clip" and len(node.input) == 3 and not node.input[1]:
            node.input[1] = f"{node.output[0]}.least"
            least = onnx.helper.make_tensor(node.input[1], onnx.TensorProto.FLOAT, (), [-math.inf])
            model.graph.initializer.append(least)


def _lend_gelu(torch: Any) -> None:
    """Let Gelu be read, which is younger than the converter."""
    common, registry = _module_of("onnx2torch.utils.common"), _module_of("onnx2torch.node_converters.registry")
    if _is_known(registry, "Gelu", 20, ""):
        return

    def convert(node: Any, _: Any) -> Any:
        module = torch.nn.GELU(node.attributes.get("approximate", "none"))
        return common.OperationConverterResult(module, common.onnx_mapping_from_node(node))

    registry.add_converter("Gelu", 20)(convert)


def _lend_converters(model: Any) -> None:
    """Let operators that are younger than the converter be read by the rules of their last version that it knows.

    Younger versions mostly take more data types. Where one means something else, the outputs say so.
    """
    defs, registry = _module_of("onnx.defs"), _module_of("onnx2torch.node_converters.registry")
    opsets = {opset.domain: opset.version for opset in model.opset_import}
    for op_type, domain in {(node.op_type, node.domain) for node in model.graph.node}:
        version = defs.get_schema(op_type, opsets[domain], domain).since_version
        known = version
        while known and not _is_known(registry, op_type, known, domain):
            is_first = known == 1 or not defs.has(op_type, known - 1, domain)
            known = 0 if is_first else defs.get_schema(op_type, known - 1, domain).since_version
        if 0 < known < version:
            registry.add_converter(op_type, version, domain)(registry.get_converter(op_type, known, domain))


def _is_known(registry: Any, op_type: str, version: int, domain: str) -> bool:
    try:
        registry.get_converter(op_type, version, domain)
    except NotImplementedError:
        return False
    return True


def _settle_extents(torch: Any, module: Any) -> None:
    """Give reshapes and splits by constants their numbers: inductor refuses those that are read from tensors."""
    for node in list(module.graph.nodes):
        if node.op != "call_module" or len(node.args) != 2 or node.args[1].op != "get_attr":
            continue
        called = module.get_submodule(node.target)
        source, numbers = node.args[0], attrgetter(node.args[1].target)(module)
        call: tuple[Any, ...] | None = None
        if type(called).__name__ == "OnnxReshape" and numbers.all():
            call = torch.reshape, (source, numbers.tolist())
        elif type(called).__name__ == "OnnxSplit13":
            call = torch.split, (source, numbers.tolist(), called.axis)
        if call is not None:
            with module.graph.inserting_before(node):
                node.replace_all_uses_with(module.graph.call_function(*call))
            module.graph.erase_node(node)
    module.recompile()


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
