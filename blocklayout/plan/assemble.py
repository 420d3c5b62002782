"""Turn a choice into steps: primitives, the reorders that the chosen layouts imply, and buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from blocklayout.dnnl import Attr, missing_isa
from blocklayout.dnnl.attr import NO_ATTR
from blocklayout.dtypes import BYTE_DTYPES, PRIMITIVE_FLOATS
from blocklayout.ir import Fused, mover
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.joined import FIRST
from blocklayout.plan.network import declared_desc
from blocklayout.plan.plan import FREE, Buffer, BufferKind, Entry, Operand, PackedConstant, Result, Step
from blocklayout.plan.reasons import CALLER, computed_in, entered, reordered

if TYPE_CHECKING:
    from blocklayout.ir import Candidate, Constant, MadeWeights, Value
    from blocklayout.plan.candidates.tiles import Tile
    from blocklayout.plan.network import Choice, Network


class Assembly(Struct):
    """Steps and buffers under construction.

    Attributes:
        at_hand: For every value the operands that hold it: as it was produced, then reordered copies.
        writers: The kernel (or ``the caller``) that produced each value.
        packed: Constants by name, layout, and the function that makes their contents.
        readers: The readers of a value in a buffer, in order.
        slices: Buffers that are parts of others, and the bytes before them there.
        given: The model's inputs, as the caller should give them.
        fused: The operands of tiles whose results are fused, by these.
    """

    network: Network
    choice: Choice
    returns_to_plain: bool
    given: Mapping[str, MemoryDesc]
    entries: list[Entry] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    values: list[tuple[str, MemoryDesc]] = field(default_factory=list)
    at_hand: dict[str, list[Operand]] = field(default_factory=dict)
    writers: dict[str, str] = field(default_factory=dict)
    packed: dict[tuple[str, MemoryDesc, MadeWeights | None], PackedConstant] = field(default_factory=dict)
    readers: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    slices: dict[int, tuple[int, int]] = field(default_factory=dict)
    fused: dict[str, dict[str, Operand]] = field(default_factory=dict)

    @property
    def constants(self) -> tuple[PackedConstant, ...]:
        """All constants in their layouts, in the order of the kernels that read them first."""
        return tuple(self.packed.values())

    @property
    def cost_ns(self) -> float:
        """Estimated time of what was assembled."""
        return sum(step.cost_ns for step in self.steps) + sum(entry.cost_ns for entry in self.entries)

    @property
    def scratchpad_nbytes(self) -> int:
        """Of all steps, one after the other."""
        return max((step.scratchpad_nbytes for step in self.steps), default=0)


def assemble(network: Network, choice: Choice, *, returns_to_plain: bool = False) -> Assembly:
    """The steps of a choice, in order; reorders are made where first demanded and shared afterwards."""
    given = dict(network.inputs(choice, returns_to_plain=returns_to_plain))
    assembly = Assembly(network, choice, returns_to_plain, given, values=[*given.items()])
    assembly.writers = dict.fromkeys(given, CALLER)
    assembly.at_hand = {name: [] for name in given}
    for tile, offered, taken in zip(network.tiles, network.candidates, choice, strict=True):
        _add_tile(assembly, tile, offered[taken])
    assembly.results = [_add_result(assembly, value) for value in network.program.outputs]

    def readers_of(buffer: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(assembly.readers.get((assembly.buffers[buffer].name, buffer), ())))

    assembly.steps = [
        replace(step, readers=readers_of(step.dst.buffer)) if step.is_reorder else step for step in assembly.steps
    ]
    assembly.entries = [replace(entry, readers=readers_of(entry.buffer)) for entry in assembly.entries]
    return assembly


def _add_tile(assembly: Assembly, tile: Tile, candidate: Candidate) -> None:
    operands = dict(_source_operands(assembly, tile, candidate))
    value = tile.dst
    assembly.writers[value.name] = tile.name
    if isinstance(candidate.dst, Fused):
        assembly.fused[value.name] = operands | _packed(assembly, tile, candidate)
        assembly.values += _values(tile, candidate, candidate.dst.held)
        return
    for arg, desc in candidate.others:
        operands[arg] = _new_operand(assembly, "arena", dict(tile.main.others)[arg].name, desc)
    dst = candidate.dst
    if tile.is_view and dst.n_elements:
        src = operands["src"]
        produced = Operand(src.buffer, dst.at_offset(src.desc.offset0 + candidate.offset))
    else:
        produced = _add_steps(assembly, tile, candidate, dst, operands)
    assembly.at_hand[value.name] = [produced]
    for arg, other in tile.main.others:
        assembly.writers[other.name] = tile.name
        assembly.at_hand[other.name] = [operands[arg]]
        assembly.values.append((other.name, operands[arg].desc))
    assembly.values += _values(tile, candidate, produced.desc)
    plain = MemoryDesc(dst.dims, dst.dtype)
    if assembly.returns_to_plain and not tile.is_view and not dst.readable_as(plain):
        assembly.at_hand[value.name] = [_reorder(assembly, value.name, produced, plain, tile.name)]


def _source_operands(assembly: Assembly, tile: Tile, candidate: Candidate) -> Iterator[tuple[str, Operand]]:
    """Where the sources are; of one that is fused, where its tile's own operands are."""
    for operand, desc in candidate.sources:
        value = tile.sources[operand]
        if isinstance(desc, Fused):
            yield from ((FIRST + name, taken) for name, taken in assembly.fused[value.name].items())
        else:
            yield operand, _demand(assembly, value, desc, tile.name)


