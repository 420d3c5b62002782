"""Operators on Tensors: a function of each definition, which is run once for each set of layouts and then replayed.

A function reads its arguments as the definition's annotations say: operands are Tensors, or become Tensors; all others
are parts of the plan. The plan is found by both; where there is none, the definition is run on the values of a Builder,
and the network that it builds is planned (see :mod:`blocklayout.eager.call`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from blocklayout.eager.operands import READERS, alike, hashable, memory_format
from blocklayout.operators import Operators
from blocklayout.tensor import Tensor

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

_special: dict[Function, Function] = {}
_preparations: dict[Function, tuple[Function, Function]] = {}


def special(definition: Function) -> Callable[[F], F]:
    """Registers the function that computes an operator on Tensors, ``x`` first, in place of its definition."""

    def register(function: F) -> F:
        _special[definition] = function
        return function

    return register


def prepared(definition: Function, onnx_dims: Function) -> Callable[[F], F]:
    """Registers a function that changes an operator's operands before it is computed; ``onnx_dims`` is its Op's."""

    def register(prepare: F) -> F:
        _preparations[definition] = prepare, onnx_dims
        return prepare

    return register


def preparation_of(definition: Function) -> tuple[Function | None, Function | None]:
    """The function that prepares an operator's operands, and its ``onnx_dims``; ``None`` where none is registered."""
    return _preparations.get(definition, (None, None))


def install() -> dict[str, Function]:
    """Put each operator's function in the place of the definition that Tensor inherits: the functions by name."""
    functions: dict[Function, Function] = {}
    for name, definition in vars(Operators).items():
        if getattr(definition, "__name__", "_").startswith("_") or hasattr(definition, "is_shorthand"):
            continue
        if definition not in functions:
            functions[definition] = shown_as(Shown(definition), computed(definition, _special.get(definition)))
        setattr(Tensor, name, functions[definition])  # also as __add__, which is another name of add
    return {definition.__name__: function for definition, function in functions.items()}


def public_names(*modules: ModuleType) -> dict[str, Any]:
    """The functions and classes that modules define and do not keep to themselves, by name."""
    return {
        name: each
        for module in modules
        for name, each in vars(module).items()
        if getattr(each, "__module__", "") == module.__name__
        and isinstance(each, FunctionType | type)
        and name[0] != "_"
    }


class Shown:
    """A definition as its function shows it to ``help`` and editors; worked out on demand."""

    def __init__(self, definition: Any) -> None:
        self.definition = definition
        self.__name__: str = definition.__name__
        self.__doc__: str | None = definition.__doc__

    @property
    def __signature__(self) -> inspect.Signature:
        """The definition's own, with ``x`` first, and without a node's name."""
        signature = inspect.signature(self.definition)
        first, *others = signature.parameters.values()
        x = first.replace(name="x", annotation="Operand")
        return signature.replace(parameters=[x, *(each for each in others if each.name != "name")])


def shown_as(shown: Any, function: Any, module: str = "blocklayout.eager") -> Function:
    """The function under another's name, docstring and signature."""
    function.__name__ = function.__qualname__ = shown.__name__
    function.__module__, function.__doc__, function.__wrapped__ = module, shown.__doc__, shown
    made: Function = function
    return made


def computed(definition: Function, instead: Function | None = None) -> Function:
    """A function that is planned and computed, or calls ``instead``; all that this takes is made at the first call."""
    names: dict[str, Any] = {"instead": instead}
    function = FunctionType(_waiting.__code__, names, definition.__name__)
    names["become"] = partial(_become, function, definition)
    return function


