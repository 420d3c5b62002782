"""A plan: a session's steps, frozen, printable and serialisable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from blocklayout.atomic_write import replacing
from blocklayout.dnnl import Spec, is_reference, multiply_adds
from blocklayout.dnnl.arguments import results
from blocklayout.encoding import MisfitError, from_json, reason_against, to_json
from blocklayout.errors import PlanError, closest
from blocklayout.ir import Demand, Fused, HostSpec, MadeWeights, Names
from blocklayout.layout import MemoryDesc
from blocklayout.plan.checked import check_specs
from blocklayout.plan.choices import KernelChoice
from blocklayout.regular_file import open_regular

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.plan.costs.machine import Machine

VERSION: Literal[6] = 6
"""Of the format; bump on incompatible changes."""

BufferKind = Literal["arena", "entry", "output", "constant"]
FREE = "any"
"""Value of ``io_layout`` for an input or output whose format the plan chooses."""

MOVERS = ("reorder", "copy")
"""Kinds of steps that compute nothing."""

MAX_PARTS = 1 << 20
"""More than any batch has."""

MAX_FILE_NBYTES = 1 << 28
"""More than the plan of any network takes: tens of thousands of steps."""


class Buffer(Struct, frozen=True):
    """A stretch of memory that steps read and write.

    Attributes:
        kind: In the arena; in the arena too, but bound to the caller's memory where that fits; an array
            made afresh for the caller; or a packed constant.
        name: The value or constant it was made for.
        nbytes: Its size, padding included.
        offset: Where it starts in the arena, in bytes.
        within: The buffer that it is a part of, if any: a slice of a result.
    """

    kind: BufferKind
    name: str
    nbytes: int
    offset: int = 0
    within: int | None = None


PriceSource = Literal["measured", "modelled"]
"""Where a price comes from: this machine, alone; or the model."""


class Operand(Struct, frozen=True):
    """A buffer as one step sees it."""

    buffer: int
    desc: MemoryDesc


class Step(Struct, frozen=True, dict=True):
    """One primitive execution, or numpy's computation in its place.

    Attributes:
        kernel: The kernel it belongs to; for a reorder the one that demands it.
        spec: The primitive, resolved; a HostSpec where there is none.
        operands: By the primitive's argument.
        nodes: Names of the model's nodes it computes; none for a reorder.
        reason: Why it is there.
        cost_ns: Estimated time.
        scratchpad_nbytes: Scratchpad it needs.
        readers: Of a reorder, the kernels that read the copy, and perhaps ``the caller``.
        without_ns: Of a reorder, how much more the whole network would cost without this copy, everything else
            chosen anew; ``None`` where nothing can do without, or it is not known.
        priced: Where the estimate comes from.
    """

    kernel: str
    spec: Spec | HostSpec
    operands: tuple[tuple[str, Operand], ...]
    nodes: tuple[str, ...]
    reason: str
    cost_ns: float
    scratchpad_nbytes: int
    readers: tuple[str, ...] = ()
    without_ns: float | None = None
    priced: PriceSource = "modelled"

    @property
    def is_reorder(self) -> bool:
        """Whether it only changes a layout or data type; moving bytes for a node is more."""
        return self.spec.kind in MOVERS and not self.nodes

    @property
    def is_plain(self) -> bool:
        """Whether ``onnx.reference`` computes it, because no primitive does."""
        return self.spec.kind == "plain"

    @property
    def is_row_major(self) -> bool:
        """Whether it computes a node on row-major arrays, because no primitive does."""
        return self.is_plain or (self.spec.kind == "numpy" and all(op.desc.is_contiguous() for _, op in self.operands))

    @property
    def is_reference(self) -> bool:
        """Whether it runs an unoptimised reference implementation."""
        has_post_ops = bool(self.spec.attr.post_ops)
        return is_reference(self.spec.impl, has_post_ops=has_post_ops) and self.spec.kind not in MOVERS

    @property
    def dst(self) -> Operand:
        """The operand it writes; only for primitives with a single result."""
        return dict(self.operands)["dst"]

    @property
    def dsts(self) -> tuple[Operand, ...]:
        """The operands it writes."""
        return tuple(operand for arg, operand in self.operands if arg in self.written)

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The arguments it writes, the main one first."""
        if isinstance(self.spec, Spec):
            return results(self.spec)
        return tuple(arg for arg, _ in self.operands if arg.startswith("dst"))

    @property
    def is_conversion(self) -> bool:
        """Of a reorder, whether it changes the data type."""
        return len({operand.desc.dtype for _, operand in self.operands}) > 1

    @cached_property
    def nbytes_moved(self) -> int:
        """Bytes it reads and writes, padding included."""
        return sum(operand.desc.nbytes for _, operand in self.operands)

    def multiply_adds(self, *, padded: bool = False) -> int:
        """Multiplications it does, each with an addition; those of numpy are unknown, and counted as none.

        Args:
            padded: Count those on padding as well.
        """
        return multiply_adds(self.spec, padded=padded) if isinstance(self.spec, Spec) else 0