def _values(tile: Tile, candidate: Candidate, dst: MemoryDesc) -> Iterator[tuple[str, MemoryDesc]]:
    """The values a tile computes, those included that only its primitive holds, and their layouts."""
    temporaries = dict(candidate.temporaries)
    name, value = "tmp_main", tile.main.dst
    for follower in tile.followers:
        yield value.name, temporaries.get(name, dst)
        name, value = f"tmp_{follower.prefix}", follower.kernel.dst
    yield value.name, dst


def _add_steps(
    assembly: Assembly, tile: Tile, candidate: Candidate, dst: MemoryDesc, operands: dict[str, Operand]
) -> Operand:
    operands |= _packed(assembly, tile, candidate)
    for name, desc in candidate.temporaries:
        operands[name] = _new_operand(assembly, "arena", f"{tile.name}.{name}", desc)
    if candidate.alias is None:
        operands["dst"] = _new_operand(assembly, "arena", tile.dst.name, dst)
    else:
        operands["dst"] = _seen_as(operands[candidate.alias], dst)
    for name, nbytes in candidate.slices:
        _put_into_slice(assembly, tile, operands[name], operands["dst"].buffer, nbytes)
    reason = tile.main.reason or computed_in(candidate)
    for step in candidate.steps:
        price = assembly.network.costs.price(step.spec)
        assembly.steps.append(
            Step(
                kernel=tile.name,
                spec=step.spec,
                operands=tuple(
                    (arg, _seen_as(operands[name], step.spec.memory_desc(arg))) for arg, name in step.operands
                ),
                nodes=tile.nodes,
                reason=reason,
                cost_ns=price.ns,
                scratchpad_nbytes=step.scratchpad_nbytes,
                priced=price.source,
            )
        )
    return operands["dst"]


def _put_into_slice(assembly: Assembly, tile: Tile, operand: Operand, whole: int, nbytes: int) -> None:
    """Make a buffer a part of another, so that its writers write there; one that cannot be is copied."""
    buffer = assembly.buffers[operand.buffer]
    is_whole = buffer.nbytes == operand.desc.nbytes and not operand.desc.offset0
    if buffer.kind == "arena" and operand.buffer not in assembly.slices and is_whole:
        assembly.slices[operand.buffer] = whole, nbytes
        return
    made = _new_operand(assembly, "arena", buffer.name, operand.desc)
    assembly.slices[made.buffer] = whole, nbytes
    _reorder(assembly, buffer.name, operand, operand.desc, tile.name, into=made)


