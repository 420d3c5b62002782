"""Names of implementations, in words."""

from __future__ import annotations

_WAYS = (
    ("winograd", "Winograd's method, our own code"),
    ("max_pooling", "our own loops"),
    ("group_normalization", "our own loops"),
    ("ref", "reference code, not optimised"),
    ("brg", "small blocks of matrix products (brgemm)"),
    ("gemm", "one large matrix product (gemm)"),
    ("jit", "code generated for this shape"),
    ("ncsp", "plain loops"),
    ("simple", "plain loops"),
)
"""Parts of names in order of precedence."""

_ISAS = {
    "avx512_core": "AVX-512",
    "avx512_core_vnni": "AVX-512 with VNNI",
    "avx512_core_bf16": "AVX-512 with bf16",
    "avx512_core_fp16": "AVX-512 with fp16",
    "avx512_core_amx": "AMX",
    "avx512_core_amx_fp16": "AMX with fp16",
    "avx2": "AVX2",
    "avx2_vnni": "AVX2 with VNNI",
    "avx2_vnni_2": "AVX2 with VNNI",
    "avx": "AVX",
    "sse41": "SSE4.1",
}


def impl_words(impl: str) -> str:
    """An implementation in words; empty where its name says nothing that is known here.

    Example:
        >>> impl_words("brgconv_1x1:avx512_core"), impl_words("x64:gemm:jit")
        ('small blocks of matrix products (brgemm), AVX-512', 'one large matrix product (gemm)')
    """
    way = next((words for part, words in _WAYS if part in impl), "")
    isa = _ISAS.get(impl.rpartition(":")[2], "")
    return ", ".join(filter(None, (way, isa)))
