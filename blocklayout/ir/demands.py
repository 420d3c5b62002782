"""Formats and data types that users demand beyond a network's results, and the kernels that are meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field
from msgspec.structs import astuple

from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import LayoutError, PlanError, closest
from blocklayout.ir.kernel import KernelInfo, Program
from blocklayout.ir.operator import Role
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    Asked: TypeAlias = "Mapping[str, str | None] | Callable[[KernelInfo], str | None]"
else:
    Asked = Mapping[str, str | None]  # functions stay in their process
"""Formats or data types by key: a name, a pattern of names, or an operator type. ``None`` takes back the
model's own. Or a function of the kernel, which returns ``None`` where it asks for nothing."""

EXACT, PATTERN, OPERATOR, OF_MODEL = range(4)
"""Ranks of demands, the highest precedence first; ``OF_MODEL`` is added to those of the model itself."""

_WILDCARDS = "*?["


class Demand(Struct, frozen=True):
    """The format that one kernel must write, or the data type that it must compute in.

    Attributes:
        option: ``pin``, ``expect`` or ``precision``.
        key: Selected the kernel.
        name: Of the kernel; of an expectation, of the value.
        wanted: The format or data type; empty where one of lower precedence is taken back.
        rank: Of two that differ the one of the lower rank is taken.
    """

    option: str
    key: str
    name: str
    wanted: str
    rank: int = EXACT

    def __str__(self) -> str:
        selected = "" if self.key == self.name else f" ({self.name})"
        return f"{_said(self.option, self.key, self.wanted, self.rank)}{selected}"


class Demanded(Struct, frozen=True):
    """Demands on the kernels of one network."""

    pins: tuple[Demand, ...] = ()
    expected: tuple[Demand, ...] = ()
    precision: tuple[Demand, ...] = ()


class Names(Struct, frozen=True, dict=True):
    """Names in a network, of kernels in order and of values; ``gone`` says why others stand for no kernel."""

    kernels: tuple[KernelInfo, ...]
    values: frozenset[str]
    gone: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program) -> Names:
        """Those of a program."""
        kernels = tuple(kernel.info for kernel in program.kernels)
        others = [value.name for kernel in program.kernels for _, value in kernel.others]
        return cls(kernels, frozenset([*others, *(value.name for value in program.inputs)]), program.gone)

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[KernelInfo]]:
        return self._by(lambda kernel: kernel.names)

    @cached_property
    def _by_operator(self) -> Mapping[str, Sequence[KernelInfo]]:
        return self._by(lambda kernel: kernel.op_types)

    def _by(self, keys_of: Callable[[KernelInfo], Iterable[str]]) -> Mapping[str, Sequence[KernelInfo]]:
        found: dict[str, list[KernelInfo]] = {}
        for kernel in self.kernels:
            for key in dict.fromkeys(keys_of(kernel)):
                found.setdefault(key, []).append(kernel)
        return found

    def selected(self, key: str, said: str) -> tuple[int, Sequence[KernelInfo]]:
        """The kernels that a key selects, and the rank of that.

        Raises:
            PlanError: It selects none; the message begins with ``said``.
        """
        if key in self._by_name:
            return EXACT, self._by_name[key]
        self.check_present(key, said)
        if any(wildcard in key for wildcard in _WILDCARDS):
            found = [kernel for kernel in self.kernels if any(fnmatchcase(name, key) for name in kernel.names)]
            if found:
                return PATTERN, found
            raise PlanError(f"{said}: no kernel, node or value has such a name; {closest(key, self._by_name)}")
        if key in self._by_operator:
            return OPERATOR, self._by_operator[key]
        known = (*self._by_name, *self._by_operator)
        raise PlanError(f"{said}: no kernel, node or value of that name, and no operator; {closest(key, known)}")

    def has(self, key: str) -> bool:
        """Whether a key selects a kernel."""
        try:
            self.selected(key, key)
        except PlanError:
            return False
        return True

    def check_present(self, name: str, said: str) -> None:
        """Refuse the name of a node that passes took out, by a PlanError that tells why."""
        if name in self.gone:
            raise PlanError(f"{said}: {self.gone[name]}")


class Demands(Struct, frozen=True):
    """Formats that kernels must write, formats that values must come in, and data types to compute in, by key."""

    pin: Asked = field(default_factory=dict)
    expect: Asked = field(default_factory=dict)
    precision: Asked = field(default_factory=dict)

    @classmethod
    def of(cls, pin: Asked | None, expect: Asked | None, precision: Asked | None) -> Demands:
        """A caller's demands; a PlanError where one is neither a mapping of texts nor a function."""
        given = {"pin": pin, "expect": expect, "precision": precision}
        return cls(**{option: _checked(option, asked) for option, asked in given.items() if asked is not None})

    def __bool__(self) -> bool:
        return any(callable(asked) or bool(asked) for asked in astuple(self))

    @property
    def key(self) -> str | None:
        """Equal for equal demands; ``None`` where functions decide."""
        asked = astuple(self)
        return None if any(map(callable, asked)) else repr([sorted(each.items()) for each in asked])

    def among(self, selects: Callable[[str], bool]) -> Demands:
        """Those whose keys select something in a part of a model; functions are asked of all parts."""
        parts = (
            asked if callable(asked) else {key: wanted for key, wanted in asked.items() if selects(key)}
            for asked in astuple(self)
        )
        return Demands(*parts)

    def by_key(self) -> Iterator[tuple[str, str, str | None]]:
        """Every option, key and format or data type, but for those that functions decide."""
        for option, asked in zip(self.__struct_fields__, astuple(self), strict=True):
            yield from ((option, key, wanted) for key, wanted in ({} if callable(asked) else asked).items())

    def settled(self, of_model: Demands, names: Names) -> Demanded:
        """The demands on a network's kernels: these, and those that its model states.

        An exact name precedes a pattern, and that an operator type; these precede the model's.

        Raises:
            PlanError: A key selects nothing, or kernels that cannot be so, or two demands of one rank contradict.
        """
        if not (self or of_model):
            return Demanded()
        both = zip(self.__struct_fields__, astuple(self), astuple(of_model), strict=True)
        return Demanded(*(_preceding(_all_stated(option, asked, by_model, names)) for option, asked, by_model in both))