def _seen_as(operand: Operand, desc: MemoryDesc) -> Operand:
    """An operand in the layout in which a step sees it, behind the elements that precede it in its buffer."""
    return replace(operand, desc=desc.at_offset(operand.desc.offset0 + desc.offset0))


def _demand(assembly: Assembly, value: Value, desc: MemoryDesc, reader: str) -> Operand:
    """An operand that holds the value in ``desc``, by a reorder if no copy at hand can be read so."""
    for operand in assembly.at_hand[value.name]:
        if operand.desc.at_offset(0).readable_as(desc):
            assembly.readers.setdefault((value.name, operand.buffer), []).append(reader)
            return _seen_as(operand, desc)
    copy = desc
    if not assembly.returns_to_plain:  # one that serves another reader too, where there is one
        copies = assembly.network.copies(value.name, assembly.choice)
        copy = next((each for each in copies if isinstance(each, MemoryDesc) and each.readable_as(desc)), desc)
    if assembly.writers[value.name] == CALLER:
        made = _enter(assembly, value.name, copy, reader)
    else:
        made = _reorder(assembly, value.name, assembly.at_hand[value.name][0], copy, reader)
    assembly.at_hand[value.name].append(made)
    assembly.readers[value.name, made.buffer] = [reader]
    return replace(made, desc=desc)


def _enter(assembly: Assembly, value: str, desc: MemoryDesc, reader: str) -> Operand:
    source = assembly.given[value]
    read = desc if _is_one_step(source, desc, NO_ATTR) else source.with_dtype(desc.dtype)
    made = _new_operand(assembly, "entry", value, read)
    cost = 0.0 if source.readable_as(read) else assembly.network.costs.reorder_ns(source, read)
    assembly.entries.append(Entry(value, made.buffer, source, read, entered(reader, read, source), cost))
    return made if read == desc else _reorder(assembly, value, made, desc, reader)


def _reorder(
    assembly: Assembly, value: str, source: Operand, desc: MemoryDesc, reader: str, into: Operand | None = None
) -> Operand:
    attr, numbers = _conversion(assembly, value, source.desc, desc)
    if not _is_one_step(source.desc, desc, attr):
        narrow = desc if source.desc.dtype == "f32" or desc.dtype in BYTE_DTYPES else source.desc
        between = _reorder(assembly, value, source, narrow.with_dtype("f32"), reader)
        return _reorder(assembly, value, between, desc, reader, into)
    made = into or _new_operand(assembly, "arena", value, desc)
    spec, scratchpad_nbytes = mover(source.desc, desc, assembly.network.costs.machine.n_threads, attr)
    price = assembly.network.costs.reorder_price(source.desc, desc)
    assembly.steps.append(
        Step(
            kernel=reader,
            spec=spec,
            operands=(("dst", made), *numbers, ("src", source)),
            nodes=(),
            reason=reordered(assembly.writers[value], source.desc, reader, desc),
            cost_ns=price.ns,
            scratchpad_nbytes=scratchpad_nbytes,
            priced=price.source,
        )
    )
    return made


def _is_one_step(src: MemoryDesc, dst: MemoryDesc, attr: Attr) -> bool:
    """Whether there is code that makes numbers of this type as it changes the order of dimensions, or need not."""
    if attr.scales:
        return "f16" not in (src.dtype, dst.dtype) and not (attr.zero_points and _is_turned(src, dst))
    types = {src.dtype, dst.dtype}
    return len(types) == 1 or not _is_turned(src, dst) or not any(map(missing_isa, types - {"f32"}))


def _is_turned(src: MemoryDesc, dst: MemoryDesc) -> bool:
    """Whether numbers change their order, or get sums over them behind them."""
    return bool(src.extra or dst.extra) or not src.with_dtype("f32").physically_equal(dst.with_dtype("f32"))


