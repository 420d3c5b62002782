"""A descriptor explained: numbers, the formula, and the map as one would draw it."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings

from blocklayout import dnnl
from blocklayout.errors import LayoutError, UnsupportedError
from blocklayout.layout import Layout, MemoryDesc
from blocklayout.show.inspector import describe, library_agreement
from tests.layout import strategies

DRAWN = """
f32 1x3x2x2 nChw2c
  logical dims   n 1, c 3, h 2, w 2
  padded dims    n 1, c 4, h 2, w 2
  in letters     aBcd2b
  strides        n 16, c 8 (each 2), h 4, w 2
  inner blocks   2c
  size           64 bytes, 16 of them padding; dense
  offset         n*16 + (c//2)*8 + h*4 + w*2 + c%2
  memory walks   c%2, then w, h, c//2, n

offset of each element, h down, w across:
  n=0 c=0
     0  2
     4  6
  n=0 c=1
     1  3
     5  7
  n=0 c=2
     8 10
    12 14

memory from front to back (offset of the row; what is constant in it; what varies; · is padding):
   0 | n0 h0 w0 | c0 c1
   2 | n0 h0 w1 | c0 c1
   4 | n0 h1 w0 | c0 c1
   6 | n0 h1 w1 | c0 c1
   8 | n0 h0 w0 | c2 ·
  10 | n0 h0 w1 | c2 ·
  12 | n0 h1 w0 | c2 ·
  14 | n0 h1 w1 | c2 ·
"""

GUIDE = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")


@settings(deadline=None)
@given(strategies.descs())
def test_the_formula_computes_the_offset_of_every_element(desc: MemoryDesc) -> None:
    report = describe(desc)
    for index in product(*map(range, desc.dims)):
        names = dict(zip(report.letters, index, strict=True))
        assert eval(report.formula, {}, names) == desc.offset(*index)


@settings(deadline=None, max_examples=50)
@given(strategies.descs())
def test_the_map_names_every_element_once_and_survives_json(desc: MemoryDesc) -> None:
    report = describe(desc, show_offsets=True)
    data = json.loads(json.dumps(report.to_dict()))
    listed = np.array(data["map"]["offsets"]).reshape(data["map"]["extents"])
    assert np.array_equal(listed[tuple(map(slice, desc.dims))], desc.offsets())
    assert len(data["map"]["padding"]) == desc.n_padding
    memory = "\n".join(report.drawing).split("memory from front to back")[1].splitlines()[1:]
    cells = [cell for line in memory if "|" in line for cell in line.split("|")[-1].split()]
    assert len([cell for cell in cells if cell not in "·_"]) == desc.n_elements
    assert cells.count("·") == desc.n_padding


def test_the_guides_tensor_of_17_channels() -> None:
    report = describe(GUIDE, index=(1, 16, 4, 3), offset=953)
    assert report.formula == "n*480 + (c//8)*160 + h*32 + w*8 + c%8"
    assert report.walk == ("c%8", "w", "h", "c//8", "n")
    assert (report.desc.padded_dims, report.desc.strides) == ((2, 24, 5, 4), (480, 160, 32, 8))
    assert (report.desc.nbytes, report.padding_nbytes, report.hole_nbytes) == (3840, 1120, 0)
    assert report.inner_blocks == ((8, "c"),)
    assert report.index_offset == 952
    assert report.element == "padding"
    assert report.map is None
    assert report.drawing == ()


def test_letters_are_those_of_the_alphabet_it_was_given_in() -> None:
    dims = (16, 16, 1, 1)
    assert [describe(MemoryDesc(dims, "s8", tag)).formula for tag in ("OIhw4i16o4i", "ABcd4b16a4b")] == [
        "(o//16)*256 + (i//16)*256 + h*256 + w*256 + (i//4)%4*64 + o%16*4 + i%4",
        "(a//16)*256 + (b//16)*256 + c*256 + d*256 + (b//4)%4*64 + a%16*4 + b%4",
    ]


def test_a_blocked_tensor_is_drawn_block_by_block() -> None:
    text = describe(MemoryDesc((1, 3, 2, 2), "f32", "nChw2c"), show_offsets=True).to_text()
    assert text == DRAWN.strip()


def test_blocks_of_two_dimensions_are_numbered() -> None:
    drawing = describe(MemoryDesc((3, 2, 1, 1), "f32", "OIhw2i2o"), show_offsets=True).drawing
    assert drawing[drawing.index("  block 0") :] == (
        "  block 0",
        "  0 | i0 h0 w0 | o0 o1",
        "  2 | i1 h0 w0 | o0 o1",
        "  block 1",
        "  4 | i0 h0 w0 | o2 ·",
        "  6 | i1 h0 w0 | o2 ·",
    )


def test_gaps_are_told_from_padding() -> None:
    desc = MemoryDesc((2, 3), strides=(7, 2), offset=3)
    report = describe(desc, offset=4, show_offsets=True)
    assert report.formula == "3 + a*7 + b*2"
    assert report.element == "nothing of this tensor"
    assert report.hole_nbytes == 24
    assert report.drawing[-2:] == ("   3 | a0 | b0 _  b1 _  b2 _  _", "  10 | a1 | b0 _  b1 _  b2")


def test_a_repeated_source_is_drawn_once() -> None:
    report = describe(MemoryDesc((2, 3), strides=(0, 1)), show_offsets=True)
    assert (report.formula, report.walk) == ("b", ("b",))
    assert report.drawing[-1] == "  0 | a0 | b0 b1 b2"


def test_a_large_tensor_is_abbreviated() -> None:
    report = describe(MemoryDesc((64, 512, 56, 56), "f32", "nChw16c"), show_offsets=True)
    assert report.map is not None
    assert report.map.n_left_out > 0
    assert len(report.drawing) < 100
    assert report.drawing[-1].endswith("more; the whole map is drawn up to 4096 elements")


def test_an_empty_tensor_has_nothing_to_draw() -> None:
    report = describe(MemoryDesc((0, 17, 5, 4), "f32", "nChw8c"), show_offsets=True)
    assert report.drawing == ("nothing to draw: the tensor has no elements",)
    assert report.to_text()


def test_questions_outside_of_the_tensor_are_refused() -> None:
    with pytest.raises(LayoutError, match="outside"):
        describe(GUIDE, index=(2, 0, 0, 0))
    with pytest.raises(LayoutError, match="outside"):
        describe(GUIDE, offset=960)


def _library_or_skip() -> None:
    try:
        dnnl.version()
    except UnsupportedError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "desc",
    [
        GUIDE,
        MemoryDesc((2, 17, 5, 4), "f32", "nhwc"),
        MemoryDesc((33, 17, 3, 3), "s8", "OIhw4i16o4i"),
        MemoryDesc((2, 3), strides=(7, 1)),
    ],
    ids=str,
)
def test_the_library_agrees(desc: MemoryDesc) -> None:
    _library_or_skip()
    assert "agrees on padded dims, strides, inner blocks and size" in str(library_agreement(desc))


def test_a_layout_that_only_we_know_is_said_to_be_so() -> None:
    _library_or_skip()
    layout = Layout((15, 5), (5,), (1,))
    assert "cannot describe it" in str(library_agreement(MemoryDesc((2, 12), "f32", layout)))


def test_without_the_library_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise UnsupportedError("oneDNN is not installed")

    monkeypatch.setattr(dnnl, "version", missing)
    assert library_agreement(GUIDE) == "not loaded: oneDNN is not installed"


def test_nothing_to_agree_on_in_an_empty_tensor() -> None:
    assert library_agreement(MemoryDesc((0, 3))) is None
