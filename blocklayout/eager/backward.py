"""Gradients, operator by operator: in any layout they are given, they come back in the forward's.

Nothing is recorded and nothing is chained: each function takes the forward's own tensors and the gradient of its
result, and returns the gradients of its arguments. ``grad`` is brought to the format of the forward's result by one
reorder, where it is not in it.

Where an operator states its slope (``gradient`` in its file in ``ops``), the function is made here, with the parameters
of the forward's; the module ``backward_layers`` has the others. The names stand in the stub, which is generated.

Example:
    >>> import numpy as np
    >>> import blocklayout as bl
    >>> bl.relu_backward(np.float32([1, 2, 3]), np.float32([-1, 0, 1])).numpy()
    array([0., 0., 3.], dtype=float32)
"""

from __future__ import annotations

import inspect
from math import isnan
from typing import Any

from blocklayout import ops
from blocklayout.eager import backward_layers
from blocklayout.eager.functions import Function, Shown, public_names, shown_as
from blocklayout.eager.gradients import Call, square_backward
from blocklayout.eager.operands import READERS, refused
from blocklayout.operators import Operators


class _Shown(Shown):
    """The gradient of an operator, as it is shown."""

    def __init__(self, definition: Any) -> None:
        super().__init__(definition)
        meaning = str(self.__doc__).partition("\n")[0].partition(";")[0].rstrip(".")
        needed = [each for each in super().__signature__.parameters.values() if each.default is each.empty]
        numbers = ", 2.0" * (len(needed) - 1)
        self.__doc__ = f"""The gradient of ``{self.__name__}``, {meaning[:1].lower()}{meaning[1:]}.

    Args:
        grad: Gradient of the result, in any layout.
        x: The source, of the same shape; the result has its format.

    All others are those of the forward operator. On a kink the slope is 0.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import blocklayout as bl
        >>> x = bl.ones((1, 16, 4, 4), memory_format="nChw8c")
        >>> bl.{self.__name__}_backward(bl.ones((1, 16, 4, 4)), x{numbers})
        Tensor(f32 1x16x4x4 nChw8c)
    """
        self.__name__ += "_backward"

    @property
    def __signature__(self) -> inspect.Signature:
        """Of the gradient, the source, and the forward's parameters, which are numbers."""
        signature = super().__signature__
        x, *others = signature.parameters.values()
        numbers = (each.replace(annotation="float") if each.annotation == "Exponent" else each for each in others)
        return signature.replace(parameters=[x.replace(name="grad"), x, *numbers], return_annotation="Self")


def _function_of(definition: Any, op_type: str) -> Function:
    shown, facts = _Shown(definition), ops.facts_of(op_type)
    name, signature = shown.__name__, shown.__signature__

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            found = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        found.apply_defaults()
        (_, grad), (_, x), *numbers = found.arguments.items()
        given = {}
        for each, value in numbers:
            given[each] = READERS[signature.parameters[each].annotation][1](value, f"{name}: {each}")
            if isnan(given[each]):
                raise refused(value, f"{name}: {each}", "a number")
        return facts.gradient(op_type, Call(name), grad, x, given)

    return shown_as(shown, function, __name__)


_operators = ((definition, ops.op_type_named(name)) for name, definition in vars(Operators).items())
_made = [_function_of(each, op_type) for each, op_type in _operators if ops.facts_of(op_type).has_gradient(op_type)]
_public = {each.__name__: each for each in (square_backward, *_made)} | public_names(backward_layers)
globals().update(_public)

__all__ = sorted(_public)  # noqa: PLE0605 - names, all of them strings
