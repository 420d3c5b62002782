"""Specs handed to oneDNN: problems of its own tests, in any layouts and types, and with values changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.layout import MemoryDesc
from fuzz.choices import Choices
from fuzz.doors import _networks
from fuzz.guarded import guarded_empty

SUMMARY = "Specs handed to oneDNN"
SHARE = 4
NBYTES, SECONDS = 256 << 20, 5.0
MAX_MULTIPLY_ADDS = 1 << 22
"""Of a primitive that is run."""
MAX_RUN_NBYTES = 4 << 20
MAX_THREADS = 4
MAX_IMPLEMENTATIONS = 6

PROBLEMS = Path(__file__).parents[1] / "corpus" / "problems.txt"
BLOCKS = ("", "", "any", "nhwc", "8c", "16c")
DTYPES = ("f32", "f32", "f32", "bf16", "f16", "s8", "u8", "s32")
ELTWISE = (
    "relu",
    "tanh",
    "elu",
    "square",
    "abs",
    "sqrt",
    "linear",
    "clip",
    "gelu_erf",
    "logistic",
    "exp",
    "log",
    "pow",
)
BINARY = ("add", "mul", "max", "min", "div", "sub", "ge", "eq")
REDUCTIONS = ("max", "min", "sum", "mul", "mean", "norm_lp_max", "norm_lp_sum")

_PART = re.compile(r"([a-z]+)(\d+)")


def opened(folder: Path) -> Callable[[bytes], None]:
    """See :mod:`fuzz.doors`."""
    lines = [line.split(maxsplit=1) for line in PROBLEMS.read_text().splitlines() if not line.startswith("#")]
    more = [[kind, ""] for kind in ("concat", "sum", "reorder")]
    by_kind: dict[str, list[str]] = {}
    for kind, problem in (*lines, *more):
        by_kind.setdefault(kind, []).append(problem)
    models = (_networks.convolutions(), _networks.recurrent())
    steps = [step for each in models for step in bl.load(each, tune="model", threads=1).plan.steps]
    planned = [step.spec for step in steps if isinstance(step.spec, dnnl.Spec)]

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        kind = choices.pick([*by_kind])
        with bl.limits(nbytes=NBYTES, seconds=SECONDS):
            is_planned = choices.chance(4)
            spec = choices.pick(planned) if is_planned else _spec(kind, choices.pick(by_kind[kind]), choices)
            if choices.chance(2):
                spec = dnnl.Spec.from_dict(choices.spoilt_json(json.loads(json.dumps(spec.to_dict()))))
                dnnl.validate(spec)
            (folder / "given.json").write_text(json.dumps(spec.to_dict()))
            str(spec)
            label = folder / "given.label"
            label.write_text(spec.kind)
            _use(spec, choices, label)

    return attempt


def _spec(kind: str, problem: str, choices: Choices) -> dnnl.Spec:
    """A problem in layouts and types, with a post-op or without."""
    make = _MAKERS.get(kind, _of_extents)
    dtype = choices.pick(DTYPES)
    arguments, options = make(kind, problem, choices, dtype)
    descs = [_desc(dims, each, choices) for dims, each in arguments]
    if kind in ("convolution", "inner_product", "matmul", "eltwise", "pooling") and choices.chance(4):
        options["attr"] = _attr(choices)
    if kind in ("concat", "sum"):
        return getattr(dnnl, kind)(descs, n_threads=1 + choices.below(2), **options)
    return getattr(dnnl, kind)(*descs, n_threads=1 + choices.below(2), **options)


Made = tuple[list[tuple[tuple[int, ...], str]], dict[str, Any]]


def _window(kind: str, problem: str, choices: Choices, dtype: str) -> Made:
    """A convolution, deconvolution or pooling, in benchdnn's letters."""
    given = {name: int(number) for name, number in _PART.findall(problem)}
    spatial = [axis for axis in "dhw" if f"i{axis}" in given] or ["h"]
    if spatial == ["h"]:
        spatial = ["h", "w"]
    if spatial == ["d"]:
        spatial = ["d", "h", "w"]

    def along(letter: str, default: int) -> tuple[int, ...]:
        first = next((given[f"{letter}{axis}"] for axis in spatial if f"{letter}{axis}" in given), default)
        return tuple(given.get(f"{letter}{axis}", first) for axis in spatial)

    mb, ic, groups = given.get("mb", 1 + choices.below(2)), given.get("ic", 1), given.get("g", 1)
    oc = given.get("oc", ic)
    src = (mb, ic, *along("i", 1))
    kernel, options = along("k", 1), {"strides": along("s", 1), "pads": along("p", 0), "dilations": along("d", 0)}
    if kind == "pooling":
        names = ("pooling_max", "pooling_avg_include_padding", "pooling_avg_exclude_padding")
        return [(src, dtype)], {**options, "kernel": kernel, "algorithm": choices.pick(names)}
    weights = (oc // groups, ic // groups, *kernel)
    weights = (groups, *weights) if groups > 1 else weights
    narrow = "s8" if dtype in ("s8", "u8") else dtype
    return [(src, dtype), (weights, narrow)], options


def _channels(kind: str, problem: str, choices: Choices, dtype: str) -> Made:
    """A normalisation, resampling or inner product, in benchdnn's letters."""
    given = {name: int(number) for name, number in _PART.findall(problem)}
    mb, ic = given.get("mb", 2), given.get("ic", 1)
    src = (mb, ic, *(given[f"i{axis}"] for axis in "dhw" if f"i{axis}" in given))
    if kind == "inner_product":
        return [(src, dtype), ((given.get("oc", 1), *src[1:]), "s8" if dtype in ("s8", "u8") else dtype)], {}
    if kind == "resampling":
        dst = (mb, ic, *(given[f"o{axis}"] for axis in "dhw" if f"o{axis}" in given))
        return [(src, dtype), (dst, dtype)], {"algorithm": choices.pick(("resampling_nearest", "resampling_linear"))}
    if kind == "lrn":
        return [(src, dtype)], {"local_size": choices.pick((5, 1, 3, choices.integer()))}
    return [(src, dtype)], {"flags": choices.pick(((), ("use_scale", "use_shift"), ("fuse_norm_relu",)))}


def _of_extents(kind: str, problem: str, choices: Choices, dtype: str) -> Made:
    """Operands as benchdnn writes them: ``3x5:3x1``; for kinds that it has nothing simple of, small ones."""
    operands = [tuple(map(int, part.split("x"))) for part in problem.split(maxsplit=1)[0].split(":")] if problem else []
    operands = operands or [(2, 1 + choices.below(20), 3, 4)] * (3 if kind in ("concat", "sum") else 1)
    options: dict[str, Any] = {}
    if kind in ("eltwise", "binary", "reduction"):
        names = {"eltwise": ELTWISE, "binary": BINARY, "reduction": REDUCTIONS}[kind]
        options["algorithm"] = choices.pick(names)
    if kind in ("softmax", "shuffle", "concat"):
        options["axis"] = choices.below(len(operands[0]))
    if kind == "shuffle":
        options["group_size"] = choices.pick((2, 4, 3))
    if kind == "sum":
        options["scales"] = [1.0] * len(operands)
    if kind == "reorder":
        operands *= 2
    return [(dims, dtype) for dims in operands], options


_MAKERS: dict[str, Callable[[str, str, Choices, str], Made]] = {
    **dict.fromkeys(("convolution", "deconvolution", "pooling"), _window),
    **dict.fromkeys(("batch_normalization", "inner_product", "resampling", "lrn"), _channels),
}


def _desc(dims: tuple[int, ...], dtype: str, choices: Choices) -> Any:
    """A descriptor in a layout, perhaps blocked, and perhaps of other extents."""
    if choices.chance(6):
        at = choices.below(len(dims))
        dims = (*dims[:at], choices.integer(), *dims[at + 1 :])
    layout = choices.pick(BLOCKS)
    letters = "abcdefghijkl"[: len(dims)]
    if layout == "any":
        return dnnl.AnyDesc(dims, dtype)
    if layout == "nhwc" and len(dims) > 2:
        return MemoryDesc(dims, dtype, f"a{letters[2:]}b")
    if layout in ("8c", "16c") and len(dims) > 1:
        return MemoryDesc(dims, dtype, f"aB{letters[2:]}{layout[:-1]}b")
    if choices.chance(6):
        return MemoryDesc(dims, dtype, strides=tuple(choices.integer() for _ in dims))
    return MemoryDesc(dims, dtype, letters)


def _attr(choices: Choices) -> dnnl.Attr:
    post_op: tuple[dnnl.PostOp, ...] = (
        dnnl.Sum(),
        dnnl.Eltwise(choices.pick(ELTWISE), choices.number(), choices.number()),
        dnnl.Binary(choices.pick(BINARY), MemoryDesc(choices.extents(4) or (1,), "f32")),
    )
    return dnnl.Attr(post_ops=tuple(choices.pick(post_op) for _ in range(1 + choices.below(3))))


def _use(spec: dnnl.Spec, choices: Choices, label: Path) -> None:
    """Have the library offer implementations, and run small ones."""
    found = list(islice(_implementations(spec), MAX_IMPLEMENTATIONS))
    if not found:
        return
    resolved = choices.pick(found)
    descs = dict(resolved.spec.descs)
    nbytes = sum(desc.nbytes for desc in descs.values()) + resolved.scratchpad_nbytes
    if (
        nbytes > MAX_RUN_NBYTES
        or resolved.spec.n_threads > MAX_THREADS
        or dnnl.multiply_adds(resolved.spec) > MAX_MULTIPLY_ADDS
    ):
        return
    label.write_text(f"{resolved.spec.kind} {resolved.spec.impl}")
    primitive = dnnl.Primitive(resolved.spec)
    memories = {name: dnnl.Memory(desc, _filled(desc, choices)) for name, desc in descs.items()}
    if nbytes := primitive.scratchpad_nbytes:
        memories["scratchpad"] = dnnl.Memory(MemoryDesc((nbytes,), "u8"), guarded_empty(nbytes))
    step = primitive.bind(memories)
    dnnl.run_parallel(step.run, resolved.spec.n_threads)


def _implementations(spec: dnnl.Spec) -> Iterator[dnnl.Resolved]:
    yield from (dnnl.resolve(spec),) if spec.is_resolved else dnnl.implementations(spec)


def _filled(desc: MemoryDesc, choices: Choices) -> np.ndarray:
    """Numbers, or bytes as they come."""
    buffer = guarded_empty(desc.nbytes)
    if desc.dtype == "f32" and prod(desc.dims) and choices.below(4):
        buffer.view(np.float32)[:] = 0.5
    else:
        buffer[:] = choices.pick((0, 1, 255))
    return buffer
