"""A step of training as one plan: forward, backward and updates, with layouts chosen over all of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.eager.operands import Known, as_tensor
from blocklayout.eager.tape import leaves, rebuilt
from blocklayout.errors import InputError, LayoutLossWarning, UnsupportedError, closest
from blocklayout.forking import Lock
from blocklayout.loading.cutting import Inner
from blocklayout.loading.from_model import Loading
from blocklayout.loading.options import Options
from blocklayout.model import Builder
from blocklayout.model.builder import DEFAULT_OPSET
from blocklayout.model.graph import Graph, fresh_name
from blocklayout.model.schemas import opset_with
from blocklayout.operators import Operators
from blocklayout.ops.gradients import DOMAIN
from blocklayout.plan.plan import FREE
from blocklayout.recording import Entry, recording
from blocklayout.session import Session
from blocklayout.tensor import Tensor, from_array, reorder
from blocklayout.tensor.indexing import boxed

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan import Plan

_OPTIONS = ("check", "dtype", "precision", "progress", "recipes", "threads", "tune", "tune_seconds")
_SCALE = 1.0625
"""By which numbers are larger in the second of two records: a power of 2 and a bit more, which rounds nothing."""


def compile_step(fn: Callable[..., Any], example: Sequence[Any], **options: Any) -> CompiledStep:
    """A function of Tensors as one plan: what it computes of its arguments, gradients and updates of parameters.

    ``fn`` is run twice, on the example and on other numbers of its extents, to record the calls that it makes, without
    its updates of parameters. From then on its Python code does not run any more: branches and numbers that depend on
    values are as they were, so that a function whose two records differ is refused. Tensors that it reads and that are
    no arguments are constants, but for those that ``bl.optim`` updates: these are read and written at each step, by
    :attr:`CompiledStep.state` in the formats that the plan chose. Other extents are recorded and planned when they
    come, around the same formats.

    Args:
        fn: Takes Tensors, and lists, tuples and dicts of them, and returns Tensors likewise. Arrays arrive as Tensors.
        example: A tuple of its arguments, of the extents and data types to come.
        options: ``dtype``, ``threads``, ``tune``, ``tune_seconds``, ``recipes``, ``precision``, ``check`` and
            ``progress``, as of :func:`blocklayout.load`.

    Raises:
        InputError: ``example`` is no tuple, an option is none, or ``fn`` returns something else than Tensors.
        UnsupportedError: ``fn`` does something that no plan can, which the message names, or differs the second time.

    Example:
        >>> import blocklayout as bl
        >>> step = bl.compile_step(lambda x, y: {"sum": (x * y).sum()}, (bl.ones(3), bl.ones(3)))
        >>> step(bl.full(3, 2), bl.ones(3))["sum"].item()
        6.0
    """
    if not isinstance(example, tuple | list):
        raise InputError(f"compile_step: example is a {type(example).__name__}; give a tuple of arguments: (x,)")
    for name in options:
        if name not in _OPTIONS:
            raise InputError(f"compile_step has no option {name!r}; {closest(name, _OPTIONS)}")
    step = CompiledStep(fn, Options.of(**options))
    step.prepare(*example)
    return step


class _Compiled(Struct, frozen=True, eq=False):
    """The plan for arguments of some extents."""

    session: Session
    tree: Any  # the results' descriptors, in the structure that the function returns
    optimizers: Mapping[str, Any]  # those whose numbers it reads, by the prefixes of these inputs


class CompiledStep:
    """A step of training that runs by a plan; called as its function is. Made by :func:`compile_step`.

    Attributes:
        state: The Tensors that it reads and writes, by the names that they have in plans: the same objects that the
            optimizer has. While the step lives their memory is exchanged for another at each call, so that views and
            arrays of them are of an earlier step.

    Example:
        >>> import blocklayout as bl
        >>> optimizer = bl.optim.SGD({"w": bl.full((2,), 3)}, 0.5)
        >>> step = bl.compile_step(lambda grad: optimizer.step({"w": grad}) or grad * 2, (bl.ones(2),))
        >>> step(bl.ones(2)).numpy(), step.state["w"].numpy()
        (array([2., 2.], dtype=float32), array([2.5, 2.5], dtype=float32))
    """

    def __init__(self, fn: Callable[..., Any], options: Options) -> None:
        self._fn, self._options = fn, options
        self._made: dict[tuple[Any, ...], _Compiled] = {}
        self._latest: _Compiled  # since compile_step makes one
        self._lock = Lock()
        self.state: dict[str, Tensor] = {}
        self._spares: dict[str, Tensor] = {}  # by output, where the state is written to next

    def __call__(self, *args: Any) -> Any:
        """The results of ``fn``, as fresh Tensors, and its updates.

        Raises:
            InputError: An argument is no tensor, or none of those that the function takes.
        """
        given = self._read(args)
        with self._lock:
            compiled = self._compiled(args, given)
            feed: dict[str, Any] = {f"argument_{place}": each for place, each in enumerate(given)} | self.state
            for prefix, optimizer in compiled.optimizers.items():
                numbers = optimizer.numbers(optimizer.n_steps + 1)
                feed |= {prefix + name: np.array([each], np.float32) for name, each in numbers.items()}
            results = compiled.session.run_held(feed, self._spares)
            for optimizer in compiled.optimizers.values():
                optimizer.n_steps += 1
            for tensor, spare in zip(self.state.values(), self._spares.values(), strict=True):
                tensor.desc, tensor.buffer, spare.buffer = spare.desc, spare.buffer, tensor.buffer
        pairs = ((results[f"result_{place}"], desc) for place, (_, desc) in enumerate(leaves(compiled.tree)))
        made = (x if isinstance(x, Tensor) else from_array(np.asarray(x).reshape(desc.dims)) for x, desc in pairs)
        return rebuilt(compiled.tree, made)

    def prepare(self, *args: Any) -> Plan:
        """The plan for arguments like these, made now rather than at the first call with them."""
        with self._lock:
            return self._compiled(args, self._read(args)).session.plan

    @property
    def session(self) -> Session:
        """The session of the plan that ran last, or was made last: for its reports and profiles."""
        return self._latest.session

    @property
    def plan(self) -> Plan:
        """The plan that ran last, or was made last: print it."""
        return self.session.plan

    def _read(self, args: Sequence[Any]) -> list[Tensor]:
        read = [as_tensor(each, f"compile_step: argument {place}") for place, each in leaves(args)]
        seen = [*map(id, read)]  # each is an argument of its own, the same Tensor or not
        return [Tensor.over(x.desc, x.buffer) if id(x) in seen[:place] else x for place, x in enumerate(read)]

    def _compiled(self, args: Sequence[Any], given: Sequence[Tensor]) -> _Compiled:
        key = (repr(rebuilt(args, iter([0] * len(given)))), *((each.shape, each.dtype) for each in given))
        if key not in self._made:
            self._made[key] = self._compile(args, given)
        self._latest = self._made[key]
        return self._latest

    def _compile(self, args: Sequence[Any], given: Sequence[Tensor]) -> _Compiled:
        record = _Record(self._fn, args, given)
        graph, state, optimizers = record.builder.to_graph(), record.state, record.optimizers
        if self.state and {*map(id, self.state.values())} != {*map(id, state.values())}:
            raise UnsupportedError("compile_step: with arguments of these extents it updates other Tensors than before")
        tree = rebuilt(record.tree, (each.desc for each in record.results.values()))
        # Arguments come in their own formats; those of results, and at first of state, are the plan's to choose.
        formats = {f"argument_{place}": each.desc.format_tag.text for place, each in enumerate(given)}
        formats |= dict.fromkeys(record.results, FREE)
        for name, each in state.items():
            formats |= dict.fromkeys((name, f"{name}'"), each.desc.format_tag.text if self.state else FREE)
        del record  # with all Tensors of the first run
        if _contents(_Record(self._fn, args, [*map(_others, given)]).builder.to_graph()) != _contents(graph):
            raise UnsupportedError(
                "compile_step: the function does something else when it runs again with other numbers: a value became "
                "a number or an array in Python (item, numpy, random numbers). Compute it by operators on Tensors, or "
                "before the step, and give it as an argument"
            )
        inner = Inner(formats, {} if self.state else {name: f"{name}'" for name in state})
        loading = Loading(graph, self._options, inner)
        session = Session(loading.book(), loading.write)
        if not self.state:
            self._place(state, dict(session.plan.inputs))
        return _Compiled(session, tree, optimizers)

    def _place(self, state: dict[str, Tensor], descs: Mapping[str, MemoryDesc]) -> None:
        """Bring state to its formats, in memory of its own."""
        for name, each in state.items():
            placed = reorder(each, descs[name])
            each.desc, each.buffer = placed.desc, placed.buffer.copy()
            self._spares[f"{name}'"] = Tensor(each.desc, np.zeros_like(each.buffer))
        self.state = state


def _contents(graph: Graph) -> Any:
    """A network as a value that equals another's: nodes, and constants by digests."""
    held = ((name, value.data) for name, value in graph.values.items())
    return str(graph), {name: blake2b(data.tobytes()).digest() for name, data in held if data is not None}


