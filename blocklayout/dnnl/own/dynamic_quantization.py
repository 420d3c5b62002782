"""Numbers as bytes by a scale that is found among them, in C of our own beside the executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.own import Implementation, is_whole_bytes
from blocklayout.dnnl.spec import Spec

_PER_NS = 4.0
"""Elements that a thread looks at, and then divides, in a nanosecond."""


def _offer(spec: Spec) -> Mapping[str, Desc] | None:
    """Takes any dense order without padding, which the result has as well."""
    src, dst = spec.desc("src"), spec.desc("dst")
    return dict(spec.descs) if is_whole_bytes(dst) and src == dst.with_dtype("f32") else None


def _fields(spec: Spec) -> Mapping[str, Any]:
    return {"n_threads": spec.n_threads, "n": spec.memory_desc("src").n_elements}


OURS = Implementation(
    kinds=("dynamic_quantization",),
    offer=_offer,
    fields=_fields,
    arguments=lambda _: ("src", "dst", "scale", "zero_point", "scratchpad"),
    compute_ns=lambda spec, _, n_threads: spec.memory_desc("src").n_elements / _PER_NS / n_threads,
    isas=lambda _: ("avx2",),
)
