"""Layers of networks: operators with random weights that keep the values in a network in range."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from blocklayout.model import Builder, BuildValue
    from blocklayout.operators import Extents

    Windows = list[tuple[int, int]]  # begin and end of each, along one dimension

BALANCE = math.log(3) ** -0.5
"""Factor of a normalisation's scales: uniform on 0.5..1.5, a variance has a mean reciprocal of ln 3."""

BRANCH_GAIN = 0.3
"""Factor of the last normalisation of a residual branch, so that sums hardly grow."""

_ACTIVATIONS: dict[str, tuple[Callable[[BuildValue, str], BuildValue], float]] = {
    "relu": (lambda x, name: x.relu(name), 0.5),
    "relu6": (lambda x, name: x.clip(0, 6, name), 0.5),
    "silu": (lambda x, name: x * x.sigmoid(name), 0.36),
    "gelu": (lambda x, name: x.gelu(name=name), 0.43),
    "hard_swish": (lambda x, name: x.hard_swish(name), 0.35),
}
"""By name: how it is written, and the mean square of its results on standard normal values."""

_SIGMOID_POWER = 0.29

_MAX_GROWTH = 3.0
"""Of the mean square, by the largest of some dozens."""

_STATE_POWER = 0.05
"""Of the states of an LSTM."""


