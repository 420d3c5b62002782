"""Recurrent layers: LSTM, GRU and the plain cell, over whole sequences."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from msgspec.structs import replace

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.enums import values
from blocklayout.dnnl.primitives import Direction, Extents, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import (
    MAX_COUNTED,
    check_descs,
    check_dims,
    check_dtype,
    check_float,
    check_ndims,
    check_weights_dtype,
    require,
)
from blocklayout.dnnl.spec import Spec

_PEAK_SHARE = 0.4
_HALF_SPEED_SEQUENCES = 1.5
"""Sequences at which it is half as fast as with many: each step multiplies a matrix of so many rows."""

ACTIVATIONS = ("eltwise_tanh", "eltwise_relu", "eltwise_logistic")
"""Of the plain cell."""

_, *_DIRECTIONS = values("rnn_direction")  # the first is none
_NEEDED = ("src", "weights", "weights_iter", "bias", "dst")
_OPTIONAL = ("src_iter", "src_iter_c", "augru_attention", "weights_peephole", "dst_iter", "dst_iter_c")
_WEIGHTS_AND_DST = "weights weights_iter bias dst dst_iter no_flags"


class _Cell(NamedTuple):
    """A kind of cell, with its name and arguments in C, gates and optional arguments.

    Attributes:
        n_biases: Of each output; one for each gate, and one more where the state is multiplied before it is reset.
    """

    family: str
    n_gates: int
    c_order: str
    optional: tuple[str, ...]
    n_biases: int


_STATE = ("src_iter", "dst_iter")
_PLAIN_ORDER = f"engine prop_kind activation direction src src_iter {_WEIGHTS_AND_DST} alpha beta attr"
_GRU_ORDER = f"engine prop_kind direction src src_iter {_WEIGHTS_AND_DST} attr"
_AUGRU_ORDER = f"engine prop_kind direction src src_iter augru_attention {_WEIGHTS_AND_DST} attr"
_LSTM_ORDER = (
    "engine prop_kind direction src src_iter src_iter_c weights weights_iter weights_peephole weights_projection "
    "bias dst dst_iter dst_iter_c no_flags attr"
)
_CELLS = {
    "vanilla_rnn": _Cell("vanilla_rnn", 1, _PLAIN_ORDER, _STATE, 1),
    "vanilla_lstm": _Cell("lstm", 4, _LSTM_ORDER, (*_STATE, "src_iter_c", "weights_peephole", "dst_iter_c"), 4),
    "vanilla_gru": _Cell("gru", 3, _GRU_ORDER, _STATE, 3),
    "lbr_gru": _Cell("lbr_gru", 3, _GRU_ORDER, _STATE, 4),
    "vanilla_augru": _Cell("augru", 3, _AUGRU_ORDER, (*_STATE, "augru_attention"), 3),
    "lbr_augru": _Cell("lbr_augru", 3, _AUGRU_ORDER, (*_STATE, "augru_attention"), 4),
}


def rnn(  # noqa: PLR0913 - the primitive's own parameters
    src: Desc,
    weights: Desc,
    weights_iter: Desc,
    bias: Desc,
    dst: Desc | None = None,
    *,
    algorithm: str,
    direction: str = "unidirectional_left2right",
    activation: str = "eltwise_tanh",
    alpha: float = 0.0,
    src_iter: Desc | None = None,
    src_iter_c: Desc | None = None,
    augru_attention: Desc | None = None,
    weights_peephole: Desc | None = None,
    dst_iter: Desc | None = None,
    dst_iter_c: Desc | None = None,
    n_threads: int | None = None,
) -> Spec:
    """Recurrent layers for inference: T steps, N sequences, L layers of one cell, D directions (1 or 2).

    ``src``, ``weights`` and ``dst`` are oneDNN's ``src_layer``, ``weights_layer`` and ``dst_layer``. Gates are in
    oneDNN's order: input, forget, candidate and output of an LSTM, update, reset and output of a GRU.

    Args:
        src: Extents (T, N, IC).
        weights: Extents (L, D, IC, gates, OC).
        weights_iter: Extents (L, D, OC, gates, OC).
        bias: Extents (L, D, gates, OC), f32; of the cells ``lbr_gru`` and ``lbr_augru`` one more than gates.
        dst: Extents (T, N, OC), or (T, N, 2 * OC) of both directions' results one after the other; ``None`` leaves the
            layout to the primitive.
        algorithm: The cell: ``vanilla_rnn``, ``vanilla_lstm``, ``vanilla_gru``, ``lbr_gru``, ``vanilla_augru`` or
            ``lbr_augru``.
        direction: ``unidirectional_left2right``, ``unidirectional_right2left``, ``bidirectional_concat`` or
            ``bidirectional_sum``.
        activation: Of ``vanilla_rnn``: ``eltwise_tanh``, ``eltwise_relu`` or ``eltwise_logistic``.
        alpha: Slope of that ReLU where it is negative.
        src_iter: The first state, extents (L, D, N, OC); ``None`` is zeros.
        src_iter_c: An LSTM's first cell state, extents (L, D, N, OC), to be given with ``src_iter``.
        augru_attention: Of the cells that have one, extents (T, N, 1).
        weights_peephole: Of an LSTM's input, forget and output gates, extents (L, D, 3, OC), f32.
        dst_iter: The last state, where it is wanted, extents (L, D, N, OC).
        dst_iter_c: An LSTM's last cell state, extents (L, D, N, OC), to be given with ``dst_iter``.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.dnnl import AnyDesc
        >>> src, bias = AnyDesc((10, 1, 32)), AnyDesc((1, 1, 4, 64))
        >>> weights, weights_iter = (AnyDesc((1, 1, channels, 4, 64)) for channels in (32, 64))
        >>> rnn(src, weights, weights_iter, bias, algorithm="vanilla_lstm", n_threads=1).desc("dst").dims
        (10, 1, 64)
    """
    descs = {
        "src": src,
        "weights": weights,
        "weights_iter": weights_iter,
        "bias": bias,
        "src_iter": src_iter,
        "src_iter_c": src_iter_c,
        "augru_attention": augru_attention,
        "weights_peephole": weights_peephole,
        "dst_iter": dst_iter,
        "dst_iter_c": dst_iter_c,
    }
    params: dict[str, object] = {"direction": direction}
    if algorithm == "vanilla_rnn":
        params |= {"activation": activation, "alpha": alpha, "beta": 0.0}
    spec = draft("rnn", descs, params, algorithm=algorithm, prop_kind="forward_inference", n_threads=n_threads)
    check_ndims(spec, "src", 3, 3)
    check_ndims(spec, "weights", 5, 5)
    n_sides = 2 if direction == "bidirectional_concat" else 1
    return finish(spec, dst, (*src.dims[:2], n_sides * weights.dims[-1]))


def _validate(spec: Spec) -> None:
    cell = _CELLS[spec.algorithm]
    check_descs(spec, _NEEDED, cell.optional)
    check_ndims(spec, "weights", 5, 5)
    direction = spec.param("direction")
    require(direction in _DIRECTIONS, spec, "direction", f"is {direction!r}; give one of {', '.join(_DIRECTIONS)}")
    if spec.algorithm == "vanilla_rnn":
        given = spec.param("activation")
        require(given in ACTIVATIONS, spec, "activation", f"is {given!r}; give one of {', '.join(ACTIVATIONS)}")
        check_float(spec, "alpha")
        check_float(spec, "beta")
    _check_extents(spec, cell, direction)
    check_weights_dtype(spec)
    check_weights_dtype(spec, weights="weights_iter")
    for name in ("bias", "weights_peephole"):
        if spec.has(name):
            check_dtype(spec, name, ("f32",), "rnn")
    for name in ("src_iter", "dst_iter") if spec.algorithm == "vanilla_lstm" else ():
        both = spec.has(name) == spec.has(f"{name}_c")
        require(both, spec, name, f"goes with {name}_c: give both or neither")


def _check_extents(spec: Spec, cell: _Cell, direction: str) -> None:
    steps, batch, channels = spec.desc("src").dims
    layers, _, _, _, states = spec.desc("weights").dims
    sides = 2 if direction.startswith("bidirectional") else 1
    width = states * (2 if direction == "bidirectional_concat" else 1)
    require(layers == 1 or channels == width, spec, "src", f"has {channels} channels; several layers make it {width}")
    extents = {
        "weights": (layers, sides, channels, cell.n_gates, states),
        "weights_iter": (layers, sides, states, cell.n_gates, states),
        "bias": (layers, sides, cell.n_biases, states),
        "weights_peephole": (layers, sides, 3, states),
        "augru_attention": (steps, batch, 1),
        "dst": (steps, batch, width),
    } | dict.fromkeys(("src_iter", "src_iter_c", "dst_iter", "dst_iter_c"), (layers, sides, batch, states))
    for name, dims in extents.items():
        if spec.has(name):
            check_dims(spec, name, dims, f"a {spec.algorithm}, {direction}, on src {spec.desc('src').dims}")


def _of_cell(spec: Spec, direction: Direction) -> Direction:
    """The function of its cell, and the arguments that were given: none is added by the library."""
    cell = _CELLS[spec.algorithm]
    given = tuple(filter(spec.has, direction.arguments))
    return replace(direction, family=cell.family, c_order=cell.c_order, arguments=given)


def _multiply_adds(spec: Spec, extents: Extents) -> int:
    steps, batch, _ = spec.desc("src").dims
    return steps * batch * sum(prod(extents(spec.desc(name))) for name in ("weights", "weights_iter"))


def _peak_share(spec: Spec) -> float:
    sequences = spec.memory_desc("src").dims[1]
    return _PEAK_SHARE * sequences / (sequences + _HALF_SPEED_SEQUENCES)


KIND = Kind(
    directions={
        "forward": Direction(
            c_order=_LSTM_ORDER,
            arguments=(*_NEEDED[:4], *_OPTIONAL[:4], "dst", "dst_iter", "dst_iter_c"),
            results=("dst", "dst_iter", "dst_iter_c"),
            optional=_OPTIONAL,
            laid_out=(),
            prop_kinds=("forward_inference",),
            family="lstm",
        )
    },
    validate=_validate,
    ranks=(3, 3),
    most=MAX_COUNTED,
    multiply_adds=_multiply_adds,
    peak_share=_peak_share,
    bandwidth_share=lambda _: 1.0,
    adjusted=_of_cell,
)
