"""Every error this library raises on purpose.

Each message names the node or argument, the rule that was broken, and a remedy.
"""

from __future__ import annotations

from collections.abc import Iterable


def close_names(name: str, known: Iterable[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """At most ``n`` of the known names that are like one, the closest first; ``cutoff`` is a likeness from 0 to 1."""
    from difflib import get_close_matches  # names are seldom wrong, and this takes milliseconds

    return get_close_matches(name, list(known), n, cutoff)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that nothing has: the one that may be meant, if any is like it.

    Example:
        >>> did_you_mean("strdies", ["pads", "strides"])
        "; did you mean 'strides'?"
    """
    return "".join(f"; did you mean {close!r}?" for close in close_names(name, known, 1))


def closest(name: str, known: Iterable[str]) -> str:
    """The rest of a message about a name that nothing has: the closest that something has.

    Example:
        >>> closest("conv3", ["conv_3", "pool", "conv_2"])
        'the closest are conv_3, conv_2, pool'
    """
    from difflib import SequenceMatcher

    ranked = sorted(known, key=lambda other: -SequenceMatcher(None, name, other).ratio())
    return f"the closest are {', '.join(ranked[:3])}" if ranked else "there are none"


class BlockLayoutError(Exception):
    """Base of all errors raised by blocklayout.

    Example:
        >>> import blocklayout as bl
        >>> try:
        ...     bl.load("missing.onnx")
        ... except bl.BlockLayoutError as error:
        ...     print(type(error).__name__, error)
        ModelError no such file: missing.onnx
    """


class LayoutError(BlockLayoutError, ValueError):
    """A memory descriptor that cannot exist, or an index outside of one.

    Example:
        >>> import blocklayout as bl
        >>> bl.MemoryDesc((2, 3), "f32", "nchw")
        Traceback (most recent call last):
        ...
        blocklayout.errors.LayoutError: tag nchw lays out 4 dimensions, dims (2, 3) has 2
    """


class PositionError(LayoutError, IndexError):
    """An index or a dimension that a tensor does not have.

    Example:
        >>> import blocklayout as bl
        >>> bl.zeros((2, 3))[2, 0]
        Traceback (most recent call last):
        ...
        blocklayout.errors.PositionError: ...
    """


class ExportError(LayoutError, BufferError):
    """A layout or data type that another library cannot share memory in.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> np.from_dlpack(bl.zeros((1, 3, 2, 2), memory_format="nChw8c"))
        Traceback (most recent call last):
        ...
        blocklayout.errors.ExportError: DLPack knows strides but no blocks, ...
    """


class ModelError(BlockLayoutError, ValueError):
    """A file or graph is wrong: damaged, not ONNX, or against the operator's specification.

    Example:
        >>> import blocklayout as bl
        >>> bl.load(b"no model")
        Traceback (most recent call last):
        ...
        blocklayout.errors.ModelError: not an ONNX model: the given bytes is damaged, cut short or of another format
    """


class InputError(BlockLayoutError, ValueError):
    """The feed of a session does not fit the model's inputs.

    Example:
        >>> import blocklayout as bl
        >>> bl.relu("text")
        Traceback (most recent call last):
        ...
        blocklayout.errors.InputError: relu: x is ...
    """


class ClosedError(InputError):
    """The session was closed.

    Example:
        >>> import blocklayout as bl
        >>> b = bl.Builder()
        >>> b.output("y", b.input("x", (1, 4)).relu())
        >>> session = bl.load(b)
        >>> session.close()
        >>> session(bl.ones((1, 4)))
        Traceback (most recent call last):
        ...
        blocklayout.errors.ClosedError: the session is closed: load the model again
    """


class QueueFullError(BlockLayoutError):
    """As many runs wait already as may wait.

    Example:
        >>> import blocklayout as bl
        >>> def answer(session, feed):
        ...     try:
        ...         return 200, session.submit(feed).result()
        ...     except bl.QueueFullError:  # as many wait as max_waiting= of bl.load says
        ...         return 503, None
        >>> b = bl.Builder()
        >>> b.output("y", b.input("x", (1, 4)).relu())
        >>> with bl.load(b, max_waiting=8) as session:
        ...     answer(session, {"x": bl.ones((1, 4))})[0]
        200
    """


class StoppedError(BlockLayoutError):
    """A run was stopped before its last step, as somebody asked.

    Example:
        >>> import blocklayout as bl
        >>> from blocklayout import dnnl
        >>> stop = dnnl.Stop()
        >>> stop.ask()
        >>> stop.check()
        Traceback (most recent call last):
        ...
        blocklayout.errors.StoppedError: ...
    """


class DeadlineExceededError(BlockLayoutError, TimeoutError):
    """The deadline of a run passed before it was done.

    Example:
        >>> import blocklayout as bl
        >>> b = bl.Builder()
        >>> b.output("y", b.input("x", (1, 4)).relu())
        >>> with bl.load(b) as session:
        ...     session.submit({"x": bl.ones((1, 4))}, deadline=1e-9).result()
        Traceback (most recent call last):
        ...
        blocklayout.errors.DeadlineExceededError: ...
    """


class UnsupportedError(BlockLayoutError):
    """Valid, but not runnable here: an operator, a data type, a CPU or a platform.

    Example:
        >>> import blocklayout as bl
        >>> from blocklayout import dnnl
        >>> b = bl.Builder()
        >>> b.output("y", b.input("x", (1, 4)).relu())
        >>> try:
        ...     session = bl.load(b, dtype="bf16")
        ... except bl.UnsupportedError:
        ...     session = bl.load(b)
        >>> session.plan.dtype == ("bf16" if dnnl.has_bf16() else "f32")
        True
    """


class LimitError(UnsupportedError):
    """It would take more memory or time than the machine has, or than :func:`blocklayout.limits` allows.

    Example:
        >>> import blocklayout as bl
        >>> with bl.limits(nbytes=1000):
        ...     bl.zeros((1, 16, 8, 8))
        Traceback (most recent call last):
        ...
        blocklayout.errors.LimitError: ...
    """


class PlanError(BlockLayoutError):
    """A plan cannot be made, or does not fit the model, library or machine it is used with.

    Example:
        >>> import blocklayout as bl
        >>> b = bl.Builder()
        >>> b.output("y", b.input("x", (1, 4)).relu())
        >>> bl.load(b, dtype="f8")
        Traceback (most recent call last):
        ...
        blocklayout.errors.PlanError: dtype='f8': activations are computed in one of f32, bf16, f16
    """


class OperatorError(BlockLayoutError, ValueError):
    """The class of a registered operator is none, or fails: its facts, its shape rule, or its computation.

    Example:
        >>> import blocklayout as bl
        >>> @bl.register_operator("my.domain", "Nothing")
        ... class Nothing:
        ...     pass
        Traceback (most recent call last):
        ...
        blocklayout.errors.OperatorError: ...
    """


class WatchError(BlockLayoutError):
    """Bytes were moved, or a layout lost, inside of a block that is watched and must not see that.

    Example:
        >>> import blocklayout as bl
        >>> x = bl.zeros((1, 3, 2, 2))
        >>> with bl.watch("raise"):
        ...     x.to("nChw8c")
        Traceback (most recent call last):
        ...
        blocklayout.errors.WatchError: ...reorder in Tensor.to...
    """


class CheckError(BlockLayoutError):
    """Padding is not zero, or a value not finite, where that is checked.

    Attributes:
        kind: ``dirty padding``, ``NaN`` or ``infinity``.
        index: Where in the tensor, in logical order; beyond its extents in padding.
        tensor: The tensor's name.
        step: Number of the plan's step that wrote it; ``None`` for an input or constant.

    Example:
        >>> import blocklayout as bl
        >>> with bl.checking():
        ...     bl.relu(bl.full((1, 4), float("nan")))
        Traceback (most recent call last):
        ...
        blocklayout.errors.CheckError: relu: input x (f32 1x4 nc) has nan at (0, 0): ...
    """

    def __init__(
        self, message: str, kind: str = "", index: tuple[int, ...] = (), tensor: str = "", step: int | None = None
    ) -> None:
        super().__init__(message)
        self.kind, self.index, self.tensor, self.step = kind, index, tensor, step


class DisturbedError(BlockLayoutError):
    """A time cannot be measured now: other work keeps the CPUs busy."""


class BlockLayoutWarning(UserWarning):
    """Base of all warnings.

    Example:
        >>> import warnings
        >>> import blocklayout as bl
        >>> with warnings.catch_warnings(record=True) as told:
        ...     warnings.simplefilter("always", bl.BlockLayoutWarning)
        ...     y = bl.zeros((1, 16, 2, 2), memory_format="channels_last") + bl.zeros((1, 16, 2, 2))
        >>> [each.category.__name__ for each in told]
        ['LayoutLossWarning']
    """


class PlainKernelWarning(BlockLayoutWarning):
    """Operators of a model run by ``onnx.reference``, since no primitive computes them.

    Example:
        >>> import warnings
        >>> import blocklayout as bl
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", bl.PlainKernelWarning)  # none but fast kernels
        ...     y = bl.relu(bl.ones((1, 4)))
    """


class LayoutLossWarning(BlockLayoutWarning):
    """An operator drops a run of blocked or channels-last layouts to plain.

    Example:
        >>> import warnings
        >>> import blocklayout as bl
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", bl.LayoutLossWarning)
        ...     bl.zeros((1, 16, 2, 2), memory_format="channels_last") + bl.zeros((1, 16, 2, 2))
        Traceback (most recent call last):
        ...
        blocklayout.errors.LayoutLossWarning: ...
    """


class PolicyWarning(BlockLayoutWarning):
    """Nothing in a network has the layout that its policy asks for.

    Example:
        >>> import warnings
        >>> import blocklayout as bl
        >>> b = bl.Builder()
        >>> b.output("y", b.input("x", (1, 4)).relu())
        >>> with warnings.catch_warnings(record=True) as told:
        ...     warnings.simplefilter("always", bl.PolicyWarning)
        ...     session = bl.load(b, layout="nChw8c")  # nothing has four dimensions
        >>> [each.category.__name__ for each in told]
        ['PolicyWarning']
    """


class WatchWarning(BlockLayoutWarning):
    """Bytes were moved inside of a block that is watched.

    Example:
        >>> import warnings
        >>> import blocklayout as bl
        >>> with warnings.catch_warnings(record=True) as told, bl.watch("warn"):
        ...     warnings.simplefilter("always", bl.WatchWarning)
        ...     x = bl.zeros((1, 3, 2, 2)).to("nChw8c")
        >>> [each.category.__name__ for each in told]
        ['WatchWarning']
    """


class CostStoreWarning(BlockLayoutWarning):
    """The file of measured costs cannot be used; times are forgotten with the process.

    Example:
        >>> import warnings
        >>> import blocklayout as bl
        >>> with warnings.catch_warnings():  # where it is known that the cache folder cannot be written
        ...     warnings.simplefilter("ignore", bl.CostStoreWarning)
        ...     image = bl.relu(bl.ones((1, 4)))
    """


class PlanStoreWarning(BlockLayoutWarning):
    """Plans cannot be remembered from process to process; each makes its own.

    Example:
        >>> import blocklayout as bl
        >>> issubclass(bl.PlanStoreWarning, bl.BlockLayoutWarning)  # to be silenced as a CostStoreWarning is
        True
    """


class PlanMisfitWarning(BlockLayoutWarning):
    """A saved plan does not fit, and the session plans anew as it was asked to.

    Example:
        >>> import warnings
        >>> import blocklayout as bl
        >>> b = bl.Builder()
        >>> b.output("y", b.input("x", (1, 4)).relu())
        >>> with warnings.catch_warnings(record=True) as told:
        ...     warnings.simplefilter("always", bl.PlanMisfitWarning)
        ...     session = bl.load(b, plan="missing.json", on_misfit="replan")
        >>> [each.category.__name__ for each in told]
        ['PlanMisfitWarning']
    """


class DnnlError(BlockLayoutError):
    """A oneDNN call failed.

    Attributes:
        status: The value of ``dnnl_status_t``.

    Example:
        >>> import blocklayout as bl
        >>> try:
        ...     raise bl.DnnlError("a call failed", 3)
        ... except bl.DnnlError as error:
        ...     error.status
        3
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class UnimplementedError(DnnlError):
    """oneDNN has no implementation of this problem on this CPU.

    Example:
        >>> import blocklayout as bl
        >>> from blocklayout import dnnl
        >>> desc = bl.MemoryDesc((1, 4), "s32")
        >>> dnnl.resolve(dnnl.softmax(desc, desc, axis=1))
        Traceback (most recent call last):
        ...
        blocklayout.errors.UnimplementedError: ...
    """


class RefusedError(UnimplementedError):
    """oneDNN offered an implementation, and then refused to create or to run it; it is passed over from then on.

    Attributes:
        spec: The primitive's Spec.

    Example:
        >>> import blocklayout as bl
        >>> issubclass(bl.RefusedError, bl.UnimplementedError)  # caught as one; .spec says which primitive it was
        True
    """

    def __init__(self, message: str, status: int, spec: object) -> None:
        super().__init__(message, status)
        self.spec = spec


class InvalidArgumentsError(DnnlError, ValueError):
    """The arguments of a primitive are wrong: found here, or by oneDNN.

    Example:
        >>> from blocklayout import dnnl
        >>> src, weights, dst = (dnnl.AnyDesc(dims) for dims in [(1, 16, 8, 8), (32, 15, 3, 3), (1, 32, 8, 8)])
        >>> dnnl.convolution(src, weights, dst, pads=1)
        Traceback (most recent call last):
        ...
        blocklayout.errors.InvalidArgumentsError: convolution: weights (32, 15, 3, 3) take 15 channels; src has 16
    """

    def __init__(self, message: str, status: int = 2) -> None:  # dnnl_invalid_arguments
        super().__init__(message, status)


class OutOfMemoryError(DnnlError):
    """oneDNN could not allocate memory, or the system starts no more threads.

    Example:
        >>> import blocklayout as bl
        >>> issubclass(bl.OutOfMemoryError, bl.DnnlError)  # of the library; numpy's own is a MemoryError
        True
    """
