"""Operators of the caller's own, in eager calls, networks, files and saved plans."""
# ruff: noqa: ARG001, ARG005 - classes that compute little

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest

import blocklayout as bl
from blocklayout.ops import registered
from tests import nets

DOMAIN = "tests.registered"
RNG = np.random.default_rng(0)
_numbers = itertools.count()


def register(compute: Callable[..., Any] | None = None, **facts: Any) -> str:
    """A new operator; its op type."""
    name = f"Operator{next(_numbers)}"
    bl.register_operator(DOMAIN, name, type(name, (), ({"compute": compute} if compute else {}) | facts))
    return f"{DOMAIN}.{name}"


def copies(self: Any, result: bl.Tensor, x: bl.Tensor, *others: Any) -> None:
    np.copyto(result.physical(), x.physical())


@bl.register_operator(DOMAIN, "Shifted")
class Shifted:
    """tanh(x * scale + 1): not zero of zero."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def compute(self, result: bl.Tensor, x: bl.Tensor) -> None:
        np.tanh(x.blocks() * self.scale + 1, out=result.blocks())


SHIFTED = f"{DOMAIN}.Shifted"


def network(op_type: str = SHIFTED, **attrs: Any) -> bl.Builder:
    """Between two convolutions, with real padding."""
    rng = np.random.default_rng(1)
    b = bl.Builder()
    x = b.input("x", (2, 16, 12, 12)).conv(nets.he(rng, 17, 16, 3, 3), pads=1, name="before")
    y = b.op(op_type, x, name="own", **attrs)
    b.output("y", y.conv(nets.he(rng, 16, 17, 3, 3), pads=1, name="behind"))
    return b


def expected(feed: np.ndarray, scale: float = 1.0) -> np.ndarray:
    """The same network by operators that ONNX has."""
    rng = np.random.default_rng(1)
    b = bl.Builder()
    x = b.input("x", feed.shape).conv(nets.he(rng, 17, 16, 3, 3), pads=1)
    y = (x * np.float32(scale) + np.float32(1)).tanh()
    b.output("y", y.conv(nets.he(rng, 16, 17, 3, 3), pads=1))
    result: np.ndarray = bl.load(b, layout="plain").run(None, {"x": feed})[0]
    return result


FEED = RNG.standard_normal((2, 16, 12, 12)).astype(np.float32)


@pytest.mark.parametrize("form", ["nchw", "nhwc", "nChw8c", "nChw16c", "chwn"])
def test_a_tensor_keeps_its_layout_and_padding_stays_zero(form: str) -> None:
    x = RNG.standard_normal((2, 17, 5, 4)).astype(np.float32)
    with bl.watch("raise"):
        y = bl.op(SHIFTED, bl.from_array(x, form), scale=0.5)
    assert y.desc.format_tag == bl.FormatTag.parse(form)
    assert y.padding_is_zero()
    np.testing.assert_allclose(y.numpy(), np.tanh(x / 2 + 1), rtol=1e-6)


def test_blocks_arrive_with_their_dimensions_under_the_names_of_channels() -> None:
    seen = []

    def looks(self: Any, result: bl.Tensor, x: bl.Tensor) -> None:
        seen.append((x.blocks().shape, x.memory_format))
        copies(self, result, x)

    bl.op(register(looks), bl.ones((2, 17, 5, 4), memory_format="nChw16c"))
    b = bl.Builder()
    b.output("y", b.op(register(looks), b.input("x", (2, 17, 5, 4))))
    bl.load(b, layout="nChw8c", io_layout={"x": "nChw8c", "y": "nChw8c"}).run(None, {"x": bl.ones((2, 17, 5, 4))})
    assert seen == [((2, 2, 5, 4, 16), "nChw16c"), ((2, 3, 5, 4, 8), "nChw8c")]


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")
@pytest.mark.parametrize("layout", ["auto", "plain", "nhwc", "blocked", "per-op"])
def test_in_a_network_it_computes_in_the_layout_of_the_run(layout: str) -> None:
    session = bl.load(network(scale=0.5), layout=layout)
    np.testing.assert_allclose(session.run(None, {"x": FEED})[0], expected(FEED, 0.5), rtol=1e-4, atol=1e-4)
    if layout in ("nhwc", "plain"):
        assert not [step for step in session.plan.steps if step.is_reorder and step.kernel in ("own", "behind")]


def test_it_computes_in_the_layouts_that_it_states_alone() -> None:
    op_type = register(copies, layouts=(bl.channels_last, "chwn"))
    for form in ("nhwc", "chwn"):
        with bl.watch("raise"):
            assert bl.op(op_type, bl.ones((2, 16, 4, 4), memory_format=form)).desc.format_tag.text == form
    with bl.watch("record") as seen, pytest.warns(bl.LayoutLossWarning):
        y = bl.op(op_type, bl.ones((2, 16, 4, 4), memory_format="nChw8c"))
    assert y.memory_format == "nChw8c"
    assert len(seen) > 0
    b = bl.Builder()
    b.output("y", b.op(op_type, b.input("x", (2, 16, 4, 4)), name="own"))
    formats = {operand.desc.tag for step in bl.load(b).plan.steps if step.nodes for _, operand in step.operands}
    assert formats <= {"nhwc", "acdb", "chwn", "bcda"}


def test_a_second_source_follows_the_first_and_is_told_of() -> None:
    def adds(self: Any, result: bl.Tensor, x: bl.Tensor, y: bl.Tensor) -> None:
        np.add(x.blocks(), y.blocks(), out=result.blocks())

    op_type = register(adds)
    x = bl.ones((2, 17, 4, 4), memory_format="nChw8c")
    with bl.watch("raise"):
        assert bl.op(op_type, x, x).memory_format == "nChw8c"
    with pytest.warns(bl.LayoutLossWarning, match="differ in layout"):
        mixed = bl.op(op_type, x, x.to(memory_format="nhwc"))
    assert mixed.memory_format == "nChw8c"
    np.testing.assert_array_equal(mixed.numpy(), np.full((2, 17, 4, 4), 2, np.float32))


def test_other_sources_are_constants_absent_or_of_another_rank() -> None:
    def adds(self: Any, result: bl.Tensor, x: bl.Tensor, absent: None, vector: bl.Tensor) -> None:
        assert absent is None
        result[...] = x.numpy() + vector.numpy()[:, None, None]

    op_type = register(adds)
    x, vector = RNG.standard_normal((1, 17, 4, 4)).astype(np.float32), np.arange(17)
    wanted = x + vector[:, None, None]
    blocked = bl.from_array(x, "nChw8c")
    np.testing.assert_allclose(bl.op(op_type, blocked, None, bl.from_array(vector)).numpy(), wanted, rtol=1e-6)
    b = bl.Builder()
    b.output("y", b.op(op_type, b.input("x", x.shape), None, vector))
    np.testing.assert_allclose(bl.load(b).run(None, {"x": x})[0], wanted, rtol=1e-6)


def test_results_have_the_extents_and_the_type_of_its_rules() -> None:
    def argmax(self: Any, result: bl.Tensor, x: bl.Tensor) -> None:
        result[...] = x.numpy().argmax(1)

    op_type = register(argmax, shape=lambda self, x: (x[0], *x[2:]), dtype="s64")
    x = bl.from_array(RNG.standard_normal((2, 17, 4, 3)).astype(np.float32), "nChw8c")
    y = bl.op(op_type, x)
    assert (y.shape, y.dtype) == ((2, 4, 3), "s64")
    np.testing.assert_array_equal(y.numpy(), x.numpy().argmax(1))


def test_files_hold_it_as_a_node_of_its_domain(tmp_path: Path) -> None:
    path = tmp_path / "own.onnx"
    bl.save(network(scale=0.25), path)
    proto = onnx.load(path)
    assert [(node.domain, node.op_type) for node in proto.graph.node][1] == (DOMAIN, "Shifted")
    assert {entry.domain: entry.version for entry in proto.opset_import}[DOMAIN] == 1
    for _ in range(2):  # what is remembered of the file is no plan with code of the caller's
        np.testing.assert_allclose(bl.load(path).run(None, {"x": FEED})[0], expected(FEED, 0.25), rtol=1e-4, atol=1e-4)


def test_operators_called_as_ones_of_onnx_are_none(tmp_path: Path) -> None:
    bl.register_operator(DOMAIN, "Relu", Shifted)
    bl.save(network(f"{DOMAIN}.Relu"), tmp_path / "relu.onnx")
    [found] = bl.load(tmp_path / "relu.onnx").run(None, {"x": FEED})
    np.testing.assert_allclose(found, expected(FEED), rtol=1e-4, atol=1e-4)


def test_saved_plans_and_sessions_run_where_it_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = bl.load(network(scale=0.5))
    session.save(tmp_path / "session")
    session.plan.save(tmp_path / "plan")
    wanted = session.run(None, {"x": FEED})[0]
    again = bl.load(tmp_path / "session"), bl.load(network(scale=0.5), plan=tmp_path / "plan")
    for each in again:
        np.testing.assert_array_equal(each.run(None, {"x": FEED})[0], wanted)
    bl.save(network(scale=0.5), tmp_path / "model.onnx")
    monkeypatch.delitem(registered._definitions, SHIFTED)
    with pytest.raises(bl.PlanError, match=rf"{SHIFTED}: register a class"):
        bl.load(tmp_path / "session")
    with pytest.raises(bl.UnsupportedError, match=rf"'own' \(Shifted\).*register a class for {SHIFTED}"):
        bl.load(tmp_path / "model.onnx", plan=tmp_path / "plan")


@pytest.mark.parametrize(
    "facts", [{"layouts": "chwn"}, {"shape": lambda _, x: (*x, 1)}, {"__init__": lambda _: None}], ids="".join
)
def test_a_saved_session_is_refused_by_another_class(
    facts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bl.load(network(scale=0.5)).save(tmp_path / "session")
    monkeypatch.delitem(registered._definitions, SHIFTED)
    bl.register_operator(DOMAIN, "Shifted", type("Other", (), {"compute": copies} | facts))
    with pytest.raises(bl.PlanError, match=SHIFTED):
        bl.load(tmp_path / "session")


@pytest.mark.skipif(not bl.dnnl.has_bf16(), reason="no bf16 on this CPU")
def test_in_bf16_it_is_handed_what_the_model_declares() -> None:
    b = network(scale=0.5)
    got = bl.load(b, dtype="bf16").run(None, {"x": FEED})[0]
    wanted = expected(FEED, 0.5)
    assert np.abs(got - wanted).max() < 2e-2 * np.abs(wanted).max()


def test_a_function_behind_it_computes_in_its_type() -> None:
    b = bl.Builder()
    b.output("y", b.op(SHIFTED, b.input("x", (1, 17, 4, 4))).relu().sqrt())
    x = RNG.standard_normal((1, 17, 4, 4)).astype(np.float32)
    for dtype in ("f32", "bf16") if bl.dnnl.has_bf16() else ("f32",):
        got = bl.load(b, dtype=dtype).run(None, {"x": x})[0]
        np.testing.assert_allclose(got, np.sqrt(np.maximum(np.tanh(x + 1), 0)), atol=2e-2)


X = bl.ones((2, 17, 4, 4), memory_format="nChw8c")


@pytest.mark.parametrize(
    ("facts", "operands", "message"),
    [
        ({"compute": lambda _, result, x: 1 / 0}, (X,), "failed: ZeroDivisionError"),
        ({"compute": lambda _, result, x: x.physical().fill(0)}, (X,), "failed: ValueError.*read-only"),
        ({"compute": lambda _, result, x: x.numpy()}, (X,), "wrote nothing into its first argument"),
        ({"compute": lambda _, result, x: result.physical().fill(1), "keeps_zeros": True}, (X,), "states keeps_zeros"),
        ({"compute": lambda _, result, x: result.__setitem__(0, np.ones((3, 3)))}, (X,), "failed: InputError"),
        ({"compute": copies, "shape": lambda _, x: 3}, (X,), "its shape rule failed"),
        ({"compute": copies, "shape": lambda _, x: (1, -1)}, (X,), "extents are not negative"),
    ],
)
def test_failures_name_the_operator(facts: dict[str, Any], operands: tuple[Any, ...], message: str) -> None:
    op_type = register(**facts)
    with pytest.raises(bl.OperatorError, match=f"{op_type}.*{message}"):
        bl.op(op_type, *operands)


@pytest.mark.parametrize(
    ("operands", "attrs", "message"),
    [
        ((X, X), {}, "with 2 sources: too many"),
        ((X,), {"alpha": 1}, r"Operator\d+\(alpha=1\)"),
        ((X,), {"n_outputs": 2}, "has 2 outputs"),
        ((bl.ones((2, 3)),), {}, "x has rank 2; its class computes in nChw8c alone"),
    ],
)
def test_nodes_that_it_does_not_take_are_errors_of_the_model(
    operands: tuple[Any, ...], attrs: dict[str, Any], message: str
) -> None:
    op_type = register(lambda _, result, x: None, layouts="nChw8c")
    with pytest.raises(bl.ModelError, match=f"{op_type}.*{message}"):
        bl.op(op_type, *operands, **attrs)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({}, "needs a method compute"),
        ({"compute": copies, "layout": "any"}, "'layout', which is no fact; did you mean 'layouts'"),
        ({"compute": copies, "layouts": "nChw99z"}, "layouts are 'nChw99z'"),
        ({"compute": copies, "layouts": 3}, "layouts are 3"),
        ({"compute": copies, "keeps_zeros": 1}, "keeps_zeros is 1"),
        ({"compute": copies, "dtype": "f99"}, "its dtype: no data type 'f99'"),
        ({"compute": copies, "shape": (1, 2)}, r"shape is \(1, 2\)"),
    ],
)
def test_classes_that_state_nonsense_are_refused(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(bl.OperatorError, match=rf"{DOMAIN}.Operator\d+.*{message}"):
        register(**facts)


@pytest.mark.parametrize("names", [("", "Foo"), ("ai.onnx", "Foo"), ("my.domain", "Foo.x"), (3, "Foo")], ids=str)
def test_impossible_names_are_refused(names: tuple[Any, Any]) -> None:
    with pytest.raises(bl.OperatorError, match="give one such as"):
        bl.register_operator(*names, Shifted)


def test_a_name_is_taken_once() -> None:
    bl.register_operator(DOMAIN, "Shifted", Shifted)
    with pytest.raises(bl.OperatorError, match="is Shifted already"):
        bl.register_operator(DOMAIN, "Shifted", type("Other", (), {"compute": copies}))
    with pytest.raises(bl.OperatorError, match="needs a class"):
        bl.register_operator(DOMAIN, "Function", cast("Any", copies))


def test_nobody_has_registered_it() -> None:
    with pytest.raises(bl.ModelError, match=rf"{DOMAIN}.Shiftd: register a class.*{DOMAIN}.Shifted"):
        bl.op(f"{DOMAIN}.Shiftd", X)
