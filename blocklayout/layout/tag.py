"""Format tags: the order of dimensions and the blocks inside, as oneDNN spells them; tags like a misspelled one.

Source: ``dnnl_format_tag_t`` and its aliases, ``oneapi/dnnl/dnnl_types.h``, oneDNN v3.2.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

from msgspec import Struct

from blocklayout.errors import LayoutError, close_names

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
"""Names of the library whose letters mislead, and their meanings."""

_TAG = re.compile(r"([A-Za-z]+)((?:[1-9][0-9]*[a-z])*)")
_BLOCK = re.compile(r"([0-9]+)([a-z])")


class FormatTag(Struct, frozen=True):
    """An order of dimensions with the blocks cut out of them.

    Dimensions are logical: for activations 0 is the batch and 1 the channels, wherever they lie.

    Attributes:
        order: Dimensions from the outermost to the innermost, blocks left aside.
        inner_blks: Sizes of the blocks from the outermost to the innermost, in elements.
        inner_idxs: The dimension that each block was cut out of.
        given: The spelling it came in; empty if it was computed. Takes no part in equality.

    Example:
        >>> tag = FormatTag.parse("nChw16c")
        >>> tag.order, tag.inner_blks, tag.inner_idxs
        ((0, 1, 2, 3), (16,), (1,))
        >>> tag.canonical, FormatTag.parse("aBcd16b").named("src")
        ('aBcd16b', 'nChw16c')
    """

    order: tuple[int, ...]
    inner_blks: tuple[int, ...] = ()
    inner_idxs: tuple[int, ...] = ()
    given: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.order) <= MAX_NDIMS or sorted(self.order) != list(range(len(self.order))):
            raise LayoutError(
                f"order {self.order} must name each dimension once, as a permutation of 0..n-1; n is 1 to {MAX_NDIMS}"
            )
        check_blocks(self.inner_blks, self.inner_idxs, len(self.order))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormatTag) and self._means() == other._means()

    def __hash__(self) -> int:
        return hash(self._means())

    def _means(self) -> tuple[tuple[int, ...], ...]:
        return self.order, self.inner_blks, self.inner_idxs

    @classmethod
    def parse(cls, text: str) -> FormatTag:
        """The tag spelled ``text``, in letters or in the words of activations, weights and recurrent layers.

        Raises:
            LayoutError: No such tag; the message suggests the closest ones.

        Example:
            >>> FormatTag.parse("OIhw4i16o4i").canonical
            'ABcd4b16a4b'
        """
        return _parse(text)

    @property
    def ndims(self) -> int:
        """Rank of the tensors it lays out."""
        return len(self.order)

    @property
    def alphabet(self) -> str:
        """The logical order in the letters it was given in, such as ``nchw``; ``abcd`` if it was computed."""
        return _alphabet(self.given) or LETTERS[: self.ndims]

    @property
    def canonical(self) -> str:
        """Its name in letters, that of ``dnnl_fmt_tag2str``."""
        return _spell(self.order, self.inner_blks, self.inner_idxs, LETTERS)

    @property
    def text(self) -> str:
        """As it was given, else in letters."""
        return self.given or self.canonical

    def named(self, role: str) -> str:
        """Its name for an argument: ``src``, ``dst`` and the like, ``weights`` or ``grouped_weights``.

        Example:
            >>> FormatTag.parse("aBcd16b").named("weights"), FormatTag.parse("aBCde4c4b").named("grouped_weights")
            ('oIhw16i', 'gOIhw4i4o')
        """
        word = role_word(role, self.ndims)
        return self.spelled(word) if word else self.canonical

    def spelled(self, word: str) -> str:
        """Its name in the letters of ``word``, a logical order such as ``ldigo``.

        Raises:
            LayoutError: ``word`` has another rank.
        """
        if len(word) != self.ndims:
            raise LayoutError(f"{word!r} names {len(word)} dimensions, {self.text} has {self.ndims}")
        return _spell(self.order, self.inner_blks, self.inner_idxs, word)

    def without_blocks(self, dims: frozenset[int]) -> FormatTag:
        """The same order in the same alphabet, with no blocks cut out of ``dims``."""
        kept = [(blk, idx) for blk, idx in zip(self.inner_blks, self.inner_idxs, strict=True) if idx not in dims]
        blks = tuple(blk for blk, _ in kept)
        idxs = tuple(idx for _, idx in kept)
        return FormatTag(self.order, blks, idxs, _spell(self.order, blks, idxs, self.alphabet))

    def permuted(self, perm: tuple[int, ...]) -> FormatTag:
        """The same bytes with axes exchanged: new axis ``i`` is old axis ``perm[i]``. Letters lose their meaning.

        Example:
            >>> FormatTag.parse("nChw8c").permuted((0, 2, 3, 1)).canonical
            'aDbc8d'
        """
        new_axis = {old: new for new, old in enumerate(perm)}
        order = tuple(new_axis[old] for old in self.order)
        given = self.given if perm == tuple(range(len(perm))) else ""
        return FormatTag(order, self.inner_blks, tuple(new_axis[old] for old in self.inner_idxs), given)

    def without(self, dims: frozenset[int]) -> FormatTag:
        """The tag that is left when ``dims`` and their blocks go. Letters lose their meaning.

        Example:
            >>> FormatTag.parse("nChw8c").without(frozenset([0])).canonical
            'Abc8a'
        """
        if not dims:
            return self
        new_axis = {old: new for new, old in enumerate(dim for dim in range(self.ndims) if dim not in dims)}
        blocks = [
            (blk, new_axis[idx]) for blk, idx in zip(self.inner_blks, self.inner_idxs, strict=True) if idx in new_axis
        ]
        order = tuple(new_axis[old] for old in self.order if old in new_axis)
        return FormatTag(order, tuple(blk for blk, _ in blocks), tuple(idx for _, idx in blocks))

    def __str__(self) -> str:
        return self.text


def check_blocks(inner_blks: tuple[int, ...], inner_idxs: tuple[int, ...], ndims: int) -> None:
    """Refuse blocks that no tensor of this rank can have, by a LayoutError."""
    if len(inner_blks) != len(inner_idxs) or len(inner_blks) > MAX_NDIMS:
        raise LayoutError(
            f"inner_blks {inner_blks} and inner_idxs {inner_idxs} must have one length, at most {MAX_NDIMS}"
        )
    for blk, idx in zip(inner_blks, inner_idxs, strict=True):
        if blk < 2:
            raise LayoutError(f"a block of {blk} elements is none; blocks have 2 or more")
        if not 0 <= idx < ndims:
            raise LayoutError(f"block of {blk} on missing dimension {idx}; dimensions are 0 to {ndims - 1}")


@lru_cache(maxsize=4096)
def _spell(order: tuple[int, ...], blks: tuple[int, ...], idxs: tuple[int, ...], word: str) -> str:
    blocked = set(idxs)
    head = "".join(word[dim].upper() if dim in blocked else word[dim] for dim in order)
    return head + "".join(f"{blk}{word[idx]}" for blk, idx in zip(blks, idxs, strict=True))


@lru_cache(maxsize=4096)
def _alphabet(text: str) -> str:
    match = _TAG.fullmatch(text)
    return _word_of(match[1].lower()) if match else ""


def _word_of(head: str) -> str:
    letters = LETTERS[: len(head)]
    if len(set(head)) != len(head):
        return ""
    if set(head) == set(letters):
        return letters
    return WORD_OF_LETTERS.get(frozenset(head), "")


@lru_cache(maxsize=4096)
def _parse(text: str) -> FormatTag:
    if text in IRREGULAR:
        regular = _parse(IRREGULAR[text])
        return FormatTag(regular.order, regular.inner_blks, regular.inner_idxs, text)
    match = _TAG.fullmatch(text)
    word = _word_of(match[1].lower()) if match else ""
    if not match or not word:
        raise _unknown(text)
    blocks = _BLOCK.findall(match[2])
    if not {letter for _, letter in blocks} <= set(word):
        raise _unknown(text, "a block names a dimension that the tag lacks")
    tag = FormatTag(
        order=tuple(word.index(letter) for letter in match[1].lower()),
        inner_blks=tuple(int(size) for size, _ in blocks),
        inner_idxs=tuple(word.index(letter) for _, letter in blocks),
        given=text,
    )
    spelling = tag.spelled(word)
    if spelling != text:
        raise LayoutError(
            f"no format tag {text!r}: a capital marks a dimension that has a block; this one is spelled {spelling!r}"
        )
    return tag


def _unknown(text: str, why: str = "") -> LayoutError:
    reason = f" ({why})" if why else ""
    closest = closest_tags(text)
    if closest:
        return LayoutError(f"no format tag {text!r}{reason}; did you mean {' or '.join(closest)}?")
    return LayoutError(
        f"no format tag {text!r}{reason}; tags look like nchw, nhwc, nChw16c, OIhw16i16o, or aBcd16b in letters"
    )


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
