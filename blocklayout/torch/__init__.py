"""PyTorch programs: the backend of ``torch.compile``, readers of its graphs, and single layers within its models.

Takes the extra ``torch``: without it there are no layers, and functions say what to install. See
docs/how-to/pytorch.md.
"""

from __future__ import annotations

from importlib.util import find_spec

from blocklayout.torch.compiling import CompiledModule, Explanation, backend, compile, explain_compile

if find_spec("torch") is not None:
    from blocklayout.torch.modules import Conv1d, Conv2d, Conv3d, ConvTranspose2d, Linear
    from blocklayout.torch.operators import ACTIVATIONS, Packed, conv1d, conv2d, conv3d, conv_transpose2d, linear, pack

__all__ = [
    "ACTIVATIONS",
    "CompiledModule",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose2d",
    "Explanation",
    "Linear",
    "Packed",
    "backend",
    "compile",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "explain_compile",
    "linear",
    "pack",
]
