"""PyTorch programs: the backend of ``torch.compile``, and readers of its graphs.

Takes the extra ``torch``. See docs/how-to/pytorch.md.
"""

from __future__ import annotations

from blocklayout.torch.compiling import CompiledModule, Explanation, backend, compile, explain_compile

__all__ = ["CompiledModule", "Explanation", "backend", "compile", "explain_compile"]