class Layers:
    """Adds layers to a network that is being built, with weights of a seed; without one ones that take no memory.

    It remembers the mean square of the values it makes, as far as theory knows it, and draws the next weights
    accordingly: activations neither die out nor explode, however deep the network.

    Attributes:
        builder: For operators that have no weights.
        epsilon: Of the batch normalisations.
        n_statistics: Means and variances of batch normalisations, which are not learnt.
    """

    def __init__(self, builder: Builder, seed: int | None) -> None:
        self.builder = builder
        self.epsilon = 1e-5
        self.n_statistics = 0
        self._generator = None if seed is None else np.random.default_rng(seed)
        self._n_drawn = 0
        self._powers: dict[str, float] = {}
        self._positive: set[str] = set()  # mostly: a ReLU leaves nearly all of them
        self._place = ""
        self._used: Counter[str] = Counter()

    @property
    def n_parameters(self) -> int:
        """Numbers that training would learn."""
        return self._n_drawn - self.n_statistics

    def at(self, place: str) -> None:
        """Begin a part of the network: nodes that follow are named after it, ``layer1.0.conv1``."""
        self._place = f"{place}."

    def parts(self, place: str, n: int) -> Iterator[int]:
        """The numbers of ``n`` parts of the network, each begun: ``layer1.0``, ``layer1.1``, ..."""
        for index in range(n):
            self.at(f"{place}.{index}")
            yield index

    def conv(
        self,
        x: BuildValue,
        channels: int,
        kernel: Extents = 3,
        *,
        strides: Extents = 1,
        pads: Extents | None = None,
        dilations: int = 1,
        group: int = 1,
        bias: bool | float = False,
    ) -> BuildValue:
        """Convolution; by default ``pads`` are half the kernel. A ``bias`` has zero mean, or the one given."""
        extents, n_inputs = _spread(x, kernel), x.shape[1] // group
        weights = self._he((channels, n_inputs, *extents), n_inputs * math.prod(extents), self._power(x))
        return x.conv(
            weights,
            None if bias is False else self._bias(channels, 0.0 if bias is True else bias),
            strides=strides,
            pads=tuple(extent // 2 * dilations for extent in extents) if pads is None else pads,
            dilations=dilations,
            group=group,
            name=self._name("conv"),
        )

    def conv_transpose(
        self, x: BuildValue, channels: int, kernel: int, *, strides: int = 1, pads: int = 0, bias: bool = False
    ) -> BuildValue:
        """Transposed convolution."""
        extents = _spread(x, kernel)
        fan_in = x.shape[1] * math.prod(extents) / math.prod(_spread(x, strides))
        weights = self._he((x.shape[1], channels, *extents), fan_in, self._power(x))
        biases = self._bias(channels) if bias else None
        return x.conv_transpose(weights, biases, strides=strides, pads=pads, name=self._name("conv_transpose"))

    def bn(self, x: BuildValue, gain: float = 1.0) -> BuildValue:
        """Batch normalisation with varied statistics; ``gain`` multiplies its scales."""
        shape = x.shape[1:2]
        scale = self._uniform(shape, 0.9 * gain * BALANCE, 1.1 * gain * BALANCE)
        bias, mean = self._bias(*shape), self._bias(*shape)
        variance = self._uniform(shape, 0.5, 1.5)
        self.n_statistics += 2 * x.shape[1]
        y = x.batch_norm(scale, bias, mean, variance, self.epsilon, self._name("bn"))
        return self._known(y, gain**2)

    def act(self, x: BuildValue, kind: str = "relu") -> BuildValue:
        """An activation: ``relu``, ``relu6``, ``silu``, ``gelu`` or ``hard_swish``."""
        write, power = _ACTIVATIONS[kind]
        y = self._known(write(x, self._name(kind)), self._power(x) * (1.0 if x.name in self._positive else power))
        if kind.startswith("relu"):
            self._positive.add(y.name)
        return y

    def conv_act(self, x: BuildValue, channels: int, kernel: Extents = 3, **options: Any) -> BuildValue:
        """Convolution with a bias and further ``options``, and ReLU."""
        return self.act(self.conv(x, channels, kernel, bias=True, **options))

    def conv_bn(
        self,
        x: BuildValue,
        channels: int,
        kernel: Extents = 3,
        *,
        act: str | None = "relu",
        gain: float = 1.0,
        **options: Any,
    ) -> BuildValue:
        """Convolution with further ``options``, normalisation and, unless it is ``None``, an activation."""
        y = self.bn(self.conv(x, channels, kernel, **options), gain)
        return y if act is None else self.act(y, act)

    def layer_norm(self, x: BuildValue, epsilon: float) -> BuildValue:
        """Normalisation along the last dimension."""
        shape = x.shape[-1:]
        scale = self._uniform(shape, 0.9, 1.1)
        return self._known(x.layer_norm(scale, self._bias(*shape), epsilon=epsilon, name=self._name("norm")), 1.0)

    def linear(self, x: BuildValue, features: int) -> BuildValue:
        """Fully connected layer with a bias, on the rows of a matrix."""
        weights = self._he((features, x.shape[1]), x.shape[1], self._power(x))
        return x.gemm(weights, self._bias(features), trans_b=True, name=self._name("linear"))

    def linear_last(self, x: BuildValue, features: int, *, bias: bool = True) -> BuildValue:
        """Fully connected layer, on the last dimension of a tensor of any rank."""
        weights = self._he((x.shape[-1], features), x.shape[-1], self._power(x))
        y = x.matmul(weights, name=self._name("linear"))
        return y + self._bias(features) if bias else y

    def contrasted(self, x: BuildValue, epsilon: float) -> BuildValue:
        """Channels, which come last, by how large each is beside the others over the whole image."""
        shape = x.shape[-1:]
        size = x.reduce_l2((1, 2))
        scale, shift = self._normal(shape, 0.1), self._bias(*shape)
        return self.same(x * (size / (size.reduce_mean((3,)) + epsilon)) * scale + shift + x, x)

    def table(self, rows: int, features: int) -> BuildValue:
        """Learnt rows, (1, rows, features)."""
        return self._known(self.builder.constant(self._normal((1, rows, features), 0.5)), 0.25)

    def rows(self, n_rows: int, features: int, places: BuildValue) -> BuildValue:
        """For each of ``places`` a row of a learnt table."""
        table = self._normal((n_rows, features), 1.0)
        y: BuildValue = self.builder.op("Gather", table, places, name=self._name("rows"))
        return y

    def max_around(self, x: BuildValue, kernel: int) -> BuildValue:
        """The largest of so many pixels around each, which is no longer small anywhere."""
        return self._known(x.max_pool(kernel, 1, pads=kernel // 2), _MAX_GROWTH * self._power(x))

    def lstm(self, x: BuildValue, states: int) -> BuildValue:
        """An LSTM in both directions over (steps, batch, features): (steps, batch, 2 * states)."""
        of_source = self._he((2, 4 * states, x.shape[-1]), x.shape[-1], self._power(x))
        of_state = self._he((2, 4 * states, states), states, 4 * _STATE_POWER)
        arrays = (of_source, of_state, self._normal((2, 8 * states), 0.1))
        y = x.builder.op("LSTM", x, *arrays, direction="bidirectional", hidden_size=states, name=self._name("lstm"))
        return self._known(y.transpose((0, 2, 1, 3)).reshape((*x.shape[:2], 2 * states)), _STATE_POWER)

    def prelu(self, x: BuildValue) -> BuildValue:
        """A leaky ReLU with one learnt slope."""
        slope = self._uniform((1,) * (len(x.shape) - 1), 0.2, 0.3)
        return self._known(x.prelu(slope, self._name("prelu")), self._power(x) * 0.53)

    def global_norm(self, x: BuildValue, epsilon: float) -> BuildValue:
        """Normalisation of each sample as a whole; channels are scaled and shifted."""
        shape = (x.shape[1], *(1 for _ in x.shape[2:]))
        ones, zeros = np.ones(1, np.float32), np.zeros(1, np.float32)
        y = x.reshape((x.shape[0], 1, -1)).instance_norm(ones, zeros, epsilon, self._name("norm")).reshape(x.shape)
        scale = self._uniform(shape, 0.9, 1.1)
        return self._known(y * scale + self._normal(shape, 0.1), 1.0)

    def scaled(self, x: BuildValue, low: float, high: float) -> BuildValue:
        """Each channel times a learnt number."""
        scale = self._uniform((x.shape[1], *(1 for _ in x.shape[2:])), low, high)
        return self._known(x * scale, self._power(x) * (low + high) ** 2 / 4)

    def classifier(self, x: BuildValue, classes: int) -> BuildValue:
        """Means over each channel, mapped to scores."""
        self.at("classifier")
        return self.linear(x.global_average_pool().flatten(), classes)

    def add(self, x: BuildValue, y: BuildValue) -> BuildValue:
        """The sum of two branches."""
        total = self._known(x + y, self._power(x) + self._power(y))
        if {x.name, y.name} & self._positive:
            self._positive.add(total.name)
        return total

    def gated(self, x: BuildValue, gate: BuildValue, *, is_hard: bool = False) -> BuildValue:
        """``x`` as far as a sigmoid lets it through, or one of straight lines."""
        name = self._name("sigmoid")
        opened = gate.hard_sigmoid(1 / 6, 0.5, name) if is_hard else gate.sigmoid(name)
        return self._known(x * opened, _SIGMOID_POWER * self._power(x))

    def squeeze_and_excite(self, x: BuildValue, channels: int, act: str, *, is_hard: bool = False) -> BuildValue:
        """Channels weighed by their means, which two convolutions map to gates.

        Source: J. Hu et al., "Squeeze-and-Excitation Networks", arXiv:1709.01507.
        """
        y = self.act(self.conv(x.global_average_pool(), channels, 1, bias=True), act)
        return self.gated(x, self.conv(y, x.shape[1], 1, bias=True), is_hard=is_hard)

    def concat(self, values: Sequence[BuildValue]) -> BuildValue:
        """Channels of one value after those of another."""
        y = self.builder.concat(values)
        return self._known(y, sum(self._power(value) * value.shape[1] for value in values) / y.shape[1])

    def same(self, y: BuildValue, x: BuildValue) -> BuildValue:
        """``y``, of which is noted that its elements are about as large as those of ``x``."""
        return self._known(y, self._power(x))

    def _normal(self, shape: Sequence[int], deviation: float) -> NDArray[np.float32]:
        self._n_drawn += math.prod(shape)
        if self._generator is None:
            return _ones(shape)
        values = self._generator.standard_normal(tuple(shape), np.float32)
        values *= np.float32(deviation)
        return values

    def _uniform(self, shape: Sequence[int], low: float, high: float) -> NDArray[np.float32]:
        self._n_drawn += math.prod(shape)
        if self._generator is None:
            return _ones(shape)
        return self._generator.uniform(low, high, tuple(shape)).astype(np.float32)

    def _he(self, shape: Sequence[int], fan_in: float, power: float) -> NDArray[np.float32]:
        """He-normal: sums of ``fan_in`` products with values of this mean square have unit variance."""
        return self._normal(shape, 1 / math.sqrt(fan_in * power))

    def _known(self, x: BuildValue, power: float) -> BuildValue:
        self._powers[x.name] = power
        return x

    def _power(self, x: BuildValue) -> float:
        return self._powers.get(x.name, 1.0)

    def _bias(self, channels: int, mean: float = 0.0) -> np.ndarray:
        values = self._normal((channels,), 0.1)
        return values + np.float32(mean) if mean else values

    def _name(self, kind: str) -> str:
        stem = f"{self._place}{kind}"
        self._used[stem] += 1
        return f"{stem}{self._used[stem]}"


def _spread(x: BuildValue, extents: Extents) -> tuple[int, ...]:
    """One number for each spatial dimension."""
    return (extents,) * (len(x.shape) - 2) if isinstance(extents, int) else tuple(extents)


def _ones(shape: Sequence[int]) -> NDArray[np.float32]:
    return np.broadcast_to(np.float32(1), tuple(shape))


def adaptive_average_pool(x: BuildValue, extents: Sequence[int]) -> BuildValue:
    """Means of windows that cover the image evenly, to ``extents``, as PyTorch's AdaptiveAvgPool2d has them.

    Nothing where the extents are these already, AveragePool where the windows are all alike, and otherwise
    one dimension at a time, each window a mean of its own.
    """
    if x.shape[2:] == tuple(extents):
        return x
    windows = [
        [(index * source // wanted, -(-(index + 1) * source // wanted)) for index in range(wanted)]
        for source, wanted in zip(x.shape[2:], extents, strict=True)
    ]
    if all(extent == 1 for extent in x.shape[2:]):
        return x.expand((*x.shape[:2], *extents))
    steps = [_step(each) for each in windows]
    if all(steps):
        kernel = [end - begin for (begin, end), *_ in windows]
        return x.average_pool(kernel, [step or 1 for step in steps])
    for axis, each in enumerate(windows, start=2):
        parts = [x.slice([begin], [end], [axis]) for begin, end in each]
        x = x.builder.concat([part.reduce_mean((axis,)) for part in parts], axis)
    return x


def _step(windows: Windows) -> int | None:
    """From one window to the next, if all are of one size and equally far apart."""
    begins = [begin for begin, _ in windows]
    steps = {after - before for before, after in pairwise(begins)} or {1}
    sizes = {end - begin for begin, end in windows}
    return max(steps) if len(steps) == len(sizes) == 1 else None
