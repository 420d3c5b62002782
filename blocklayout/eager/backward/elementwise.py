"""Gradients of functions of each element: one for each line of a table, with the parameters of the forward operator.

Each takes the gradient of a result and the source, in any layout, and returns the source's gradient in the source's
format. On a kink the slope is 0.

Example:
    >>> import numpy as np
    >>> import blocklayout as bl
    >>> bl.relu_backward(np.float32([1, 2, 3]), np.float32([-1, 0, 1])).numpy()
    array([0., 0., 3.], dtype=float32)
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from blocklayout.eager.backward.call import Call
from blocklayout.eager.backward.formats import format_of
from blocklayout.eager.functions import Function, Shown, shown_as
from blocklayout.eager.primitives import execute
from blocklayout.layout import MemoryDesc
from blocklayout.layout.padding import clear_padding
from blocklayout.operators import Operators
from blocklayout.tensor import Tensor

_RANKS = tuple(range(1, 13))

_STEEP_AT_ZERO = ("log", "sqrt", "pow")
"""Algorithms whose slope may be infinite there: padding comes out as NaN."""


def _square(self: Any) -> Any:
    """The square."""
    return self * self


# For each operator the library's algorithm, and its alpha and beta: numbers, or names of the operator's parameters.
_ALGORITHMS: dict[Function, tuple[Any, ...]] = {
    Operators.relu: ("relu",),
    Operators.leaky_relu: ("relu", "alpha"),
    Operators.elu: ("elu", "alpha"),
    Operators.clip: ("clip_v2", "lo", "hi"),
    Operators.sigmoid: ("logistic",),
    Operators.hard_sigmoid: ("hardsigmoid", "alpha", "beta"),
    Operators.tanh: ("tanh",),
    Operators.gelu: ({False: "gelu_erf", True: "gelu_tanh"},),  # by ``approximate``
    Operators.swish: ("swish", "alpha"),
    Operators.hard_swish: ("hardswish", 1 / 6, 0.5),
    Operators.mish: ("mish",),
    Operators.softplus: ("soft_relu", 1.0),
    Operators.exp: ("exp",),
    Operators.log: ("log",),
    Operators.sqrt: ("sqrt",),
    Operators.abs: ("abs",),
    Operators.pow: ("pow", 1.0, "exponent"),
    _square: ("square",),
}


def _gradient_of(definition: Any, algorithm: Any, alpha: Any = 0.0, beta: Any = 0.0) -> Function:
    shown = _Shown(definition)
    _, _, *others = shown.__signature__.parameters.values()
    positional = [each.name for each in others if each.kind is not each.KEYWORD_ONLY]
    defaults = {each.name: each.default for each in others if each.default is not each.empty}
    names = {each.name for each in others}

    def function(grad: Any, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        given = defaults | dict(zip(positional, args, strict=False)) | kwargs
        if given.keys() != names or len(args) > len(positional):
            shown.__signature__.bind(grad, x, *args, **kwargs)  # says what is wrong
        chosen = algorithm if isinstance(algorithm, str) else algorithm[bool(given["approximate"])]
        call = Call(shown.__name__)
        return _gradient(call, grad, x, chosen, *(_number(each, given) for each in (alpha, beta)))

    return shown_as(shown, function, __name__)


class _Shown(Shown):
    """The gradient of an operator, as it is shown."""

    def __init__(self, definition: Any) -> None:
        super().__init__(definition)
        name = definition.__name__.removeprefix("_")
        meaning = str(self.__doc__).partition("\n")[0].partition(";")[0].rstrip(".")
        self.__name__ = f"{name}_backward"
        self.__doc__ = f"""The gradient of ``{name}``, {meaning[:1].lower()}{meaning[1:]}.

    Args:
        grad: Gradient of the result, in any layout.
        x: The source, of the same shape; the result has its format.

    All others are those of the forward operator.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and what would be right.
        UnsupportedError: bf16, on a CPU that does not compute in it.
    """

    @property
    def __signature__(self) -> inspect.Signature:
        """Of the gradient, the source, and the forward's parameters, which are numbers."""
        signature = super().__signature__
        x, *others = signature.parameters.values()
        numbers = (each.replace(annotation="float") if each.annotation == "Exponent" else each for each in others)
        return signature.replace(parameters=[x.replace(name="grad"), x, *numbers], return_annotation="Self")


def _number(parameter: Any, given: dict[str, Any]) -> tuple[str, float]:
    """A parameter's name and value; one that the table has needs no name."""
    return (parameter, given[parameter]) if isinstance(parameter, str) else ("", parameter)


def _gradient(
    call: Call, grad: Any, x: Any, algorithm: str, first: tuple[str, float], second: tuple[str, float]
) -> Tensor:
    """Computed on the bare bytes, padding included: no layout is slower than another."""
    given, source = call.read("grad", grad, _RANKS), call.read("x", x, _RANKS)
    call.check_same_dtype(given, source)
    call.check_dims(given, source.dims, "x")
    alpha, beta = call.number(*first), call.number(*second)
    if algorithm == "clip_v2" and alpha > beta:
        raise call.error("lo", f"is {alpha}, above hi, which is {beta}; give the smaller one first")
    desc = format_of(source.desc)
    spec = _way(desc.nbytes // desc.itemsize, desc.dtype, algorithm, alpha, beta, dnnl.default_threads())
    inputs = {
        "src": call.placed(source, desc),
        "diff_dst": call.placed(given, desc),
    }
    result = execute(spec, inputs)["diff_src"].buffer
    if algorithm in _STEEP_AT_ZERO:
        clear_padding(result.view(to_numpy(desc.dtype)), desc)
    return Tensor(desc, result)


@lru_cache(maxsize=1024)
def _way(n: int, dtype: str, algorithm: str, alpha: float, beta: float, n_threads: int) -> dnnl.Spec:
    flat = MemoryDesc((n,), dtype)
    return dnnl.resolve(dnnl.eltwise_backward(flat, flat, flat, algorithm, alpha, beta, n_threads=n_threads)).spec


_gradients = [_gradient_of(definition, *algorithm) for definition, algorithm in _ALGORITHMS.items()]
globals().update({each.__name__: each for each in _gradients})
