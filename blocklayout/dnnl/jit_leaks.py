"""Memory that the library never frees: code that it generates for some primitives outlives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.attr import Eltwise

if TYPE_CHECKING:
    from blocklayout.dnnl.spec import Spec


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