def _others(tensor: Tensor) -> Tensor:
    """A tensor of the same kind with other numbers, as legitimate: each row is another's."""
    values = np.roll(tensor.numpy(), 1, axis=0)
    if tensor.dtype in FLOATS:
        values = (values * _SCALE).astype(values.dtype)
    return from_array(values, tensor.desc.format_tag)


class _Record:
    """The calls of a run, in which no Tensor is updated, as a network: forward, backward, and updates of parameters.

    Attributes:
        tree: What the function returned, and ``results`` the Tensors in it, by their names in plans.
        state: The Tensors that are updated, by name likewise.
        optimizers: Those that update them, by the prefixes of the inputs that have their numbers.
        builder: The network, with results and then the state as it is updated.
    """

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any], given: Sequence[Tensor]) -> None:
        self._entries: list[Entry] = []  # which hold all Tensors and arrays, so that no other gets their identity
        with recording(self._take), warnings.catch_warnings():
            warnings.simplefilter("ignore", LayoutLossWarning)  # what is lost in this run tells nothing of the plan
            self.tree = fn(*rebuilt(args, iter(given)))
        self.results = {f"result_{n}": each for n, (_, each) in enumerate(leaves(self.tree))}
        updates = [entry for entry in self._entries if "optimizer" in entry.attrs]
        _check_updates(updates)
        found = [*dict.fromkeys(entry.attrs["optimizer"] for entry in updates)]
        self.optimizers = {f"optimizer_{place}.": each for place, each in enumerate(found)}
        self.state = _named(found)
        updated = {*map(id, self.state.values())}
        for each in given:
            if id(each) in updated:
                raise InputError(
                    f"compile_step: an argument, {each.desc}, is updated by the optimizer: let the function read it "
                    "from around it, and leave it out of the arguments"
                )
        op_types = [entry.op.op_type for entry in self._entries if entry.op is not None]
        self.builder = Builder("step", max([DEFAULT_OPSET, *(opset_with(each, DEFAULT_OPSET) for each in op_types)]))
        inputs = {f"argument_{place}": each for place, each in enumerate(given)} | self.state
        self._values = {id(each): self.builder.input(name, each.shape, each.dtype) for name, each in inputs.items()}
        self._numbers = {
            each: [self.builder.input(prefix + name, (1,)) for name in each.numbers(1)]
            for prefix, each in self.optimizers.items()
        }
        for entry in self._entries:
            self._call(entry)
        for name, tensor in (self.results | {f"{name}'": each for name, each in self.state.items()}).items():
            if not isinstance(tensor, Tensor) or id(tensor) not in self._values:
                raise InputError(
                    f"compile_step: {name.replace('_', ' ')}, {tensor!r:.60}, was not computed by recorded functions "
                    "on Tensors: return Tensors that were, in lists, tuples and dicts"
                )
            self.builder.output(name, self._values[id(tensor)])

    def _take(self, entry: Entry) -> bool:
        """Keep a call. An update is for the plan to make."""
        self._entries.append(entry)
        return "optimizer" in entry.attrs

    def value(self, operand: Any) -> Any:
        """A Tensor's or an array's value; anything else as it is."""
        if isinstance(operand, Known):
            return operand.array()
        if not isinstance(operand, Tensor | np.ndarray):
            return operand
        if id(operand) not in self._values:
            self._values[id(operand)] = self.builder.constant(np.asarray(operand))
        return self._values[id(operand)]

    def _call(self, entry: Entry) -> None:
        write, tensors = _WRITERS.get(entry.function), entry.results
        if "optimizer" in entry.attrs:
            write, tensors = _Record._update, (entry.operands[0], *entry.operands[2:])
        elif entry.op is not None:
            write = _Record._operator
        if write is None:
            raise UnsupportedError(
                f"compile_step: {entry.function} cannot be part of a plan: compute it outside of the step, and give "
                "its result as an argument"
            )
        made = write(self, entry)
        for tensor, value in zip(tensors, made if isinstance(made, list | tuple) else (made,), strict=True):
            if isinstance(tensor, Tensor):
                self._values[id(tensor)] = value if value.shape == tensor.shape else value.reshape(tensor.shape)

    def _operator(self, entry: Entry) -> Any:
        op, given = entry.op, [self.value(each) for each in entry.operands]
        dims = op.onnx_dims([getattr(each, "desc", each) for each in entry.operands]) if op.onnx_dims else {}
        for place, value in enumerate(given):
            wanted = dims.get(op.argument(place))
            if wanted is not None and value.shape != wanted:
                by_input = (0, 2, 1, *range(3, len(value.shape)))  # of groups, which are in front
                ordered = value.transpose(by_input) if op.name == "conv_transpose" else value
                given[place] = ordered.reshape(wanted)
        return op.build(*given, **entry.attrs)

    def _update(self, entry: Entry) -> Any:
        param, grad, *states = entry.operands
        optimizer: Any = entry.attrs["optimizer"]
        given = (*map(self.value, (grad, param, *states)), *self._numbers[optimizer])
        op_type = f"{DOMAIN}.{optimizer.op_type}"
        return self.builder.op(op_type, *given, n_outputs=1 + len(states), **optimizer.attrs)


