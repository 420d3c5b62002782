"""The cheapest way to part a graph in two."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import pairwise

UNCUT = 1 << 62
"""The price of an edge that must not be cut."""

_Residual = dict[Hashable, dict[Hashable, int]]


def sinks_side(prices: Mapping[tuple[Hashable, Hashable], int], source: Hashable, sink: Hashable) -> set[Hashable]:
    """The side of ``sink`` when the edges from the other side to it cost least; of equal cuts the smallest side.

    ``prices`` are of directed edges, by their ends; there has to be a cut of finite price.

    Example:
        >>> sorted(sinks_side({("s", "a"): 3, ("a", "b"): 2, ("b", "t"): 2, ("a", "t"): 0}, "s", "t"))
        ['t']
        >>> sorted(sinks_side({("s", "a"): 3, ("a", "b"): 1, ("b", "t"): 2}, "s", "t"))
        ['b', 't']
    """
    residual: _Residual = {source: {}, sink: {}}
    for (tail, head), price in prices.items():
        residual.setdefault(tail, {}).setdefault(head, 0)
        residual[tail][head] += price
        residual.setdefault(head, {}).setdefault(tail, 0)
    # a neighbour of the source from which no path is left never gets one again, so each has its turn once
    for first in list(residual[source]):
        while path := _path(residual, (source, first), sink):
            _send(residual, path)
    return _reaching(residual, sink)


def _path(residual: _Residual, start: tuple[Hashable, Hashable], sink: Hashable) -> list[Hashable]:
    """The shortest path that begins with ``start`` and has something left; empty if there is none."""
    source, first = start
    if not residual[source][first]:
        return []
    before = {source: source, first: source}
    front = [first]
    for tail in front:
        if tail == sink:
            break
        for head, left in residual[tail].items():
            if left and head not in before:
                before[head] = tail
                front.append(head)
    if sink not in before:
        return []
    path = [sink]
    while path[-1] != source:
        path.append(before[path[-1]])
    return path[::-1]


def _send(residual: _Residual, path: list[Hashable]) -> None:
    edges = list(pairwise(path))
    amount = min(residual[tail][head] for tail, head in edges)
    for tail, head in edges:
        residual[tail][head] -= amount
        residual[head][tail] += amount


def _reaching(residual: _Residual, sink: Hashable) -> set[Hashable]:
    found = {sink}
    front = [sink]
    for head in front:
        for tail in residual[head]:
            if residual[tail][head] and tail not in found:
                found.add(tail)
                front.append(tail)
    return found
