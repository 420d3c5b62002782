"""A program's structure in a few characters: what a saved plan was made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.kernels import Kernel, Program, Value

_DIGEST_NBYTES = 16


def program_digest(program: Program) -> str:
    """Digest of everything about a program that its plan depends on, in hexadecimal.

    That is its kernels with their operators and arguments, and the names, extents and data types of values and
    constants. The contents of constants do not matter, as a plan packs whatever it is given; what an operator
    read of them is among its attributes.

    Args:
        program: Lowered, every extent known.
    """
    digest = blake2b(digest_size=_DIGEST_NBYTES)
    for part in _parts(program):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _parts(program: Program) -> Iterator[str]:
    yield _values("inputs", ((value.name, value) for value in program.inputs))
    for kernel in program.kernels:
        yield from _kernel_parts(kernel)
    yield _values("outputs", ((value.name, value) for value in program.outputs))
    yield repr([value.is_constant for value in program.outputs])


def _kernel_parts(kernel: Kernel) -> Iterator[str]:
    yield repr((kernel.name, kernel.nodes))
    yield repr(kernel.operator)
    yield _values("sources", kernel.sources)
    yield _values("results", [("dst", kernel.dst), *kernel.others])
    constants = ((arg, constant.name, constant.array) for arg, constant in kernel.constants)
    yield repr([(arg, name, array.shape, array.dtype.name) for arg, name, array in constants])


def _values(role: str, named: Iterable[tuple[str, Value]]) -> str:
    return repr((role, [(arg, value.name, value.shape, value.dtype) for arg, value in named]))
