"""An atlas: times that were recorded on one machine, shipped with the package, and prices that follow from them.

A primitive that was recorded costs its time. Another costs what the nearest of its class do, by the numbers that times
depend on, relative to a bound by arithmetic and traffic that brings different sizes to one scale. A class that nobody
recorded is priced by wider ones.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from blocklayout.dnnl import is_reference
from blocklayout.errors import PlanError
from blocklayout.plan.costs.machine import peak_flops
from blocklayout.plan.costs.traits import NUMBERS, SpecClass, spec_class, spec_numbers

if TYPE_CHECKING:
    from blocklayout.dnnl import Spec
    from blocklayout.plan.costs.machine import Machine

FOLDER = Path(__file__).with_name("atlases")
FORMAT = 3

STEPS = 256
"""Numbers are kept, and compared, as multiples of one over this."""

_N_NEAREST = 6
_MIN_MEMBERS = 3
_SOFTENING = 0.05
"""Added to squared distances: neighbours nearer than this count alike, since each time has an error of its own."""

_START_NS, _N_THREADS, _NBYTES_PER_NS = 2500.0, 2, 20.0
_COSTLY_NS = 0.3
"""Of an exponential, say, of each result."""

_COLUMNS = {name: column for column, (name, _) in enumerate(NUMBERS)}
_RESULT_SIZES = ("channels_out", "groups", "pixels_out", "batch")
_ARRAYS = {
    "format": "i",
    "origin": "U",
    "n_threads": "i",
    "classes": "U",
    "of_class": "u",
    "numbers": "i",
    "ns": "f",
}
"""The arrays of a file, and the kind of each one's elements."""

_MAX_STEPS = 2**15 - 1
_KEY = struct.Struct(f"<{len(NUMBERS)}h")
_WEIGHTS = np.array([weight for _, weight in NUMBERS]) / STEPS


RecordedTime = tuple[SpecClass, tuple[float, ...], float]
"""A class, numbers, and nanoseconds."""


class _Members(Struct, frozen=True, eq=False):
    """The recorded times of one class: weighted numbers, a column for each, and logarithms of times over bounds."""

    numbers: np.ndarray
    ratios: np.ndarray

    def nearest(self, numbers: np.ndarray) -> float:
        """The ratio of time to bound that the nearest have."""
        apart = self.numbers - (numbers * _WEIGHTS)[:, None]
        apart *= apart
        squared = apart.sum(axis=0)
        nearest = np.argsort(squared, kind="stable")[:_N_NEAREST]
        distances = squared[nearest]
        if distances[0] == 0:  # of another class
            return float(self.ratios[nearest[distances == 0]].mean())
        weights = 1 / (distances + _SOFTENING)
        return float((weights * self.ratios[nearest]).sum() / weights.sum())


