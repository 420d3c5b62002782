"""The tape: calls of functions on Tensors, recorded in a block, and the gradients of any of its values.

Of each call the tape keeps the functions that give the gradients of its operands
(:meth:`blocklayout.ir.Facts.backward`), and with them the Tensors that they refer to, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial, wraps
from math import prod
from operator import methodcaller
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
from msgspec import Struct

from blocklayout import ir, ops
from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.eager.gradients import fresh
from blocklayout.eager.operands import as_tensor, integers, is_constant
from blocklayout.errors import InputError, UnsupportedError
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import inverse
from blocklayout.recording import Entry, recorders_around, recording
from blocklayout.tensor import Tensor, ones_like, zeros
from blocklayout.tensor import as_tensor as over_memory
from blocklayout.tensor.moving import brought

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from blocklayout.eager.call import Attrs, Op

_N_SAMPLES = 64
"""Bytes of a kept Tensor by which a change is noticed."""


_Value = ref[Tensor] | None
"""A value by the Tensor that it is, or was: Tensors have one such reference each. ``None`` if it has no gradient."""


class _Node(Struct, frozen=True, eq=False):
    """A call: its sources and results, what ``Facts.backward`` gave, and samples of what that keeps."""

    function: str
    sources: tuple[_Value, ...]
    results: tuple[_Value, ...]
    backward: Any
    kept: tuple[tuple[ref[Tensor], bytes], ...]


class Tape:
    """Calls in a block, and what their gradients take: of :func:`blocklayout.record`.

    Example:
        >>> import blocklayout as bl
        >>> x = bl.full((1, 8, 2, 2), 3, memory_format="nChw8c")
        >>> with bl.record() as tape:
        ...     loss = (x * x).sum()
        >>> slope = tape.gradients(loss, {"x": x})["x"]
        >>> slope.memory_format, slope[0, 0, 0, 0]
        ('nChw8c', np.float32(6.0))
    """

    def __init__(self) -> None:
        self._nodes: list[_Node] = []
        self._descs: dict[_Value, MemoryDesc] = {}
        self._results: set[_Value] = set()

    def gradients(self, loss: Tensor, parameters: Any, grad: ArrayLike | Tensor | None = None) -> Any:
        """The gradients of ``loss`` by the parameters, in their structure, each in its own format and data type.

        It may be called in the block and behind it, and again. Each value's gradient is brought to the value's format
        once, which a watch tells of.

        Args:
            loss: A Tensor that was computed in the block, of any shape.
            parameters: A Tensor that was read or computed in the block, or a list, tuple or dict of such, or of these.
            grad: The gradient of ``loss``, in any layout; by default ones, so of its sum.

        Raises:
            InputError: ``loss`` was not computed in the block, or not of one of the parameters; or a Tensor that is
                needed has been written to since.
            UnsupportedError: An operator on the way has no gradient; the message names it.
        """
        start = self._known(loss, "loss")
        if start not in self._results:
            raise InputError("gradients: loss was not computed in this block; give the result of a call that was")
        wanted = {place: self._known(each, f"parameters{place}") for place, each in leaves(parameters)}
        ends = {*wanted.values()}
        reached = {*ends}  # values that depend on the parameters
        for node in self._nodes:
            if not reached.isdisjoint(node.sources):
                reached.update(value for value in node.results if value is not None)
        with recording(*(each for each in recorders_around() if each != self._record)):
            given = ones_like(loss) if grad is None else as_tensor(grad, "gradients: grad")
            if given.shape != loss.shape:
                raise InputError(f"gradients: grad has shape {given.shape}; loss has {loss.shape}")
            held: dict[_Value, Tensor | None] = {start: _brought(given, self._descs[start])}
            for node in reversed(self._nodes):
                self._pull(node, held, reached, ends)
            for place, value in wanted.items():
                desc = self._descs[value]
                if value not in held:
                    raise InputError(f"gradients: loss does not depend on parameters{place}, {desc}; leave it out")
                if held[value] is None:
                    held[value] = zeros(desc.dims, desc.dtype, desc.format_tag)
        return rebuilt(parameters, map(held.__getitem__, wanted.values()))

    def _pull(self, node: _Node, held: dict[_Value, Tensor | None], reached: set[_Value], ends: set[_Value]) -> None:
        """Add a call's gradients to those that are held, ``None`` where they are zero; let those of its results go."""
        needs = [value in reached for value in node.sources]
        if not any(needs) or held.keys().isdisjoint(node.results):
            return
        grads = [held.get(value) if value in ends else held.pop(value, None) for value in node.results]
        for value in reached.intersection(node.sources):
            held.setdefault(value, None)
        for value, grad in zip(node.sources, _of_sources(node, needs, grads), strict=False):
            if value in reached and grad is not None:
                own, others = _brought(grad, self._descs[value]), held[value]
                held[value] = own if others is None else others + own

    def _record(self, entry: Entry) -> None:
        if entry.function == "setitem":
            for each in (entry.operands[0], entry.operands[2]):
                if isinstance(each, Tensor) and ref(each) in self._results:
                    rule = "is not recorded: write before the block, or use bl.op('Where', ...) or bl.concat"
                    raise InputError(f"record: x[...] = value, of {each.desc} that was computed in the block, {rule}")
        given = {*map(id, entry.operands)}
        own = [None if id(each) in given else each for each in entry.results]
        if not any(map(_is_float, own)):
            return
        backward, sources = _backward_of(entry)
        read = tuple(map(self._value, sources))
        if not any(read):
            return
        made = tuple(map(self._value, own))
        self._results.update(made)
        if isinstance(backward, tuple):  # functions that nobody can ask for keep nothing
            backward = tuple(None if value is None else each for each, value in zip(backward, read, strict=False))
        kept = tuple((ref(each), _samples(each)) for each in _kept(backward))
        self._nodes.append(_Node(entry.function, read, made, backward, kept))

    def _value(self, tensor: Any) -> _Value:
        """A Tensor of floats as a value, known from now on."""
        if not _is_float(tensor):
            return None
        value = ref(tensor)
        self._descs.setdefault(value, tensor.desc)
        return value

    def _known(self, tensor: Any, name: str) -> _Value:
        value = ref(tensor) if isinstance(tensor, Tensor) else None
        if value not in self._descs:
            what = f"{tensor!r:.80}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InputError(f"gradients: {name} is {what}; give a Tensor of floats that was read in the block")
        return value


