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
    """Base of all errors raised by blocklayout."""


class LayoutError(BlockLayoutError, ValueError):
    """A memory descriptor that cannot exist, or an index outside of one."""


class PositionError(LayoutError, IndexError):
    """An index or a dimension that a tensor does not have."""


class ExportError(LayoutError, BufferError):
    """A layout or data type that another library cannot share memory in."""


class ModelError(BlockLayoutError, ValueError):
    """A file or graph is wrong: damaged, not ONNX, or against the operator's specification."""


class InputError(BlockLayoutError, ValueError):
    """The feed of a session does not fit the model's inputs."""


class ClosedError(InputError):
    """The session was closed."""


class QueueFullError(BlockLayoutError):
    """As many runs wait already as may wait."""


class StoppedError(BlockLayoutError):
    """A run was stopped before its last step, as somebody asked."""


class DeadlineExceededError(BlockLayoutError, TimeoutError):
    """The deadline of a run passed before it was done."""


class UnsupportedError(BlockLayoutError):
    """Valid, but not runnable here: an operator, a data type, a CPU or a platform."""


class LimitError(UnsupportedError):
    """It would take more memory or time than the machine has, or than :func:`blocklayout.limits` allows."""


class PlanError(BlockLayoutError):
    """A plan cannot be made, or does not fit the model, library or machine it is used with."""


class OperatorError(BlockLayoutError, ValueError):
    """The class of a registered operator is none, or fails: its facts, its shape rule, or its computation."""


class WatchError(BlockLayoutError):
    """Bytes were moved, or a layout lost, inside of a block that is watched and must not see that."""


class CheckError(BlockLayoutError):
    """Padding is not zero, or a value not finite, where that is checked.

    Attributes:
        kind: ``dirty padding``, ``NaN`` or ``infinity``.
        index: Where in the tensor, in logical order; beyond its extents in padding.
        tensor: The tensor's name.
        step: Number of the plan's step that wrote it; ``None`` for an input or constant.
    """

    def __init__(
        self, message: str, kind: str = "", index: tuple[int, ...] = (), tensor: str = "", step: int | None = None
    ) -> None:
        super().__init__(message)
        self.kind, self.index, self.tensor, self.step = kind, index, tensor, step


class DisturbedError(BlockLayoutError):
    """A time cannot be measured now: other work keeps the CPUs busy."""


class BlockLayoutWarning(UserWarning):
    """Base of all warnings."""


class PlainKernelWarning(BlockLayoutWarning):
    """Operators of a model run by ``onnx.reference``, since no primitive computes them."""


class LayoutLossWarning(BlockLayoutWarning):
    """An operator drops a run of blocked or channels-last layouts to plain."""


class PolicyWarning(BlockLayoutWarning):
    """Nothing in a network has the layout that its policy asks for."""


class WatchWarning(BlockLayoutWarning):
    """Bytes were moved inside of a block that is watched."""


class CostStoreWarning(BlockLayoutWarning):
    """The file of measured costs cannot be used; times are forgotten with the process."""


class PlanStoreWarning(BlockLayoutWarning):
    """Plans cannot be remembered from process to process; each makes its own."""


class PlanMisfitWarning(BlockLayoutWarning):
    """A saved plan does not fit, and the session plans anew as it was asked to."""


class DnnlError(BlockLayoutError):
    """A oneDNN call failed.

    Attributes:
        status: The value of ``dnnl_status_t``.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class UnimplementedError(DnnlError):
    """oneDNN has no implementation of this problem on this CPU."""


class RefusedError(UnimplementedError):
    """oneDNN offered an implementation, and then refused to create or to run it; it is passed over from then on.

    Attributes:
        spec: The primitive's Spec.
    """

    def __init__(self, message: str, status: int, spec: object) -> None:
        super().__init__(message, status)
        self.spec = spec


class InvalidArgumentsError(DnnlError, ValueError):
    """The arguments of a primitive are wrong: found here, or by oneDNN."""

    def __init__(self, message: str, status: int = 2) -> None:  # dnnl_invalid_arguments
        super().__init__(message, status)


class OutOfMemoryError(DnnlError):
    """oneDNN could not allocate memory, or the system starts no more threads."""
