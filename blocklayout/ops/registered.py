"""Operators of the caller's own: Python classes that compute nodes of another domain than ONNX's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import signature
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec import Struct

from blocklayout import ir
from blocklayout.dtypes import named
from blocklayout.errors import LayoutError, ModelError, OperatorError, PlanError, closest, did_you_mean
from blocklayout.ir.result_format import Followed, keep, pointwise
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.ops._layouts import like, n_lanes
from blocklayout.tensor import Tensor, channels_first, channels_last, contiguous_format

if TYPE_CHECKING:
    from blocklayout.dnnl import Attr

ANY = "any"
BLOCKED = "blocked"
_BLOCKS = (4, 8, 16)
_FACTS = ("compute", "shape", "layouts", "keeps_zeros", "dtype")

_DOMAIN, _NAME = re.compile(r"(?!ai\.onnx$)[A-Za-z_][\w.\-]*"), re.compile(r"[A-Za-z_]\w*")
_UNTOUCHED = 0xA5
"""A byte that a result is full of before its first run."""

_Class = TypeVar("_Class", bound=type)


class _Definition(Struct, frozen=True):
    """A registered class and the facts that it states."""

    cls: type
    layouts: tuple[str, ...]
    keeps_zeros: bool
    dtype: str | None


_definitions: dict[str, _Definition] = {}


def register_operator(domain: str, name: str, cls: _Class | None = None) -> Any:
    """Have an operator of another domain than ONNX's computed by a Python class: in networks, files and eager calls.

    The class is called with the attributes of a node, and its object is asked:

    - ``compute(result, *sources)``: computes Tensors into ``result``, a Tensor with memory. ``None`` stands for an
      absent input. Sources are read-only.
    - ``shape(*shapes)``: the result's extents; by default those of the first source.

    The class itself may state:

    - ``layouts``: memory formats that it computes in, as ``bl.channels_last`` or ``"nChw16c"``, best first;
      ``"blocked"`` is any block of channels, and ``"any"``, the default, every layout that is dense. The result and
      all sources of its rank are in the layout of the first source; others are row-major.
    - ``keeps_zeros``: whether ``compute`` leaves zeros in the result's padding where the sources' is zero. By default
      padding is zeroed behind it.
    - ``dtype``: the result's data type; by default the first source's.

    Args:
        domain: Of the operator, such as ``my.domain``; not ONNX's own.
        name: Of the operator, such as ``Foo``; its op type here is ``my.domain.Foo``.
        cls: The class. Without it, the function is a decorator of one.

    Raises:
        OperatorError: A name or a stated fact is impossible, ``compute`` is missing, or another class has the name.

    Example:
        >>> import blocklayout as bl
        >>> @bl.register_operator("docs.registering", "Halved")
        ... class Halved:
        ...     keeps_zeros = True
        ...
        ...     def compute(self, result, x):
        ...         np.divide(x.physical(), 2, out=result.physical())
        >>> bl.op("docs.registering.Halved", bl.ones((1, 16, 2, 2), memory_format="nChw16c"))[0, 0, 0, 0]
        np.float32(0.5)
    """
    if cls is None:
        return partial(register_operator, domain, name)
    given: tuple[tuple[Any, re.Pattern[str], str], ...] = ((domain, _DOMAIN, "domain"), (name, _NAME, "name"))
    for text, pattern, role in given:
        if not isinstance(text, str) or not pattern.fullmatch(text):
            rule = "give one such as 'my.domain' and 'Foo', not ONNX's"
            raise OperatorError(f"register_operator: {role} {text!r}; {rule}")
    op_type = f"{domain}.{name}"
    known = _definitions.get(op_type)
    if known is not None and known.cls is not cls:
        raise OperatorError(f"register_operator: {op_type} is {known.cls.__qualname__} already; take another name")
    _definitions[op_type] = _definition(op_type, cls)
    return cls


def is_registered(op_type: str) -> bool:
    """Whether a class computes nodes of this type, written ``domain.Name``."""
    return op_type in _definitions


def registered_op_types() -> tuple[str, ...]:
    """All that are."""
    return tuple(_definitions)


def registered_like(op_type: str) -> str:
    """The end of a message about an unregistered operator."""
    known = f"; {closest(op_type, _definitions)}" if _definitions else ""
    return f"register a class for {op_type} first, with bl.register_operator{known}"


def result_of(
    op_type: str, name: str, attrs: Mapping[str, Any], inputs: Sequence[ir.Value | None], output: str
) -> ir.Value:
    """The value that a node computes, by the shape rule of its class.

    Raises:
        ModelError: Attributes or inputs that the class does not take.
        OperatorError: Its shape rule fails.
    """
    where = f"node {name!r}: {op_type}"
    definition, operator = _made(op_type, attrs, where)
    if not inputs or inputs[0] is None:
        raise ModelError(f"{where} has no first input; it is required")
    try:
        signature(operator.compute).bind(None, *inputs)
    except TypeError as error:
        raise ModelError(f"{where}: compute(result, *sources) with {len(inputs)} sources: {error}") from None
    dims = _dims(operator, [None if value is None else value.dims for value in inputs], where)
    return ir.Value(output, dims, definition.dtype or inputs[0].dtype)


def compute_of(spec: ir.HostSpec) -> ir.Compute:
    """The function that runs a step, where its class takes the step's layouts.

    Raises:
        PlanError: No class is registered for it, or one that would have computed something else.
    """
    if spec.label not in _definitions:
        raise PlanError(f"the plan has a step of {spec.label}: {registered_like(spec.label)}")
    try:
        attrs = {key: tuple(each) if isinstance(each, list) else each for key, each in json.loads(spec.node).items()}
        definition, operator = _made(spec.label, attrs, spec.label)
        descs = dict(spec.descs)
        last = max(int(arg.removeprefix("src_")) for arg in descs if arg != "dst")
        places = [f"src_{place}" for place in range(last + 1)]  # those of absent inputs, too
        dims = _dims(operator, [descs[arg].dims if arg in descs else None for arg in places], spec.label)
        is_accepted = _accepted(definition, descs["src_0"]) is not None
    except (ValueError, AttributeError, KeyError, OperatorError) as error:
        raise PlanError(f"the plan's step of {spec.label} is none: {error}") from error
    if not is_accepted or (dims or (1,)) != descs["dst"].dims:
        asked = f"{descs['src_0']} to {descs['dst']}"
        raise PlanError(f"the plan has {spec.label} compute {asked}; the class that is registered here does not")
    return _bound(spec.label, operator, places, keeps_zeros=definition.keeps_zeros)


class Registered(ir.BaseOperator, frozen=True):
    """A node of a registered operator: its attributes as JSON, facts of its class, and data types by argument."""

    op_type: str
    attrs: str
    layouts: tuple[str, ...]
    keeps_zeros: bool
    dtypes: tuple[tuple[str, str], ...]

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        definition = _definitions[node.op_type]
        sources = {f"src_{index}": value for index, value in enumerate(node.inputs) if value is not None}
        first = sources["src_0"]
        if not any(_formats(definition, MemoryDesc(first.dims, first.dtype))):
            formats = ", ".join(map(str, definition.layouts))
            raise node.wrong(f"{first.name} has rank {len(first.dims)}", f"its class computes in {formats} alone")
        dtypes = tuple((arg, value.dtype) for arg, value in [*sources.items(), ("dst", node.result)])
        attrs = json.dumps(dict(node.attrs), sort_keys=True)
        operator = cls(node.op_type, attrs, definition.layouts, definition.keeps_zeros, dtypes)
        return operator.bind(sources)

    @classmethod
    def result_format(cls, operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
        rule = pointwise if operands[0].dims == dims else keep
        return rule(operands, dims, dtype)

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: Attr) -> ir.Recipe | None:
        dtypes = dict(self.dtypes)
        infos = {arg: ir.TensorInfo(info.dims, dtypes[arg]) for arg, info in problem.arguments}
        wished = wish.src_desc(infos["src_0"])
        if attr.post_ops or not isinstance(wished, MemoryDesc):
            return None
        definition = _definitions[self.op_type]
        first = _accepted(definition, wished) or next(_formats(definition, wished))
        descs = {
            arg: like(first, info) if len(info.dims) == first.ndims else MemoryDesc(info.dims, info.dtype)
            for arg, info in infos.items()
        }
        named = tuple((arg, arg) for arg in descs)
        steps = [ir.RecipeStep(ir.HostSpec("registered", tuple(descs.items()), self.op_type, self.attrs), named)]
        if descs["dst"].n_padding and not self.keeps_zeros:
            steps.append(ir.zero_padding_step(descs["dst"]))
        return ir.Recipe(tuple(steps))


def _bound(label: str, operator: Any, places: Sequence[str], *, keeps_zeros: bool) -> ir.Compute:
    """An operator's ``compute`` bound to a step; its result is looked at after the first run."""
    compute, is_proven = operator.compute, False

    def run(tensors: Mapping[str, Tensor]) -> None:
        nonlocal is_proven
        result = tensors["dst"]
        if not is_proven:
            result.buffer[...] = _UNTOUCHED
        try:
            with np.errstate(all="ignore"):  # padding is computed with, too
                compute(result, *(tensors.get(arg) for arg in places))
        except Exception as error:
            given = ", ".join(str(tensors[arg].desc) for arg in places if arg in tensors)
            reason = f"{type(error).__name__}: {error}"
            raise OperatorError(f"{label}: compute of {given} into {result.desc} failed: {reason}") from error
        if is_proven:
            return
        if result.buffer.size and (result.buffer == _UNTOUCHED).all():
            what = "compute wrote nothing into its first argument, the result"
            raise OperatorError(f"{label}: {what}; its return value is not used")
        if keeps_zeros and not result.padding_is_zero():
            raise OperatorError(f"{label} states keeps_zeros, and compute left others in {result.desc}'s padding")
        is_proven = True

    return run