def _check_updates(updates: Sequence[Entry]) -> None:
    """Refuse updates that no plan makes."""
    if any(entry.attrs["master"] is not None or entry.attrs["scale"] != 1 for entry in updates):
        raise UnsupportedError(
            "compile_step: parameters of few bits, with master copies and a loss scale, are updated by no plan: keep "
            "them in f32, and give dtype='bf16'"
        )
    if len({(entry.attrs["optimizer"], id(entry.operands[0])) for entry in updates}) < len(updates):
        raise UnsupportedError("compile_step: the optimizer steps twice; let a step of a plan be one of each optimizer")


def _named(optimizers: Sequence[Any]) -> dict[str, Tensor]:
    """The Tensors that optimizers update, by name: places in the parameters' structure, and then kinds of state."""
    found: dict[int, tuple[str, Tensor]] = {}
    for optimizer in optimizers:
        for kind, tensors in {"": optimizer.parameters, **optimizer.state}.items():
            for place, each in tensors.items():
                name = place.strip("[]").replace("'", "").replace("][", ".")
                found[id(each)] = f"{name}.{kind}" if kind else name, each
    named: dict[str, Tensor] = {}
    for name, each in found.values():
        named[fresh_name(name, named)] = each
    return named


def _selected(graph: _Record, entry: Entry) -> Any:
    x, index = entry.operands
    box, lowest = boxed(index, x.desc), np.iinfo(np.int64).min
    starts, steps = (np.array(each) for each in zip(*((line.start, line.step) for line in box), strict=True))
    ends = np.array([line.start + line.step * line.extent for line in box])
    return graph.builder.op("Slice", graph.value(x), starts, np.where(ends < 0, lowest, ends), np.arange(x.ndim), steps)