class Entry(Struct, frozen=True):
    """How an input of the model reaches the steps that read it.

    The caller's array is bound as it is where its strides fit ``desc``; else one reorder
    brings it to ``desc``, into ``buffer``.

    Attributes:
        input: Name of the model's input.
        buffer: Where a reordered copy goes; the steps refer to it.
        source: The layout a caller's array is expected in: row-major.
        desc: The layout the steps read.
        reason: Who demands it.
        cost_ns: Estimated time of the reorder from ``source``; 0 where none is needed.
        readers: The kernels that read it.
        without_ns: As a step's.
    """

    input: str
    buffer: int
    source: MemoryDesc
    desc: MemoryDesc
    reason: str
    cost_ns: float
    readers: tuple[str, ...] = ()
    without_ns: float | None = None

    @property
    def is_reorder(self) -> bool:
        """Whether bytes move even when the caller's array is row-major."""
        return not self.source.readable_as(self.desc)

    @property
    def is_conversion(self) -> bool:
        """Whether its reorder changes the data type."""
        return self.source.dtype != self.desc.dtype

    @property
    def nbytes_moved(self) -> int:
        """Bytes its reorder reads and writes, padding included."""
        return self.source.nbytes + self.desc.nbytes


class Result(Struct, frozen=True):
    """An output of the model.

    Attributes:
        name: The model's name for it.
        buffer: The output buffer, or ``None`` where the output is a constant or an input itself.
        desc: In the declared data type, row-major unless the caller said otherwise; a scalar is one element
            of rank 1. ``None`` together with ``buffer``.
        shape: The extents the model declares.
    """

    name: str
    buffer: int | None
    desc: MemoryDesc | None
    shape: tuple[int, ...] = ()


class PackedConstant(Struct, frozen=True):
    """A constant in the layout its reader wants, made once.

    Attributes:
        constant: Name of the constant.
        buffer: Where the packed bytes are.
        desc: Their layout.
        kernel: A kernel that reads it.
        made: Computes the packed array from the constant; ``None`` where it is the constant itself.
    """

    constant: str
    buffer: int
    desc: MemoryDesc
    kernel: str
    made: MadeWeights | None = None

    def contents(self, array: np.ndarray) -> np.ndarray:
        """The elements to be packed, of the constant's."""
        return self.made.of(array) if self.made else array


class PlanConfig(Struct, frozen=True):
    """The options and the machine that a plan was made for.

    Attributes:
        policy: Chooses the layouts.
        dtype: Data type of the activations inside.
        n_threads: Threads of a run.
        isa: Instruction set the implementations were chosen for.
        library: Version of oneDNN.
        pins: Formats that kernels were forced into.
        precision: Data types that kernels were forced to compute in.
        io_layout: Formats of inputs and outputs that are not row-major at the border, by name.
        ranges: The least and the most of each extent that its session takes, by input and as the caller's arrays have
            them; empty where it was not loaded for ranges.
    """

    policy: str
    dtype: str
    n_threads: int
    isa: str
    library: str
    pins: tuple[Demand, ...]
    precision: tuple[Demand, ...]
    io_layout: tuple[tuple[str, str], ...]
    ranges: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()