def _definition(op_type: str, cls: Any) -> _Definition:
    where = f"register_operator: {op_type}"
    if not isinstance(cls, type):
        raise OperatorError(f"{where} needs a class, not {cls!r:.60}")
    if not callable(getattr(cls, "compute", None)):
        methods = [name for name in vars(cls) if not name.startswith("_")]
        needs = f"{cls.__qualname__} needs a method compute(self, result, *sources)"
        raise OperatorError(f"{where}: {needs}; it has {methods}")
    for name in vars(cls):
        meant = did_you_mean(name, _FACTS) if name not in _FACTS and not name.startswith("_") else ""
        if meant and name not in signature(cls).parameters:
            raise OperatorError(f"{where}: {cls.__qualname__} states {name!r}, which is no fact{meant}")
    given = getattr(cls, "layouts", ANY)
    layouts = (given,) if isinstance(given, str) else given
    if not isinstance(layouts, tuple | list) or not layouts or not all(map(_is_layout, layouts)):
        rule = "give formats such as bl.channels_last, 'blocked' or 'any'"
        raise OperatorError(f"{where}: layouts are {given!r}; {rule}")
    keeps_zeros, dtype = getattr(cls, "keeps_zeros", False), getattr(cls, "dtype", None)
    if not isinstance(keeps_zeros, bool):
        raise OperatorError(f"{where}: keeps_zeros is {keeps_zeros!r}; give True or False")
    try:
        dtype = None if dtype is None else named(dtype)
    except LayoutError as error:
        raise OperatorError(f"{where}: its dtype: {error}") from error
    shape = getattr(cls, "shape", None)
    if shape is not None and not callable(shape):
        raise OperatorError(f"{where}: shape is {shape!r}; give a method shape(self, *shapes)")
    return _Definition(cls, tuple(layouts), keeps_zeros, dtype)


