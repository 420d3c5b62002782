"""Bugs of the library: implementations that are passed over, and memory that is never freed.

Implementations are passed over that the library offered and then refused, and those that their kind knows to be faulty.
"""

from __future__ import annotations

from collections.abc import Mapping

from blocklayout.dnnl import own
from blocklayout.dnnl.attr import Eltwise
from blocklayout.dnnl.primitives import kind_of
from blocklayout.dnnl.spec import Spec

_refused: dict[Spec, str] = {}


def refusals() -> Mapping[Spec, str]:
    """The resolved Specs that the library offered and then refused in this process, each with the refused verb.

    Example:
        >>> from blocklayout import dnnl
        >>> {*dnnl.refusals().values()} <= {"create", "run"}
        True
    """
    return _refused


def remember(spec: Spec, refused: str) -> None:
    """Have a resolved Spec passed over from now on: the library refused to ``create`` or ``run`` it."""
    _refused[spec] = refused


def fault_of(spec: Spec) -> str | None:
    """Why a resolved Spec's implementation is passed over; ``None`` where it is not."""
    if _refused and spec in _refused:  # hashing a Spec takes longer than most rules
        return f"oneDNN offers {spec.impl}, and refused to {_refused[spec]} it"
    fault = None if own.implementation(spec.impl) else kind_of(spec.kind).fault
    return fault(spec) if fault else None


def leaves_code_behind(spec: Spec) -> bool:
    """Whether each primitive made of a resolved Spec takes memory that is never freed.

    Convolutions by brgemm store their kernels in a set of the process, by their code. The code of an elementwise
    post-op holds the address of its table, so that no two are the same: some 40 to 70 KB each time.

    Source: ``src/cpu/x64/brgemm/brgemm_containers.hpp`` (``BRGEMM_KERNEL_GLOBAL_STORAGE``), oneDNN v3.2; sizes
    measured with AVX2.

    Example:
        >>> from blocklayout import dnnl
        >>> leaves_code_behind(dnnl.eltwise(dnnl.MemoryDesc((2, 17)), algorithm="relu", n_threads=1))
        False
    """
    is_brgemm = any(name.startswith("brg") for name in spec.impl.split("+"))
    is_windowed = spec.kind in ("convolution", "deconvolution")
    return is_brgemm and is_windowed and any(isinstance(post_op, Eltwise) for post_op in spec.attr.post_ops)
