"""The rules by which layouts propagate: each a call, and the format of its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from blocklayout import Tensor, dnnl, eager, reorder

PLAIN, LAST, BLOCKED = "plain", "channels last", "blocked"
EVERY = (PLAIN, LAST, BLOCKED)
KEPT = "kept"
N, C = 2, 32


@dataclass(frozen=True)
class Rule:
    """What becomes of formats.

    Attributes:
        what: The call as the table shows it.
        call: It.
        given: The format of each tensor it is called with, of ``shapes``; ``EVERY`` stands for each of them in turn.
        result: The format of the result; ``KEPT`` is the first tensor's.
        told: Whether the caller is warned of a layout that is lost.
        shapes: Of the tensors; of ``IMAGE`` unless told.
    """

    what: str
    call: Callable[..., Any]
    given: tuple[str | tuple[str, ...], ...]
    result: str
    told: bool = False
    shapes: tuple[tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        return f"{self.what} [{', '.join(map(_shown, self.given))}]"


def _shown(given: str | tuple[str, ...]) -> str:
    return given if isinstance(given, str) else "any"


def tag_of(name: str, *, weights: bool = False) -> str:
    """The format that a name of the table stands for on this CPU."""
    block = 16 if dnnl.isa().startswith("avx512") else 8
    if weights:
        return {PLAIN: "oihw", LAST: "ohwi", BLOCKED: f"OIhw{block}i{block}o"}[name]
    return {PLAIN: "nchw", LAST: "nhwc", BLOCKED: f"nChw{block}c"}[name]


def tensor(shape: tuple[int, ...], name: str, *, weights: bool = False, seed: int = 0) -> Tensor:
    """Positive numbers in a format of the table; row-major where the rank is not that of an image."""
    array = np.random.default_rng(seed).integers(1, 64, shape).astype(np.float32) / 64
    return reorder(array, tag_of(name, weights=weights) if len(shape) == 4 else "abcdefgh"[: len(shape)])


IMAGE = (N, C, 6, 5)
VECTORS = ((C,),) * 4
WEIGHTS = (24, C, 3, 3)


def _vectors(given: str | tuple[str, ...]) -> tuple[str | tuple[str, ...], ...]:
    return (given, PLAIN, PLAIN, PLAIN, PLAIN)


def _unpooled(x: Tensor) -> Tensor:
    y, indices = eager.max_pool_with_indices(x, 2)
    return eager.max_unpool(y, indices, 2, output_shape=x.shape)


RULES = (
    Rule("relu(x), and every other function of one tensor", eager.relu, (EVERY,), KEPT),
    Rule("x + 2.0", lambda x: eager.add(x, 2.0), (EVERY,), KEPT),
    Rule("2.0 - x", lambda x: eager.sub(2.0, x), (EVERY,), KEPT),
    Rule("x * column", eager.mul, (EVERY, PLAIN), KEPT, shapes=(IMAGE, (C, 1, 1))),
    Rule("column * x", lambda x, v: eager.mul(v, x), (EVERY, PLAIN), KEPT, shapes=(IMAGE, (C, 1, 1))),
    Rule("x + y", eager.add, (PLAIN, PLAIN), PLAIN),
    Rule("x + y", eager.add, (LAST, LAST), LAST),
    Rule("x + y", eager.add, (BLOCKED, BLOCKED), BLOCKED),
    Rule("x + y", eager.add, (LAST, PLAIN), LAST, told=True),
    Rule("x + y", eager.add, (PLAIN, LAST), PLAIN, told=True),
    Rule("x + y", eager.add, (BLOCKED, LAST), BLOCKED, told=True),
    Rule("x + y", eager.add, (PLAIN, BLOCKED), PLAIN, told=True),
    Rule("conv(x, weights)", eager.conv, (PLAIN, PLAIN), PLAIN, shapes=(IMAGE, WEIGHTS)),
    Rule("conv(x, weights)", eager.conv, (LAST, EVERY), LAST, shapes=(IMAGE, WEIGHTS)),
    Rule("conv(x, weights)", eager.conv, (BLOCKED, EVERY), BLOCKED, shapes=(IMAGE, WEIGHTS)),
    Rule("conv(x, weights)", eager.conv, (PLAIN, LAST), LAST, shapes=(IMAGE, WEIGHTS)),
    Rule("conv(x, weights)", eager.conv, (PLAIN, BLOCKED), BLOCKED, shapes=(IMAGE, WEIGHTS)),
    Rule(
        "conv(x, weights, memory_format=channels_last)",
        lambda x, w: eager.conv(x, w, memory_format="channels_last"),
        (EVERY, PLAIN),
        LAST,
        shapes=(IMAGE, WEIGHTS),
    ),
    Rule("conv_transpose(x, weights)", eager.conv_transpose, (EVERY, PLAIN), KEPT, shapes=(IMAGE, (C, 24, 3, 3))),
    Rule("max_pool(x, 2), average_pool(x, 2)", lambda x: eager.max_pool(x, 2), (EVERY,), KEPT),
    Rule("max_pool_with_indices(x, 2), both", lambda x: eager.max_pool_with_indices(x, 2)[1], (EVERY,), KEPT),
    Rule("max_unpool(y, indices, 2, output_shape=x.shape)", _unpooled, (EVERY,), KEPT),
    Rule("global_average_pool(x)", eager.global_average_pool, (EVERY,), KEPT),
    Rule("batch_norm(x, ...)", eager.batch_norm, _vectors(EVERY), KEPT, shapes=(IMAGE, *VECTORS)),
    Rule("lrn(x, 5)", lambda x: eager.lrn(x, 5), (EVERY,), KEPT),
    Rule("resize(x, scales=...)", lambda x: eager.resize(x, scales=(1, 1, 2, 2)), (EVERY,), KEPT),
    Rule("softmax(x, 1)", lambda x: eager.softmax(x, 1), (EVERY,), KEPT),
    Rule("pad(x, ...)", lambda x: eager.pad(x, (0, 0, 1, 1, 0, 0, 1, 1)), (EVERY,), KEPT),
    Rule("dropout(x)", eager.dropout, (EVERY,), KEPT),
    Rule("channel_shuffle(x, 4)", lambda x: eager.channel_shuffle(x, 4), (EVERY,), KEPT),
    Rule("concat([x, y])", lambda x, y: eager.concat([x, y]), (LAST, LAST), LAST),
    Rule("concat([x, y])", lambda x, y: eager.concat([x, y]), (BLOCKED, LAST), BLOCKED, told=True),
    Rule("split(x, (16, 16))", lambda x: eager.split(x, (16, 16))[1], (EVERY,), KEPT),
    Rule("reduce_mean(x, (2, 3))", lambda x: eager.reduce_mean(x, (2, 3)), (EVERY,), KEPT),
    Rule(
        "reduce_mean(x, (2, 3), keepdims=False)",
        lambda x: eager.reduce_mean(x, (2, 3), keepdims=False),
        (EVERY,),
        PLAIN,
    ),
    Rule("flatten(x), reshape(x, shape)", eager.flatten, (PLAIN,), PLAIN),
    Rule("flatten(x), reshape(x, shape)", eager.flatten, (LAST,), PLAIN, told=True),
    Rule("flatten(x), reshape(x, shape)", eager.flatten, (BLOCKED,), PLAIN, told=True),
    Rule("matmul(x, y), gemm(x, y)", eager.matmul, (PLAIN, PLAIN), PLAIN, shapes=((3, 4), (4, 5))),
    Rule("layer_norm(x, scale), over rows", eager.layer_norm, (PLAIN, PLAIN), PLAIN, shapes=(IMAGE, (5,))),
    Rule("layer_norm(x, scale), over rows", eager.layer_norm, (LAST, PLAIN), LAST, told=True, shapes=(IMAGE, (5,))),
    Rule(
        "layer_norm(x, scale), over rows", eager.layer_norm, (BLOCKED, PLAIN), BLOCKED, told=True, shapes=(IMAGE, (5,))
    ),
    Rule(
        "layer_norm(x, scale, axis=1), over images",
        lambda x, scale: eager.layer_norm(x, scale, axis=1),
        (LAST, PLAIN),
        LAST,
        shapes=(IMAGE, IMAGE[1:]),
    ),
    Rule(
        'op("Hardmax", x), and what else no primitive computes',
        lambda x: eager.op("Hardmax", x),
        (LAST,),
        LAST,
        told=True,
    ),
    Rule(
        'op("Hardmax", x), and what else no primitive computes',
        lambda x: eager.op("Hardmax", x),
        (BLOCKED,),
        BLOCKED,
        told=True,
    ),
)


def rows() -> list[str]:
    """The table, in Markdown."""
    head = ["| call | x | y, or weights | result | warned |", "|---|---|---|---|---|"]
    return [*head, *(_row(rule) for rule in RULES)]


def _row(rule: Rule) -> str:
    other = rule.given[1:2] if "weights" in rule.what or "y" in rule.what.split("(")[-1] or rule.what == "x + y" else ()
    formats = [_shown(each) for each in rule.given[:1]] + [_shown(each) for each in other] + [""] * (1 - len(other))
    shown = "x's" if rule.result == KEPT else rule.result
    return f"| `{rule.what}` | {' | '.join(formats)} | {shown} | {'yes' if rule.told else ''} |"
