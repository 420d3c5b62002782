"""Other extents and orders of the same elements, parts of tensors, constants, conversions."""

from __future__ import annotations

from collections.abc import Sequence

from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, lowers


@lowers("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")
def _view(w: NodeWriter, x: BuildValue, size: Sequence[int]) -> BuildValue:
    del size
    return w.reshape(x, w.shape)


@lowers("aten.clone.default", "aten.alias.default", "aten.detach.default")
def _same(w: NodeWriter, x: BuildValue) -> BuildValue:
    del w
    return x


@lowers("aten.permute.default")
def _permute(w: NodeWriter, x: BuildValue, dims: Sequence[int]) -> BuildValue:
    return w.transpose(x, [dim % len(x.shape) for dim in dims])