class Rationale(Struct, frozen=True, omit_defaults=True):
    """Why a plan is as it is.

    Attributes:
        choices: The choice for each kernel, with its alternatives.
        chosen: The policy; for ``auto`` the contender that won.
        policy_costs: Estimated nanoseconds of each policy.
        bound_ns: No choice of layouts costs less, by the same costs.
        is_optimal: Whether it is proven that the solve's choice is the cheapest; it is not where it keeps to a simple
            policy because the gain is less than prices may be wrong by.
        is_exact: Whether elimination alone proves that; else costs of runners-up are upper bounds.
        unpinned_ns: Cost of the solve's choice without pins; ``None`` if there are none.
        priced_by: Where costs come from, in words.
        raced: Plans that were run whole, by policy or solve, and their time over that of the first: medians of
            the ratios of rounds.
        raced_ns: Nanoseconds of a run of the plan that was taken of these, the median of rounds; 0 where none ran.
        exceptions: Kernels that could not have the layout the policy asks for, or an implementation that the library
            offered and then refused, with the reason.
        arena_lower_bound: Largest number of bytes alive at once.
        in_floats: Kernels that nothing on offer computes with bytes, although bytes stand for what they read, with the
            reason.
        precision_report: Of a model that was quantised under a budget of error: a ``PrecisionReport`` as JSON.
    """

    choices: tuple[KernelChoice, ...]
    chosen: str
    policy_costs: tuple[tuple[str, float], ...]
    bound_ns: float
    is_optimal: bool
    is_exact: bool
    unpinned_ns: float | None
    priced_by: str
    raced: tuple[tuple[str, float], ...]
    exceptions: tuple[tuple[str, str], ...]
    arena_lower_bound: int
    in_floats: tuple[tuple[str, str], ...] = ()
    precision_report: str = ""
    raced_ns: float = 0.0


