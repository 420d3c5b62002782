"""The verdict on a model: which policy is best and by how much, what reorders and slow code cost, what would help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dnnl import Spec, has_bf16
from blocklayout.dnnl.own import multiplies_bytes
from blocklayout.dtypes import BYTE_DTYPES, itemsize
from blocklayout.plan.policies import SOLVE
from blocklayout.plan.reasons import CALLER
from blocklayout.show.comparison import clearly_fastest
from blocklayout.show.names import policy_name
from blocklayout.show.output import painted, put, say
from blocklayout.show.plan_text import plan_text
from blocklayout.show.profile import predicted_profile
from blocklayout.show.words import counted, cut, kib, percent, scaled_time, screen_width, width_of
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from argparse import Namespace

    from blocklayout.plan import Plan
    from blocklayout.show.comparison import Measurement
    from blocklayout.show.profile import Profile, StepProfile

LEAST_GAIN = 0.03
"""Share of the time that an advice has to be worth."""

BATCH = 8
"""The batch that is advised where weights are read for a single image."""

_MOVES = ("reorder", "input", "output")
_HOW = {"onnx.reference": "by onnx.reference", "numpy": "in numpy", "python": "in Python"}
_LABEL_WIDTH = 9
_MANY = 10.0
"""Ratio from which on it is shown as a factor, not as a percentage."""


class Rival(Struct, frozen=True):
    """Another policy, and its time over that of the best one: measured where both ran, else by their prices."""

    policy: str
    ratio: Spread
    is_measured: bool


class SlowCode(Struct, frozen=True):
    """A step that no optimised kernel computes.

    ``kernel`` may be a node's name, ``how`` is ``by onnx.reference``, ``in numpy``, ``in Python``, or ``by reference
    code`` of oneDNN.
    """

    kernel: str
    how: str
    ns: float


class Advice(Struct, frozen=True):
    """An option that would help, the numbers that this follows from, and the part of the time that it saves at most."""

    option: str
    why: str
    share: float


class Moves(Struct, frozen=True):
    """Reorders in a run, those at the border included: how many, the bytes that they read and write, nanoseconds."""

    n: int
    nbytes: int
    ns: float


class Verdict(Struct, frozen=True):
    """Which layout is best for a model, how much it matters, and what would help; print it.

    Attributes:
        model: The model's name.
        policy: The policy that was asked for.
        chosen: The policy that ``auto`` took; ``solve`` and ``bold solve`` mix layouts.
        dtype: Data type of the activations inside.
        n_threads: Threads of a run.
        best: The best policy.
        time: Nanoseconds of a run with the best policy.
        is_measured: Whether that was run, by the profile or by the load; else it is the sum of prices.
        rivals: Other policies, the fastest first.
        reorders: Those in a run as it was asked for.
        slow: Steps that no optimised kernel computes, those that take longest first.
        ns: Nanoseconds of all steps, of which reorders and slow ones have their shares.
        is_profiled: Whether steps were timed; else these are prices.
        advice: What would help most, of what follows from these numbers; ``None`` where nothing does.
    """

    model: str
    policy: str
    chosen: str
    dtype: str
    n_threads: int
    best: str
    time: Spread
    is_measured: bool
    rivals: tuple[Rival, ...]
    reorders: Moves
    slow: tuple[SlowCode, ...]
    ns: float
    is_profiled: bool
    advice: Advice | None

    @classmethod
    def of(
        cls,
        plans: Sequence[Plan],
        batched: Sequence[str] = (),
        calls: Mapping[str, str] | None = None,
        profile: Profile | None = None,
    ) -> Verdict:
        """On a model's plan, or on the plans of its pieces.

        Args:
            plans: At least one.
            batched: The model's inputs, if it leaves the first extent of all of them free.
            calls: How nodes between plans are computed, by name: ``numpy`` or ``onnx.reference``.
            profile: A typical run, if there was one.
        """
        first = plans[0]
        profiles = [profile] if profile else [predicted_profile(plan, plan.machine()) for plan in plans]
        steps = [step for each in profiles for step in each.steps]
        ns, own_ns = sum(step.ns for step in steps), sum(plan.cost_ns for plan in plans)
        costs = _policy_costs(plans)
        best = "auto" if first.policy != "auto" and costs.get("auto", own_ns) < own_ns else first.policy
        best_ns = own_ns if best == first.policy else costs[best]
        raced_ns = first.raced_ns if len(plans) == 1 and best == first.policy else 0.0
        unplanned = {} if profile or calls is None else calls
        slow = [*_slow_code(steps), *(SlowCode(name, _HOW[by], 0.0) for name, by in unplanned.items())]
        chosen = {plan.chosen for plan in plans}
        advice = [each for plan in plans for each in _advice(plan, own_ns or 1.0)]
        advice += _precision_advice(plans, own_ns or 1.0)
        advice += _batch_advice(first, batched, own_ns or 1.0)
        return cls(
            model=first.model,
            policy=first.policy,
            chosen=chosen.pop() if len(chosen) == 1 else "solve",
            dtype=first.dtype,
            n_threads=first.n_threads,
            best=best,
            time=Spread.of([ns if profile else (raced_ns or best_ns) * first.parts]),
            is_measured=profile is not None or raced_ns > 0,
            rivals=_sorted(_rivals(plans, costs, best, best_ns)),
            reorders=Moves(
                sum(len(plan.reorders) for plan in plans),
                sum(plan.reorder_nbytes for plan in plans),
                sum(step.ns for step in steps if step.kind in _MOVES),
            ),
            slow=tuple(sorted(slow, key=attrgetter("ns"), reverse=True)),
            ns=ns,
            is_profiled=profile is not None,
            advice=max((each for each in advice if each.share >= LEAST_GAIN), key=attrgetter("share"), default=None),
        )

    def timed(self, measurements: Sequence[Measurement]) -> Verdict:
        """The same with measured times; the first measurement is of the policy that was asked for."""
        own, *rest = measurements
        others = [each for each in rest if each.plan.dtype == own.plan.dtype]
        best = clearly_fastest(others) or own
        scale = 1 / best.ratio.median
        seen = {
            each.plan.policy: Rival(each.plan.policy, each.ratio.scaled(scale), is_measured=True)
            for each in (own, *others)
        }
        rivals = {rival.policy: rival for rival in self.rivals} | seen
        del rivals[best.plan.policy]
        return replace(
            self,
            best=best.plan.policy,
            time=best.time_ms.scaled(1e6),
            is_measured=True,
            rivals=_sorted(rivals.values()),
            advice=self._measured_advice(own, rest),
        )

    def _measured_advice(self, own: Measurement, others: Sequence[Measurement]) -> Advice | None:
        """The advice, or that of another data type that was measured."""
        for other in others:
            if other.plan.dtype != own.plan.dtype and other.plan.policy == own.plan.policy:
                share = 1 - other.time_ms.median / own.time_ms.median
                why = f"{1 / (1 - share):.2g}x as fast, measured"
                return Advice(f"--dtype {other.plan.dtype}", why, share) if share >= LEAST_GAIN else None
        return self.advice

    def __str__(self) -> str:
        advice = self.advice
        lines = {
            "best": self._best(),
            "others": self._others(),
            "reorders": self._reorders(),
            "slow": self._slow(),
            "try": f"{advice.option}: {advice.why}" if advice else "nothing: no change follows from these numbers",
        }
        return "\n".join(cut(f"{label:<{_LABEL_WIDTH}}{text}", screen_width()) for label, text in lines.items())

    def _best(self) -> str:
        name = policy_name(self.best)
        if self.best == self.policy and self.chosen != self.policy:
            name = f"{name} ({policy_name(self.chosen)})"
        low, high = (scaled_time(each) for each in (self.time.low, self.time.high))
        if low.split()[-1] == high.split()[-1]:
            low = low.split()[0]
        spread = f" ({low}-{high})" if self.time.low != self.time.high else ""
        how = _how(is_measured=self.is_measured)
        machine = f"{self.dtype}, {counted(self.n_threads, 'thread')}"
        return f"{name}: {scaled_time(self.time.median)}{spread} {how}; {machine}"

    def _others(self) -> str:
        """With ``~`` before estimates where others are measured; in words where none is as the best one's time."""
        kinds = {rival.is_measured for rival in self.rivals}
        is_mixed = len(kinds) > 1
        are_alike = self.is_measured in kinds
        note = " (~ estimated)" if is_mixed else "" if are_alike else f" {_how(is_measured=not self.is_measured)}"
        marks = ["~" if is_mixed and not rival.is_measured else "" for rival in self.rivals]
        return _joined([_rival_text(rival, mark) for rival, mark in zip(self.rivals, marks, strict=True)], note)

    def _share(self, ns: float) -> str:
        return f"{percent(ns / self.ns if self.ns else 0.0)} of the time{'' if self.is_profiled else ', estimated'}"

    def _reorders(self) -> str:
        moves = self.reorders
        return (
            f"{moves.n} ({kib(moves.nbytes)} KiB): {scaled_time(moves.ns)}, {self._share(moves.ns)}"
            if moves.n
            else "none"
        )

    def _slow(self) -> str:
        if not self.slow:
            return "none: nothing runs by reference code or in numpy"
        shares = [f" {percent(each.ns / self.ns)}" if each.ns and self.ns else "" for each in self.slow]
        said = [f"{each.kernel} {each.how}{share}" for each, share in zip(self.slow, shares, strict=True)]
        return f"{self._share(sum(each.ns for each in self.slow))}: {_joined(said, '')}"