def _slice_backward(graph: _Record, entry: Entry) -> Any:
    grad, x, index = entry.operands
    desc = x.desc if isinstance(x, Tensor) else x
    box = boxed(index, desc)
    if any(line.step != 1 for line in box):
        raise UnsupportedError("compile_step: the gradient of x[begin:end:step] cannot be part of a plan; give step 1")
    behind = [extent - line.start - line.extent for extent, line in zip(desc.dims, box, strict=True)]
    whole = graph.value(grad).reshape(tuple(line.extent for line in box))
    return graph.builder.op("Pad", whole, np.array([*(line.start for line in box), *behind]))


def _compared(graph: _Record, entry: Entry) -> Any:
    """A comparison, by its definition."""
    x, y = entry.operands
    other = graph.value(y) if isinstance(y, Tensor | np.ndarray) else np.array(y, to_numpy(x.dtype))
    return getattr(Operators, entry.function)(graph.value(x), other)


_WRITERS: Mapping[str, Callable[[_Record, Entry], Any]] = {
    **dict.fromkeys(
        ("astype", "clone", "reorder", "to", "view"),
        lambda graph, entry: graph.value(entry.operands[0]).astype(entry.results[0].dtype),
    ),
    **dict.fromkeys(("equal", "greater", "greater_or_equal", "less", "less_or_equal", "not_equal"), _compared),
    "getitem": _selected,
    "permute": lambda graph, entry: graph.value(entry.operands[0]).transpose(entry.operands[1]),
    "slice_backward": _slice_backward,
}
"""By the names of functions that are no operators."""
