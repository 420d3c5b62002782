"""Blocks of a network: the path of each kernel, outer block first, by names or else by the structure of the graph.

Names are paths where kernels of one beginning hang together, as in ``layer1.0.conv2`` or ``/encoder/layer.3/MatMul``.
An exporter's serial numbers, as in ``p2o.Conv.17``, are none. Where few names are, blocks are the parts between kernels
that no value passes by, such as residual and inception blocks, in stages of one image size.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Literal

from blocklayout.ir import Fused

if TYPE_CHECKING:
    from blocklayout.plan.choices import KernelChoice

Path = tuple[str, ...]
Links = Sequence[tuple[int, int]]

_LEAST_NAMED = 1 / 3
"""Share of kernels whose names must be paths; with fewer of them, blocks are those of the structure."""

_NEAREST = 64
"""Of the paths that surround a kernel without one."""


def kernel_paths(choices: Sequence[KernelChoice]) -> tuple[Literal["names", "structure"], list[Path]]:
    """The path of blocks that each kernel is in, and where it is from."""
    writers = {choice.writes: number for number, choice in enumerate(choices)}
    links = [(writers[value], to) for to, choice in enumerate(choices) for value in choice.reads if value in writers]
    links = [(begin, end) for begin, end in links if begin < end]
    n_named = sum(not re.fullmatch(r"[A-Za-z]+_\d+", choice.kernel) for choice in choices)  # by the model, not by us
    named = _together([name_path(choice.kernel) for choice in choices], links, n_named)
    if sum(map(bool, named)) >= _LEAST_NAMED * len(choices):
        return "names", _surrounded(named, links)
    return "structure", _parts(_image_sizes(choices), links)


def name_path(name: str) -> Path:
    """The blocks that a name has before its last part; a part may repeat the one before, as PyTorch's exporter does.

    Example:
        >>> name_path("layer1.0.conv2"), name_path("/layer1/layer1.0/conv2/Conv"), name_path("p2o.Conv.17")
        (('layer1', '0'), ('layer1', '0', 'conv2'), ('p2o',))
    """
    parts: list[str] = []
    before = ""
    for part in filter(None, name.split("/")):
        parts += filter(None, part.removeprefix(f"{before}.").split("."))
        before = part
    is_serial = len(parts) > 1 and parts[-1].isdecimal() and re.fullmatch("[A-Z][A-Za-z]+", parts[-2])
    return tuple(parts[: -2 if is_serial else -1])


def _together(paths: Sequence[Path], links: Links, n_named: int) -> list[Path]:
    """Paths, each as far as it is that of two kernels at least, but not of all that have names, which hang together.

    Kernels without a path connect those of any.
    """
    clusters = _Pieces()
    for begin, end in links:
        if not paths[begin] and not paths[end]:
            clusters.join(begin, end)
    beside: dict[int, list[int]] = {}
    for link in links:
        begin, end = map(clusters.of, link)
        beside.setdefault(begin, []).append(end)
        beside.setdefault(end, []).append(begin)
    members: dict[Path, list[int]] = {}
    for number, path in enumerate(paths):
        for prefix in _prefixes(path):
            members.setdefault(prefix, []).append(number)

    def is_block(prefix: Path) -> bool:
        within = {*members[prefix]}
        pieces = _Pieces()
        for number in within:
            for other in beside.get(number, ()):
                if other in within or not paths[other]:
                    pieces.join(number, other)
        return 1 < len(within) < n_named and len({*map(pieces.of, within)}) <= len(within) / 2

    blocks = {prefix for prefix in members if is_block(prefix)}
    return [_kept(path, blocks) for path in paths]


def _prefixes(path: Path) -> list[Path]:
    return [path[: depth + 1] for depth in range(len(path))]


def _kept(path: Path, blocks: Collection[Path]) -> Path:
    """The parts of a path that begin blocks; others are joined with the next one that does."""
    ends = [0, *(len(prefix) for prefix in _prefixes(path) if prefix in blocks)]
    return tuple(".".join(path[begin:end]) for begin, end in pairwise(ends))


class _Pieces:
    """Kernels, joined to pieces that hang together."""

    def __init__(self) -> None:
        self._homes: dict[int, int] = {}

    def of(self, number: int) -> int:
        """The kernel that stands for the piece of one."""
        homes = self._homes
        while (home := homes.setdefault(number, number)) != number:
            homes[number] = number = homes[home]
        return number

    def join(self, one: int, other: int) -> None:
        self._homes[self.of(one)] = self.of(other)


def _surrounded(paths: Sequence[Path], links: Links) -> list[Path]:
    """Paths, those of kernels without one being the innermost block that is before and behind them."""
    before: dict[int, list[Path]] = {}
    after: dict[int, list[Path]] = {}
    for begin, end in sorted(links, key=lambda link: link[1]):
        before[end] = [*before.get(end, []), *([paths[begin]] if paths[begin] else before.get(begin, []))][-_NEAREST:]
    for begin, end in sorted(links, reverse=True):
        after[begin] = [*after.get(begin, []), *([paths[end]] if paths[end] else after.get(end, []))][-_NEAREST:]
    return [
        path or max(sorted(_outer(before.get(number, ())) & _outer(after.get(number, ()))), key=len, default=())
        for number, path in enumerate(paths)
    ]


def _outer(paths: Iterable[Path]) -> set[Path]:
    return {prefix for path in paths for prefix in _prefixes(path)}


def _image_sizes(choices: Sequence[KernelChoice]) -> list[str]:
    """The image size of each kernel's result, such as ``56x56``; empty where it has none.

    A result that is seen by nobody, since its reader is computed with it, has the size of that one's.
    """
    sizes = [""]
    for choice in reversed(choices):
        dst = choice.chosen.dst
        if not isinstance(dst, Fused):
            sizes.append("\N{MULTIPLICATION SIGN}".join(map(str, dst.dims[2:])) if dst.ndims > 3 else "")
        else:
            sizes.append(sizes[-1])
    return sizes[:0:-1]


def _parts(sizes: Sequence[str], links: Links) -> list[Path]:
    """Stages of one image size, and in them the parts between kernels that no link passes by.

    Links across an eighth of the network and more, as from an encoder to a decoder, count as none.
    """
    n = len(sizes)
    passed = [0] * (n + 1)
    for begin, end in links:
        if end - begin <= max(8, n // 8):
            passed[begin + 1] += 1
            passed[end] -= 1
    is_seam = [depth == 0 for depth in accumulate(passed[:n])]
    starts = [number for number in range(n) if number == 0 or is_seam[number - 1]]
    parts = [range(begin, end) for begin, end in zip(starts, [*starts[1:], n], strict=True)]
    paths: list[Path] = []
    seen = Counter[str]()
    n_parts = 0
    for size, stage in groupby(parts, lambda part: sizes[part[-1]]):
        seen[size] += 1
        outer = size and (size if seen[size] == 1 else f"{size} ({seen[size]})")
        for part in stage:
            n_parts += len(part) > 1
            inner = f"part {n_parts}" if len(part) > 1 else ""
            paths += [tuple(filter(None, (outer, inner)))] * len(part)
    return paths