class Plan(Struct, frozen=True, dict=True):
    """Everything a session needs to run one set of input shapes.

    Attributes of ``config`` and ``rationale`` are the plan's as well: ``plan.isa`` is ``plan.config.isa``.

    Attributes:
        program: Digest of the structure it was made of, see :attr:`~blocklayout.ir.Program.digest`.
        inputs: Declared descriptors of the model's inputs, row-major unless the caller said otherwise.
        values: The layout of every value by the model's names, in the order they are computed; see ``formats``.
        parts: In how many equal parts of the rows it runs, each as the rest of the plan has it.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> b = bl.Builder()
        >>> x = b.input("x", (1, 16, 8, 8))
        >>> b.output("y", x.conv(np.ones((16, 16, 3, 3), np.float32), pads=1, name="conv").relu())
        >>> plan = bl.load(b, layout="nhwc").plan
        >>> plan.format_of("conv").named("src"), plan.policy, plan.dtype
        ('nhwc', 'nhwc', 'f32')
        >>> bl.Plan.from_json(plan.to_json()) == plan
        True
    """

    model: str
    program: str
    config: PlanConfig
    inputs: tuple[tuple[str, MemoryDesc], ...]
    entries: tuple[Entry, ...]
    steps: tuple[Step, ...]
    results: tuple[Result, ...]
    buffers: tuple[Buffer, ...]
    constants: tuple[PackedConstant, ...]
    values: tuple[tuple[str, MemoryDesc], ...]
    arena_nbytes: int
    scratchpad_nbytes: int
    rationale: Rationale
    version: Literal[6] = VERSION
    parts: Annotated[int, Meta(ge=1, le=MAX_PARTS)] = 1

    policy = cached_property[str](attrgetter("config.policy"))
    dtype = cached_property[str](attrgetter("config.dtype"))
    n_threads = cached_property[int](attrgetter("config.n_threads"))
    isa = cached_property[str](attrgetter("config.isa"))
    library = cached_property[str](attrgetter("config.library"))
    pins = cached_property[tuple[Demand, ...]](attrgetter("config.pins"))
    precision = cached_property[tuple[Demand, ...]](attrgetter("config.precision"))
    io_layout = cached_property[tuple[tuple[str, str], ...]](attrgetter("config.io_layout"))
    ranges = cached_property["tuple[tuple[str, tuple[tuple[int, int], ...]], ...]"](attrgetter("config.ranges"))
    choices = cached_property[tuple[KernelChoice, ...]](attrgetter("rationale.choices"))
    chosen = cached_property[str](attrgetter("rationale.chosen"))
    policy_costs = cached_property[tuple[tuple[str, float], ...]](attrgetter("rationale.policy_costs"))
    bound_ns = cached_property[float](attrgetter("rationale.bound_ns"))
    is_optimal = cached_property[bool](attrgetter("rationale.is_optimal"))
    is_exact = cached_property[bool](attrgetter("rationale.is_exact"))
    unpinned_ns = cached_property["float | None"](attrgetter("rationale.unpinned_ns"))
    priced_by = cached_property[str](attrgetter("rationale.priced_by"))
    raced = cached_property[tuple[tuple[str, float], ...]](attrgetter("rationale.raced"))
    raced_ns = cached_property[float](attrgetter("rationale.raced_ns"))
    exceptions = cached_property[tuple[tuple[str, str], ...]](attrgetter("rationale.exceptions"))
    arena_lower_bound = cached_property[int](attrgetter("rationale.arena_lower_bound"))
    in_floats = cached_property[tuple[tuple[str, str], ...]](attrgetter("rationale.in_floats"))

    @property
    def fed(self) -> tuple[tuple[str, MemoryDesc], ...]:
        """Declared descriptors of the model's inputs for a run, with the rows of all parts."""
        return tuple((name, all_rows(desc, self.parts)) for name, desc in self.inputs)

    @property
    def cost_ns(self) -> float:
        """Estimated time of one run, or of one part of it."""
        return sum(s.cost_ns for s in self.steps) + sum(e.cost_ns for e in self.entries)

    @property
    def roomy_arena_nbytes(self) -> int:
        """Size of an arena that also takes the value between two kernels that are one primitive here.

        For smaller extents the library may compute the two apart.
        """
        layouts = (layout for choice in self.rationale.choices for layout in choice.chosen.layouts)
        return self.arena_nbytes + max((each.held.nbytes for each in layouts if isinstance(each, Fused)), default=0)

    @property
    def reorders(self) -> tuple[Entry | Step, ...]:
        """Entries and steps that only move bytes, in order, inputs' reorders first."""
        return (
            *(entry for entry in self.entries if entry.is_reorder),
            *(step for step in self.steps if step.is_reorder),
        )

    @property
    def reorder_nbytes(self) -> int:
        """Bytes read and written by reorders."""
        return sum(item.nbytes_moved for item in self.reorders)

    @property
    def conversions(self) -> tuple[Entry | Step, ...]:
        """The reorders that change the data type."""
        return tuple(item for item in self.reorders if item.is_conversion)

    @property
    def wide_steps(self) -> tuple[Step, ...]:
        """Steps that compute in f32 where the plan's data type is a narrower one."""
        if self.config.dtype == "f32":
            return ()
        computing = (step for step in self.steps if not step.is_reorder)
        return tuple(step for step in computing if any(operand.desc.dtype == "f32" for operand in step.dsts))

    @property
    def reference_steps(self) -> tuple[Step, ...]:
        """Steps that run an unoptimised reference implementation."""
        return tuple(step for step in self.steps if step.is_reference)

    @property
    def plain_steps(self) -> tuple[Step, ...]:
        """Steps that ``onnx.reference`` computes on row-major arrays."""
        return tuple(step for step in self.steps if step.is_plain)

    @property
    def padding_nbytes(self) -> int:
        """Bytes of zero padding that the steps' results hold."""
        descs = [operand.desc for step in self.steps for operand in step.dsts[:1]]
        return sum(desc.n_padding * desc.itemsize for desc in descs)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the network itself."""
        return sum(step.multiply_adds() for step in self.steps)

    @property
    def padding_multiply_adds(self) -> int:
        """Multiply-adds spent on zero padding."""
        return sum(step.multiply_adds(padded=True) for step in self.steps) - self.multiply_adds

    @cached_property
    def formats(self) -> Mapping[str, MemoryDesc]:
        """The layout of every value of the model, by its name, and named as activations' are: ``nchw``, ``nChw8c``.

        A value that exists only inside a fused primitive has that in which the primitive holds it.
        """
        return {name: desc.canonical.in_role("src") for name, desc in self.values}

    @property
    def names(self) -> Names:
        """The names by which users may demand something."""
        kernels = tuple(kernel for choice in self.rationale.choices for kernel in choice.kernels)
        return Names(kernels, frozenset(name for name, _ in self.values))

    def format_of(self, value: str) -> MemoryDesc:
        """The layout a value of the model is computed in.

        Raises:
            PlanError: No such value; the message gives the closest names.
        """
        if value not in self.formats:
            raise PlanError(f"the plan computes no value {value!r}; {closest(value, self.formats)}")
        return self.formats[value]

    def machine(self) -> Machine:
        """The kind of machine it was made for."""
        from blocklayout.plan.costs.machine import Machine

        return Machine(self.config.isa, self.config.n_threads)

    def explain(self) -> str:
        """Why it is as it is: for every kernel the runner-up, for every reorder its readers, and where runs end.

        Of a model that was quantised under a budget of error, also each layer's precision, its own error, and what the
        other precision would do to time and error.
        """
        from blocklayout.show.explain import explanation

        return explanation(self)

    def to_json(self, *, indent: int | None = None) -> str:
        """The plan as JSON text; :meth:`from_json` reads an equal plan from it."""
        return to_json(self, indent)

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """The plan that :meth:`to_json` wrote.

        Raises:
            PlanError: Not a plan, or one of another format version; the message names the field.
        """
        try:
            plan = from_json(cls, text)
            check_specs(plan)
        except (MisfitError, PlanError) as error:
            raise PlanError(f"not a plan of this version: {reason_against(text, error, VERSION)}") from None
        return plan

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as JSON, for ``blocklayout.load(model, plan=path)``; a reader never sees half of it.

        Raises:
            PlanError: The file cannot be written.
        """
        target = Path(path)
        try:
            with replacing(target) as beside:
                beside.write_text(f"{self.to_json(indent=1)}\n", encoding="utf-8")
        except (OSError, ValueError) as error:
            raise PlanError(f"the plan cannot be saved as {target}: {_reason(error)}") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """The plan in a file, every field of its type; whether it fits a model is checked where it is used.

        Raises:
            PlanError: No such file, or no plan of this version; the message names the field.
        """
        try:
            with open_regular(path) as file:
                text = file.read(MAX_FILE_NBYTES + 1)
        except TypeError as error:
            raise PlanError(f"plan={path!r:.60}: give a Plan, or the path of a saved one") from error
        except (OSError, ValueError) as error:
            raise PlanError(f"no plan can be read from {path!s}: {_reason(error)}") from error
        if len(text) > MAX_FILE_NBYTES:
            raise PlanError(f"{Path(path)} is no saved plan: it holds more than {MAX_FILE_NBYTES >> 20} MiB")
        try:
            return cls.from_json(text)
        except PlanError as error:
            raise PlanError(f"{Path(path)}: {error}") from error

    def _repr_html_(self) -> str:
        from blocklayout.show.plan_text import plan_html

        return plan_html(self)

    def __repr__(self) -> str:
        from blocklayout.show.plan_text import plan_line

        return plan_line(self)

    def __str__(self) -> str:
        from blocklayout.show.plan_text import plan_text

        return plan_text(self)


def all_rows(desc: MemoryDesc, parts: int) -> MemoryDesc:
    """A dense descriptor with the rows of so many parts."""
    return desc if parts == 1 else desc.resized((parts * desc.dims[0], *desc.dims[1:]))


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
