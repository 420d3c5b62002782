"""Optimisers: parameters updated where they lie, in any layout, padding included, which stays zero.

Parameters in bf16 or f16 have a master copy in f32, which is updated; :class:`LossScale` keeps their gradients within
range. Formulas are PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.eager.call import call
from blocklayout.eager.gradients import operator
from blocklayout.eager.operands import number, refused
from blocklayout.eager.tape import leaves
from blocklayout.errors import InputError
from blocklayout.layout import MemoryDesc
from blocklayout.recording import Entry, recorders_around, recording, tell
from blocklayout.tensor import Tensor, as_tensor, full_like, reorder, zeros_like
from blocklayout.tensor.moving import brought

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["SGD", "AdamW", "LossScale", "Optimizer"]


def __dir__() -> list[str]:
    return __all__


class Optimizer:
    """Parameters, the state of each, and steps that update both.

    Attributes:
        parameters: The Tensors, by their places in the structure that was given.
        rate: Of learning; it may be set between steps.
        n_steps: Steps done.
        state: For each kind of state a Tensor for each parameter, by name: f32, in the parameter's layout. ``master``
            has those of parameters of fewer bits.
        attrs: Numbers that stay from step to step, as attributes of the operator that makes it.

    Example:
        >>> import blocklayout as bl
        >>> optimizer = SGD({"w": bl.ones((4,), "bf16")}, 0.1)
        >>> optimizer.parameters["['w']"], optimizer.state["master"]["['w']"], optimizer.n_steps
        (Tensor(bf16 4 a), Tensor(f32 4 a), 0)
    """

    function: ClassVar[str]
    op_type: ClassVar[str]
    """The operator, whose inputs are gradient, parameter, state, and ``numbers()``, each of one element."""

    def __init__(self, parameters: Any, kinds: Sequence[str], rate: float, **limited: tuple[float, float]) -> None:
        """``limited`` are numbers by name, each with one that it must be below."""
        self.attrs: dict[str, float] = {}
        for name, (value, limit) in {"rate": (rate, math.inf), **limited}.items():
            if not 0 <= number(value, f"{type(self).__name__}: {name}") < limit:
                right = "a finite number of at least 0" + (f", below {limit:g}" if limit < math.inf else "")
                raise refused(value, f"{type(self).__name__}: {name}", right)
        self.rate, self.n_steps = float(rate), 0
        self.parameters = {name or "parameter": each for name, each in leaves(parameters)}
        for name, each in self.parameters.items():
            if not isinstance(each, Tensor) or each.dtype not in PRIMITIVE_FLOATS or not each.is_dense:
                right = f"dense Tensors of {', '.join(PRIMITIVE_FLOATS)}"
                raise self._error(f"parameters{name} is {_shown(each)}; give {right}")
            if not each.buffer.flags.writeable:
                raise self._error(f"parameters{name} cannot be written to; give a clone() of it")
        self.state = {kind: {name: zeros_like(each, "f32") for name, each in self.parameters.items()} for kind in kinds}
        few_bits = {name: each for name, each in self.parameters.items() if each.dtype != "f32"}
        self.state["master"] = {name: reorder(each, each.desc.with_dtype("f32")) for name, each in few_bits.items()}

    def step(self, gradients: Any, *, scale: float = 1.0) -> None:
        """Update all parameters where they lie.

        Args:
            gradients: In the structure of the parameters, as :meth:`blocklayout.Tape.gradients` gives them.
            scale: By how much they are too large.

        Raises:
            InputError: Another structure, or other extents.
        """
        given = {name or "parameter": each for name, each in leaves(gradients)}
        if given.keys() != self.parameters.keys():
            names = ", ".join(sorted(given.keys() ^ self.parameters.keys())[:5])
            raise self._error(f"gradients have another structure than the parameters, by {names}")
        for name, each in given.items():
            parameter = self.parameters[name]
            if not isinstance(each, Tensor) or each.shape != parameter.shape:
                raise self._error(f"gradients{name} is {_shown(each)}; its parameter is {parameter.desc}")
        numbers = [as_tensor(np.array([each], np.float32)) for each in self.numbers(self.n_steps + 1).values()]
        are_done = [self._step(name, each, given[name], scale, numbers) for name, each in self.parameters.items()]
        self.n_steps += all(are_done)

    def _step(self, name: str, parameter: Tensor, gradient: Tensor, scale: float, numbers: Sequence[Tensor]) -> bool:
        """Update a parameter and its state, unless a recorder does so; whether that is done."""
        grad = brought(gradient, MemoryDesc(gradient.shape, gradient.dtype, parameter.desc.format_tag), self.function)
        state: list[Any] = [of_kind[name] for kind, of_kind in self.state.items() if kind != "master"]
        master = self.state["master"].get(name)
        attrs = {"optimizer": self, "master": master, "scale": scale}
        if recorders_around() and tell(Entry(self.function, (parameter, grad, *state), attrs)):
            return False
        target = parameter if master is None else master
        with recording():
            grad = grad.astype("f32") if scale == 1 else grad.astype("f32") * (1 / scale)
            step = operator(self.function, self.op_type, ("grad", "parameter"), 1 + len(state))
            made = call(step, (grad, target, *state, *numbers), tuple(self.attrs.items()))
            for tensor, result in zip((target, *state), made, strict=True):
                tensor.buffer[:] = brought(result, tensor.desc, self.function).buffer
        if master is not None:
            parameter.physical()[:] = master.physical().astype(parameter.physical().dtype)
        return True

    def numbers(self, n_steps: int) -> dict[str, float]:
        """The numbers that change from step to step, of the step of this number."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, np.ndarray]:
        """The state as row-major arrays, by flat names; ``numpy.savez(file, **state)`` writes them."""
        return {"n_steps": np.array(self.n_steps), **{name: each.numpy() for name, each in self._flat().items()}}

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Take over what :meth:`state_dict` gave, of parameters of the same names, in whatever layouts they are now.

        Raises:
            InputError: A name is missing, or unknown, or extents differ.
        """
        own = self._flat()
        shapes = {name: each.shape for name, each in own.items()} | {"n_steps": ()}
        given = {name: np.shape(each) for name, each in state.items()}
        wrong = ", ".join(sorted({name for name, _ in shapes.items() ^ given.items()})[:5])
        if wrong:
            raise self._error(f"the state is of other parameters, or of another optimiser; it differs by {wrong}")
        self.n_steps = int(np.asarray(state["n_steps"]))
        for name, each in own.items():
            each[...] = np.asarray(state[name])

    def _flat(self) -> dict[str, Tensor]:
        return {f"{kind}{name}": each for kind, of_kind in self.state.items() for name, each in of_kind.items()}

    def _error(self, rule: str) -> InputError:
        return InputError(f"{type(self).__name__}: {rule}")


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum.

    Args:
        parameters: Tensors, or lists, tuples and dicts of them, which are updated where they lie.
        rate: Of learning.
        momentum: How much of the velocity stays from step to step.
        weight_decay: How much of a parameter is added to its gradient.
        nesterov: Whether to look ahead by the momentum.

    Raises:
        InputError: A number out of range, or a parameter that is no dense Tensor of floats, or is read-only.

    Example:
        >>> import blocklayout as bl
        >>> w = bl.full((1, 8, 2, 2), 3, memory_format="nChw8c")
        >>> optimizer = SGD({"w": w}, 0.1, momentum=0.9)
        >>> with bl.record() as tape:
        ...     loss = (w * w).sum()
        >>> optimizer.step(tape.gradients(loss, {"w": w}))
        >>> w[0, 0, 0, 0]
        np.float32(2.4)
    """

    function, op_type = "sgd_update", "SgdUpdate"

    def __init__(
        self, parameters: Any, rate: float, *, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False
    ) -> None:
        limited = {"momentum": (momentum, 1.0), "weight_decay": (weight_decay, math.inf)}
        super().__init__(parameters, ["velocity"] if momentum else [], rate, **limited)
        if nesterov and not momentum:
            raise self._error("nesterov needs a momentum above 0")
        self.attrs = {"momentum": momentum, "weight_decay": weight_decay, "nesterov": int(nesterov)}

    def numbers(self, n_steps: int) -> dict[str, float]:
        """The rate, negated."""
        del n_steps
        return {"rate": -self.rate}


