"""The page of a layout: its pictures are linked, agree with the descriptor, and can be walked through."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings

import blocklayout as bl
from blocklayout.errors import InputError, LayoutError
from blocklayout.layout import MemoryDesc
from blocklayout.layout.layout_map import place_at
from tests.layout import strategies

if TYPE_CHECKING:
    from pathlib import Path

GUIDE = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
LARGE = MemoryDesc((64, 512, 56, 56), "f32", "nChw16c")
DRAWN = [
    (GUIDE, None),
    (GUIDE, "nhwc"),
    (MemoryDesc((32, 17, 3, 3), "s8", "OIhw4i16o4i"), None),
    (MemoryDesc((3, 16, 8, 3, 3), "bf16", "gOIhw8i8o"), "goihw"),
    (MemoryDesc((2, 3, 4), "u8", strides=(40, 12, 2), offset=3), None),
    (MemoryDesc((3, 4), strides=(0, 1)), "ba"),
    (MemoryDesc((300,)), None),
    (MemoryDesc((1,)), None),
    (MemoryDesc((0, 5, 3, 4)), "nhwc"),
    (LARGE, "nchw"),
    (MemoryDesc((64, 3, 100), strides=(400000, 100000, 65)), None),
]


@settings(deadline=None, max_examples=100)
@given(strategies.descs())
def test_the_map_holds_the_offset_of_every_element(desc: MemoryDesc) -> None:
    found = bl.describe(desc, show_offsets=True).to_dict()["map"]
    offsets = np.array(found["offsets"]).reshape(found["extents"])
    assert np.array_equal(offsets[tuple(map(slice, desc.dims))], desc.offsets())
    assert len(found["padding"]) == desc.n_padding
    for index in np.ndindex(*found["extents"]):
        loops = (index[loop["dim"]] // loop["below"] * 1.0 for loop in found["steps"])
        positions = [
            at if loop["is_outer"] else at % loop["count"] for at, loop in zip(loops, found["steps"], strict=True)
        ]
        steps = (loop["step"] for loop in found["steps"])
        assert offsets[index] == desc.offset0 + sum(at * step for at, step in zip(positions, steps, strict=True))


def test_a_reorder_needs_equal_dims_and_a_destination_that_can_be_filled() -> None:
    with pytest.raises(LayoutError, match="same dims"):
        bl.describe(MemoryDesc((2, 3)), to=MemoryDesc((3, 2)))
    with pytest.raises(LayoutError, match="share an address"):
        bl.describe(MemoryDesc((2, 3)), to=MemoryDesc((2, 3), strides=(0, 1)))


def test_the_record_survives_json_and_tells_the_reorder_in_words() -> None:
    data = json.loads(json.dumps(bl.describe(MemoryDesc(GUIDE.dims), to=GUIDE, show_offsets=True).to_dict()))
    assert data["to"]["map"]["extents"] == data["map"]["extents"] == [2, 24, 5, 4]
    assert data["to"]["letters"] == data["letters"] == "nchw"
    assert data["reorder_words"][0] == "reads 2,720 bytes, writes 3,840, 1,120 of them padding"
    assert "drawing" not in data["to"]


def test_a_page_is_written_whole_or_refused(tmp_path: Path) -> None:
    report = bl.describe(GUIDE)
    report.save(tmp_path / "guide.html")
    assert (tmp_path / "guide.html").read_text(encoding="utf-8") == report.to_html()
    assert "<iframe" in report._repr_html_()
    with pytest.raises(InputError, match="cannot be written"):
        report.save(tmp_path / "no" / "folder.html")


def cell(page: Any, picture: int, at: int) -> Any:
    return page.locator("svg.layout-map").nth(picture).locator("rect.cell").nth(at)


@pytest.mark.parametrize(("desc", "to"), DRAWN, ids=str)
def test_every_kind_of_layout_is_drawn(desc: MemoryDesc, to: str | None, open_page: Any) -> None:
    report = bl.describe(desc, to=to)
    page = open_page(report.to_html(), width=390)
    assert desc.tag in page.text_content("h1")
    assert report.formula in page.text_content("header")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if 0 in desc.dims:
        assert "nothing to draw" in page.text_content("main")
        return
    listed = bl.describe(desc, to=to, show_offsets=True).to_dict()["map"]
    assert page.locator("svg.layout-map").first.locator("rect.cell").count() == prod(listed["extents"])


def test_an_element_is_marked_in_both_pictures(open_page: Any) -> None:
    page = open_page(bl.describe(GUIDE).to_html(), height=1200)
    for offset in (0, 1, 37, 959):
        cell(page, 1, offset).hover()
        place = place_at(GUIDE, offset)
        assert place is not None
        told = page.text_content(".readout")
        assert "(" + ", ".join(f"{letter} {at}" for letter, at in zip("nchw", place, strict=True)) + ")" in told
        assert f"element {offset}, byte {offset * 4:,}; block {offset // 8} of 120, position {offset % 8} of 8" in told
        assert told.rstrip().endswith(f"= {offset}")
        assert ("padding" in told) == (place[1] > 16)
        assert page.locator(".mark").count() == 2
    flat = int(np.ravel_multi_index((1, 16, 4, 3), (2, 24, 5, 4)))
    cell(page, 0, flat).hover()
    assert "1*480 + (16//8)*160 + 4*32 + 3*8 + 16%8 = 480 + 320 + 128 + 24 + 0 = 952" in page.text_content(".readout")


def test_numbers_in_the_logical_picture_are_offsets(open_page: Any) -> None:
    for desc in (MemoryDesc((2, 5, 2, 3), "s8", "nChw4c"), MemoryDesc((3, 4), strides=(9, 2), offset=2)):
        page = open_page(bl.describe(desc).to_html())
        shown = page.locator("svg.layout-map").first.locator(".cells text").all_text_contents()
        assert list(map(int, shown)) == desc.offsets().ravel().tolist()


def test_holes_are_told_from_padding(open_page: Any) -> None:
    page = open_page(bl.describe(MemoryDesc((2, 3), strides=(7, 2), offset=3)).to_html())
    page.locator("rect.gap").nth(1).hover()
    assert "element 6: nothing of this tensor" in page.text_content(".readout")


def test_all_pictures_answer_to_the_keyboard(open_page: Any) -> None:
    page = open_page(bl.describe(GUIDE).to_html())
    logical, memory = page.locator("svg.layout-map").all()
    logical.focus()
    for key, index in (
        ("Home", "(n 0, c 0, h 0, w 0)"),
        ("ArrowRight", "(n 0, c 0, h 0, w 1)"),
        ("ArrowDown", "(n 0, c 0, h 1, w 1)"),
        ("PageDown", "(n 0, c 1, h 1, w 1)"),
        ("End", "(n 1, c 23, h 4, w 3)"),
        ("ArrowRight", "(n 1, c 23, h 4, w 3)"),
    ):
        page.keyboard.press(key)
        assert index in page.text_content(".readout")
    memory.focus()
    for key, offset in (("Home", 0), ("ArrowRight", 1), ("ArrowDown", 33), ("ArrowUp", 1), ("End", 959)):
        page.keyboard.press(key)
        assert f"element {offset}," in page.text_content(".readout")


def test_a_walk_goes_through_memory_step_by_step_and_plays(open_page: Any) -> None:
    page = open_page(bl.describe(MemoryDesc((1, 3, 2, 2), "f32", "nChw2c")).to_html())
    for offset in range(3):
        page.get_by_role("button", name="Step").click()
        assert f"element {offset}, " in page.text_content(".readout")
    page.get_by_role("button", name="Back").click()
    assert "2 of 16" in page.text_content(".controls output:not(label *)")
    page.get_by_label("Speed").fill("8")
    page.get_by_role("button", name="Play").click()
    page.get_by_text("16 of 16").wait_for()
    page.get_by_role("button", name="Play").wait_for()
    page.get_by_role("button", name="Reset").click()
    assert page.locator("svg.walking").count() == 0


def test_a_walk_does_not_play_where_motion_is_unwanted(open_page: Any) -> None:
    page = open_page(bl.describe(GUIDE).to_html(), reduced_motion="reduce")
    assert page.get_by_role("button", name="Play").count() == 0
    assert "reduced motion" in page.inner_text("main")
    page.get_by_role("button", name="Step").click()
    assert "element 0," in page.text_content(".readout")


def test_a_reorder_shows_where_an_element_goes_and_walks_its_destination(open_page: Any) -> None:
    plain = MemoryDesc(GUIDE.dims)
    page = open_page(bl.describe(plain, to=GUIDE).to_html(), height=1400)
    assert page.locator("svg.layout-map").count() == 3
    assert "reads 2,720 bytes, writes 3,840" in page.text_content("main")
    cell(page, 1, plain.offset(1, 9, 2, 3)).hover()
    told = page.text_content(".readout")
    assert f"element {plain.offset(1, 9, 2, 3)}," in told
    assert f"element {GUIDE.offset(1, 9, 2, 3)}," in told
    assert page.locator(".mark").count() == 3
    cell(page, 2, GUIDE.nbytes // 4 - 1).hover()
    assert "has no such place" in page.text_content(".readout")
    page.get_by_role("button", name="Step").click()
    page.get_by_role("button", name="Step").click()
    assert "(n 0, c 1, h 0, w 0)" in page.text_content(".readout")


def test_colours_and_planes_follow_a_choice(open_page: Any) -> None:
    page = open_page(bl.describe(GUIDE).to_html())
    before = cell(page, 0, 0).evaluate("each => getComputedStyle(each).fill")
    page.get_by_label("Colour by").select_option(label="w")
    assert cell(page, 0, 1).evaluate("each => getComputedStyle(each).fill") != before
    page.get_by_label("Planes of").select_option(label="n by c")
    assert "Rows are n, columns c; a plane for each h and w" in page.text_content("main")
