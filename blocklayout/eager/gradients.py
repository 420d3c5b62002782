"""Gradients on Tensors: operands read and checked; operators of training (``ops/gradients.py``) compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from blocklayout import dnnl
from blocklayout.eager.call import Formats, Op, call
from blocklayout.eager.operands import READERS, as_tensor
from blocklayout.errors import InputError, ModelError, UnsupportedError
from blocklayout.ir.result_format import keep
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.ops.gradients import DOMAIN
from blocklayout.tensor import Tensor, as_memory, contiguous_format
from blocklayout.tensor.formats import placed
from blocklayout.tensor.moving import brought

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

TensorLike: TypeAlias = "ArrayLike | Tensor"


class Given(Struct, frozen=True):
    """An operand that a function was given as the argument ``name``; ``tensor`` is ``None`` for a mere descriptor."""

    name: str
    desc: MemoryDesc
    tensor: Any = None

    @property
    def dims(self) -> tuple[int, ...]:
        """Logical extents."""
        return self.desc.dims

    @property
    def form(self) -> str:
        """The format, as it is called."""
        return self.desc.format_tag.text


_KINDS = {"epsilon": "NotNegative", "group": "Count", "pads": "Pads"}
_KINDS |= dict.fromkeys(("dilations", "kernel", "strides"), "Extents")
_KINDS |= dict.fromkeys(("mean", "scale", "shift", "variance"), "Vector")
"""Parameters that are checked as those of other operators."""


def built(op_type: str, first: Any, *others: Any, n_outputs: int = 1, **attrs: Any) -> Any:
    """An operator of training, applied to a Builder's values."""
    names = {"kernel": "kernel_shape"} | {name: name for name in ("dilations", "pads", "strides")}
    window = first._window(**{name: attrs.pop(own) for own, name in names.items() if own in attrs})  # noqa: SLF001 - as its methods
    return first.builder.op(f"{DOMAIN}.{op_type}", first, *others, n_outputs=n_outputs, **window, **attrs)


@cache
def operator(function: str, build: str | Callable[..., Any], arguments: tuple[str, ...], n_outputs: int) -> Op:
    """An operator of training by its name, or a function of a Builder's values, as an operator of that function."""
    made = partial(built, build, n_outputs=n_outputs) if isinstance(build, str) else build
    return Op(function, arguments, made, keep, kinds=_KINDS)