def _waiting(*args: Any, **kwargs: Any) -> Any:
    """The code of functions that have not been called yet."""
    return become(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821 - in the globals that each is given


def _become(function: Any, definition: Any, *args: Any, **kwargs: Any) -> Any:
    """Give a function code, compiled since a loop over arguments adds 2 us (docs/decisions/0011), and call it."""
    signature = Shown(definition).__signature__
    names = function.__globals__
    names |= {f"default_{name}": each.default for name, each in signature.parameters.items()} | _NAMES
    if names["instead"] is None:
        from blocklayout.eager.call import call

        names |= {"call": call, "op": op_of(definition), "prepare": preparation_of(definition)[0]}
    place = Path(__file__).with_name(f"<{definition.__name__}>")  # within the package, so that warnings pass it over
    text = _source(definition, signature, is_special=names["instead"] is not None)
    exec(compile(text, place, "exec"), names)  # noqa: S102 - of our own definitions
    compiled = names[definition.__name__]
    function.__defaults__, function.__kwdefaults__ = compiled.__defaults__, compiled.__kwdefaults__
    function.__code__ = compiled.__code__  # last: another thread may be calling
    return function(*args, **kwargs)


@cache
def op_of(definition: Any) -> Any:
    """An operator as it is planned: its definition, run on the values of a Builder."""
    from blocklayout import ops
    from blocklayout.eager.call import Op

    parameters = Shown(definition).__signature__.parameters.values()
    operands = [each.name for each in parameters if each.annotation in _OPERANDS]
    kinds = {each.name: str(each.annotation).removesuffix(" | None") for each in parameters}

    def build(x: Any, *others: Any, **attrs: Any) -> Any:
        present = {name: each for name, each in zip(operands[1:], others, strict=False) if each is not None}
        return definition(x, **present, **attrs)

    _, onnx_dims = preparation_of(definition)
    rule = ops.facts_of(ops.op_type_named(definition.__name__)).result_format
    return Op(definition.__name__, operands, build, rule, onnx_dims, kinds=kinds)


def _source(definition: Any, signature: inspect.Signature, *, is_special: bool) -> str:
    """The text of a function that reads each argument as it is annotated, and computes with them."""
    parameters = signature.parameters.values()
    shown = [
        each.replace(
            annotation=each.empty, default=each.empty if each.default is each.empty else _Source(f"default_{each.name}")
        )
        for each in parameters
    ]
    read = signature.replace(parameters=shown, return_annotation=signature.empty)
    lines = [f"def {definition.__name__}{read}:", *_reading(definition.__name__, list(parameters))]
    called = _special_call(parameters) if is_special else _call(definition, parameters)
    is_tuple = not is_special and definition.__annotations__["return"] != "Self"
    result = called if is_special else f"tuple({called})" if is_tuple else f"{called}[0]"
    return "\n    ".join([*lines, f"return {result}", ""])


class _Source(str):
    """Text that stands for itself in compiled code."""

    __slots__ = ()
    __repr__ = str.__str__


_FORMAT = "memory_format"
_OPERANDS = {"Operand", "Operand | None", "Vector", "Addend", "Exponent"}
_USED: tuple[Any, ...] = (Tensor, alike, hashable, *(read for _, read in READERS.values()))
_NAMES = {"read_format": memory_format, **{each.__name__: each for each in _USED}}


def _reading(function: str, parameters: list[inspect.Parameter]) -> Iterator[str]:
    """Statements that read arguments, none of which does anything to one that is of its type already, as most are."""
    first = f"{function}: x"
    for each in parameters:
        name, title = each.name, f"{function}: {each.name}"
        kind, is_optional, _ = str(each.annotation).partition(" | None")
        if name == _FORMAT:
            yield f"if {name} is not None: {name} = read_format({name}, {title!r})"
        elif kind == "Exponent":
            yield f"if type({name}) is int: {name} = number({name}, {title!r})"
            yield f"if isinstance({name}, float): x = x if type(x) is Tensor else as_tensor(x, {first!r})"
            yield f"elif not type(x) is Tensor is type({name}): x, {name} = alike(x, {name}, ({first!r}, {title!r}))"
        elif kind == "Addend":
            yield f"if not type(x) is Tensor is type({name}): x, {name} = alike(x, {name}, ({first!r}, {title!r}))"
        elif kind in READERS and not (name == "x" and parameters[-1].annotation in ("Addend", "Exponent")):
            usual, read = READERS[kind]
            tests = [f"type({name}) is not {usual.__name__}"] if usual else []
            tests += [f"{name} is not None"] if is_optional else []
            condition = f"if {' and '.join(tests)}: " if tests else ""
            yield f"{condition}{name} = {read.__name__}({name}, {title!r})"


def _special_call(parameters: Iterable[inspect.Parameter]) -> str:
    given = (f"{each.name}={each.name}" if each.kind is each.KEYWORD_ONLY else each.name for each in parameters)
    return f"instead({', '.join(given)})"


def _call(definition: Any, parameters: Iterable[inspect.Parameter]) -> str:
    operands = f"({', '.join(each.name for each in parameters if each.annotation in _OPERANDS)},)"
    given = [
        f"prepare({operands}, group, {definition.__name__!r})" if definition in _preparations else operands,
        f"({' '.join(_attr(definition.__name__, each) for each in parameters)})",
        *([_FORMAT] if any(each.name == _FORMAT for each in parameters) else []),
    ]
    return f"call(op, {', '.join(given)})"


def _attr(function: str, each: inspect.Parameter) -> str:
    """The text of a part of the plan's key: a name and a value."""
    if each.annotation in _OPERANDS or each.name == _FORMAT:
        return ""
    if each.kind is each.VAR_KEYWORD:
        return f"*((name, hashable(value, f'{function}: {{name}}')) for name, value in {each.name}.items()),"
    return f"({each.name!r}, {each.name}),"
