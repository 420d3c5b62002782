"""Feeds of a model: extents from the command line, arrays from files or from a seeded generator."""

from __future__ import annotations

from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING

import numpy as np

from blocklayout import model
from blocklayout.commands.sources import ZOO, open_source
from blocklayout.errors import InputError
from blocklayout.loading.from_model import extents_of, signature_of
from blocklayout.runtime.racing import random_array

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from blocklayout.model import Graph, OnnxModel
    from blocklayout.runtime import InputInfo

SEED = 0


def open_model(args: argparse.Namespace) -> OnnxModel | Graph:
    """The model that MODEL names; one of the zoo is built for what ``--shape`` and ``--input`` give.

    Raises:
        ModelError: No such file or network, damaged, or not ONNX.
        InputError: A file that holds no array, or extents that a network of the zoo cannot take.
        UnsupportedError: Valid ONNX that cannot run here.
    """
    is_sized = args.model is not None and args.model.startswith(ZOO)
    arrays = {name: load_array(name, path).shape for name, path in args.input} if is_sized else {}
    return open_source(args.model, dict(args.shape) | arrays, dict(args.io_layout))


def feeds_of(opened: OnnxModel | Graph, args: argparse.Namespace) -> dict[str, np.ndarray]:
    """An array for each input, by ``--input``, ``--shape``, and at random.

    Raises:
        InputError: A file that holds no array, or extents that do not fit or are left free.
    """
    arrays = {name: load_array(name, path) for name, path in args.input}
    given = dict(args.shape) | {name: array.shape for name, array in arrays.items()}
    shapes = chosen_shapes(opened, given, dict(args.io_layout))
    generator = np.random.default_rng(SEED)
    return {
        info.name: arrays[info.name] if info.name in arrays else random_array(info.dtype, shapes[info.name], generator)
        for info in model.signature(opened).inputs
    }


def n_images(feeds: Mapping[str, np.ndarray]) -> int:
    """The batch: the first extent, where all inputs have the same."""
    firsts = {array.shape[:1] for array in feeds.values()}
    first = firsts.pop() if len(firsts) == 1 else ()
    return int(first[0]) if first else 1


def chosen_shapes(
    opened: OnnxModel | Graph, given: Mapping[str, tuple[int, ...]], io_layout: Mapping[str, str] | None = None
) -> dict[str, tuple[int, ...]]:
    """The extents of every input as its array has them; a first one that is left free is 1.

    Raises:
        InputError: An unknown input, extents that contradict the model, or another one left free.
        LayoutError: ``io_layout`` gives an input a format that does not exist, or has another rank.
    """
    inputs = signature_of(opened, io_layout or {})[0]
    settled = set(_settled_names(inputs, given))
    singles: dict[str, tuple[int, ...]] = {}
    for info in inputs:
        first, *others = info.shape or (0,)
        rest = tuple(extent for extent in others if isinstance(extent, int))
        is_single = not isinstance(first, int) and first not in settled and len(rest) == len(others)
        if is_single and info.name not in given:
            singles[info.name] = (1, *rest)
    return extents_of(inputs, singles | dict(given))


def load_array(name: str, path: str) -> np.ndarray:
    """The array in a ``.npy`` file.

    Raises:
        InputError: There is none.
    """
    try:
        with Path(path).open("rb") as file:
            array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"--input {name}={path}: no such file") from None
    except OSError as error:
        raise InputError(f"--input {name}={path}: {error.strerror or error}") from None
    except (ValueError, EOFError, TokenError):
        raise InputError(f"--input {name}={path}: no array as numpy.save writes it") from None
    return array


def _settled_names(inputs: Iterable[InputInfo], given: Mapping[str, tuple[int, ...]]) -> Iterable[str]:
    """Names of free extents that the given shapes settle."""
    for info in inputs:
        if info.name in given:
            yield from (extent for extent in info.shape or () if isinstance(extent, str))