class AdamW(Optimizer):
    """Adam with decoupled weight decay; ``parameters`` and errors are those of :class:`SGD`.

    Args:
        rate: Of learning.
        betas: How much of the means of gradients, and of their squares, stays from step to step.
        epsilon: Added to the root of the mean square.
        weight_decay: How much of a parameter goes in each step, times the rate.

    Example:
        >>> import blocklayout as bl
        >>> w = bl.full((4,), 3)
        >>> optimizer = AdamW([w], 0.1, weight_decay=0)
        >>> optimizer.step([bl.ones((4,))])  # a first step is as long as the rate, whatever the gradient
        >>> w[0], optimizer.n_steps
        (np.float32(2.9), 1)
    """

    function, op_type = "adamw_update", "AdamUpdate"

    def __init__(
        self,
        parameters: Any,
        rate: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        given: Any = betas
        if not isinstance(given, Sequence) or len(given) != 2:
            raise refused(betas, "AdamW: betas", "two numbers below 1")
        limited = {"betas[0]": (given[0], 1.0), "betas[1]": (given[1], 1.0), "epsilon": (epsilon, math.inf)}
        super().__init__(parameters, ["mean", "square"], rate, **limited, weight_decay=(weight_decay, math.inf))
        first, second = self.betas = float(given[0]), float(given[1])
        self.weight_decay = weight_decay
        self.attrs = {"epsilon": epsilon, "beta_1": first, "beta_2": second, "rest_1": 1 - first, "rest_2": 1 - second}

    def numbers(self, n_steps: int) -> dict[str, float]:
        """The rate over the mean's correction, negated; the square's, inverted; how much of a parameter is left."""
        first, second = (1 - beta**n_steps for beta in self.betas)
        return {"rate": -self.rate / first, "correction": 1 / second, "kept": 1 - self.rate * self.weight_decay}


class LossScale:
    """A factor of the loss that keeps small gradients of few bits from vanishing; as PyTorch's ``GradScaler``.

    A step whose gradients are not all finite is skipped, and the factor becomes smaller; after ``interval`` steps in a
    row that were done, it becomes larger.

    Attributes:
        value: The factor at present.
        n_skipped: Steps that were skipped.

    Example:
        >>> import blocklayout as bl
        >>> w, scale = bl.ones((4,)), LossScale(1024)
        >>> with bl.record() as tape:
        ...     loss = (w * w).sum()
        >>> gradients = tape.gradients(loss, [w], grad=scale.grad(loss))
        >>> scale.step(SGD([w], 0.1), gradients), w[0], scale.n_skipped
        (True, np.float32(0.8), 0)
    """

    def __init__(
        self, value: float = 65536.0, *, growth: float = 2.0, backoff: float = 0.5, interval: int = 2000
    ) -> None:
        limits = {"value": (value, 0, math.inf), "growth": (growth, 1, math.inf), "backoff": (backoff, 0, 1)}
        for name, (each, low, high) in limits.items():
            if not low < number(each, f"LossScale: {name}") < high:
                raise refused(each, f"LossScale: {name}", f"a number between {low} and {high}")
        self.value, self.growth, self.backoff, self.interval = float(value), growth, backoff, interval
        self.n_skipped = self._n_in_a_row = 0

    def grad(self, loss: Tensor) -> Tensor:
        """The gradient of a loss to begin with."""
        return full_like(loss, self.value)

    def step(self, optimizer: Optimizer, gradients: Any) -> bool:
        """The optimiser's step on gradients that are too large by the factor, which follows; whether it was done."""
        arrays = (each.physical().astype(np.float32, copy=False) for _, each in leaves(gradients))
        if not all(bool(np.isfinite(each).all()) for each in arrays):
            self.value, self.n_skipped, self._n_in_a_row = self.value * self.backoff, self.n_skipped + 1, 0
            return False
        optimizer.step(gradients, scale=self.value)
        self._n_in_a_row += 1
        if self._n_in_a_row == self.interval:
            self.value, self._n_in_a_row = self.value * self.growth, 0
        return True


def _shown(value: Any) -> Any:
    return getattr(value, "desc", type(value).__name__)
