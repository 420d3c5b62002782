"""PyTorch's modules, compiled: the backend of ``torch.compile``, and modules exported whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any, Unpack

from blocklayout.errors import InputError, PlanError, UnsupportedError, did_you_mean
from blocklayout.garbage import nothing_collected
from blocklayout.loading.options import Options

if TYPE_CHECKING:
    import torch
    from numpy.typing import DTypeLike
    from torch.export import ExportedProgram
    from torch.fx import GraphModule

    from blocklayout.loading.options import PlanningOptions
    from blocklayout.plan import Plan
    from blocklayout.plan.request import ComputedDtype
    from blocklayout.session import Session
    from blocklayout.torch.parts import Compiled, Fallback


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
    from blocklayout.torch.parts import compile_dynamo

    if mode not in (None, "default"):
        raise InputError(f"mode={mode!r}: torch.compile(..., backend='blocklayout') has options={{...}} instead")
    return compile_dynamo(graph_module, example_inputs, _checked(options or {}), [])


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

    from blocklayout.torch.parts import computed_in

    if not isinstance(example_inputs, tuple | list):
        raise InputError(f"example_inputs is a {type(example_inputs).__name__}; give a tuple of tensors: (x,)")
    dtype = dtype or computed_in([*module.parameters()])
    options = _checked({"dtype": dtype, "threads": threads, **load_options})
    with torch.no_grad(), nothing_collected():
        return CompiledModule(torch.export.export(module, tuple(example_inputs)), options)


class CompiledModule:
    """A PyTorch module that was compiled for certain inputs; called as the module is, and answers as it does.

    Attributes:
        sessions: The sessions that run it; more than one where PyTorch runs nodes between them.
        fallbacks: The nodes that PyTorch runs, and why.

    Example:
        >>> import torch  # doctest: +SKIP
        >>> compiled = bl.compile(torch.nn.Conv2d(3, 16, 3).eval(), (torch.rand(1, 3, 32, 32),))  # doctest: +SKIP
        >>> print(compiled.plan)  # doctest: +SKIP
    """

    def __init__(self, program: ExportedProgram, options: Mapping[str, Any]) -> None:
        from torch.utils import _pytree as pytree

        from blocklayout.torch.graph import graph_of
        from blocklayout.torch.parts import run_by_parts

        self._running = run_by_parts(graph_of(program), {}, options)
        self.sessions, self.fallbacks, self._run = self._running.sessions, self._running.fallbacks, self._running.call
        self._flatten, self._unflatten = pytree.tree_flatten, pytree.tree_unflatten
        self._in_spec, self._out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        n_tensors = len(program.graph_signature.user_inputs)
        takes_tensors = self._in_spec == pytree.tree_structure((tuple(range(n_tensors)), {}))
        self._n_tensors = n_tensors if takes_tensors else None  # where they have a structure
        self._returns_tensor = self._out_spec == pytree.tree_structure(0)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's results.

        Raises:
            InputError: Other inputs than it was compiled for.
        """
        flat: Sequence[Any] = args
        if kwargs or len(args) != self._n_tensors:
            flat, spec = self._flatten((args, kwargs))
            if spec != self._in_spec:
                raise InputError(f"compiled for inputs such as {self._in_spec}, called with {spec}")
        outputs = self._run(flat)
        return outputs[0] if self._returns_tensor else self._unflatten(outputs, self._out_spec)

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


@dataclass(frozen=True)
class Explanation:
    """The parts of a module under ``torch.compile``, and the nodes that stay with PyTorch; print it.

    Attributes:
        graphs: The graphs that Dynamo makes of it, compiled.
        sessions: Those of all their parts.
        fallbacks: The nodes that PyTorch runs, and why.
        breaks: Why Dynamo breaks the module into graphs.

    Example:
        >>> import torch  # doctest: +SKIP
        >>> told = bl.explain_compile(torch.nn.Conv2d(3, 16, 3).eval(), torch.rand(1, 3, 32, 32))  # doctest: +SKIP
        >>> len(told.sessions), told.fallbacks  # doctest: +SKIP
    """

    graphs: tuple[Compiled, ...]
    sessions: tuple[Session, ...]
    fallbacks: tuple[Fallback, ...]
    breaks: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(f"graph {number}\n{graph}" for number, graph in enumerate(self.graphs))


def explain_compile(module: torch.nn.Module, *example_inputs: Any, **named_inputs: Any) -> Explanation:
    """Compile a module as ``torch.compile(module, backend="blocklayout")`` does, run it once, and tell of it.

    Args:
        module: In inference mode.
        example_inputs: Its inputs.
        named_inputs: Those that it takes by name.

    Raises:
        UnsupportedError: PyTorch is not installed.

    Example:
        >>> import torch  # doctest: +SKIP
        >>> print(bl.explain_compile(torch.nn.Conv2d(3, 16, 3).eval(), torch.rand(1, 3, 32, 32)))  # doctest: +SKIP
    """
    _require_torch("bl.explain_compile")
    import torch

    from blocklayout.torch.parts import compile_dynamo

    graphs: list[Compiled] = []

    with torch.no_grad():
        compiled = torch.compile(module, backend=partial(compile_dynamo, options={}, graphs=graphs), dynamic=False)
        compiled(*example_inputs, **named_inputs)
    running = [graph.latest for graph in graphs]
    return Explanation(
        tuple(graphs),
        tuple(session for each in running for session in each.sessions),
        tuple(fallback for each in running for fallback in each.fallbacks),
        tuple(graph.break_reason for graph in graphs if graph.break_reason),
    )


def _require_torch(name: str) -> None:
    if find_spec("torch") is None:
        raise UnsupportedError(f"{name} takes PyTorch, which is not installed: pip install 'blocklayout[torch]'")


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a load."""
    known = [*signature(Options.of).parameters]
    for name in options:
        if name in ("io_layout", "shapes", "plan"):
            raise InputError(f"{name} follows from the PyTorch program: leave it out")
        if name not in known:
            raise InputError(f"blocklayout.load has no option {name!r}{did_you_mean(name, known)}")
    Options.of(**options)
    return dict(options)
