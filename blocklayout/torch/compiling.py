"""PyTorch's modules, compiled: the backend of ``torch.compile``, and modules exported whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import Struct

from blocklayout import dnnl
from blocklayout.errors import InputError, PlanError, UnsupportedError, did_you_mean
from blocklayout.forking import Lock
from blocklayout.loading.options import Options
from blocklayout.runtime import MAX_PLANS
from blocklayout.torch.graph import decompositions, further, graph_of, is_lowered, shares_memory
from blocklayout.torch.parts import Compiled, run_by_parts

if TYPE_CHECKING:
    import torch
    from numpy.typing import DTypeLike
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

    from blocklayout.loading.options import PlanningOptions
    from blocklayout.plan import Plan
    from blocklayout.plan.request import ComputedDtype
    from blocklayout.session import Session
    from blocklayout.torch.parts import Fallback

_OURS = ("io_layout", "shapes", "plan")
"""Options of a load that follow from the program."""


def backend(
    graph_module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's: ``torch.compile(model, backend="blocklayout")``.

    Args:
        graph_module: As Dynamo hands it over.
        example_inputs: Its inputs, module's parameters and buffers among them.
        options: Those of :func:`blocklayout.load`, such as ``{"threads": 1}``.
        mode: Only PyTorch's default one.

    Returns:
        A function of the inputs.

    Raises:
        UnsupportedError: Gradients are recorded.
        InputError: A mode, or an option that there is not.
        PlanError: An option that no plan can have.

    Example:
        >>> import torch  # doctest: +SKIP
        >>> import blocklayout as bl
        >>> module = torch.nn.Conv2d(3, 16, 3).eval()  # doctest: +SKIP
        >>> fast = torch.compile(module, backend=bl.torch.backend)  # doctest: +SKIP
    """
    if mode not in (None, "default"):
        raise InputError(f"mode={mode!r}: torch.compile(..., backend='blocklayout') has options={{...}} instead")
    return _dynamo_compiled(graph_module, example_inputs, _checked(options or {}), [])


def compile(
    module: torch.nn.Module,
    example_inputs: Sequence[Any],
    *,
    dtype: ComputedDtype | DTypeLike | None = None,
    threads: int | None = None,
    **load_options: Unpack[PlanningOptions],
) -> CompiledModule:
    """Compile a PyTorch module for inputs like these, now and whole, through ``torch.export``.

    Args:
        module: In inference mode (``module.eval()``). Its parameters are packed now: later changes are not seen.
        example_inputs: A tuple of tensors, whose extents, types and memory formats are those of all calls to come.
        dtype: Data type of the activations inside; inputs and outputs keep theirs. By default ``bf16`` or ``f16`` where
            that is the type of all parameters and the CPU computes in it, or ``bf16`` inside of such an autocast, else
            ``f32``.
        threads: As for :func:`blocklayout.load`, as are all other keywords.
        load_options: Any but ``io_layout``, ``shapes`` and ``plan``, which follow from the module.

    Returns:
        The compiled module, which is called as the module is.

    Raises:
        UnsupportedError: PyTorch is not installed, or the module writes to its buffers.
        InputError: ``example_inputs`` is no tuple, or an option that there is not.
        PlanError: An option that no plan can have.

    Example:
        >>> import torch  # doctest: +SKIP
        >>> module = torch.nn.Conv2d(3, 16, 3).eval()  # doctest: +SKIP
        >>> compiled = bl.compile(module, (torch.rand(1, 3, 32, 32),))  # doctest: +SKIP
        >>> compiled(torch.rand(1, 3, 32, 32)).shape  # doctest: +SKIP
        torch.Size([1, 16, 30, 30])
    """
    _require_torch("bl.compile")
    import torch

    if not isinstance(example_inputs, tuple | list):
        raise InputError(f"example_inputs is a {type(example_inputs).__name__}; give a tuple of tensors: (x,)")
    dtype = dtype or _computed_in([*module.parameters()])
    options = _checked({"dtype": dtype, "threads": threads, **load_options})
    with torch.no_grad():
        return CompiledModule(torch.export.export(module, tuple(example_inputs)), options)


