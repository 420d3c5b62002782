"""Operators on Tensors: a function of each definition, which is run once for each set of layouts and then replayed.

A function reads its arguments as the definition's annotations say: operands are Tensors, or become Tensors; all others
are parts of the plan. The plan is found by both; where there is none, the definition is run on the values of a Builder,
and what it builds is planned (see :mod:`blocklayout.eager.call`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from blocklayout.eager.operands import alike, as_tensor, hashable
from blocklayout.operators import Operators
from blocklayout.tensor import Tensor, preserve_format

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

_special: dict[Function, Function] = {}
_preparations: dict[Function, tuple[Function, Function]] = {}


def special(definition: Function) -> Callable[[F], F]:
    """Registers what computes an operator on Tensors instead of its definition: a function of ``x`` as a Tensor."""

    def register(function: F) -> F:
        _special[definition] = function
        return function

    return register


def prepared(definition: Function, onnx_dims: Function) -> Callable[[F], F]:
    """Registers what changes an operator's operands before they are computed with, knowing its ``group``.

    Args:
        definition: The operator's.
        onnx_dims: See :class:`blocklayout.eager.call.Op`.
    """

    def register(prepare: F) -> F:
        _preparations[definition] = prepare, onnx_dims
        return prepare

    return register


def preparation_of(definition: Function) -> tuple[Function | None, Function | None]:
    """The function that prepares an operator's operands, and its ``onnx_dims``; ``None`` where none is registered."""
    return _preparations.get(definition, (None, None))


def install() -> dict[str, Function]:
    """Put each operator's function in the place of the definition that Tensor inherits.

    Returns:
        The functions by name.
    """
    functions: dict[Function, Function] = {}
    for name, definition in vars(Operators).items():
        if getattr(definition, "__name__", "_").startswith("_") or hasattr(definition, "is_shorthand"):
            continue
        if definition not in functions:
            functions[definition] = _function_of(definition)
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


def _function_of(definition: Function) -> Function:
    instead = _special.get(definition)
    if instead is None:
        return shown_as(Shown(definition), computed(definition))

    def function(x: Any, *args: Any, **kwargs: Any) -> Any:
        return instead(x if type(x) is Tensor else as_tensor(x, "x"), *args, **kwargs)

    return shown_as(Shown(definition), function)


class Shown:
    """A definition as its function shows it to ``help`` and editors; worked out when somebody looks.

    Attributes:
        definition: The operator's.
    """

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


def ordered(signature: inspect.Signature) -> Callable[[tuple[Any, ...], dict[str, Any]], list[Any]]:
    """A function that puts the arguments of a call in the order of the parameters, with defaults.

    It does as :meth:`inspect.Signature.bind`, which takes as long as a small operator.
    """
    parameters = signature.parameters.values()
    named = [each for each in parameters if each.kind is not each.VAR_KEYWORD]
    places = {each.name: place for place, each in enumerate(named)}
    defaults = [{} if each.kind is each.VAR_KEYWORD else each.default for each in parameters]
    n_required = sum(each.default is each.empty for each in named)
    n_positional = sum(each.kind is each.POSITIONAL_OR_KEYWORD for each in named)

    def values_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        n_args = len(args)
        values = [*args, *defaults[n_args:]]
        is_plain = n_required <= n_args <= n_positional
        for name, value in kwargs.items():
            place = places.get(name, -1)
            is_plain = is_plain and place >= n_args
            values[place] = value
        if is_plain:
            return values
        found = signature.bind(*args, **kwargs)
        found.apply_defaults()
        return [*found.arguments.values()]

    return values_of


def computed(definition: Function) -> Function:
    """A function that is planned and computed; all that this takes is loaded and made at the first call."""
    names: dict[str, Any] = {}
    function = FunctionType(_waiting.__code__, names, definition.__name__)
    names["become"] = partial(_become, function, definition)
    return function


