"""The values of a builder: handles with a method for each operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blocklayout.dtypes import named
from blocklayout.errors import ModelError
from blocklayout.model.schemas import schema_or_none
from blocklayout.model.types import to_elem_type
from blocklayout.operators import Operators

if TYPE_CHECKING:
    from blocklayout.ir.value import Value
    from blocklayout.model.builder import Builder
    from blocklayout.operators import Extents


class BuildValue(Operators):
    """A tensor of the network that is being built.

    Every operator's method is :meth:`blocklayout.model.Builder.op` in short; arrays become constants.

    Attributes:
        builder: Whose value it is.
        value: Its name, extents and data type.
    """

    def __init__(self, builder: Builder, value: Value) -> None:
        self.builder = builder
        self.value = value

    @property
    def name(self) -> str:
        """The name it has until it is made an output."""
        return self.value.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical extents."""
        return self.value.shape

    @property
    def dtype(self) -> str:
        """Data type, by oneDNN's names."""
        return self.value.dtype

    def expect(self, layout: str) -> BuildValue:
        """This value, which must come in a format: checked when the network is planned, also from a saved model.

        Args:
            layout: A oneDNN tag such as ``nChw8c``, ``channels_last`` or ``channels_first``.

        Example:
            >>> from blocklayout import Builder
            >>> b = Builder()
            >>> b.output("y", b.input("x", (1, 16, 8, 8)).relu().expect("channels_first"))
            >>> b.expected
            {'y': 'channels_first'}
        """
        self.builder.expect(self, layout)
        return self

    def pin(self, layout: str) -> BuildValue:
        """This value, which must be written in a format: the rest of the network is chosen around it.

        Args:
            layout: A oneDNN tag such as ``nChw8c``, ``channels_last`` or ``channels_first``.

        Example:
            >>> from blocklayout import Builder
            >>> b = Builder()
            >>> b.output("y", b.input("x", (1, 16, 8, 8)).relu().pin("channels_last"))
            >>> b.pinned
            {'y': 'channels_last'}
        """
        self.builder.pin(self, layout)
        return self

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype} {self.shape}>"

    def astype(self, dtype: str) -> BuildValue:
        """The values in another data type, converted as ONNX does."""
        result: BuildValue = self.builder.op("Cast", self, to=to_elem_type(named(dtype)))
        return result

    def __bool__(self) -> bool:
        raise ModelError(f"{self!r} has no truth: what it will be, the network tells when it runs")

    def _op(self, op_type: str, *operands: Any, name: str | None = None, **attrs: Any) -> Any:
        while operands and operands[-1] is None:
            operands = operands[:-1]
        schema = schema_or_none(op_type, self.builder.opset)
        n_inputs = len(operands) if schema is None else schema.max_input
        if len(operands) > n_inputs:  # older versions have as attributes what newer ones have as inputs
            attrs |= zip(_input_names(op_type)[n_inputs:], operands[n_inputs:], strict=False)
        return self.builder.op(op_type, *operands[:n_inputs], name=name, **attrs)

    def _reaching(self, output_shape: tuple[int, ...], strides: Extents, pads: Extents) -> Extents:
        n_spatial = len(self.shape) - 2
        steps = (strides,) * n_spatial if isinstance(strides, int) else strides
        around = (pads,) * n_spatial if isinstance(pads, int) else pads
        begin, end = around[:n_spatial], around[-n_spatial:]
        kernel = [
            extent - (n - 1) * step + first + last
            for extent, n, step, first, last in zip(output_shape[2:], self.shape[2:], steps, begin, end, strict=False)
        ]
        if output_shape[:2] != self.shape[:2] or len(output_shape) != len(self.shape) or min(kernel) < 1:
            raise ModelError(
                f"output_shape is {output_shape}; {self.name!r} of shape {self.shape} takes "
                f"{self.shape[:2]} and {n_spatial} extents that hold its windows"
            )
        return kernel

    def _window(self, **attrs: Extents) -> dict[str, Extents | None]:
        n_spatial = len(self.shape) - 2
        spread: dict[str, Extents | None] = {}
        for attr, given in attrs.items():
            each = (given,) * n_spatial if isinstance(given, int) else tuple(given)
            n_wanted = 2 * n_spatial if attr == "pads" else n_spatial
            each = each * 2 if attr == "pads" and len(each) == n_spatial else each
            if len(each) != n_wanted:
                raise ModelError(
                    f"{attr} {given!r} has {len(each)} values; {self.name!r} of shape {self.shape} has {n_spatial} "
                    f"spatial dimensions: give one number, or {n_wanted} of them"
                )
            default = 0 if attr in ("pads", "output_padding") else 1
            is_default = attr != "kernel_shape" and all(number == default for number in each)
            spread[attr] = None if is_default else each
        return spread


def _input_names(op_type: str) -> list[str]:
    """Names of the inputs of an operator's newest version."""
    from onnx import defs

    return [formal.name for formal in defs.get_schema(op_type).inputs]