@contextmanager
def record() -> Iterator[Tape]:
    """A block whose calls of functions on Tensors are recorded, for the gradients of its values.

    Recorded are the operators, the methods of Tensors that give Tensors, ``batch_norm_training`` and
    ``inner_product``; what goes through arrays is not. The tape keeps the Tensors that gradients will need, and lives
    as long as it is held. Until gradients are taken, write to no Tensor that was read in the block: where a kept one
    changed, an InputError says so. Gradients of gradients, hooks and sparse gradients are not supported.

    Example:
        >>> import blocklayout as bl
        >>> x = bl.ones((1, 8, 2, 2))
        >>> with bl.record() as tape:
        ...     loss = bl.relu(x - 0.5).mean()
        >>> tape.gradients(loss, x)[0, 0, 0, 0]
        np.float32(0.03125)
    """
    tape = Tape()
    with recording(*recorders_around(), tape._record):  # noqa: SLF001 - made here
        yield tape


def value_and_grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., tuple[Any, Any]]:
    """A function that returns what ``fn`` does, a Tensor of one element, and its gradients by some of its arguments.

    Args:
        fn: Returns a Tensor of one element.
        argnums: Position of the argument to take gradients by, or several: a Tensor, an array, or a structure of them.

    Raises:
        InputError: When called: no such argument, ``fn`` returns something else; or as of :meth:`Tape.gradients`.

    Example:
        >>> import blocklayout as bl
        >>> value, (slope,) = value_and_grad(lambda x, y: (x * y).sum(), (1,))(bl.full(3, 2), bl.ones(3))
        >>> value.item(), slope.numpy()
        (6.0, array([2., 2., 2.], dtype=float32))
    """
    places = integers(argnums, "grad: argnums")

    @wraps(fn)
    def called(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        given = list(args)
        for place in (places,) if isinstance(places, int) else places:
            if not -len(args) <= place < len(args):
                raise InputError(f"grad: argnums is {argnums!r}; {len(args)} arguments were given by position")
            given[place] = rebuilt(args[place], (over_memory(leaf) for _, leaf in leaves(args[place])))
        with record() as tape:
            value = fn(*given, **kwargs)
        if not isinstance(value, Tensor) or value.desc.n_elements != 1:
            raise InputError(f"grad: the function returned {value!r:.80}; it must return a Tensor of one element")
        by = given[places] if isinstance(places, int) else tuple(given[place] for place in places)
        return value, tape.gradients(value, by)

    return called


def grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """A function that returns the gradients of ``fn`` alone; otherwise as :func:`blocklayout.value_and_grad`.

    Example:
        >>> import blocklayout as bl
        >>> bl.grad(lambda x: (x * x).sum())(bl.ones(2)).numpy()
        array([2., 2.], dtype=float32)
    """
    both = value_and_grad(fn, argnums)
    return wraps(fn)(lambda *args, **kwargs: both(*args, **kwargs)[1])


def leaves(tree: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The values in lists, tuples and dicts, each with its place: ``['weight'][0]``."""
    if isinstance(tree, list | tuple | Mapping):
        for key, each in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
            yield from leaves(each, f"{place}[{key!r}]")
    else:
        yield place, tree


def rebuilt(tree: Any, values: Iterator[Any]) -> Any:
    """The same structure with other values."""
    if isinstance(tree, Mapping):
        return {key: rebuilt(each, values) for key, each in tree.items()}
    if isinstance(tree, list | tuple):
        made = [rebuilt(each, values) for each in tree]
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    return next(values)


def _is_float(value: Any) -> bool:
    """Whether a gradient may be asked for."""
    return isinstance(value, Tensor) and value.desc.dtype in FLOATS and not is_constant(value)


def _samples(tensor: Tensor) -> bytes:
    """Bytes from all over a Tensor, few enough to be taken at each call."""
    return tensor.buffer[:: max(1, tensor.buffer.size // _N_SAMPLES)].tobytes()


def _kept(value: Any) -> list[Tensor]:
    """The Tensors that functions refer to."""
    if isinstance(value, Tensor):
        return [value]
    parts = [cell.cell_contents for cell in value.__closure__ or ()] if isinstance(value, FunctionType) else value
    return [each for part in parts for each in _kept(part)] if isinstance(parts, tuple | list) else []


def _of_sources(node: _Node, needs: Sequence[bool], grads: Sequence[Tensor | None]) -> Iterator[Tensor | None]:
    """The gradients of a call's sources, by those of its results; fewer, or none, where they are zero."""
    if all(each is None for each in grads):
        return
    if isinstance(node.backward, str):
        raise UnsupportedError(f"gradients: {node.function}: {node.backward}")
    for held, samples in node.kept:
        if (tensor := held()) is not None and _samples(tensor) != samples:
            rule = "was written to since; take gradients first, or give it a copy"
            raise InputError(f"gradients: {tensor.desc}, which {node.function} read or gave, {rule}")
    if not isinstance(node.backward, tuple):
        yield from node.backward(needs, *grads)
    else:
        for function, is_needed in zip(node.backward, needs, strict=False):
            yield function(*grads) if function is not None and is_needed else None


def _brought(grad: Tensor, desc: MemoryDesc) -> Tensor:
    """A gradient summed over the dimensions in which its value was broadcast, and in the value's format."""
    desc = fresh(desc)
    if prod(grad.shape) != desc.n_elements:
        full = (1,) * (grad.ndim - desc.ndims) + desc.dims
        axes = [dim for dim, extent in enumerate(grad.shape) if full[dim] != extent]
        # Vectors and columns are row-major, as parameters are.
        grad = grad.reduce_sum(axes, keepdims=len(axes) < grad.ndim - 1)
    grad = grad if grad.shape == desc.dims else grad.reshape(desc.dims)
    return brought(grad.astype(desc.dtype), desc, "gradients")


def _backward_of(entry: Entry) -> tuple[Any, Sequence[Any]]:
    """The gradients of an entry's sources, and these."""
    if entry.op is None:
        rule = _RULES.get(entry.function)
        return rule(entry) if rule else "it has no gradient here", entry.operands
    described = (each.desc if isinstance(each, Tensor) else each for each in entry.operands)
    node, places = _node_of(entry.op, tuple(entry.attrs.items()), *described)
    sources = [
        None if value is None else entry.operands[places[value.name]] if value.name in places else value.data
        for value in node.inputs
    ]
    return ops.facts_of(node.op_type).backward(ir.Called(node, _eager(), sources, entry.results)), sources


@lru_cache(maxsize=1024)
def _node_of(op: Op, attrs: Attrs, *operands: Any) -> tuple[ir.NodeInfo, Mapping[str, int]]:
    """An operator of these descriptors and constants as a node, and the places of its operands by name.

    One that is several nodes is a node of the operator that the function is named after, with the function's arguments.
    """
    from blocklayout.eager.call import problem_of
    from blocklayout.eager.planning import graph_of

    graph = graph_of(problem_of(op, operands, attrs))
    places = {op.argument(place): place for place in range(len(operands))}
    if len(graph.nodes) == 1:
        return graph.info(graph.nodes[0]), places
    op_type = ops.op_type_named(op.name) or ops.op_type_named(f"{op.name}alization") or op.name
    inputs, outputs = (tuple(graph.values[name] for name in names) for names in (graph.inputs, graph.outputs))
    return ir.NodeInfo(op.name, op_type, dict(attrs), inputs, outputs, graph.opset), places


@cache
def _eager() -> SimpleNamespace:
    from blocklayout import eager
    from blocklayout.eager import backward

    functions = {name: getattr(home, name) for home in (eager, backward) for name in home.__all__}
    return SimpleNamespace(**functions, ones_like=ones_like, zeros=zeros, signs=_signs)


def _signs(y: Tensor) -> Callable[[], Tensor]:
    """A function that gives the result of a Relu; once nobody else holds that, its signs, which are kept as bits."""
    desc, dtype, cell = y.desc, to_numpy(y.dtype), [y.buffer]

    def pack(_: Any) -> None:
        cell[0] = np.packbits(cell[0].view(dtype) > 0)

    held = ref(y, pack)

    def signs() -> Tensor:
        alive = held()
        if alive is not None:
            return alive
        return Tensor(desc, np.unpackbits(cell[0], count=desc.nbytes // dtype.itemsize).astype(dtype))

    return signs


_RULES: Mapping[str, Callable[[Entry], Any]] = {
    **dict.fromkeys(("astype", "clone", "reorder", "to", "view"), lambda _: (lambda grad: grad,)),
    "getitem": lambda entry: (partial(_eager().slice_backward, x=entry.operands[0].desc, index=entry.operands[1]),),
    "permute": lambda entry: (methodcaller("permute", inverse(entry.operands[1])),),
}
"""The gradients of functions that are no operators, by name."""
