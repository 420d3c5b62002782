"""Layers as PyTorch's modules: each is PyTorch's class of its name, and is computed by a function of ours."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import torch
from torch import nn

from blocklayout.errors import InputError
from blocklayout.torch import operators


class _Layer(nn.Module):
    """A layer with the parameters of PyTorch's, and maybe an activation behind it."""

    activation: str | None = None

    @classmethod
    def of(cls, module: nn.Module, activation: str | None = None) -> Self:
        """A layer to stand in another's place: parameters are the same objects, settings and hooks are alike.

        Args:
            module: Of PyTorch's class of this name.
            activation: A function of each element of the result: one of ``bl.torch.ACTIVATIONS``.

        Raises:
            InputError: A module of another class, or no such activation.
        """
        kind = next(each for each in cls.__mro__ if each.__module__.startswith("torch."))
        if type(module) is not kind:
            raise InputError(f"{cls.__name__}.of: module is a {type(module).__name__}; give a torch.nn.{kind.__name__}")
        operators.checked_activation(activation, f"{cls.__name__}.of: ")
        made = cls.__new__(cls)
        made.__dict__ = {name: copy(each) if isinstance(each, dict) else each for name, each in vars(module).items()}
        made.activation = activation
        return made

    def _conv_forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """The result of a convolution, in place of PyTorch's: its ``forward`` calls this method."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            x, padding = nn.functional.pad(x, self._reversed_padding_repeated_twice, mode=self.padding_mode), 0
        function: Any = getattr(operators, f"conv{len(self.stride)}d")
        return function(x, weight, bias, self.stride, padding, self.dilation, self.groups, self.activation)


class Conv1d(_Layer, nn.Conv1d):
    """``torch.nn.Conv1d``, computed by :func:`conv1d`.

    Example:
        >>> Conv1d.of(nn.Conv1d(4, 8, 3))
        Conv1d(4, 8, kernel_size=(3,), stride=(1,))
    """


class Conv2d(_Layer, nn.Conv2d):
    """``torch.nn.Conv2d``, computed by :func:`conv2d`.

    Example:
        >>> Conv2d.of(nn.Conv2d(16, 32, 3), activation="relu")(torch.rand(1, 16, 8, 8)).shape
        torch.Size([1, 32, 6, 6])
    """


class Conv3d(_Layer, nn.Conv3d):
    """``torch.nn.Conv3d``, computed by :func:`conv3d`.

    Example:
        >>> Conv3d.of(nn.Conv3d(4, 8, 3)).weight.shape[:2]
        torch.Size([8, 4])
    """


class ConvTranspose2d(_Layer, nn.ConvTranspose2d):
    """``torch.nn.ConvTranspose2d``, computed by :func:`conv_transpose2d`.

    Example:
        >>> ConvTranspose2d.of(nn.ConvTranspose2d(4, 8, 3))(torch.rand(1, 4, 5, 5)).shape
        torch.Size([1, 8, 7, 7])
    """

    def forward(self, x: torch.Tensor, output_size: list[int] | None = None) -> torch.Tensor:
        """The result; ``output_size`` as PyTorch has it."""
        more = self._output_padding(x, output_size, self.stride, self.padding, self.kernel_size, 2, self.dilation)
        window = self.stride, self.padding, more, self.groups, self.dilation
        return operators.conv_transpose2d(x, self.weight, self.bias, *window, self.activation)


class Linear(_Layer, nn.Linear):
    """``torch.nn.Linear``, computed by :func:`linear`.

    Example:
        >>> Linear.of(nn.Linear(4, 8))(torch.rand(2, 4)).shape
        torch.Size([2, 8])
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The result."""
        return operators.linear(x, self.weight, self.bias, self.activation)