class Call:
    """One call of a gradient's function, by whose name errors and reports begin."""

    def __init__(self, function: str) -> None:
        self.function = function
        self._first: Given | None = None

    def error(self, name: str, rule: str) -> InputError:
        """The error that names the argument, the rule and the right values."""
        return InputError(f"{self.function}: {name} {rule}")

    def read(
        self, name: str, value: TensorLike | MemoryDesc, ranks: Sequence[int], *, needs_values: bool = True
    ) -> Given:
        """An operand of one of these ranks, and the first's data type; a descriptor where values are not needed."""
        operand = self._given(name, value, ranks, needs_values=needs_values)
        first = self._first = self._first or operand
        dtype, wanted = operand.desc.dtype, first.desc.dtype
        if dtype != wanted:
            raise self.error(name, f"is {dtype} and {first.name} is {wanted}; give both in one type")
        return operand

    def read_vector(self, name: str, value: TensorLike) -> Given:
        """A vector of f32."""
        operand = self._given(name, value, (1,))
        if operand.desc.dtype != "f32":
            raise self.error(name, f"is {operand.desc.dtype}; vectors of channels are f32")
        return operand

    def check_dims(self, operand: Given, dims: Sequence[int], why: str = "the forward's result") -> None:
        """Refuse other extents."""
        if operand.dims != tuple(dims):
            raise self.error(operand.name, f"has shape {operand.dims}; {why} makes it {tuple(dims)}")

    def of_elements(self, grad: TensorLike, x: TensorLike, build: str | Callable[..., Any], **attrs: Any) -> Tensor:
        """The gradient of a function of each element; see :meth:`run`."""
        given, source = (self.read(name, each, range(1, 13)) for name, each in (("grad", grad), ("x", x)))
        self.check_dims(given, source.dims, "x")
        return self.run(build, (given, source), source.form, **attrs)[0]

    def run(
        self, build: str | Callable[..., Any], operands: Sequence[Given], forward: str, *results: str, **attrs: Any
    ) -> list[Tensor]:
        """The results of an operator of training, by its name in the domain, or of a function of a Builder's values.

        The first operand is read in the format of the forward's result, ``forward``, which is the result's too where
        there are no formats of ``results``. ``attrs`` are the operator's; those of a kind are read.
        """
        for each in operands:
            if each.tensor is None:
                raise self.error(each.name, "is a descriptor, and its values are needed; give the tensor")
        for name, value in attrs.items():
            if name in _KINDS:
                usual, read = READERS[_KINDS[name]]
                attrs[name] = value if type(value) is usual else read(value, f"{self.function}: {name}")
        wished = results or (forward,)
        op = operator(self.function, build, tuple(each.name for each in operands), len(wished))
        formats = Formats(_known(forward), tuple(map(_known, wished)))
        try:
            made = call(op, tuple(each.tensor for each in operands), tuple(attrs.items()), formats)
        except ModelError as error:
            raise InputError(str(error)) from None
        if formats.results == wished:
            return made
        return [self.returned(each, placed(each.desc, wish)) for each, wish in zip(made, wished, strict=True)]

    def returned(self, result: Tensor, desc: MemoryDesc) -> Tensor:
        """A new result under the descriptor that it is to have, by its name."""
        made = brought(result, desc, self.function)
        made.desc = desc
        return made

    def _given(self, name: str, value: Any, ranks: Sequence[int], *, needs_values: bool = True) -> Given:
        if isinstance(value, Tensor):
            desc, tensor = value.desc, value
        elif isinstance(value, MemoryDesc) and not needs_values:
            desc, tensor = value, None
        else:
            tensor = as_tensor(value, f"{self.function}: {name}")
            desc = as_memory(value)[0]
            if desc == tensor.desc:
                tensor.desc = desc  # an array's layout is called by letters
        if desc.ndims not in ranks:
            *others, last = map(str, ranks)
            right = f"{', '.join(others)} or {last}" if others else last
            raise self.error(name, f"has shape {desc.dims}; give one of rank {right}")
        if desc.dtype not in ("f32", "bf16"):
            raise self.error(name, f"is {desc.dtype}; gradients are computed in f32: convert it first")
        if missing := dnnl.missing_isa(desc.dtype):
            raise UnsupportedError(f"{self.function}: {name} is {desc.dtype}, which {missing}: convert it to f32")
        return Given(name, desc, tensor)


@cache
def _known(form: str) -> str:
    """A format; row-major in place of one that the library has not."""
    tag = None if form == contiguous_format else FormatTag.parse(form)
    is_known = tag is None or dnnl.is_expressible(MemoryDesc((1,) * tag.ndims, "f32", tag))
    return form if is_known else contiguous_format


def fresh(desc: MemoryDesc) -> MemoryDesc:
    """The descriptor of a new tensor in this one's format: itself where it is dense."""
    is_whole = desc.is_dense and not desc.offset0 and desc.canonical_tag is not None
    return desc if is_whole else MemoryDesc(desc.dims, desc.dtype, desc.format_tag)


def square_backward(grad: TensorLike, x: TensorLike) -> Tensor:
    """The gradient of the square; ``x`` is the source, and all else as of :func:`relu_backward`.

    Example:
        >>> import blocklayout as bl
        >>> bl.square_backward(bl.full(2, 5), bl.ones(2)).numpy()
        array([10., 10.], dtype=float32)
    """
    return Call("square_backward").of_elements(grad, x, "SlopeGradient", algorithm="square")
