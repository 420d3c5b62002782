"""Operators on Tensors: a function of each definition, which is run once for each set of layouts and then replayed.

A function reads its arguments as the definition's annotations say: operands are Tensors, arrays or numbers, everything
else is part of the plan. The plan is found by both; where there is none, the definition is run on the values of a
Builder, and what it builds is planned (see :mod:`blocklayout.eager.call`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from blocklayout.eager.operands import alike, as_tensor, hashable
from blocklayout.operators import Operators
from blocklayout.tensor import Tensor, preserve_format

Definition = Callable[..., Any]
Function = Callable[..., Any]
Prepare = Callable[[list[Any], Mapping[str, Any]], None]

_OPERANDS = {"Operand", "Operand | None", "Addend", "Exponent"}
_FORMAT = "memory_format"
_NAME = "name"

_specially: dict[Definition, Function] = {}
_prepared: dict[Definition, tuple[Prepare, Any]] = {}


def specially(definition: Definition) -> Callable[[Function], Function]:
    """What computes an operator on Tensors in another way than by its definition: a function of ``x`` as a Tensor."""

    def register(function: Function) -> Function:
        _specially[definition] = function
        return function

    return register


def prepared(definition: Definition, onnx_dims: Any) -> Callable[[Prepare], Prepare]:
    """What changes the operands of an operator before it is planned.

    Args:
        definition: The operator.
        onnx_dims: The extents that ONNX has for operands that are not in its dimensions; see :class:`Op`.
    """

    def register(prepare: Prepare) -> Prepare:
        _prepared[definition] = prepare, onnx_dims
        return prepare

    return register


def prepare_of(definition: Definition) -> Prepare:
    """What was registered by :func:`prepared`."""
    return _prepared[definition][0]


def on_tensors(definition: Definition) -> Function:
    """The function of an operator: of Tensors, and of what can be read as one."""
    special = _specially.get(definition)
    if special is None:
        return _named(computed(definition), definition)

    def function(x: Any, *args: Any, **kwargs: Any) -> Any:
        return special(x if type(x) is Tensor else as_tensor(x, "x"), *args, **kwargs)

    return _named(function, definition)


def computed(definition: Definition) -> Function:
    """A function that is planned and computed."""
    parameters = Parameters(definition)
    defaults, returns_one = tuple(parameters.defaults.items()), parameters.returns_one
    call: Any = None  # with all that plans and computes, loaded at the first call
    op: Any = None

    def function(*args: Any, **kwargs: Any) -> Any:
        nonlocal call, op
        if call is None:
            op, call = _loaded(parameters)
        if len(args) == 1 and not kwargs and type(args[0]) is Tensor:
            results = call(op, args, defaults)
        else:
            results = call(op, *parameters.read(args, kwargs))
        return results[0] if returns_one else tuple(results)

    return function


def _loaded(parameters: Parameters) -> tuple[Any, Any]:
    from blocklayout.eager.call import Op, call

    _, onnx_dims = _prepared.get(parameters.definition, (None, None))
    return Op(parameters.name, parameters.operands, parameters.build, onnx_dims), call


def op_of(definition: Definition) -> Any:
    """An operator as it is planned."""
    return _loaded(Parameters(definition))[0]


class Parameters:
    """How the arguments of an operator on Tensors are read.

    Attributes:
        definition: The operator's.
        name: Of the operator.
        operands: Names of those that are tensors, ``x`` first.
        positional: Names of those that need no keyword.
        defaults: Of those that are part of the plan.
        returns_one: Whether there is one result.
    """

    def __init__(self, definition: Any) -> None:
        code, annotations = definition.__code__, definition.__annotations__
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        places = code.co_varnames[1 : code.co_argcount]
        own = definition.__defaults__ or ()
        given = dict(zip(places[len(places) - len(own) :], own, strict=True)) | (definition.__kwdefaults__ or {})
        self.definition = definition
        self.name: str = definition.__name__
        self.operands = ("x", *(name for name in names if annotations[name] in _OPERANDS))
        self.positional = ("x", *(name for name in places if name != _NAME))
        self.defaults = {
            name: value for name, value in given.items() if name not in (*self.operands, _FORMAT, _NAME)
        }
        self.returns_one = annotations["return"] == "Self"
        self._numbers = next((each for each in annotations.values() if each in ("Addend", "Exponent")), None)
        self._prepare = _prepared.get(definition, (None, None))[0]

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Operands as Tensors, what else is part of the plan, and the result's format.

        Raises:
            TypeError: An argument is given twice, or there are too many.
            InputError: An operand is no tensor.
        """
        operands: dict[str, Any] = {}
        attrs: dict[str, Any] = {}
        for name, value in (*zip(self.positional, args, strict=False), *kwargs.items()):
            if name in self.operands:
                operands[name] = value
            else:
                attrs[name] = hashable(value)
        if len(operands) + len(attrs) != len(args) + len(kwargs):
            n_places = len(self.positional)
            raise TypeError(f"{self.name}() takes {n_places} positional arguments, and each argument once")
        memory_format = attrs.pop(_FORMAT, None) if attrs else None
        tensors = self._tensors(operands)
        attrs = self.defaults | attrs
        if self._prepare is not None:
            self._prepare(tensors, attrs)
        return tuple(tensors), tuple(attrs.items()), None if memory_format == preserve_format else memory_format

    def build(self, *operands: Any, **attrs: Any) -> Any:
        """Run the definition."""
        if _NAME in attrs:
            raise TypeError(f"{self.name}() got an unexpected keyword argument '{_NAME}': only nodes have names")
        rest = {name: each for name, each in zip(self.operands[1:], operands[1:], strict=False) if each is not None}
        return self.definition(operands[0], **rest, **attrs)

    def _tensors(self, operands: dict[str, Any]) -> list[Any]:
        if "x" not in operands:
            raise TypeError(f"{self.name}() missing 1 required positional argument: 'x'")
        row = [operands.get(name) for name in self.operands] if len(operands) > 1 else [operands["x"]]
        if self._numbers is not None and len(row) == 2:
            if self._numbers == "Exponent" and isinstance(row[1], int | float):
                return [as_tensor(row[0], "x"), float(row[1])]
            return list(alike(row, self.operands))
        return [
            each if type(each) is Tensor or (each is None and place) else as_tensor(each, self.operands[place])
            for place, each in enumerate(row)
        ]