class CompiledModule:
    """A PyTorch module that was compiled for certain inputs; called as the module is, and answers as it does.

    Example:
        >>> import torch  # doctest: +SKIP
        >>> import blocklayout as bl
        >>> compiled = bl.compile(torch.nn.Conv2d(3, 16, 3).eval(), (torch.rand(1, 3, 32, 32),))  # doctest: +SKIP
        >>> print(compiled.plan)  # doctest: +SKIP
    """

    def __init__(self, program: ExportedProgram, options: Mapping[str, Any]) -> None:
        from torch.utils import _pytree as pytree

        self._running = run_by_parts(graph_of(program), {}, options)
        self._run = self._running.call
        self._pytree = pytree
        self._in_spec, self._out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        self._n_tensors: int | None = len(program.graph_signature.user_inputs)  # None where they have a structure
        if self._in_spec != pytree.tree_structure((tuple(range(self._n_tensors)), {})):
            self._n_tensors = None
        self._returns_tensor = self._out_spec == pytree.tree_structure(0)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's results.

        Raises:
            InputError: Other inputs than it was compiled for.
        """
        flat: Sequence[Any] = args
        if kwargs or len(args) != self._n_tensors:
            flat, spec = self._pytree.tree_flatten((args, kwargs))
            if spec != self._in_spec:
                raise InputError(f"compiled for inputs such as {self._in_spec}, called with {spec}")
        outputs = self._run(flat)
        return outputs[0] if self._returns_tensor else self._pytree.tree_unflatten(outputs, self._out_spec)

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions that run it; more than one where PyTorch runs nodes between them."""
        return self._running.sessions

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The nodes that PyTorch runs, and why."""
        return self._running.fallbacks

    @property
    def plan(self) -> Plan:
        """Its only plan.

        Raises:
            PlanError: PyTorch runs nodes, and there is a plan for each part, or for none.
        """
        if len(self.sessions) != 1:
            raise PlanError(f"there are {len(self.sessions)} sessions, as explain() tells: each has its plan")
        return self.sessions[0].plan

    def explain(self) -> str:
        """Its parts and reorders, and which nodes PyTorch runs, and why."""
        return str(self._running)


class Explanation(Struct, frozen=True):
    """The parts of a module under ``torch.compile``, and the nodes that stay with PyTorch; print it.

    Attributes:
        graphs: The graphs that Dynamo makes of it, compiled.

    Example:
        >>> import torch  # doctest: +SKIP
        >>> import blocklayout as bl
        >>> told = bl.explain_compile(torch.nn.Conv2d(3, 16, 3).eval(), torch.rand(1, 3, 32, 32))  # doctest: +SKIP
        >>> len(told.sessions), told.fallbacks  # doctest: +SKIP
    """

    graphs: tuple[Compiled, ...]

    @property
    def sessions(self) -> tuple[Session, ...]:
        """Those of all parts."""
        return tuple(session for graph in self.graphs for session in graph.latest.sessions)

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The nodes that PyTorch runs, and why."""
        return tuple(each for graph in self.graphs for each in graph.latest.fallbacks)

    @property
    def breaks(self) -> tuple[str, ...]:
        """Why Dynamo breaks the module into graphs."""
        return tuple(graph.break_reason for graph in self.graphs if graph.break_reason)

    def __str__(self) -> str:
        return "\n".join(f"graph {number}\n{graph}" for number, graph in enumerate(self.graphs))


