"""Gradients on Tensors: operands read and checked, the best way chosen, and every byte that is moved reported."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from blocklayout.eager.operands import number, refused
from blocklayout.errors import BlockLayoutError, InputError, UnimplementedError, UnsupportedError
from blocklayout.ir import Window
from blocklayout.layout import MemoryDesc
from blocklayout.layout.padding import clear_padding
from blocklayout.layout_events import is_watched, report, report_step
from blocklayout.ops.gradients import spoils_padding
from blocklayout.recording import recorded
from blocklayout.tensor import Tensor, as_memory
from blocklayout.tensor.reordering import moved
from blocklayout.value_checks import check_mode, prove

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from blocklayout.operators import Extents

TensorLike: TypeAlias = "ArrayLike | Tensor"

Way = tuple[dnnl.Spec, ...]
"""Primitives that run one after the other."""

DTYPES = ("f32", "bf16")


class Given(Struct, frozen=True):
    """A tensor that a function was given as the argument ``name``; its buffer is ``None`` for a mere descriptor."""

    name: str
    desc: MemoryDesc
    buffer: np.ndarray | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        """Logical extents."""
        return self.desc.dims


class Call:
    """One call of a gradient's function: its operands, and the function's name for errors and reports."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.operands: dict[str, Given] = {}
        self._placed: dict[tuple[str, MemoryDesc], np.ndarray] = {}

    def error(self, name: str, rule: str) -> InputError:
        """The error that names the argument, the rule and the right values."""
        return InputError(f"{self.function}: {name} {rule}")

    def read(
        self, name: str, value: TensorLike | MemoryDesc, ranks: Sequence[int], *, needs_values: bool = True
    ) -> Given:
        """A tensor to compute with, of these ranks; a descriptor will do where its values are not needed."""
        buffer: np.ndarray | None = None
        if isinstance(value, MemoryDesc) and not needs_values:
            desc = value
        else:
            try:
                desc, buffer = as_memory(value)  # type: ignore[arg-type]  # refuses a descriptor
            except BlockLayoutError as error:
                raise self.error(name, f"is no tensor: {error}") from None
        self._check(name, desc, ranks)
        mode = check_mode.get()
        if mode is not None and buffer is not None:
            prove(f"{self.function}: operand", name, desc, buffer, mode)
        self.operands[name] = Given(name, desc, buffer)
        return self.operands[name]

    def read_vector(self, name: str, value: TensorLike, length: int) -> Given:
        """A vector of f32, one number for each channel."""
        operand = self.read(name, value, (1,))
        if operand.desc.dtype != "f32":
            raise self.error(name, f"is {operand.desc.dtype}; vectors of channels are f32")
        self.check_dims(operand, (length,), "one number for each channel of x")
        return operand

    def number(self, name: str, value: Any) -> float:
        """A parameter that is a number; infinities are, NaN is not."""
        found = number(value, f"{self.function}: {name}")
        if math.isnan(found):
            raise refused(value, f"{self.function}: {name}", "a number")
        return found

    def window(
        self, spatial: Sequence[int], kernel: Extents, strides: Extents, pads: Extents, dilations: Extents = 1
    ) -> Window:
        """The window of a convolution or a pooling that fits into a padded image of these extents."""
        n = len(spatial)
        extents, steps = self.integers("kernel", kernel, n), self.integers("strides", strides, n)
        if isinstance(pads, Sequence) and len(pads) == n:
            around = self.integers("pads", pads, n, 0) * 2
        else:
            right = f"one number, {n}, or {2 * n}: all in front, then all behind"
            around = self.integers("pads", pads, 2 * n, 0, right)
        window = Window(extents, steps, around[:n], around[n:], self.integers("dilations", dilations, n))
        if min(window.extents(spatial)) < 1:
            rule = f"of {window.kernel} with dilations {dilations} spans more than the padded image of {tuple(spatial)}"
            raise self.error("kernel", f"{rule}; give a smaller one, or pads")
        return window

    def check_dims(self, operand: Given, dims: Sequence[int], why: str = "the forward's result") -> None:
        """Refuse other extents."""
        if operand.dims != tuple(dims):
            raise self.error(operand.name, f"has shape {operand.dims}; {why} makes it {tuple(dims)}")

    def check_same_dtype(self, *operands: Given) -> None:
        """Refuse operands of several data types."""
        first = operands[-1]
        for operand in operands:
            if operand.desc.dtype != first.desc.dtype:
                rule = f"is {operand.desc.dtype} and {first.name} is {first.desc.dtype}; give both in one type"
                raise self.error(operand.name, rule)

    def best(self, ways: Callable[..., Iterable[Way]], *problem: Any, kept: str, wanted: MemoryDesc) -> Way:
        """The first way without a reference implementation, resolved; else the first. It is remembered.

        ``ways`` takes the problem, which can be hashed, and a number of threads. The caller is warned where the last
        primitive's argument ``kept`` does not have the forward's format, ``wanted``.
        """
        tags = tuple(desc.tag for desc in self._descs())
        way = _first_optimised(tags, ways, *problem, dnnl.default_threads())
        used = way[-1].memory_desc(kept)
        if used != wanted:
            wish, instead = wanted.named("src"), used.named("src")
            reason = f"nothing optimised for {wish} on {dnnl.isa()}: computed as {instead}, and brought back"
            report("loss", self.function, self._descs(), wanted, reason=reason, always_warns=True)
        return way

    def alike(self, grad: TensorLike, x: TensorLike) -> tuple[Tensor, Tensor]:
        """The gradient of a function of each element, and its source, both in the source's format."""
        given, source = (self.read(name, each, range(1, 13)) for name, each in (("grad", grad), ("x", x)))
        self.check_same_dtype(given, source)
        self.check_dims(given, source.dims, "x")
        desc = fresh(source.desc)
        return Tensor(desc, self.placed(given, desc)), Tensor(desc, self.placed(source, desc))

    def of_slope(self, grad: TensorLike, x: TensorLike, slope: tuple[str, float, float]) -> Tensor:
        """The gradient of a function of each element (algorithm, alpha, beta), on the bare bytes of any layout."""
        given, source = self.alike(grad, x)
        desc = source.desc
        flat = MemoryDesc((desc.nbytes // desc.itemsize,), desc.dtype)
        (spec,) = self.best(_slopes, flat, *slope, kept="diff_src", wanted=flat)
        result = self.execute(spec, {"src": source.buffer, "diff_dst": given.buffer})["diff_src"].buffer
        if spoils_padding(slope[0]):
            clear_padding(result.view(to_numpy(desc.dtype)), desc)
        return self.proven("diff_src", Tensor(desc, result))

    def run(self, spec: dnnl.Spec, operands: Mapping[str, Given]) -> dict[str, Tensor]:
        """The results of a primitive on operands by argument, each brought to the layout that the Spec says."""
        inputs = {name: self.placed(each, spec.memory_desc(name)) for name, each in operands.items()}
        return {name: self.proven(name, result) for name, result in self.execute(spec, inputs).items()}

    def execute(self, spec: dnnl.Spec, inputs: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        """The results of a resolved primitive on bytes by argument, in its layout: each a fresh Tensor."""
        start = perf_counter_ns()
        made = _primitive(spec).run(inputs)
        ns = perf_counter_ns() - start
        results = {name: Tensor.over(spec.memory_desc(name), buffer) for name, buffer in made.items()}
        if is_watched("step"):
            read, written = [spec.memory_desc(name) for name in inputs], next(iter(results.values())).desc
            report_step(self.function, read, written, ns, f"{spec.kind} {spec.prop_kind}", spec.impl)
        return results

    def proven(self, name: str, result: Tensor) -> Tensor:
        """A result, proven where its caller checks; the workspace is bytes that only the library understands."""
        mode = check_mode.get()
        if mode is not None and name != "workspace":
            prove(f"{self.function}: the result", name, result.desc, result.buffer, mode)
        return result

    def placed(self, operand: Given, desc: MemoryDesc) -> np.ndarray:
        """The operand's bytes in a layout, by one reorder at most, however often they are asked for."""
        if operand.buffer is None:
            raise self.error(operand.name, "is a descriptor, and its values are needed; give the tensor")
        if operand.desc.readable_as(desc):
            return operand.buffer
        if (operand.name, desc) not in self._placed:
            role = "weights" if operand.name == "weights" else "src"
            reason = f"{operand.name} is {operand.desc.named(role)}, and computed with as {desc.named(role)}"
            self._placed[operand.name, desc] = self._moved(operand.buffer, operand.desc, desc, reason).buffer
        return self._placed[operand.name, desc]

    def returned(self, result: Tensor, desc: MemoryDesc, gradient_of: str = "x") -> Tensor:
        """A result in the format it is to have: the forward's, or the gradient of an argument."""
        if result.desc.readable_as(desc):
            return Tensor(desc, result.buffer[: desc.nbytes])
        role = "weights" if gradient_of == "weights" else "src"
        name = f"the gradient of {gradient_of}" if gradient_of else "the result"
        reason = f"{name} came as {result.desc.named(role)}, and is to be {desc.named(role)}"
        return self._moved(result.buffer, result.desc, desc, reason)

    def _check(self, name: str, desc: MemoryDesc, ranks: Sequence[int]) -> None:
        if desc.ndims not in ranks:
            *others, last = map(str, ranks)
            right = f"{', '.join(others)} or {last}" if others else last
            raise self.error(name, f"has shape {desc.dims}; give one of rank {right}")
        if desc.dtype not in DTYPES:
            raise self.error(name, f"is {desc.dtype}; gradients are computed in f32: convert it first")
        if missing := dnnl.missing_isa(desc.dtype):
            raise UnsupportedError(f"{self.function}: {name} is {desc.dtype}, which {missing}: convert it to f32")

    def integers(self, name: str, value: Extents, n: int, least: int = 1, right: str = "") -> tuple[int, ...]:
        """One integer for all, or a row of ``n``, each at least ``least``; ``right`` says so in the error."""
        right = right or f"one integer, or {n} of them"
        try:
            each = tuple(map(operator.index, value)) if isinstance(value, Sequence) else (operator.index(value),) * n
        except TypeError:
            raise self.error(name, f"is {value!r}; give {right}") from None
        if len(each) != n:
            raise self.error(name, f"has {len(each)} entries; give {right}")
        if min(each) < least:
            raise self.error(name, f"is {value!r}; each must be at least {least}")
        return each

    def _moved(self, buffer: np.ndarray, src: MemoryDesc, dst: MemoryDesc, reason: str) -> Tensor:
        return moved(src, buffer, dst, operator=self.function, inputs=self._descs(), reason=reason)

    def _descs(self) -> tuple[MemoryDesc, ...]:
        return tuple(operand.desc for operand in self.operands.values())


def _slopes(flat: MemoryDesc, algorithm: str, alpha: float, beta: float, n_threads: int) -> tuple[Way]:
    return ((dnnl.eltwise_backward(flat, flat, flat, algorithm, alpha, beta, n_threads=n_threads),),)


@lru_cache(maxsize=2048)
def _first_optimised(tags: tuple[str, ...], ways: Callable[..., Iterable[Way]], *problem: Any) -> Way:
    """``tags`` are the operands': equal descriptors may be called otherwise, and events have the caller's."""
    del tags
    references: list[Way] = []
    refusal = ""
    for specs in ways(*problem):
        try:
            resolved = tuple(dnnl.resolve(spec).spec for spec in specs)
        except (UnimplementedError, UnsupportedError) as error:  # the latter where it has no such layout
            refusal = str(error)
            continue
        # One may write as its workspace something else than the next reads.
        if len({spec.desc("workspace") for spec in resolved if spec.has("workspace")}) > 1:
            continue
        if not any(dnnl.is_reference(spec.impl) for spec in resolved):
            return resolved
        references.append(resolved)
    if not references:
        raise UnsupportedError(refusal)
    return references[0]


_primitive = lru_cache(maxsize=512)(dnnl.Primitive)


def fresh(desc: MemoryDesc) -> MemoryDesc:
    """The descriptor of a new tensor in this one's format: itself where it is dense.

    Example:
        >>> fresh(MemoryDesc((2, 16, 4, 4), "f32", "nChw8c").submemory((2, 8, 4, 4), (0, 8, 0, 0)))
        MemoryDesc((2, 8, 4, 4), 'f32', 'nChw8c')
    """
    is_whole = desc.is_dense and not desc.offset0 and desc.canonical_tag is not None
    return desc if is_whole else MemoryDesc(desc.dims, desc.dtype, desc.format_tag)


def in_format(desc: MemoryDesc, dims: Sequence[int]) -> MemoryDesc:
    """Other extents in the format of a dense descriptor: with its blocks also where an extent is 1.

    Example:
        >>> in_format(MemoryDesc((1, 16, 8, 8), "f32", "nChw8c"), (1, 1, 8, 8)).padded_dims
        (1, 8, 8, 8)
    """
    tag = desc.canonical_tag
    return desc.resized(dims) if tag is None else MemoryDesc(dims, desc.dtype, tag).in_role("src")


def formats(desc: MemoryDesc) -> tuple[MemoryDesc, ...]:
    """Formats to compute in, the best first: a tensor's own, channels last, plain.

    Example:
        >>> [each.tag for each in formats(MemoryDesc((1, 17, 8, 8), "f32", "nChw16c"))]
        ['nChw16c', 'nhwc', 'nchw']
    """
    names = ("channels_last", "contiguous_format") if 3 <= desc.ndims <= 5 else ("contiguous_format",)
    others = (MemoryDesc(desc.dims, desc.dtype, name) for name in names)
    return (desc, *(each for each in others if each != desc))


@recorded()
def square_backward(grad: TensorLike, x: TensorLike) -> Tensor:
    """The gradient of the square.

    Args:
        grad: Gradient of the result, in any layout.
        x: The source, of the same shape; the result has its format.

    Raises:
        InputError: An argument is wrong; the message names it, the rule and the right values.
        UnsupportedError: bf16, on a CPU that does not compute in it.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> bl.square_backward(np.float32([1, 1]), np.float32([2, 3])).numpy()
        array([4., 6.], dtype=float32)
    """
    return Call("square_backward").of_slope(grad, x, ("square", 0.0, 0.0))