def _how(*, is_measured: bool) -> str:
    return "measured" if is_measured else "estimated"


def _policy_costs(plans: Sequence[Plan]) -> dict[str, float]:
    """Nanoseconds by price of each policy that all plans have a price of."""
    costs = [dict(plan.policy_costs) for plan in plans]
    return {name: sum(each[name] for each in costs) for name in costs[0] if all(name in each for each in costs)}


def _rivals(plans: Sequence[Plan], costs: Mapping[str, float], best: str, best_ns: float) -> Iterator[Rival]:
    """The other policies, by runs of whole plans where there were any, else by price."""
    first = plans[0]
    raced = dict(first.raced) if len(plans) == 1 and best == "auto" == first.policy else {}
    own = raced.get(first.chosen)
    same = {best, SOLVE, *([first.chosen] if best == "auto" == first.policy else ["auto"])}
    for name, cost in costs.items():
        if name not in same and best_ns:
            is_measured = own is not None and name in raced
            yield Rival(name, Spread.of([raced[name] / own if own and is_measured else cost / best_ns]), is_measured)


def _slow_code(steps: Sequence[StepProfile]) -> Iterator[SlowCode]:
    for step in steps:
        how = _HOW.get(step.impl, "by reference code" if step.kind == "fallback" else None)
        if how is not None and step.kind not in _MOVES:
            yield SlowCode(step.name, how, step.ns)


