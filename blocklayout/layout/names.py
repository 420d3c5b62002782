"""The alphabets that oneDNN spells format tags in, and what to suggest for a misspelled tag.

Source: ``dnnl_format_tag_t`` and its aliases, ``oneapi/dnnl/dnnl_types.h``, oneDNN v3.2.
"""

from __future__ import annotations

from functools import cache, lru_cache

from blocklayout.errors import close_names

MAX_NDIMS = 12
"""``DNNL_MAX_NDIMS``: the most dimensions, and the most inner blocks, of a descriptor."""

LETTERS = "abcdefghijkl"
"""The abstract alphabet: ``a`` is the first logical dimension, of any meaning."""

ACTIVATION_WORDS = {1: "x", 2: "nc", 3: "ncw", 4: "nchw", 5: "ncdhw"}
"""Logical order of activations, by rank."""

WEIGHTS_WORDS = {1: "x", 2: "oi", 3: "oiw", 4: "oihw", 5: "oidhw", 6: "goidhw"}
"""Logical order of weights, by rank; six dimensions can only be grouped."""

GROUPED_WORDS = {4: "goiw", 5: "goihw", 6: "goidhw"}
"""Logical order of weights with groups, by rank."""

RECURRENT_WORDS = ("tn", "tnc", "ldnc", "ldigo", "ldio", "ldgo")
"""Logical orders that only recurrent layers use."""

WORDS = (*ACTIVATION_WORDS.values(), *WEIGHTS_WORDS.values(), *GROUPED_WORDS.values(), *RECURRENT_WORDS)

WORD_OF_LETTERS = {frozenset(word): word for word in WORDS}
"""The logical order that a set of role letters can only mean."""

IRREGULAR = {
    "OhwI24o": "Acdb24a",
    "OhwI32o": "Acdb32a",
    "gOhwI24o": "aBdec24b",
    "gOhwI32o": "aBdec32b",
    "gIOhw2i8o16i2o": "aBCde2c8b16c2b",
    "gIOdhw2i8o16i2o": "aBCdef2c8b16c2b",
}
"""Names of the library that do not mean what their letters say."""


def role_word(role: str, ndims: int) -> str:
    """The logical order of a tensor in this role, or ``""`` where the role has no names at this rank.

    Roles are ``weights``, ``grouped_weights``, and any argument's name (``src``, ``dst_1`` ...): an activation.

    Example:
        >>> role_word("src", 4), role_word("grouped_weights", 5), role_word("src", 7)
        ('nchw', 'goihw', '')
    """
    if role.startswith("grouped_weights"):
        return GROUPED_WORDS.get(ndims, "")
    if role.startswith("weights"):
        return WEIGHTS_WORDS.get(ndims, "")
    return ACTIVATION_WORDS.get(ndims, "")


@cache
def _usual_tags() -> tuple[str, ...]:
    plain = ("x", "a", "nc", "cn", "ncw", "nwc", "nchw", "nhwc", "chwn", "ncdhw", "ndhwc", "tnc", "ntc", "ldnc")
    letters = ("ab", "ba", "abc", "acb", "abcd", "acdb", "bcda", "abcde", "acdeb", "abcdef")
    weights = ("oi", "io", "oiw", "wio", "oihw", "hwio", "ohwi", "ihwo", "oidhw", "dhwio", "odhwi", "goiw", "goihw")
    more_weights = ("hwigo", "gohwi", "goidhw", "ldigo", "ldgoi", "ldio", "ldoi", "ldgo")
    blocked = [f"nC{hw}{size}c" for hw in ("w", "hw", "dhw") for size in (4, 8, 16, 32)]
    blocked += [f"aB{cd}{size}b" for cd in ("c", "cd", "cde") for size in (4, 8, 16, 32)]
    for hw in ("w", "hw", "dhw"):
        blocked += [f"{g}OI{hw}{n}i{n}o" for g in ("", "g") for n in (4, 8, 16)]
        blocked += [f"{g}O{hw}i{n}o" for g in ("", "g") for n in (4, 8, 16)]
        blocked += [f"{g}OI{hw}{tail}" for g in ("", "g") for tail in ("4i16o4i", "8i16o2i", "8o8i", "16o16i")]
        blocked += [f"Goi{hw}{n}g" for n in (8, 16)]
    return (*plain, *letters, *weights, *more_weights, *blocked)


@lru_cache(maxsize=256)
def closest_tags(text: str) -> tuple[str, ...]:
    """Up to three usual tags that resemble ``text``.

    Example:
        >>> closest_tags("nchw16c")
        ('nChw16c', 'nCdhw16c', 'nCw16c')
    """
    folded = {tag.lower(): tag for tag in reversed(dict.fromkeys(_usual_tags()))}
    matches = close_names(text.lower(), folded, cutoff=0.5)
    return tuple(folded[match] for match in matches)
