"""Which format each result has; docs/explanation/eager.md shows the same rules, written from here."""

from __future__ import annotations

import re
import warnings
from itertools import product

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import LayoutLossWarning
from tests.eager.rules import IMAGE, KEPT, RULES, Rule, rows, tag_of, tensor
from tests.structure.tree import ROOT

PAGE = ROOT / "docs" / "explanation" / "eager.md"
TABLE = re.compile(r"(?<=<!-- the rules, written by tests/eager -->\n\n).*?(?=<!-- end of the rules -->)", re.DOTALL)

CALLS = [
    (rule, given)
    for rule in RULES
    for given in product(*((each,) if isinstance(each, str) else each for each in rule.given))
]


def tensors(rule: Rule, given: tuple[str, ...]) -> list[bl.Tensor]:
    shapes = rule.shapes or (IMAGE,) * len(given)
    is_weights = [place == 1 and "weights" in rule.what for place in range(len(given))]
    return [
        tensor(shape, name, weights=weights) for shape, name, weights in zip(shapes, given, is_weights, strict=True)
    ]


@pytest.mark.parametrize(
    ("rule", "given"), CALLS, ids=lambda each: str(each) if isinstance(each, Rule) else "-".join(each)
)
def test_the_result_has_the_format_of_the_table(rule: Rule, given: tuple[str, ...]) -> None:
    with warnings.catch_warnings(record=True) as caught, bl.watch("record") as seen:
        warnings.simplefilter("always")
        result = rule.call(*tensors(rule, given))
    wanted = (
        tag_of(given[0] if rule.result == KEPT else rule.result)
        if len(result.shape) == 4
        else "abcdefgh"[: len(result.shape)]
    )
    assert result.desc.is_contiguous(wanted)
    assert result.desc.format_tag == bl.FormatTag.parse(wanted)
    warned = [each for each in caught if issubclass(each.category, LayoutLossWarning)]
    assert bool(warned) == any(event.kind == "loss" for event in seen)
    if dnnl.has_isa("avx2"):  # others have fewer implementations
        assert bool(warned) == rule.told


def test_the_page_shows_these_rules(*, update_golden: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    written = TABLE.sub(lambda _: "\n".join([*rows(), "", ""]), page)
    if update_golden:
        PAGE.write_text(written, encoding="utf-8")
    assert TABLE.search(page)
    assert PAGE.read_text(encoding="utf-8") == written, "pytest tests/eager --update-golden writes it"


@pytest.mark.parametrize("op_type", ["Add", "Greater", "Mod"])
def test_operands_that_are_broadcast_have_no_say(op_type: str) -> None:
    image = bl.reorder(np.ones(IMAGE, np.float32), "channels_last")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = bl.op(op_type, np.full(IMAGE[-1], 2, np.float32), image, **({"fmod": 1} if op_type == "Mod" else {}))
    assert result.desc.format_tag == image.desc.format_tag


def test_weights_dominate_a_transposed_convolution_too() -> None:
    x = bl.reorder(np.ones((1, 16, 5, 5), np.float32), "nchw")
    weights = bl.reorder(np.ones((16, 32, 3, 3), np.float32), "channels_last")
    assert bl.op("ConvTranspose", x, weights).memory_format == bl.channels_last
    assert bl.conv_transpose(x, weights).memory_format == bl.channels_last
    grouped = bl.reorder(np.ones((16, 8, 3, 3), np.float32), "channels_last")
    assert bl.op("ConvTranspose", x, grouped, group=2).memory_format == bl.channels_last
    assert bl.conv_transpose(x, grouped, group=2).memory_format == bl.channels_last
