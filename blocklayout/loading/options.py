"""Options of ``load``, checked where they are given, also where plans are made later."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from msgspec import Struct

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.errors import BlockLayoutError, InputError, PlanError, did_you_mean
from blocklayout.ir import Demands
from blocklayout.plan.policies import checked_policy
from blocklayout.plan.request import TUNE_MODES, TUNE_SECONDS, Request, TuneMode, computed_dtype
from blocklayout.plan.runs import LOSS_MODES
from blocklayout.runtime import MAX_PLANS
from blocklayout.value_checks import CheckMode, checked_mode

if TYPE_CHECKING:
    from blocklayout.ir import Asked
    from blocklayout.plan import LossMode
    from blocklayout.plan.policies import PolicyName

Progress = Callable[[str], None]
"""Progress callback: called with a few words before each stage that may take a while."""


class PlanningOptions(TypedDict, total=False):
    """Types of the keywords of ``load`` that leave inputs, data type and threads as they are."""

    layout: PolicyName | str | None
    streams: int
    max_waiting: int | None
    batching: tuple[int, float] | None
    pin: Asked | None
    expect: Asked | None
    precision: Asked | None
    on_layout_loss: LossMode | None
    tune: TuneMode
    tune_seconds: float
    max_plans: int
    on_misfit: Literal["raise", "replan"]
    denormals: Literal["flush", "keep"]
    recipes: Mapping[str, bool] | None
    check: CheckMode | None
    verify: bool
    mapped: bool
    progress: Progress | None


class Options(Struct, frozen=True, kw_only=True):
    """The options of ``load``, checked.

    Attributes:
        dtype: Data type of activations inside; ``f32``, or that of a given plan, if ``None``.
        layout: The policy; ``auto``, or that of a given plan, if ``None``.
        threads: Those of each stream.
        batching: The largest batch, and milliseconds its first row waits.
        demands: Pins, expectations and precision of kernels.
        wishes: The rest of a request for a plan.
        max_plans: Plans that are kept: one for each size of batches at least.
        plan: A Plan, or the path of a saved one.
        replans: Whether to warn and plan anew where a saved plan does not fit.
        verify: Whether saved weights are compared with their checksums.
        mapped: Whether saved weights are mapped, not read.
        progress: A :data:`Progress`, or ``None``.
    """

    dtype: str | None = None
    layout: str | None = None
    threads: int | None = None
    streams: int = 1
    max_waiting: int | None = None
    batching: tuple[int, float] | None = None
    shapes: Mapping[str, Sequence[int | tuple[int, int]]] | None = None
    io_layout: Mapping[str, str] | None = None
    demands: Demands = Demands()
    wishes: Request = Request()
    tune: TuneMode = "cached"
    tune_seconds: float = TUNE_SECONDS
    max_plans: int = MAX_PLANS
    plan: Any = None
    replans: bool = False
    keeps_denormals: bool = False
    check: CheckMode | None = None
    verify: bool = True
    mapped: bool = True
    progress: Any = None

    @classmethod
    def of(  # noqa: PLR0913 - those of load
        cls,
        *,
        dtype: Any = None,
        layout: Any = None,
        threads: Any = None,
        streams: Any = 1,
        max_waiting: Any = None,
        batching: Any = None,
        shapes: Any = None,
        io_layout: Any = None,
        pin: Any = None,
        expect: Any = None,
        precision: Any = None,
        on_layout_loss: Any = None,
        tune: Any = "cached",
        tune_seconds: Any = TUNE_SECONDS,
        max_plans: Any = MAX_PLANS,
        plan: Any = None,
        on_misfit: Any = "raise",
        denormals: Any = "flush",
        recipes: Any = None,
        check: Any = None,
        verify: Any = True,
        mapped: Any = True,
        progress: Any = None,
    ) -> Options:
        """Those of :func:`blocklayout.load`, by its keywords."""
        function("progress", progress)
        if on_layout_loss is not None:
            one_of("on_layout_loss", on_layout_loss, LOSS_MODES, PlanError)
        by_name("shapes", shapes, "{'x': (1, 3, 224, 224)}")
        for name, shape in (shapes or {}).items() if has_ranges(shapes or {}) else ():
            ranges_of(name, shape)
        by_name("io_layout", io_layout, "{'x': 'nhwc'}")
        flag("mapped", mapped)
        one_of("on_misfit", on_misfit, ("raise", "replan"))
        one_of("tune", tune, TUNE_MODES, PlanError)
        seconds("tune_seconds", tune_seconds)
        one_of("denormals", denormals, ("flush", "keep"))
        flag("verify", verify)
        batch = None if batching is None else batch_of(batching)
        return cls(
            dtype=None if dtype is None else computed_dtype(dtype),
            layout=None if layout is None else checked_policy(layout),
            threads=_threads_of_stream(threads, streams),
            streams=streams,
            max_waiting=None if max_waiting is None else positive("max_waiting", max_waiting),
            batching=batch,
            shapes=shapes,
            io_layout=io_layout,
            demands=_demands(pin, expect, precision),
            wishes=Request(on_layout_loss=on_layout_loss, without=_unwanted(recipes)),
            tune=tune,
            tune_seconds=tune_seconds,
            max_plans=max(positive("max_plans", max_plans), 0 if batch is None else 1 + batch[0].bit_length()),
            plan=plan,
            replans=on_misfit == "replan",
            keeps_denormals=denormals == "keep",
            check=None if check is None else checked_mode(check),
            verify=verify,
            mapped=mapped,
            progress=progress,
        )

    def tell(self, words: str) -> None:
        """Say what happens next, if somebody listens."""
        (self.progress or silent)(words)


def silent(_: str) -> None:
    """Progress callback that does nothing."""


def _threads_of_stream(threads: Any, streams: Any) -> int | None:
    total = dnnl.default_threads() if threads is None else positive("threads", threads)
    if positive("streams", streams) > total:
        available = "this process may use" if threads is None else "threads gives them"
        raise InputError(
            f"streams={streams}: each has a thread at least, and {available} {total}; give more, or fewer streams"
        )
    return None if threads is None else total // streams


def _demands(pin: Any, expect: Any, precision: Any) -> Demands:
    demands = Demands.of(pin, expect, precision)
    for key, wanted in () if callable(precision) else (precision or {}).items():
        if wanted is not None:
            computed_dtype(wanted, f"precision {key}={wanted}")
    return demands


def _unwanted(recipes: Any) -> frozenset[str]:
    by_name("recipes", recipes, "{'winograd': False}")
    for name, is_wanted in (recipes or {}).items():
        one_of("recipes", name, own.recipes(), PlanError)
        flag(f"recipes[{name!r}]", is_wanted)
    return frozenset(name for name, is_wanted in (recipes or {}).items() if not is_wanted)


def positive(name: str, value: Any) -> int:
    """An integer of at least 1."""
    if type(value) is not int or value < 1:
        raise InputError(f"{name}={value!r}: give a positive number, or nothing for the default")
    return value


def batch_of(value: Any) -> tuple[int, float]:
    """The largest batch, and how many milliseconds to wait for others."""
    is_pair = isinstance(value, tuple | list) and len(value) == 2
    if not is_pair or not all(isinstance(each, int | float) and not isinstance(each, bool) for each in value):
        raise InputError(f"batching={value!r}: give the largest batch and milliseconds to wait, such as (8, 2.0)")
    if not isinstance(value[0], int) or value[0] < 1 or not 0 <= value[1] < inf:
        raise InputError(f"batching={value!r}: the largest batch is a positive number, the delay 0 ms or more")
    return value[0], float(value[1])


def seconds(name: str, value: Any) -> None:
    """Refuse all but a positive number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise PlanError(f"{name}={value!r}: give a positive number of seconds")