def _advice(plan: Plan, ns: float) -> Iterator[Advice]:
    """Changes of the layouts in one plan; ``ns`` is the price of the whole model."""
    auto_ns = dict(plan.policy_costs).get("auto", plan.cost_ns)
    if plan.policy != "auto":
        share = (plan.cost_ns - auto_ns) / ns
        yield Advice("--layout auto", f"{percent(share)} less time than {plan.policy}, estimated", share)
    elif plan.unpinned_ns is not None:
        pins = " ".join(f"--pin {pin}" for pin in dict.fromkeys(f"{pin.key}={pin.wanted}" for pin in plan.pins))
        share = (plan.cost_ns - plan.unpinned_ns) / ns
        yield Advice(f"without {pins}", f"{percent(share)} less time, estimated", share)
    elif not plan.raced:
        for choice in plan.choices:
            for other in choice.alternatives:
                wanted, share = choice.pin_to(other.way), -other.extra_ns / ns
                if wanted is not None:
                    yield Advice(f"--pin {choice.kernel}={wanted}", f"{percent(share)} less time, estimated", share)
    results = {result.buffer: result.name for result in plan.results}
    borders = [(each.input, each.desc, each.cost_ns) for each in plan.entries if not each.is_conversion]
    borders += [
        (results[step.dst.buffer], dict(step.operands)["src"].desc, step.cost_ns)
        for step in plan.steps
        if step.readers == (CALLER,) and not step.is_conversion and step.dst.buffer in results
    ]
    for name, desc, cost_ns in borders:
        if desc.canonical_tag is not None:
            why = f"{scaled_time(cost_ns)} less, estimated: nothing is reordered at that border"
            yield Advice(f"--io-layout {name}={desc.named('src')}", why, cost_ns / ns)


def _precision_advice(plans: Sequence[Plan], ns: float) -> Iterator[Advice]:
    """A narrower data type, where this CPU multiplies it faster, by how much of the time is products."""
    is_in_bytes = any(desc.dtype in BYTE_DTYPES for plan in plans for desc in plan.formats.values())
    is_in_f32 = all(plan.dtype == "f32" and not plan.precision for plan in plans) and not is_in_bytes
    if is_in_f32 and has_bf16():
        yield from _faster_products(plans, ns, "bf16", "--dtype bf16")
    elif not is_in_bytes and multiplies_bytes():
        yield from _faster_products(plans, ns, "s8", "blocklayout quantize")


