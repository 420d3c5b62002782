"""Tiles: connected kernels that one candidate computes, a kernel and those that could be post-ops of its primitive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from msgspec import Struct

from blocklayout.dnnl import DepthwiseConv, Eltwise, PostOp
from blocklayout.dtypes import PRIMITIVE_FLOATS, from_numpy
from blocklayout.errors import UnsupportedError
from blocklayout.ir import BYTES, Constant, Kernel, PostOpUse, Problem, Program, Role, TensorInfo, Value

MAX_POST_OPS = 5
_ALWAYS_F32 = frozenset({"bias", "mean", "variance", "scale", "shift", "weights_peephole"})


class Member(Struct, frozen=True, eq=False):
    """A kernel that could be a post-op of the one whose result it reads.

    Attributes:
        arg: Its argument that the chain flows through.
        prefix: Distinguishes its operands within the tile.
    """

    kernel: Kernel
    arg: str
    use: PostOpUse
    prefix: str

    def operand(self, arg: str) -> str:
        """The tile's name for this kernel's argument ``arg``."""
        return f"{self.prefix}.{arg}"

    def read_by(self, index: int) -> Iterator[tuple[str, str]]:
        """The arguments of the primitive's post-op of this number, and the tile's operands that they are."""
        if isinstance(self.use.post_op, DepthwiseConv):
            yield from ((f"post_op_{index}_{arg}", self.operand(arg)) for arg in ("weights", "bias"))
        elif self.use.operand is not None:
            yield from ((f"post_op_{index}_{arg}", self.operand(self.use.operand)) for arg in ("src_1", "weights"))


class Tile(Struct, frozen=True, eq=False, dict=True):
    """A kernel and those, in order, that could join its primitive, scheduled where the last of them stood.

    Nobody else sees the values between them.

    Attributes:
        precision: The data type that it must be computed in; empty where that is left to the plan.
        shared: The source operands with which its result may share memory; ``None`` where it may with none, and be no
            slices either.
    """

    main: Kernel
    followers: tuple[Member, ...] = ()
    precision: str = ""
    shared: frozenset[str] | None = None

    def dtypes(self, dtype: str) -> tuple[str, ...]:
        """The data types it may be computed in where activations are ``dtype``, the usual one first."""
        if self.precision:
            return (self.precision,)
        dtypes = tuple(dict.fromkeys((dtype, "f32")))
        return (*dtypes, BYTES) if self.takes_bytes else dtypes

    @property
    def takes_bytes(self) -> bool:
        """Whether its primitive may read sources as the bytes that stand for them."""
        return self.main.in_bytes is not None and self.depthwise is None

    @property
    def rounds(self) -> bool:
        """Whether one of the model's operators that it stands for rounds its results."""
        return any(kernel.rounding for kernel in self.kernels)

    def spares_roundings(self, fused: Sequence[Member]) -> bool:
        """Whether its primitive, with these followers, is several operators that round their results one by one."""
        combining = [follower.kernel for follower in fused if follower.use.operand is not None]
        return len({name for kernel in (self.main, *combining) for name in kernel.rounding}) > 1

    @property
    def name(self) -> str:
        """The main kernel's name."""
        return self.main.name

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The main kernel and its followers."""
        return (self.main, *(follower.kernel for follower in self.followers))

    @property
    def dsts(self) -> Mapping[str, Value]:
        """Every value the tile computes, by argument."""
        return {"dst": self.dst} | dict(self.main.others)

    @property
    def is_view(self) -> bool:
        """Whether it moves no byte."""
        return self.main.operator.role is Role.VIEW

    @property
    def dst(self) -> Value:
        """The value the whole tile computes."""
        return self.followers[-1].kernel.dst if self.followers else self.main.dst

    @property
    def byte_writer(self) -> Member | None:
        """The last follower, if it makes bytes of the result."""
        return self.followers[-1] if self.followers and self.followers[-1].use.writes_bytes else None

    def post_ops_of_bytes(self, writer: Member | None) -> tuple[tuple[PostOp, ...], tuple[PostOp, ...]] | None:
        """Post-ops before and behind all others, as the operator answers, where ``writer`` makes bytes of the result.

        Raises:
            UnsupportedError: It cannot compute with these bytes.
        """
        given = self.main.in_bytes
        if given is None:
            return None
        zeros, result = dict(given.zero_points), dict(writer.kernel.constants) if writer else {}
        sources = {arg: (_number(scale), int(_number(zeros.get(arg)))) for arg, scale in given.scales}
        before = self.main.operator.post_ops_of_bytes(sources)
        if before is None:
            return None
        if writer is None:
            return before, ()
        scale = 1.0 if writer.use.post_op else _number(result["scale"])  # else it was divided by each channel's
        return before, (Eltwise("linear", 1 / scale, _number(result.get("zero_point"))),)

    @cached_property
    def depthwise(self) -> Member | None:
        """The convolution that is a post-op of its primitive: that takes all of them, or does not exist."""
        return next((each for each in self.followers if isinstance(each.use.post_op, DepthwiseConv)), None)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Names of the model's nodes it stands for."""
        return (*self.main.nodes, *(node for f in self.followers for node in f.kernel.nodes))

    @cached_property
    def sources(self) -> Mapping[str, Value]:
        """Values it reads, by operand."""
        found = dict(self.main.sources)
        for follower in self.followers:
            for arg, value in follower.kernel.sources:
                if arg != follower.arg:
                    found[follower.operand(arg)] = value
        return found

    @cached_property
    def constants(self) -> Mapping[str, Constant]:
        """Constants it reads, by operand."""
        found = dict(self.main.constants)
        if self.main.in_bytes is not None:
            found |= {in_bytes(arg): constant for arg, constant in self.main.in_bytes.all}
        for follower in self.followers:
            found |= {follower.operand(arg): constant for arg, constant in follower.kernel.constants}
        return found