class Atlas(Struct, frozen=True, eq=False, dict=True):
    """Recorded times, by what they depend on.

    Attributes:
        origin: The CPU's name and kind, the machine and the recording, in words.
        n_threads: Threads it was recorded with.
        classes: Each class once.
        of_class: The class of each recorded time.
        numbers: What each depends on, in steps.
        ns: The times; of what was also timed inside of whole runs, nearer to those.
    """

    origin: str
    n_threads: int
    classes: tuple[SpecClass, ...]
    of_class: np.ndarray
    numbers: np.ndarray
    ns: np.ndarray
    _members: dict[SpecClass, _Members] = field(default_factory=dict)
    _times: dict[SpecClass, dict[bytes, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, origin: str, n_threads: int, times: Iterable[RecordedTime]) -> Atlas:
        """An atlas of recorded times; those of equal primitives are taken together.

        Args:
            origin: The CPU's name and kind, the machine and the recording, in words.
            n_threads: Threads it was recorded with.
            times: Classes, numbers and nanoseconds.
        """
        alike: dict[tuple[SpecClass, tuple[int, ...]], list[float]] = {}
        for of_class, numbers, ns in times:
            alike.setdefault((of_class, in_steps(numbers)), []).append(ns)
        classes = tuple(sorted({of_class for of_class, _ in alike}))
        positions = {each: position for position, each in enumerate(classes)}
        keys = sorted(alike)
        return cls(
            origin,
            n_threads,
            classes,
            np.array([positions[of_class] for of_class, _ in keys], np.uint16),
            np.array([numbers for _, numbers in keys], np.int16).reshape(len(keys), len(NUMBERS)),
            np.array([np.median(alike[key]) for key in keys], np.float32),
        )

    @classmethod
    def open(cls, path: Path) -> Atlas:
        """The atlas in a file.

        Raises:
            PlanError: It is no atlas, or one of another format.
        """
        arrays = _read(path, *_ARRAYS)
        if fault := _fault(arrays):
            raise PlanError(f"{path} is no atlas of times ({fault}): make one with bench/atlas.py")
        classes = tuple(SpecClass(*row) for row in arrays["classes"].tolist())
        of_class, numbers, ns = (arrays[name] for name in ("of_class", "numbers", "ns"))
        return cls(str(arrays["origin"]), int(arrays["n_threads"]), classes, of_class, numbers, ns)

    @property
    def cpu(self) -> str:
        """Name of the CPU it was recorded on, and its kind."""
        return _cpu_in(self.origin)

    def is_of(self, kind: str) -> bool:
        """Whether it was recorded on a CPU of this kind."""
        return _is_of(self.cpu, kind)

    def has_dtype(self, dtype: str) -> bool:
        """Whether what computes in a data type was recorded; f16 follows from f32."""
        recorded = "f32" if dtype == "f16" else dtype
        return any(each.dtypes.startswith(f"{recorded} ") for each in self.classes)

    @property
    def keys(self) -> list[tuple[SpecClass, tuple[int, ...]]]:
        """For each recorded time its class, and its numbers in steps."""
        return [(self.classes[of], tuple(row)) for of, row in zip(self.of_class, self.numbers.tolist(), strict=True)]

    def slowed(self, factors: Sequence[float]) -> Atlas:
        """Each time longer by a factor of its own."""
        ns = (self.ns * np.array(factors)).astype(np.float32)
        return Atlas(self.origin, self.n_threads, self.classes, self.of_class, self.numbers, ns)

    def save(self, path: Path) -> None:
        """Write it to a file."""
        np.savez_compressed(
            path,
            format=np.int32(FORMAT),
            origin=np.str_(self.origin),
            n_threads=np.int32(self.n_threads),
            classes=np.array(self.classes, np.str_).reshape(len(self.classes), len(SpecClass._fields)),
            of_class=self.of_class,
            numbers=self.numbers,
            ns=self.ns,
        )

    def price_ns(self, spec: Spec, machine: Machine) -> float | None:
        """Nanoseconds of a resolved Spec, or of a reorder as its constructor gives it, with a machine's threads.

        ``None`` where nothing of its kind was recorded.
        """
        if is_reference(spec.impl):
            return None
        ns = self.ns_of(spec_class(spec, machine.isa), spec_numbers(spec))
        if ns is None:
            return None
        start_ns = min(ns, machine.step_ns)
        return start_ns + (ns - start_ns) * self.n_threads / machine.n_threads

    def recorded_ns(self, spec_class: SpecClass, numbers: tuple[float, ...]) -> float | None:
        """The time of a primitive that was recorded itself."""
        return self._known(spec_class).get(_KEY.pack(*in_steps(numbers)))

    def ns_of(self, wanted: SpecClass, numbers: tuple[float, ...]) -> float | None:
        """Nanoseconds of a primitive by its class and numbers, recorded or as others of its kind take."""
        recorded = self.recorded_ns(wanted, numbers)
        if recorded is not None:
            return recorded
        steps = np.array(in_steps(numbers))
        for each in (wanted, *wanted.wider(), *wanted.alike()):
            members = self._recorded(each)
            if members is not None and len(members.ratios) >= _MIN_MEMBERS:
                return exp(members.nearest(steps)) * float(_bound_ns(steps, _peak_flops(wanted)))
        return None

    def _known(self, spec_class: SpecClass) -> dict[bytes, float]:
        """The recorded times of one class."""
        if spec_class not in self._times:
            rows = self._rows[self._place[spec_class]] if spec_class in self._place else np.zeros(0, np.int64)
            packed, ns = self.numbers[rows].astype("<i2").tobytes(), self.ns[rows].tolist()
            self._times[spec_class] = {packed[i * _KEY.size : (i + 1) * _KEY.size]: each for i, each in enumerate(ns)}
        return self._times[spec_class]

    @cached_property
    def _place(self) -> dict[SpecClass, int]:
        return {each: position for position, each in enumerate(self.classes)}

    @cached_property
    def _positions(self) -> dict[SpecClass, list[int]]:
        """The classes that each one, and each wider one, is made of."""
        found: dict[SpecClass, list[int]] = {}
        for position, narrowest in enumerate(self.classes):
            for each in dict.fromkeys((narrowest, *narrowest.wider())):
                found.setdefault(each, []).append(position)
        return found

    @cached_property
    def _rows(self) -> list[np.ndarray]:
        """The recorded times of each class."""
        order = np.argsort(self.of_class, kind="stable")
        return np.split(order, np.searchsorted(self.of_class[order], np.arange(1, len(self.classes))))

    @cached_property
    def _ratios(self) -> np.ndarray:
        """Logarithms of times over bounds."""
        peaks = np.array([_peak_flops(each) for each in self.classes])[self.of_class]
        ratios: np.ndarray = np.log(self.ns.astype(np.float64) / _bound_ns(self.numbers.astype(np.int64), peaks))
        return ratios

    def _recorded(self, wanted: SpecClass) -> _Members | None:
        if wanted not in self._members and wanted in self._positions:
            rows = np.concatenate([self._rows[position] for position in self._positions[wanted]])
            self._members[wanted] = _Members(
                self.numbers[rows].T.astype(np.float64) * _WEIGHTS[:, None], self._ratios[rows]
            )
        return self._members.get(wanted)


@lru_cache(maxsize=4)
def fitting(kind: str, isa: str, folder: Path = FOLDER) -> Atlas:
    """The atlas that is nearest to a CPU: of the same kind, else of the same maker, else with its instruction set.

    Args:
        kind: Of the CPU, as :func:`~blocklayout.dnnl.processor.cpu_kind` gives it.
        isa: Its instruction set.
        folder: Of the files to choose from; by default those that come with the package.

    Raises:
        PlanError: One of them is no atlas.
    """
    maker, *_ = kind.split(" ")

    def distance(path: Path) -> tuple[bool, bool, bool]:
        arrays = _read(path, "origin", "classes")  # the rest takes ten times as long
        cpu, isas = _cpu_in(str(arrays["origin"])), {SpecClass(*row).isa for row in arrays["classes"].tolist()}
        return not _is_of(cpu, kind), maker not in cpu, isa not in isas

    return Atlas.open(min(sorted(folder.glob("*.npz")), key=distance))


def _cpu_in(origin: str) -> str:
    return origin.partition(":")[0]


def _is_of(cpu: str, kind: str) -> bool:
    return f"({kind})" in cpu


def _read(path: Path, *names: str) -> dict[str, np.ndarray]:
    """Some arrays of a file.

    Raises:
        PlanError: It is no atlas.
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise PlanError(f"{path} is no atlas of times ({error}): make one with bench/atlas.py") from error


def in_steps(numbers: Sequence[float]) -> tuple[int, ...]:
    """Numbers as multiples of one over ``STEPS``, up to what two bytes hold: a concatenation may have any sources."""
    return tuple(min(round(number * STEPS), _MAX_STEPS) for number in numbers)


def _peak_flops(spec_class: SpecClass) -> float:
    """Of the instruction set: what brings implementations of one family to one scale."""
    return peak_flops(spec_class.impl.partition("@")[0], spec_class.isa, spec_class.dtypes.partition(" ")[0])


def _bound_ns(numbers: np.ndarray, peak_flops: float | np.ndarray) -> np.ndarray:
    """Roughly what arithmetic or traffic takes, whichever is more: it brings sizes to one scale, not machines."""
    multiply_adds, nbytes = (2.0 ** (numbers[..., _COLUMNS[name]] / STEPS) for name in ("multiply_adds", "nbytes"))
    n_results = 2.0 ** (sum(numbers[..., _COLUMNS[name]] for name in _RESULT_SIZES) / STEPS)
    costly_ns = numbers[..., _COLUMNS["costly_post_ops"]] / STEPS * n_results * _COSTLY_NS
    arithmetic_ns = 2 * multiply_adds / (_N_THREADS * peak_flops)
    bound: np.ndarray = _START_NS + np.maximum(arithmetic_ns, nbytes / _NBYTES_PER_NS) + costly_ns
    return bound


def _fault(arrays: dict[str, np.ndarray]) -> str | None:
    """The reason why these arrays are no recording; ``None`` if they are."""
    n_times, n_classes = (arrays[name].shape[:1] for name in ("ns", "classes"))
    shapes = {"classes": (*n_classes, len(SpecClass._fields)), "of_class": n_times, "ns": n_times}
    shapes["numbers"] = (*n_times, len(NUMBERS))
    described = ((name, arrays[name], kind) for name, kind in _ARRAYS.items())
    wrong = [name for name, array, kind in described if (array.dtype.kind, array.shape) != (kind, shapes.get(name, ()))]
    if wrong:
        return f"{', '.join(wrong)} of another type or shape"
    if int(arrays["format"]) != FORMAT:
        return f"not of format {FORMAT}"
    if not len(arrays["ns"]) or int(arrays["of_class"].max()) >= len(arrays["classes"]):
        return "times of no class"
    for name in ("n_threads", "ns"):
        if not (np.isfinite(arrays[name]) & (arrays[name] > 0)).all():
            return f"{name} not positive"
    return None
