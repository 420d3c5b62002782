"""Every error this library raises on purpose.

Each message names the node or argument, the rule that was broken, and what would be right.
"""

from __future__ import annotations


class BlockLayoutError(Exception):
    """Base of all errors raised by blocklayout."""


class LayoutError(BlockLayoutError, ValueError):
    """A memory descriptor that cannot exist, or an index outside of one."""


class ModelError(BlockLayoutError, ValueError):
    """A file or graph is wrong: damaged, not ONNX, or against the operator's specification."""


class InputError(BlockLayoutError, ValueError):
    """What a caller fed to a session does not fit the model's inputs."""


class UnsupportedError(BlockLayoutError):
    """Valid, but not runnable here: an operator, a data type, a CPU or a platform."""


class PlanError(BlockLayoutError):
    """A plan cannot be made, or does not fit the model, library or machine it is used with."""


class PlainKernelWarning(UserWarning):
    """Operators of a model run by ``onnx.reference``, since no primitive computes them."""


class PlanMisfitWarning(UserWarning):
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


class InvalidArgumentsError(DnnlError):
    """oneDNN refused the arguments."""


class OutOfMemoryError(DnnlError):
    """oneDNN could not allocate memory."""