def _waiting(*args: Any, **kwargs: Any) -> Any:
    """The code of functions that have not been called yet."""
    return become(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821 - in the globals that each is given


def _become(function: Any, definition: Any, *args: Any, **kwargs: Any) -> Any:
    """Give a function its code, compiled from the definition's signature, and call it.

    It is compiled, as a loop that reads one argument after the other adds 2 us (docs/decisions/0011).
    """
    from blocklayout.eager.call import call

    signature = Shown(definition).__signature__
    prepare, _ = preparation_of(definition)
    names = function.__globals__
    names |= {f"default_{name}": each.default for name, each in signature.parameters.items()} | _NAMES
    names |= {"call": call, "op": op_of(definition), "prepare": prepare}
    place = Path(__file__).with_name(f"<{definition.__name__}>")  # within the package, so that warnings pass it over
    exec(compile(_source(definition, signature), place, "exec"), names)  # noqa: S102 - of our own definitions
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

    def build(x: Any, *others: Any, **attrs: Any) -> Any:
        present = {name: each for name, each in zip(operands[1:], others, strict=False) if each is not None}
        return definition(x, **present, **attrs)

    _, onnx_dims = preparation_of(definition)
    rule = ops.facts_of(ops.op_type_named(definition.__name__)).result_format
    return Op(definition.__name__, operands, build, rule, onnx_dims)


def _source(definition: Any, signature: inspect.Signature) -> str:
    parameters = signature.parameters.values()
    shown = [
        each.replace(
            annotation=each.empty, default=each.empty if each.default is each.empty else _Source(f"default_{each.name}")
        )
        for each in parameters
    ]
    operands = _operands_read([each for each in parameters if each.annotation in _OPERANDS])
    given = [
        f"prepare({operands}, group)" if definition in _preparations else operands,
        f"({' '.join(map(_attr_read, parameters))})",
        *(["None if memory_format == preserve_format else memory_format"] if _FORMAT in signature.parameters else []),
    ]
    called = f"call(op, {', '.join(given)})"
    result = f"{called}[0]" if definition.__annotations__["return"] == "Self" else f"tuple({called})"
    read = signature.replace(parameters=shown, return_annotation=signature.empty)
    return f"def {definition.__name__}{read}:\n    return {result}\n"


_NAMES = {each.__name__: each for each in (Tensor, alike, as_tensor, hashable)} | {"preserve_format": preserve_format}
_FORMAT = "memory_format"
_OPERANDS = {"Operand", "Operand | None", "Addend", "Exponent"}


class _Source(str):
    """Text that stands for itself in what is compiled."""

    __slots__ = ()
    __repr__ = str.__str__


def _operands_read(operands: list[inspect.Parameter]) -> str:
    """The text that reads operands: as they are where they are Tensors, which most are."""
    row = [
        f"{each.name} if type({each.name}) is Tensor{' or ' + each.name + ' is None' if each.default is None else ''} "
        f"else as_tensor({each.name}, {each.name!r})"
        for each in operands
    ]
    if operands[-1].annotation not in ("Addend", "Exponent"):
        return f"({', '.join(row)},)"
    x, y = (each.name for each in operands)
    both = f"({x}, {y}) if type({x}) is Tensor is type({y}) else alike({x}, {y}, {y!r})"
    is_number = operands[-1].annotation == "Exponent"
    return f"({row[0]}, float({y})) if isinstance({y}, int | float) else {both}" if is_number else both


def _attr_read(each: inspect.Parameter) -> str:
    """The text that reads another parameter as a name and a value that can be hashed."""
    if each.annotation in _OPERANDS or each.name == _FORMAT:
        return ""
    if each.kind is each.VAR_KEYWORD:
        return f"*((name, hashable(value)) for name, value in {each.name}.items()),"
    read = {"float": "float({})", "int": "{}", "bool": "{}", "str": "{}"}.get(each.annotation, "hashable({})")
    return f"({each.name!r}, {read.format(each.name)}),"