def _faster_products(plans: Sequence[Plan], ns: float, dtype: str, option: str) -> Iterator[Advice]:
    products_ns = saved_ns = 0.0
    for plan in plans:
        machine = plan.machine()
        for step in plan.steps:
            if flops := 2 * step.multiply_adds():
                given = step.spec.memory_desc("src").dtype
                peak = machine.peak_flops("", dtype)
                # Winograd's method, which does fewer products than flops has, exists in f32 alone.
                computing_ns = max(step.cost_ns * machine.peak_flops("", given) / peak, flops / peak)
                moving_ns = step.nbytes_moved * itemsize(dtype) / itemsize(given) / machine.bandwidth
                products_ns += step.cost_ns
                saved_ns += max(0.0, step.cost_ns - max(computing_ns, moving_ns))
    share = saved_ns / ns
    why = f"up to {1 / (1 - share):.2g}x as fast; {percent(products_ns / ns)} of the time is products"
    yield Advice(option, why, share)


def _batch_advice(plan: Plan, batched: Sequence[str], ns: float) -> Iterator[Advice]:
    """Several samples at a time, where the model takes them and one alone waits for weights to be read."""
    dims = {name: desc.dims for name, desc in plan.fed if name in batched}
    if not dims or any(extents[:1] != (1,) for extents in dims.values()):
        return
    machine, waiting_ns = plan.machine(), 0.0
    for step in plan.steps:
        if isinstance(step.spec, Spec) and step.multiply_adds() and step.spec.has("weights"):
            reading_ns = step.spec.memory_desc("weights").nbytes / machine.bandwidth
            peak = machine.peak_flops(step.spec.impl, step.spec.memory_desc("src").dtype)
            computing_ns = 2 * step.multiply_adds() / peak
            waiting_ns += max(0.0, min(reading_ns, step.cost_ns) - computing_ns)
    batch = " ".join(f"--shape {name}={'x'.join(map(str, (BATCH, *rest)))}" for name, (_, *rest) in dims.items())
    share = waiting_ns * (1 - 1 / BATCH) / ns
    why = f"{percent(waiting_ns / ns)} of the time waits for weights, estimated"
    yield Advice(batch, why, share)


def _sorted(rivals: Iterable[Rival]) -> tuple[Rival, ...]:
    return tuple(sorted(rivals, key=lambda rival: rival.ratio.median))


def _rival_text(rival: Rival, mark: str) -> str:
    """How much more time a policy takes, such as ``nhwc +12±3%``."""
    ratio = rival.ratio
    low, high = ratio.quartiles or (ratio.low, ratio.high)
    around = f"±{50 * (high - low):.0f}" if len(ratio.values) > 1 else ""
    more = f"{round(100 * (ratio.median - 1)):+}{around}%" if ratio.median < _MANY else f"{ratio.median:,.0f}x"
    return f"{policy_name(rival.policy)} {mark}{more}"


def _joined(said: Sequence[str], note: str) -> str:
    """As many as fit the screen behind a label; others are counted, but for the last."""
    shown = [*said]
    for n_left_out in range(len(said)):
        if n_left_out:
            shown = [*said[: -1 - n_left_out], f"{n_left_out} more", *said[-1:]]
        if width_of(", ".join(shown) + note) <= screen_width() - _LABEL_WIDTH:
            break
    return f"{', '.join(shown)}{note}" if said else "none"


def say_details(args: Namespace, plans: Sequence[Plan]) -> None:
    """Print the details that ``--steps``, ``--top`` and ``--why`` ask for."""
    for plan in plans:
        if args.steps or args.top:
            say(f"\n{plan_text(plan, None if args.steps else args.top)}")
        if args.why:
            say(f"\n{plan.explain()}")


def say_verdict(verdict: Verdict) -> None:
    """Print the verdict; labels are bold in a terminal, and what would help is green."""
    for line in str(verdict).split("\n"):
        label, text = line[:_LABEL_WIDTH], line[_LABEL_WIDTH:]
        put(f"{painted(label, 1)}{painted(text, 32) if label.startswith('try') else text}\n")