def one_of(name: str, value: Any, known: Sequence[str], error: type[BlockLayoutError] = InputError) -> None:
    """Refuse other words than these."""
    if not isinstance(value, str) or value not in known:
        close = did_you_mean(value, known) if isinstance(value, str) else ""
        raise error(f"{name}={value!r}: give {' or '.join(map(repr, known))}{close}")


def flag(name: str, value: Any) -> None:
    """Refuse all but True and False."""
    if not isinstance(value, bool):
        raise InputError(f"{name}={value!r}: give True or False")


def function(name: str, value: Any) -> None:
    """Refuse all but functions."""
    if value is not None and not callable(value):
        raise InputError(f"{name}={value!r}: give a function of one string, such as print")


def by_name(name: str, value: Any, example: str) -> None:
    """Refuse all but mappings from names."""
    if value is not None and not isinstance(value, Mapping):
        raise InputError(f"{name}={value!r}: give a mapping by name, such as {example}")
    for key in value or ():
        if not isinstance(key, str):
            raise InputError(f"{name}: {key!r} is no name; give a mapping by name, such as {example}")


def has_ranges(shapes: Mapping[str, Any]) -> bool:
    """Whether an extent of these is a range."""
    listed = (shape for shape in shapes.values() if isinstance(shape, list | tuple))
    return any(isinstance(extent, list | tuple) for shape in listed for extent in shape)


def ranges_of(name: str, shape: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """The least and the most of each extent of an input; of a number it is both."""
    rule = "give numbers, and the least and the most of ranges, such as (1, 3, (32, 640), (32, 640))"
    ranges = []
    try:
        for extent in shape:
            least, most = map(operator.index, extent if isinstance(extent, list | tuple) else (extent, extent))
            ranges.append((least, most))
    except (TypeError, ValueError):
        raise InputError(f"the shape of input {name!r} is {shape!r:.80}; {rule}") from None
    for axis, (least, most) in enumerate(ranges):
        if least < 0 or most < least:
            why = "no extent can be negative" if least < 0 else "the least comes first"
            raise InputError(f"the shape of input {name!r} is {shape!r:.80}: axis {axis} is {(least, most)}, and {why}")
    return tuple(ranges)