def in_bytes(arg: str) -> str:
    """The tile's name of an argument that its main kernel has where it computes with bytes."""
    return f"bytes.{arg}"


def fuse(program: Program, dtype: str, n_threads: int, precision: Mapping[str, str] | None = None) -> tuple[Tile, ...]:
    """Groups of kernels in an order that computes every value before it is read.

    A consumer joins when it is the only reader of the value between, the value is not an output of the model, the
    consumer's operator can be a post-op, and ``precision`` has the same data type for both, by name.
    """
    wanted = precision or {}
    readers: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in program.kernels:
        for _, value in kernel.sources:
            readers[value.name].append(kernel)
    outputs = {value.name for value in program.outputs}
    claimed: set[str] = set()
    placed: list[tuple[int, Tile]] = []
    positions = {kernel.name: position for position, kernel in enumerate(program.kernels)}
    for kernel in program.kernels:
        if kernel.name in claimed:
            continue
        followers = tuple(_followers(kernel, readers, outputs, claimed, dtype, n_threads, wanted))
        last = followers[-1].kernel if followers else kernel
        placed.append((positions[last.name], Tile(kernel, followers, wanted.get(kernel.name, ""))))
    placed.sort(key=lambda item: item[0])
    return tuple(tile for _, tile in placed)


def apart(tile: Tile) -> list[Tile]:
    """The kernels of a tile on their own; one that is alone already, as the reference computes it."""
    if tile.followers:
        return [Tile(kernel, precision=tile.precision) for kernel in tile.kernels]
    is_free = tile.precision in ("", tile.main.dst.dtype)
    return [Tile(tile.main.as_plain()) if tile.main.as_plain and is_free else tile]


def _followers(
    kernel: Kernel,
    readers: Mapping[str, list[Kernel]],
    outputs: set[str],
    claimed: set[str],
    dtype: str,
    n_threads: int,
    precision: Mapping[str, str],
) -> Iterator[Member]:
    if kernel.operator.role in (Role.VIEW, Role.PLAIN):
        return
    value = kernel.dst
    for index in range(MAX_POST_OPS):
        if value.name in outputs or len(readers[value.name]) != 1:
            return
        reader = readers[value.name][0]
        if reader.name in claimed or reader.dst.shape != value.shape:
            return
        if precision.get(reader.name) != precision.get(kernel.name):
            return
        arg = next(arg for arg, source in reader.sources if source is value)
        use = reader.operator.as_post_op(arg, kernel_problem(reader, dtype, n_threads))
        if use is None:
            return
        claimed.add(reader.name)
        yield Member(reader, arg, use, f"post_{index}")
        value = reader.dst


def kernel_problem(kernel: Kernel, dtype: str, n_threads: int) -> Problem:
    """The kernel's arguments in the data types the plan computes in."""
    given = dict(kernel.constants)
    if dtype == BYTES and kernel.in_bytes is not None:
        given |= dict(kernel.in_bytes.constants)
    return Problem(
        sources={arg: value_info(value, dtype) for arg, value in kernel.sources},
        constants={arg: constant_info(arg, constant, dtype) for arg, constant in given.items()},
        dst=value_info(kernel.dst, dtype),
        n_threads=n_threads,
    )


def problem_key(tile: Tile, dtype: str) -> object:
    """Equal for tiles that compute the same with the same names for their operands, and may share the same memory."""
    kernels = ((tile.main, "", None), *((f.kernel, f.arg, f.use) for f in tile.followers))
    problems = (kernel_problem(kernel, dtype, 1) for kernel, _, _ in kernels)
    rows = (
        (kernel.operator, arg, use, len(kernel.sources), problem.arguments)
        for (kernel, arg, use), problem in zip(kernels, problems, strict=True)
    )
    spared = tuple(tile.spares_roundings(tile.followers[:n]) for n in range(len(tile.followers) + 1))
    return tile.shared, _bytes_key(tile), spared, *rows


def _bytes_key(tile: Tile) -> object:
    """Scales have no say, but for those that are in post-ops."""
    if tile.main.in_bytes is None:
        return None
    around = []
    for writer in {None, tile.byte_writer}:
        with suppress(UnsupportedError):
            around.append(tile.post_ops_of_bytes(writer))
    return *around, *((arg, each.array.shape) for arg, each in tile.main.in_bytes.all)


def _number(constant: Constant | None) -> float:
    """The only element of a constant, or the first of several; 0 without one."""
    return 0.0 if constant is None else float(constant.array.flat[0])


def value_info(value: Value, dtype: str) -> TensorInfo:
    """A value's extents and data type inside the plan, floats being ``dtype``; a scalar is one element of rank 1.

    For a kernel that computes with ``BYTES``, those of its source that stand for numbers, and other floats f32.
    """
    if value.dtype not in PRIMITIVE_FLOATS:
        return TensorInfo(value.dims, value.dtype)
    if dtype != BYTES:
        return TensorInfo(value.dims, dtype)
    return TensorInfo(value.dims, value.quantization.dtype if value.quantization else "f32")


def constant_info(arg: str, constant: Constant, dtype: str) -> TensorInfo:
    """A constant's extents and data type inside the plan: integers stay, vectors are f32, weights as activations."""
    name, given = arg.rsplit(".", 1)[-1], from_numpy(constant.array.dtype)
    is_f32 = name in _ALWAYS_F32 or dtype == BYTES
    kept = given if given in ("u8", "s8", "s32") else "f32" if is_f32 else dtype
    return TensorInfo(constant.shape or (1,), kept)