def _named(function: Any, definition: Any) -> Function:
    function.__name__ = function.__qualname__ = definition.__name__
    function.__module__ = "blocklayout.eager"
    function.__doc__ = definition.__doc__
    function.__signature__ = _signature(definition)
    return function


def _signature(definition: Any) -> inspect.Signature:
    """The definition's own, with ``x`` first, and without a node's name."""
    signature = inspect.signature(definition)
    first, *others = signature.parameters.values()
    x = first.replace(name="x", annotation="Operand")
    return signature.replace(parameters=[x, *(each for each in others if each.name != _NAME)])


def install() -> dict[str, Function]:
    """Put each operator's function in the place of the definition that Tensor inherits.

    Returns:
        The functions by name.
    """
    functions = {}
    made: dict[Definition, Function] = {}
    for name, definition in vars(Operators).items():
        public = getattr(definition, "__name__", "_")
        if public.startswith("_") or not callable(definition):
            continue
        if definition not in made:
            made[definition] = functions[public] = on_tensors(definition)
        setattr(Tensor, name, made[definition])
    return functions


def public_functions(module: ModuleType) -> dict[str, Function]:
    """The functions that a module defines and does not keep to itself, by name."""
    return {
        name: each
        for name, each in vars(module).items()
        if isinstance(each, FunctionType) and each.__module__ == module.__name__ and not name.startswith("_")
    }
