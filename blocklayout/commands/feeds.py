"""MODEL, its feeds, and the plan of ``--plan``, as a command line names them."""

from __future__ import annotations

from tokenize import TokenError
from typing import TYPE_CHECKING

import numpy as np

from blocklayout import model
from blocklayout.errors import InputError, LayoutError, PlanError
from blocklayout.layout import FormatTag
from blocklayout.loading.options import ranges_of
from blocklayout.loading.signature import extents_of, signature_of
from blocklayout.loading.zoo_names import source_named
from blocklayout.plan import Plan
from blocklayout.plan.costs.random_data import random_array
from blocklayout.plan.plan import FREE
from blocklayout.regular_file import open_regular
from blocklayout.zoo import digits

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from blocklayout.layout import MemoryDesc
    from blocklayout.model import Builder, Graph, OnnxModel

    Arrays = Mapping[str, np.ndarray]
    Shapes = Mapping[str, tuple[int, ...]]

SEED = 0


def open_model(args: argparse.Namespace) -> OnnxModel | Graph:
    """The model that MODEL names; one of the zoo is built for the extents of ``--shape`` and ``--input``.

    Raises:
        ModelError: No such file or network, damaged, or not ONNX.
        InputError: A file that holds no array, or extents that a network of the zoo cannot take.
        UnsupportedError: Valid ONNX that cannot run here.
    """
    arrays = {name: load_array(name, path).shape for name, path in args.input}
    return model.open_model(model_named(args.model, dict(args.shape) | arrays, dict(args.io_layout)))


def model_named(name: str | None, shapes: Shapes, io_layout: Mapping[str, str] | None = None) -> str | bytes | Builder:
    """The model that MODEL names: a file, the embedded one's bytes, or a network of the zoo for these extents."""
    return digits.model_bytes() if name is None else source_named(name, shapes, io_layout)


def open_with_plan(
    args: argparse.Namespace, more: Callable[[OnnxModel | Graph], Arrays] | None = None
) -> tuple[OnnxModel | Graph, dict[str, np.ndarray], Plan | None]:
    """The model, its feeds, and the plan of ``--plan``, whose extents and formats hold where none are given.

    ``more`` is called with the model for arrays beside those of ``--input``. A PlanError where there is no plan, or
    where the model or the feeds do not fit it; other errors as of :func:`open_model` and :func:`feeds_of`.
    """
    plan = Plan.load(args.plan) if args.plan is not None else None
    taken = _take_over(args, plan) if plan is not None else []
    try:
        opened = open_model(args)
        return opened, feeds_of(opened, args, more(opened) if more is not None else None), plan
    except (InputError, LayoutError) as error:
        if not taken:
            raise
        raise PlanError(f"{args.plan}, which says {', '.join(taken)}, does not fit: {error}") from error


def feeds_of(opened: OnnxModel | Graph, args: argparse.Namespace, more: Arrays | None = None) -> dict[str, np.ndarray]:
    """An array for each input: by ``--input``, from ``more``, by ``--shape``, or at random; an InputError of others."""
    arrays = {name: load_array(name, path) for name, path in args.input} | dict(more or {})
    given = asked_shapes(args) | {name: array.shape for name, array in arrays.items()}
    shapes = chosen_shapes(opened, given, dict(args.io_layout))
    generator = np.random.default_rng(SEED)
    return {
        info.name: arrays[info.name] if info.name in arrays else random_array(info.dtype, shapes[info.name], generator)
        for info in model.signature(opened).inputs
    }


def asked_shapes(args: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """The extents of ``--shape`` by input; of ranges the largest, and an InputError where that is below the least."""
    return {name: tuple(most for _, most in ranges_of(name, shape)) for name, shape in args.shape}


def random_feeds(graph: Graph) -> dict[str, np.ndarray]:
    """An array for each input of a graph, the same at every call."""
    generator = np.random.default_rng(SEED)
    return {name: random_array(graph.values[name].dtype, graph.shape(name), generator) for name in graph.inputs}


def n_images(feeds: Mapping[str, np.ndarray]) -> int:
    """The batch: the first extent, where all inputs have the same."""
    firsts = {array.shape[:1] for array in feeds.values()}
    first = firsts.pop() if len(firsts) == 1 else ()
    return int(first[0]) if first else 1


def chosen_shapes(
    opened: OnnxModel | Graph, given: Shapes, io_layout: Mapping[str, str] | None = None
) -> dict[str, tuple[int, ...]]:
    """The extents of every input as its array has them; a first one that is left free is 1.

    An InputError of an unknown input, of extents that contradict the model, or where another one is left free; a
    LayoutError where ``io_layout`` names a format that does not exist, or has another rank.
    """
    inputs = signature_of(opened, io_layout or {})[0]
    settled = {
        extent for info in inputs if info.name in given for extent in info.shape or () if isinstance(extent, str)
    }
    singles: dict[str, tuple[int, ...]] = {}
    for info in inputs:
        first, *others = info.shape or (0,)
        rest = tuple(extent for extent in others if isinstance(extent, int))
        is_single = not isinstance(first, int) and first not in settled and len(rest) == len(others)
        if is_single and info.name not in given:
            singles[info.name] = (1, *rest)
    return extents_of(inputs, singles | dict(given))


def load_array(name: str, path: str, origin: str = "") -> np.ndarray:
    """The array in a ``.npy`` file; an InputError where there is none, which begins with the option or ``origin``."""
    origin = origin or f"--input {name}={path}"
    try:
        with open_regular(path) as file:
            array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{origin}: no such file") from None
    except OSError as error:
        raise InputError(f"{origin}: {error.strerror or error}") from None
    except (ValueError, EOFError, TokenError):
        raise InputError(f"{origin}: no array as numpy.save writes it") from None
    return array


def _take_over(args: argparse.Namespace, plan: Plan) -> list[str]:
    """Complete the options from the plan; the additions as text, for messages."""
    if not args.io_layout:
        args.io_layout = list(plan.io_layout)
    given = {name for name, _ in (*args.shape, *args.input)}
    formats = dict(args.io_layout)
    # A scalar has one element of rank 1, too; and a free first extent becomes 1 anyway.
    known = [(name, desc) for name, desc in plan.fed if name not in given and desc.dims != (1,)]
    added = [(name, _extents(desc, formats.get(name))) for name, desc in known]
    args.shape = [*args.shape, *added]
    return [f"{name}={'x'.join(map(str, shape))}" for name, shape in added]


def _extents(desc: MemoryDesc, layout: str | None) -> tuple[int, ...]:
    """As an array in that format has them."""
    tag = FormatTag.parse(layout) if layout not in (None, FREE) else None
    if tag is None or tag.inner_blks or tag.ndims != desc.ndims:
        return desc.dims
    return tuple(desc.dims[dim] for dim in tag.order)