def preceding(demands: Iterable[Demand], owners: Mapping[str, str], what: str) -> dict[str, Demand]:
    """The demand on each owner of kernels that precedes all others.

    Raises:
        PlanError: Two of one rank contradict each other; ``what`` explains that.
    """
    found: dict[str, Demand] = {}
    for demand in sorted(demands, key=lambda each: each.rank):
        owner = owners[demand.name]
        first = found.setdefault(owner, demand)
        if first.rank == demand.rank and first.wanted != demand.wanted:
            raise PlanError(f"{demand}: {owner} computes it, and {what} {first.wanted or 'nothing'} already ({first})")
    return found


def _preceding(stated: Iterable[Demand]) -> tuple[Demand, ...]:
    demands = list(stated)
    found = preceding(demands, {demand.name: demand.name for demand in demands}, "has to be in")
    return tuple(found[name] for name in sorted(found) if found[name].wanted)


def _checked(option: str, asked: Any) -> Asked:
    if callable(asked):
        return asked  # type: ignore[no-any-return]
    if not isinstance(asked, Mapping):
        raise PlanError(f"{option}={asked!r:.60}: give a mapping by name, pattern or operator type, or a function")
    for key, wanted in asked.items():
        if not isinstance(key, str) or not key or not (wanted is None or (isinstance(wanted, str) and wanted)):
            raise PlanError(f"{option}: {key!r:.60}: {wanted!r:.60}: give texts, or None for no such demand")
    return dict(asked)


def _all_stated(option: str, asked: Asked, by_model: Asked, names: Names) -> Iterator[Demand]:
    """The demands of a caller and of a model; the caller's replace the model's of the same key."""
    if not callable(asked) and not callable(by_model):
        taken_back = {key for key in by_model if key in asked and asked[key] is None and not names.has(key)}
        by_model = {key: wanted for key, wanted in by_model.items() if key not in asked}
        asked = {key: wanted for key, wanted in asked.items() if key not in taken_back}
    yield from _stated(option, asked, names, 0)
    yield from _stated(option, by_model, names, OF_MODEL)


def _stated(option: str, asked: Asked, names: Names, of_model: int) -> Iterator[Demand]:
    """The demands of one option on single kernels or values."""
    if callable(asked):
        yield from _answered(option, asked, names)
        return
    for key, wanted in asked.items():
        said = _said(option, key, wanted, of_model)
        if option != "precision":
            names.check_present(key, said)  # there may be a kernel of the name that computes something like it
        if option == "expect" and key in names.values:
            yield Demand(option, key, key, wanted or "", of_model)
            continue
        rank, kernels = names.selected(key, said)
        if rank == EXACT and option != "precision":  # of the kernels that a node became the one that ends it
            kernels = [next((kernel for kernel in kernels if kernel.name == key), kernels[-1])]
        refusals = [_refusal(option, wanted, kernel) for kernel in kernels]
        if all(refusals):
            raise PlanError(f"{said}: {refusals[0]}")
        for kernel, refusal in zip(kernels, refusals, strict=True):
            if refusal is None:
                yield Demand(option, key, _subject(option, kernel), wanted or "", rank + of_model)


def _answered(option: str, ask: Callable[[KernelInfo], str | None], names: Names) -> Iterator[Demand]:
    """The demands that a function makes, which are as good as those by name."""
    for kernel in names.kernels:
        wanted: Any = ask(kernel)
        if wanted is None:
            continue
        is_text = isinstance(wanted, str) and bool(wanted)
        refusal = _refusal(option, wanted, kernel) if is_text else "a function returns a text, or None"
        if refusal is not None:
            raise PlanError(f"{_said(option, kernel.name, wanted, EXACT)}: {refusal}")
        yield Demand(option, kernel.name, _subject(option, kernel), wanted)


def _said(option: str, key: str, wanted: object, rank: int) -> str:
    return f"{option} {key}={wanted}{', which the model states' if rank >= OF_MODEL else ''}"


def _subject(option: str, kernel: KernelInfo) -> str:
    return kernel.value if option == "expect" else kernel.name


def _refusal(option: str, wanted: str | None, kernel: KernelInfo) -> str | None:
    """Why a kernel cannot be as demanded, as far as it alone tells."""
    if wanted is None:
        return None
    if option == "precision":
        if wanted not in PRIMITIVE_FLOATS:
            return f"activations are computed in one of {', '.join(PRIMITIVE_FLOATS)}"
        reasons = {Role.VIEW: "is a view, which computes nothing", Role.PLAIN: "is computed by no primitive"}
        reason = reasons.get(Role(kernel.role))
        return f"{kernel.name} {reason}" if reason else None
    try:
        MemoryDesc(kernel.shape or (1,), "f32", wanted)
    except LayoutError as error:
        return str(error)
    return None