def _conversion(
    assembly: Assembly, value: str, src: MemoryDesc, dst: MemoryDesc
) -> tuple[Attr, tuple[tuple[str, Operand], ...]]:
    """How numbers are made of the bytes that stand for them, or bytes of numbers, and by what."""
    kernel = assembly.network.quantized.get(value)
    if kernel is None or (src.dtype in PRIMITIVE_FLOATS) == (dst.dtype in PRIMITIVE_FLOATS):
        return NO_ATTR, ()
    side, quantization = "dst" if src.dtype in PRIMITIVE_FLOATS else "src", kernel.dst.quantization
    mask = 0 if quantization is None or quantization.is_of_whole else 1 << quantization.axis
    numbers = {"scale": "f32", "zero_point": "s32"}
    given = {arg: constant for arg, constant in kernel.constants if arg in numbers}
    operands = tuple(
        (f"{arg}_{side}", _constant(assembly, each, MemoryDesc((each.array.size,), numbers[arg]), kernel.name))
        for arg, each in given.items()
    )
    shifted = ((side, 0),) if "zero_point" in given else ()
    return Attr(scales=((side, mask),), zero_points=shifted), operands


def _packed(assembly: Assembly, tile: Tile, candidate: Candidate) -> dict[str, Operand]:
    """Where the constants are, by operand; of each there is one a layout."""
    made, given = dict(candidate.made), tile.constants
    return {
        operand: _constant(assembly, given[operand], desc, tile.name, made.get(operand))
        for operand, desc in candidate.constants
    }


def _constant(
    assembly: Assembly, constant: Constant, desc: MemoryDesc, reader: str, made: MadeWeights | None = None
) -> Operand:
    key = (constant.name, desc, made)
    if key not in assembly.packed:
        buffer = _new_operand(assembly, "constant", constant.name, desc).buffer
        assembly.packed[key] = PackedConstant(constant.name, buffer, desc, reader, made)
    return Operand(assembly.packed[key].buffer, desc)


def _add_result(assembly: Assembly, value: Value) -> Result:
    if value.is_constant:
        return Result(value.name, None, None)
    desc = _result_desc(assembly, value)
    if not desc.n_elements:
        return Result(value.name, _new_operand(assembly, "output", value.name, desc).buffer, desc, value.shape)
    at_hand = assembly.at_hand[value.name]
    for operand in at_hand:
        if operand.desc.physically_equal(desc) and _is_private(assembly, operand.buffer, desc):
            assembly.buffers[operand.buffer] = replace(assembly.buffers[operand.buffer], kind="output", name=value.name)
            return Result(value.name, operand.buffer, desc, value.shape)
    made = _new_operand(assembly, "output", value.name, desc)
    source = at_hand[0] if at_hand else _demand(assembly, value, desc, CALLER)
    _reorder(assembly, value.name, source, desc, CALLER, into=made)
    assembly.readers[value.name, made.buffer] = [CALLER]
    return Result(value.name, made.buffer, desc, value.shape)


def _result_desc(assembly: Assembly, value: Value) -> MemoryDesc:
    """The layout of an output; one that is left to the plan is as it was computed, or as the input that it becomes."""
    border = assembly.network.io_layout.get(value.name)
    if border != FREE:
        return declared_desc(value, border)
    for name, carried in assembly.network.carried.items():
        if carried == value.name:
            return assembly.given[name]
    at_hand = assembly.at_hand[value.name]
    computed = at_hand[0].desc.at_offset(0) if at_hand else assembly.given[value.name]
    return computed.with_dtype(value.dtype) if computed.is_dense else declared_desc(value)


def _is_private(assembly: Assembly, index: int, desc: MemoryDesc) -> bool:
    """Whether a buffer may become the caller's array: written by a step, exactly as large, no slice and without any."""
    buffer = assembly.buffers[index]
    wholes = (whole for whole, _ in assembly.slices.values())
    return buffer.kind == "arena" and buffer.nbytes == desc.nbytes and index not in (*assembly.slices, *wholes)


def _new_operand(assembly: Assembly, kind: BufferKind, name: str, desc: MemoryDesc) -> Operand:
    assembly.buffers.append(Buffer(kind, name, desc.nbytes))
    return Operand(len(assembly.buffers) - 1, desc)
