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
from blocklayout.eager.operands import number, refused
from blocklayout.eager.tape import leaves
from blocklayout.errors import InputError
from blocklayout.layout import MemoryDesc
from blocklayout.recording import Entry, recorders_around, recording, tell
from blocklayout.tensor import Tensor, full_like, reorder
from blocklayout.tensor.moving import brought

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_CHUNK = 1 << 14
"""Elements that are updated at once, so that all of an update's passes but the first find them in cache."""


class Optimizer:
    """What optimisers have in common: parameters, their state, and steps.

    Attributes:
        rate: Of learning; it may be set between steps.
        n_steps: Steps done.
        state: For each kind of state a Tensor for each parameter, by name: f32, in the parameter's layout.
    """

    kinds: ClassVar[tuple[str, ...]] = ()
    function: ClassVar[str] = ""

    def __init__(self, parameters: Any, rate: float, **numbers: tuple[float, float]) -> None:
        """``numbers`` are each value, and the number that it must be below."""
        self.parameters = parameters
        self.n_steps = 0
        self._check("rate", rate, math.inf)
        self.rate = float(rate)
        for name, (value, limit) in numbers.items():
            self._check(name, value, limit)
        self._named = {place or "parameter": each for place, each in leaves(parameters)}
        for name, each in self._named.items():
            if not isinstance(each, Tensor) or each.dtype not in PRIMITIVE_FLOATS or not each.is_dense:
                shown = each.desc if isinstance(each, Tensor) else type(each).__name__
                right = f"dense Tensors of {', '.join(PRIMITIVE_FLOATS)}"
                raise self._error(f"parameters{name} is {shown}; give {right}")
            if not each.buffer.flags.writeable:
                raise self._error(f"parameters{name} cannot be written to; give a clone() of it")
        self.state = {kind: {name: _zeros(each) for name, each in self._named.items()} for kind in self.kinds}
        self.masters = {name: _master(each) for name, each in self._named.items() if each.dtype != "f32"}

    def step(self, gradients: Any, *, scale: float = 1.0) -> None:
        """Update all parameters where they lie.

        Args:
            gradients: In the structure of the parameters, as :meth:`blocklayout.Tape.gradients` gives them.
            scale: By how much they are too large.

        Raises:
            InputError: Another structure, or other extents.
        """
        given = {place or "parameter": each for place, each in leaves(gradients)}
        if given.keys() != self._named.keys():
            names = ", ".join(sorted(given.keys() ^ self._named.keys())[:5])
            raise self._error(f"gradients have another structure than the parameters, by {names}")
        for name, each in given.items():
            if not isinstance(each, Tensor) or each.shape != self._named[name].shape:
                shown = each.desc if isinstance(each, Tensor) else type(each).__name__
                raise self._error(f"gradients{name} is {shown}; its parameter is {self._named[name].desc}")
        self.n_steps += 1
        for name, parameter in self._named.items():
            self._step(name, parameter, given[name], scale)

    def _step(self, name: str, parameter: Tensor, gradient: Tensor, scale: float) -> None:
        grad = brought(gradient, MemoryDesc(gradient.shape, gradient.dtype, parameter.desc.format_tag), self.function)
        master, state = self.masters.get(name), [kind[name] for kind in self.state.values()]
        if recorders_around():
            given = {"optimizer": self, "master": master, "scale": scale}
            tell(Entry(self.function, (parameter, grad, *(state or [None])), given))
        with recording():
            target = (parameter if master is None else master).physical()
            arrays = target, grad.physical(), *(each.physical() for each in state)
            for begin in range(0, target.size, _CHUNK):
                p, g, *others = (each[begin : begin + _CHUNK] for each in arrays)
                slope = g.astype(np.float32)
                if scale != 1:
                    slope *= np.float32(1 / scale)
                self._update(p, slope, *others)
            if master is not None:
                parameter.physical()[:] = target.astype(parameter.physical().dtype)

    def _update(self, p: np.ndarray, g: np.ndarray, *state: np.ndarray) -> None:
        """Change a part of a parameter and of its state; ``g`` may be changed too."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, np.ndarray]:
        """The state as arrays, row-major, by flat names; ``numpy.savez(file, **state)`` writes them."""
        groups = {**self.state, "master": self.masters}
        arrays = {f"{kind}{name}": each.numpy() for kind, group in groups.items() for name, each in group.items()}
        return {"n_steps": np.array(self.n_steps), **arrays}

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Take over what :meth:`state_dict` gave, of parameters of the same names, in whatever layouts they are now.

        Raises:
            InputError: A name is missing, or unknown, or extents differ.
        """
        groups = {**self.state, "master": self.masters}
        own = {f"{kind}{name}": each for kind, group in groups.items() for name, each in group.items()}
        if {*state} != {"n_steps", *own}:
            names = ", ".join(sorted({*state} ^ {"n_steps", *own})[:5])
            raise self._error(f"the state is of other parameters, or of another optimiser; it differs by {names}")
        for name, each in own.items():
            if np.shape(state[name]) != each.shape:
                raise self._error(f"the state's {name} has shape {np.shape(state[name])}; it is {each.shape} here")
        self.n_steps = int(np.asarray(state["n_steps"]))
        for name, each in own.items():
            each[...] = np.asarray(state[name])

    def _check(self, name: str, value: Any, limit: float) -> None:
        title = f"{type(self).__name__}: {name}"
        if not 0 <= number(value, title) < limit:
            upper = "" if math.isinf(limit) else f", below {limit:g}"
            raise refused(value, title, f"a finite number of at least 0{upper}")

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

    kinds = ("velocity",)
    function = "sgd_update"

    def __init__(
        self,
        parameters: Any,
        rate: float,
        *,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        self.kinds = ("velocity",) if momentum else ()  # type: ignore[misc]  # its own
        super().__init__(parameters, rate, momentum=(momentum, 1), weight_decay=(weight_decay, math.inf))
        if nesterov and not momentum:
            raise self._error("nesterov needs a momentum above 0")
        self.momentum, self.weight_decay, self.nesterov = float(momentum), float(weight_decay), bool(nesterov)

    def _update(self, p: np.ndarray, g: np.ndarray, *state: np.ndarray) -> None:
        if self.weight_decay:
            g += p * np.float32(self.weight_decay)
        if state:
            [velocity] = state
            np.multiply(velocity, np.float32(self.momentum), out=velocity)
            np.add(velocity, g, out=velocity)
            g = g + velocity * np.float32(self.momentum) if self.nesterov else velocity
        p -= g * np.float32(self.rate)


class AdamW(Optimizer):
    """Adam with decoupled weight decay.

    Args:
        parameters: As of :class:`SGD`.
        rate: Of learning.
        betas: How much of the means of gradients, and of their squares, stays from step to step.
        epsilon: Added to the root of the mean square.
        weight_decay: How much of a parameter goes in each step, times the rate.

    Raises:
        InputError: As of :class:`SGD`.

    Example:
        >>> import blocklayout as bl
        >>> w = bl.full((4,), 3)
        >>> AdamW([w], 0.1, weight_decay=0).step([w])
        >>> w.numpy()
        array([2.9, 2.9, 2.9, 2.9], dtype=float32)
    """

    kinds = ("mean", "square")
    function = "adamw_update"

    def __init__(
        self,
        parameters: Any,
        rate: float = 1e-3,
        *,
        betas: Sequence[float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        given: Any = betas
        if not isinstance(given, Sequence) or len(given) != 2:
            raise refused(betas, "AdamW: betas", "two numbers below 1")
        limits = {"betas[0]": (given[0], 1.0), "betas[1]": (given[1], 1.0), "epsilon": (epsilon, math.inf)}
        super().__init__(parameters, rate, **limits, weight_decay=(weight_decay, math.inf))
        self.betas, self.epsilon, self.weight_decay = (float(given[0]), float(given[1])), epsilon, weight_decay

    def _update(self, p: np.ndarray, g: np.ndarray, *state: np.ndarray) -> None:
        (mean, square), (first, second) = state, self.betas
        p *= np.float32(1 - self.rate * self.weight_decay)
        mean *= np.float32(first)
        mean += g * np.float32(1 - first)
        square *= np.float32(second)
        square += g * g * np.float32(1 - second)
        root = np.sqrt(square)
        root *= np.float32(1 / math.sqrt(1 - second**self.n_steps))
        root += np.float32(self.epsilon)
        p -= mean / root * np.float32(self.rate / (1 - first**self.n_steps))


class LossScale:
    """A factor of the loss that keeps small gradients of few bits from vanishing; it follows their range.

    A step whose gradients are not all finite is skipped, and the factor becomes smaller; after ``interval`` steps in a
    row that were not, it becomes larger. As PyTorch's ``GradScaler``.

    Args:
        value: To begin with.
        growth: The factor becomes so many times as large.
        backoff: Or so many times.
        interval: Steps that must do before it grows.

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
        self.n_skipped = 0
        self._n_in_a_row = 0

    def grad(self, loss: Tensor) -> Tensor:
        """The gradient of a loss to begin with."""
        return full_like(loss, self.value)

    def step(self, optimizer: Optimizer, gradients: Any) -> bool:
        """The optimiser's step on gradients that are too large by the factor, which follows; whether it was done."""
        arrays = (each.physical().astype(np.float32, copy=False) for _, each in leaves(gradients))
        is_finite = all(bool(np.isfinite(each).all()) for each in arrays)
        if is_finite:
            optimizer.step(gradients, scale=self.value)
        self._n_in_a_row = self._n_in_a_row + 1 if is_finite else 0
        self.n_skipped += not is_finite
        if not is_finite:
            self.value *= self.backoff
        elif self._n_in_a_row == self.interval:
            self.value, self._n_in_a_row = self.value * self.growth, 0
        return is_finite


def _zeros(like: Tensor) -> Tensor:
    desc = like.desc.with_dtype("f32")
    return Tensor(desc, np.zeros(desc.nbytes, np.uint8))


def _master(parameter: Tensor) -> Tensor:
    with recording():
        return reorder(parameter, parameter.desc.with_dtype("f32"))
