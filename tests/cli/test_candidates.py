"""``blocklayout candidates``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from blocklayout import dnnl

if TYPE_CHECKING:
    from tests.cli.command import Command


def picked(alternatives: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [alternative for alternative in alternatives if alternative["is_picked"]]


def test_what_any_picks_is_what_the_library_gives(cli: Command) -> None:
    told = cli("candidates", "conv", "1x16x14x14", "32x16x3x3", "--pads", 1, "--threads", 1, "--no-time", "--json").json
    [alternative] = picked(told["alternatives"])
    src, weights = dnnl.AnyDesc((1, 16, 14, 14)), dnnl.AnyDesc((32, 16, 3, 3))
    expected = dnnl.resolve(dnnl.convolution(src, weights, pads=1, n_threads=1)).spec
    assert alternative["implementation"] == expected.impl
    assert alternative["layouts"]["src"] == expected.memory_desc("src").named("src")
    assert alternative["measured_ns"] is None


def test_alternatives_are_distinct_and_cover_the_layouts(cli: Command) -> None:
    told = cli("candidates", "conv", "1x16x14x14", "32x16x3x3", "--no-time", "--json").json
    seen = [(a["implementation"], tuple(sorted(a["layouts"].items()))) for a in told["alternatives"]]
    assert len(set(seen)) == len(seen)
    pairs = {(a["layouts"]["src"], a["layouts"]["dst"]) for a in told["alternatives"]}
    assert {("nchw", "nchw"), ("nhwc", "nhwc"), ("nChw8c", "nChw8c")} <= pairs
    assert any(a["implementation"].startswith("ref") for a in told["alternatives"])


def test_times_are_measured_where_it_is_worth_it(cli: Command) -> None:
    told = cli("candidates", "conv", "1x8x6x6", "8x8x3x3", "--json").json
    for alternative in told["alternatives"]:
        is_reference = alternative["implementation"].startswith("ref")
        assert (alternative["measured_ns"] is None) == is_reference
        assert alternative["estimated_ns"] > 0


def test_groups_are_spelled_as_in_onnx(cli: Command) -> None:
    out = cli.ok("candidates", "conv", "1x16x9x9", "16x1x3x3", "--groups", 16, "--strides", "2,2", "--no-time")
    assert "goihw" in out


def test_a_dilation_of_1_is_dense(cli: Command) -> None:
    arguments = ("candidates", "conv", "1x8x9x9", "8x8x3x3", "--no-time", "--json")
    dense, dilated = (cli(*arguments, "--dilations", n).json["alternatives"] for n in (1, 2))
    assert dense[0]["padded_dims"]["dst"][2:] == [7, 7]
    assert dilated[0]["padded_dims"]["dst"][2:] == [5, 5]


@pytest.mark.parametrize(
    "problem",
    [
        ("pool", "1x16x8x8", "--kernel", "3", "--strides", "2", "--pads", "1", "--algorithm", "avg_exclude_padding"),
        ("eltwise", "1x16x8x8", "--algorithm", "tanh"),
        ("matmul", "8x16", "16x4"),
        ("matmul", "2x8x16", "2x16x4"),
    ],
    ids=lambda problem: problem[0],
)
def test_other_kinds(cli: Command, problem: tuple[str, ...]) -> None:
    assert "ref:any" in cli.ok("candidates", *problem, "--no-time")


@pytest.mark.parametrize("options", [(), ("--cell", "lbr_gru", "--bidirectional")], ids=str)
def test_recurrent_layers(cli: Command, options: tuple[str, ...]) -> None:
    told = cli("candidates", "rnn", "4x2x16", "8", *options, "--threads", 1, "--json").json["alternatives"]
    assert {(each["layouts"]["src"], each["layouts"]["dst"]) for each in told} == {("abc", "abc"), ("bac", "bac")}
    assert all(each["measured_ns"] > 0 for each in told)  # the one called "ref" is no reference


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (("conv", "1x16x8x8", "32x8x3x3"), "weights"),
        (("conv", "1x16x8x8", "32x16x3x3", "--groups", "5"), "--groups"),
        (("conv", "1x16x8x8", "32x16x3x3", "--dilations", "0"), "--dilations"),
        (("conv", "1x16x2x2", "32x16x3x3"), "kernel"),
        (("conv", "1x16x8x8", "32x16x3x3", "--strides", "1,2,3"), "strides"),
        (("conv", "1x16x8x8"), "WEIGHTS"),
        (("pool", "1x16x8x8", "--kernel", "9"), "kernel"),
        (("eltwise", "1x16x8x8", "--algorithm", "sine"), "sine"),
        (("matmul", "8x16", "15x4"), "weights"),
        (("rnn", "8x2x16", "4", "--cell", "lstm"), "vanilla_lstm"),
        (("fft", "8x16"), "conv"),
    ],
)
def test_impossible_problems_are_refused(cli: Command, problem: tuple[str, ...], told: str) -> None:
    assert told in cli("candidates", *problem, "--no-time").refusal


@pytest.mark.skipif(not dnnl.sums_bytes_exactly(), reason="on this CPU the library's saturate, and are not offered")
def test_bytes_are_timed_with_the_sums_that_the_library_keeps_behind_their_weights(cli: Command) -> None:
    told = cli("candidates", "conv", "1x16x6x6", "16x16x3x3", "--dtype", "s8", "--threads", 1, "--json").json
    assert picked(told["alternatives"])[0]["measured_ns"] > 0
    src, weights = dnnl.MemoryDesc((1, 16, 6, 6), "s8", "nhwc"), dnnl.AnyDesc((16, 16, 3, 3), "s8")
    spec = dnnl.resolve(dnnl.convolution(src, weights, n_threads=1)).spec
    names = {each["layouts"]["weights"] for each in told["alternatives"] if each["implementation"] == spec.impl}
    assert spec.memory_desc("weights").named("weights") in names
