"""Functions on Tensors that are no method of one: of any number of tensors, any of ONNX's operators, dropout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.eager.operands import Known, as_tensor, boolean, hashable, integer, number, refused, row_of, text
from blocklayout.errors import InputError, LayoutError
from blocklayout.tensor import Tensor
from blocklayout.tensor.creating import generator

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from blocklayout.eager.operands import Operand


def max(*tensors: Operand | float) -> Tensor:
    """The largest, element by element, with numpy's broadcasting.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> bl.max(np.float32([1, 5]), np.float32([3, 2])).numpy()
        array([3., 5.], dtype=float32)
    """
    return _elementwise("Max", "max", tensors)


def min(*tensors: Operand | float) -> Tensor:
    """The smallest, element by element, with numpy's broadcasting.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> bl.min(np.float32([1, 5]), np.float32([3, 2])).numpy()
        array([1., 2.], dtype=float32)
    """
    return _elementwise("Min", "min", tensors)


def sum(*tensors: Operand | float) -> Tensor:
    """The sum, element by element, with numpy's broadcasting.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> bl.sum(np.float32([1, 5]), np.float32([3, 2]), np.float32([1, 1])).numpy()
        array([5., 8.], dtype=float32)
    """
    return _elementwise("Sum", "sum", tensors)


def concat(tensors: Sequence[Operand], axis: int = 1) -> Tensor:
    """Tensors side by side along ``axis``, in the format of the first; where another differs, the caller is warned.

    Example:
        >>> import blocklayout as bl
        >>> x = bl.ones((1, 16, 4, 4), memory_format="nChw8c")
        >>> bl.concat([x, x])
        Tensor(f32 1x32x4x4 nChw8c)
    """
    given: Any = tensors
    if not isinstance(given, Sequence) or isinstance(given, str | bytes) or not given:
        raise refused(given, "concat: tensors", "a list of at least one tensor")
    operands = tuple(as_tensor(each, f"concat: tensors[{place}]") for place, each in enumerate(tensors))
    ndims, place = operands[0].ndim, integer(axis, "concat: axis")
    if not -ndims <= place < ndims:
        raise refused(
            axis, "concat: axis", f"a dimension of tensors of shape {operands[0].shape}: {-ndims} to {ndims - 1}"
        )
    return _computed("Concat", "concat", operands, (("axis", place),))[0]


def cast(x: Operand, dtype: DTypeLike) -> Tensor:
    """Another data type, by name or as numpy's and ml_dtypes' types, in the same format; see :meth:`Tensor.astype`.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> bl.cast(np.float32([0.5, 1.5, 300]), "u8").numpy()
        array([  0,   2, 255], dtype=uint8)
    """
    tensor = as_tensor(x, "cast: x")
    try:
        return tensor.astype(dtype)
    except LayoutError as error:
        raise LayoutError(f"cast: dtype is {dtype!r:.80}: {error}") from None


def cast_like(x: Operand, other: Operand) -> Tensor:
    """The data type of ``other``, in the format of ``x``.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> bl.cast_like(np.float32([1, 2]), bl.zeros(1, "s32"))
        Tensor(s32 2 a)
    """
    return as_tensor(x, "cast_like: x").astype(as_tensor(other, "cast_like: other").dtype)


def op(op_type: str, *operands: Operand | Known | None, n_outputs: int = 1, **attrs: Any) -> Any:
    """Any operator of ONNX's own operator set, on Tensors.

    Where no primitive computes it, ``onnx.reference`` does on row-major arrays; the result has the first operand's
    format all the same, and the caller is warned.

    Args:
        op_type: As ONNX writes it, ``Erf``.
        operands: Its inputs in ONNX order; ``None`` where an optional one is absent. Lists and tuples of integers are
            constants, such as axes.
        n_outputs: How many results to make.
        attrs: Its attributes as ONNX names them.

    Returns:
        The result, or a tuple of them where ``n_outputs`` is not 1.

    Raises:
        InputError: The first operand is no tensor.
        ModelError: No such operator or attribute, or operands against its specification.
        UnsupportedError: Nothing computes it here.

    Example:
        >>> import warnings
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> x = bl.reorder(np.zeros((1, 16, 2, 2), np.float32), "nChw8c")
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     bl.op("Erf", x).desc
        MemoryDesc((1, 16, 2, 2), 'f32', 'nChw8c')
    """
    text(op_type, "op: op_type")
    if not operands or operands[0] is None:
        raise InputError(f"{op_type}: give a tensor or an array first")
    if integer(n_outputs, f"{op_type}: n_outputs") < 1:
        raise refused(n_outputs, f"{op_type}: n_outputs", "1 or more")
    first, *others = operands
    x = as_tensor(first, f"{op_type}: input 0")
    given = (x, *(_given(each, f"{op_type}: input {place}") for place, each in enumerate(others, start=1)))
    pairs = tuple((name, hashable(each, f"{op_type}: {name}")) for name, each in attrs.items())
    results = _computed(op_type, op_type, given, pairs, n_outputs)
    return results[0] if n_outputs == 1 else tuple(results)


def _given(operand: Any, name: str) -> Tensor | Known | None:
    if operand is None or isinstance(operand, Known):
        return operand
    if isinstance(operand, list | tuple) and all(isinstance(each, int) for each in operand):
        return Known(tuple(operand), "int64")
    return as_tensor(operand, name)


def _elementwise(op_type: str, name: str, tensors: Sequence[Any]) -> Tensor:
    operands = row_of(tensors, [f"{name}: tensors[{place}]" for place in range(len(tensors))] or [f"{name}: tensors"])
    return _computed(op_type, name, operands)[0]


def _computed(
    op_type: str, name: str, operands: tuple[Any, ...], attrs: tuple[tuple[str, Any], ...] = (), n_outputs: int = 1
) -> list[Tensor]:
    call, op = _loaded(op_type, name)
    results: list[Tensor] = call(op, operands, (*attrs, ("n_outputs", n_outputs)))
    return results


@cache
def _loaded(op_type: str, name: str) -> tuple[Any, Any]:
    """The function that computes operators, loaded at the first call, and the operator as it takes one."""
    from blocklayout import ops
    from blocklayout.eager.call import Op, call

    def build(x: Any, *others: Any, **attrs: Any) -> Any:
        return x.builder.op(op_type, x, *others, **attrs)

    return call, Op(name, ("x",), build, ops.facts_of(op_type).result_format, op_type=op_type)


def dropout2d(
    x: Operand, p: float = 0.5, *, training: bool = False, rng: np.random.Generator | int | None = None
) -> Tensor:
    """Whole channels of images at 0, the others larger for it, in the format of ``x``; in inference ``x`` as it is.

    The gradient of ``x`` is the same function of the result's gradient, called with the same seed.

    Args:
        x: Images: rank 4.
        p: Probability for each channel of each image to be 0; others are multiplied by 1 / (1 - p).
        training: Whether to do so.
        rng: numpy's generator of random numbers, or a seed for one.

    Raises:
        InputError: Another rank, or no probability.

    Example:
        >>> import blocklayout as bl
        >>> x = bl.ones((1, 8, 2, 2), memory_format="nChw8c")
        >>> y = bl.dropout2d(x, 0.5, training=True, rng=1)
        >>> y.memory_format, y.numpy().max(axis=(2, 3))
        ('nChw8c', array([[2., 2., 0., 2., 0., 0., 2., 0.]], dtype=float32))
    """
    return _dropped("dropout2d", x, 4, p, rng, training=training)


def dropout3d(
    x: Operand, p: float = 0.5, *, training: bool = False, rng: np.random.Generator | int | None = None
) -> Tensor:
    """As :func:`dropout2d`, of volumes: rank 5.

    Example:
        >>> import blocklayout as bl
        >>> bl.dropout3d(bl.ones((1, 4, 2, 2, 2)), 0.5, training=True, rng=1).numpy().max(axis=(2, 3, 4))
        array([[2., 2., 0., 2.]], dtype=float32)
    """
    return _dropped("dropout3d", x, 5, p, rng, training=training)


def _dropped(
    name: str, x: Operand, ndims: int, p: float, rng: np.random.Generator | int | None, *, training: bool
) -> Tensor:
    source = as_tensor(x, f"{name}: x")
    if source.ndim != ndims:
        raise InputError(f"{name}: x has shape {source.shape}; give one of rank {ndims}, images and channels first")
    if source.dtype not in FLOATS:
        raise InputError(
            f"{name}: x is {source.desc}; give floating-point numbers, which can be multiplied by 1 / (1 - p)"
        )
    if not 0 <= number(p, f"{name}: p") <= 1:
        raise refused(p, f"{name}: p", "a probability, 0 to 1")
    numbers = None if rng is None else generator(rng, name)
    if not boolean(training, f"{name}: training"):
        return source
    n, c, *spatial = source.shape
    is_kept = (numbers or generator(None, name)).random((n, c)) >= p
    factors = np.where(is_kept, 1 / (1 - p) if p < 1 else 0, 0).astype(to_numpy(source.dtype))
    return source * factors.reshape((n, c, *(1 for _ in spatial)))