def _is_layout(layout: Any) -> bool:
    if layout in (ANY, BLOCKED, contiguous_format, channels_first, channels_last):
        return True
    try:
        return isinstance(layout, str | FormatTag) and bool(FormatTag.parse(str(layout)))
    except LayoutError:
        return False


def _made(op_type: str, attrs: Mapping[str, Any], where: str) -> tuple[_Definition, Any]:
    if op_type not in _definitions:
        raise ModelError(f"{where}: {registered_like(op_type)}")
    definition = _definitions[op_type]
    try:
        return definition, definition.cls(**attrs)
    except Exception as error:
        given = ", ".join(f"{name}={value!r}" for name, value in attrs.items())
        raise ModelError(f"{where}: {definition.cls.__qualname__}({given}): {error}") from error


def _dims(operator: Any, shapes: Sequence[tuple[int, ...] | None], where: str) -> tuple[int, ...]:
    rule = getattr(operator, "shape", None)
    try:
        answer: Any = rule(*shapes) if rule else shapes[0]
        dims = tuple(map(index, answer))
    except Exception as error:
        raise OperatorError(f"{where}: its shape rule failed of {shapes}: {type(error).__name__}: {error}") from error
    if min(dims, default=0) < 0:
        raise OperatorError(f"{where}: its shape rule answers {dims} of {shapes}; extents are not negative")
    return dims


def _accepted(definition: _Definition, desc: MemoryDesc) -> MemoryDesc | None:
    """A layout under the name that the operator has for it; ``None`` where it does not compute in it."""
    if ANY in definition.layouts:
        return desc if desc.is_dense else None
    return next((each for each in _formats(definition, desc) if each.physically_equal(desc)), None)


def _formats(definition: _Definition, desc: MemoryDesc) -> Iterator[MemoryDesc]:
    """The layouts that an operator computes in, of a tensor's extents; the best first."""
    for layout in definition.layouts:
        if layout == ANY:
            yield MemoryDesc(desc.dims, desc.dtype)
        elif layout == BLOCKED:
            spatial = range(2, desc.ndims)
            blocks = sorted(_BLOCKS, key=lambda block: block != n_lanes()) if spatial else ()
            yield from (MemoryDesc(desc.dims, desc.dtype, FormatTag((0, 1, *spatial), (blk,), (1,))) for blk in blocks)
        else:
            with suppress(LayoutError):  # of another rank
                yield MemoryDesc(desc.dims, desc.dtype, layout)