def explain_compile(module: torch.nn.Module, *example_inputs: Any) -> Explanation:
    """Compile a module as ``torch.compile(module, backend="blocklayout")`` does, run it once, and tell of it.

    Args:
        module: In inference mode.
        example_inputs: Its inputs.

    Returns:
        The graphs, with their parts and reorders; the nodes that PyTorch runs, and why; and why the module is cut.

    Raises:
        UnsupportedError: PyTorch is not installed.

    Example:
        >>> import torch  # doctest: +SKIP
        >>> import blocklayout as bl
        >>> print(bl.explain_compile(torch.nn.Conv2d(3, 16, 3).eval(), torch.rand(1, 3, 32, 32)))  # doctest: +SKIP
    """
    _require_torch("bl.explain_compile")
    import torch

    graphs: list[Compiled] = []

    def collect(graph_module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return _dynamo_compiled(graph_module, inputs, {}, graphs)

    with torch.no_grad():
        torch.compile(module, backend=collect, dynamic=False)(*example_inputs)
    return Explanation(tuple(graphs))


def _require_torch(name: str) -> None:
    if find_spec("torch") is None:
        raise UnsupportedError(f"{name} takes PyTorch, which is not installed: pip install 'blocklayout[torch]'")


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a load."""
    known = [*signature(Options.of).parameters]
    for name in options:
        if name in _OURS:
            raise InputError(f"{name} follows from the PyTorch program: leave it out")
        if name not in known:
            raise InputError(f"blocklayout.load has no option {name!r}{did_you_mean(name, known)}")
    Options.of(**options)
    return dict(options)


def _computed_in(tensors: Sequence[Any]) -> str:
    """The data type of activations where nobody asked for one."""
    import torch

    found = {each.dtype for each in tensors if isinstance(each, torch.nn.Parameter) and each.is_floating_point()}
    if torch.is_autocast_enabled("cpu"):
        found = {torch.get_autocast_dtype("cpu")}
    dtype = {torch.bfloat16: "bf16", torch.float16: "f16"}.get(found.pop(), "f32") if len(found) == 1 else "f32"
    return "f32" if dtype != "f32" and dnnl.missing_isa(dtype) else dtype


# Dynamo's graphs


def _dynamo_compiled(
    graph_module: GraphModule, example_inputs: Sequence[Any], options: Mapping[str, Any], graphs: list[Compiled]
) -> Callable[..., Any]:
    """The function of a graph's inputs; ``graphs`` gets what is compiled."""
    import torch

    if torch.is_grad_enabled() and any(getattr(each, "requires_grad", False) for each in example_inputs):
        raise UnsupportedError(
            "blocklayout compiles inference: call the model inside torch.inference_mode() or torch.no_grad(). Training "
            "takes the functions on Tensors and their gradients (docs/how-to/train.md)"
        )
    options = {"dtype": _computed_in(example_inputs), **options}
    if any(isinstance(each, torch.SymInt | torch.SymFloat) for each in example_inputs):
        return _compiled_by_numbers(graph_module, example_inputs, options, graphs)
    if (aten := _as_aten(graph_module)) is not None:
        compiled = Compiled(aten, _parameters(graph_module), example_inputs, options, _break_reason(graph_module))
        if not compiled.latest.fallbacks:
            graphs.append(compiled)
            return lambda *args: compiled(args)
    return _aot_compiled(graph_module, example_inputs, options, graphs)


def _aot_compiled(
    graph_module: GraphModule, inputs: Sequence[Any], options: Mapping[str, Any], graphs: list[Compiled]
) -> Callable[..., Any]:
    """The same of fixed extents, by way of AOTAutograd."""
    from torch._functorch.aot_autograd import aot_module_simplified
    from torch._guards import TracingContext

    own = {**dict(graph_module.named_parameters()), **dict(graph_module.named_buffers())}
    names = {**dict(enumerate(own)), **_parameters(graph_module, len(own))}
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    tensors = [*own.values(), *inputs]
    broken = _break_reason(graph_module)

    def compile_inference(aten: GraphModule, fakes: Sequence[Any]) -> Compiled:
        context = TracingContext.try_get()
        metadata: Any = context.fw_metadata if context is not None else None
        written = {*names}
        if metadata is not None and len(fakes) == len(tensors):
            written = {place for place, info in enumerate(metadata.input_info) if info.mutates_data}
            for outer, inner in zip(placeholders, aten.graph.find_nodes(op="placeholder")[len(own) :], strict=True):
                inner._rename(_path(outer))  # noqa: SLF001 - FX has no other way
        constant = {place: name for place, name in names.items() if place not in written}
        graphs.append(Compiled(aten, constant, tensors, options, broken))
        return graphs[-1]

    made: Callable[..., Any] = aot_module_simplified(
        graph_module,
        inputs,
        compile_inference,
        inference_compiler=compile_inference,
        decompositions=decompositions(),
    )
    return made


def _compiled_by_numbers(
    graph_module: GraphModule, inputs: Sequence[Any], options: Mapping[str, Any], graphs: list[Compiled]
) -> Callable[..., Any]:
    """The same of extents that are symbols, compiled for each set of numbers that they are; the newest are kept."""
    import torch
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode

    places = [place for place, each in enumerate(inputs) if isinstance(each, torch.SymInt | torch.SymFloat)]
    made: dict[tuple[Any, ...], Callable[..., Any]] = {}
    lock = Lock()

    def call(*args: Any) -> Any:
        numbers = tuple(args[place] for place in places)
        run = made.get(numbers)
        if run is None:
            with lock, tracing(TracingContext(FakeTensorMode())):
                run = _aot_compiled(graph_module, args, options, graphs)
                while len(made) >= MAX_PLANS:
                    del made[next(iter(made))]
                made[numbers] = run
        return run(*args)

    return call


def _break_reason(graph_module: GraphModule) -> str:
    """Why Dynamo ended a graph where it did, and where; empty where that is the end of the function."""
    found: Any = getattr(graph_module, "compile_subgraph_reason", None)
    if found is None or not found.graph_break:
        return ""
    words = [line.strip() for line in str(found.reason).splitlines() if line.strip()]
    where = "".join(f" ({frame.filename}:{frame.lineno})" for frame in found.user_stack[-1:])
    return " ".join(words[:2]) + where  # what follows are hints


# Dynamo's graphs as graphs of ATen overloads, with their writes: AOTAutograd, which takes these out, takes longer.


def _as_aten(graph_module: GraphModule) -> GraphModule | None:
    """A graph of Dynamo's in ATen overloads that are lowered; ``None`` where AOTAutograd has to trace it.

    That is for overloads that are not known here, for writes that others see, and where outputs share memory with
    inputs or with each other. ``meta["val"]`` of the nodes has extents, types and strides.
    """
    aten = _traced(graph_module)
    if aten is None:
        return None
    owners: dict[Any, Any] = {}  # the nodes in whose memory results are; None for that of inputs
    for node in aten.graph.nodes:
        if node.op == "call_function":
            if not is_lowered(node):
                return None
            owners[node] = owners.get(node.args[0]) if shares_memory(node.target) else node
    outputs, given = aten.graph.output_node().args[0], graph_module.graph.output_node().args[0]
    of_outputs = [owners.get(each) for each in outputs]
    if None in of_outputs or len({*of_outputs}) < len(of_outputs):
        return None
    if any(
        _kind(one.meta["val"]) != _kind(other.meta["example_value"]) for one, other in zip(outputs, given, strict=True)
    ):
        return None  # by an autocast around
    for outer, inner in zip(*(each.graph.find_nodes(op="placeholder") for each in (graph_module, aten)), strict=True):
        inner._rename(_path(outer))  # noqa: SLF001 - FX has no other way
    return aten


def _traced(graph_module: GraphModule) -> GraphModule | None:
    """A graph's overloads as its calls come to them; ``None`` where a node is no call that returns tensors."""
    import torch
    from torch._subclasses import FakeTensor
    from torch.fx import Interpreter
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    for node in graph_module.graph.nodes:
        is_known = node.op in ("placeholder", "call_function", "call_method") and "example_value" in node.meta
        if not (is_known or node.op == "output" or node.target is torch._C._log_api_usage_once):  # noqa: SLF001 - torchvision's
            return None
    inputs = [node.meta["example_value"] for node in graph_module.graph.find_nodes(op="placeholder")]
    if not inputs or not all(isinstance(each, FakeTensor) for each in inputs):
        return None
    try:
        with inputs[0].fake_mode, preserve_node_meta():
            given = [each.detach() for each in inputs]
            return make_fx(Interpreter(graph_module).run, further(), pre_dispatch=True)(*given)
    except Exception:  # noqa: BLE001 - AOTAutograd says what is wrong
        return None


def _kind(tensor: Any) -> Any:
    return tensor.dtype, tensor.shape, tensor.stride()


def _parameters(graph_module: GraphModule, n_before: int = 0) -> dict[int, str]:
    """Paths of a Dynamo graph's inputs that are parameters and buffers, by their places behind ``n_before`` others."""
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    return {
        place: _path(node)
        for place, node in enumerate(placeholders, n_before)
        if "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})
    }


def _path(node: Node) -> str:
    """The path of a parameter or buffer in its module, or the name of another input."""
    source = getattr(node, "_dynamo_source", None)
    if source is None:
        return str(node.name)
    words = re.findall(r"\w+", source.name)[1:]  # behind L, for locals, or G
    inner = [word for word in words if word not in ("_modules", "_parameters", "_buffers")]
    return ".".join(inner[1:] if inner != words else inner)  # without the variable that the module is in
