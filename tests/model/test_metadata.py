"""Demands that saved models keep: written, read, followed through passes, and refused where they are damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import model
from blocklayout.ir import Demands, Names
from tests import nets

if TYPE_CHECKING:
    from pathlib import Path

KEY = "blocklayout.demands"


def demanding() -> bl.Builder:
    """Convolutions with a pin on the first, and an expectation on an output."""
    rng = np.random.default_rng(0)
    b = bl.Builder()
    x = b.input("x", (1, 24, 8, 8)).conv(nets.he(rng, 24, 24, 3, 3), pads=1, name="first").relu().pin("nChw8c")
    x = x.conv(nets.he(rng, 24, 24, 3, 3), pads=1, name="second")
    b.output("y", x.relu().expect("channels_last"))
    return b


def entry(path: Path | str) -> str:
    [text] = [each.value for each in onnx.load(str(path)).metadata_props if each.key == KEY]
    return str(text)


def with_entries(*texts: str) -> onnx.ModelProto:
    proto = nets.chain(24).to_onnx()
    for text in texts:
        proto.metadata_props.add(key=KEY, value=text)
    return proto


def test_what_a_builder_states_comes_back(tmp_path: Path) -> None:
    bl.save(demanding(), tmp_path / "net.onnx")
    for _ in range(2):  # the second time the file is known, and its network is not looked at
        plan = bl.load(tmp_path / "net.onnx", layout="nhwc").plan
        assert plan.format_of("relu_1").named("src") == "nChw8c"
        with pytest.raises(bl.PlanError, match="expect y=channels_last, which the model states: it comes as nChw8c"):
            bl.load(tmp_path / "net.onnx", layout="nChw8c")


def test_it_is_the_same_without_a_file() -> None:
    assert bl.load(demanding(), layout="nhwc").plan.format_of("relu_1").named("src") == "nChw8c"
    with pytest.raises(bl.PlanError, match="expect y=channels_last"):
        bl.load(demanding(), layout="nChw8c")


def test_models_without_demands_have_no_entry(tmp_path: Path) -> None:
    bl.save(nets.chain(), tmp_path / "net.onnx")
    assert not onnx.load(str(tmp_path / "net.onnx")).metadata_props


def test_other_runtimes_pass_over_it(tmp_path: Path) -> None:
    bl.save(demanding(), tmp_path / "net.onnx", precision={"second": "f32"})
    proto = onnx.load(str(tmp_path / "net.onnx"))
    onnx.checker.check_model(proto, full_check=True)
    feed = {"x": nets.random_input((1, 24, 8, 8))}
    results: Any = ReferenceEvaluator(proto).run(None, feed)
    np.testing.assert_allclose(bl.load(proto, layout="nhwc").run(None, feed)[0], results[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("external_nbytes", [1 << 30, 0])
def test_files_with_weights_beside_them_have_it_too(tmp_path: Path, external_nbytes: int) -> None:
    model.write(demanding(), tmp_path / "net.onnx", external_nbytes=external_nbytes)
    assert entry(tmp_path / "net.onnx") == '{"expect":{"y":"channels_last"},"pin":{"relu_1":"nChw8c"}}'


def test_save_adds_to_what_the_builder_states_and_overrides_it(tmp_path: Path) -> None:
    options = {"pin": {"Conv": "nhwc", "relu_1": "nchw"}, "expect": {"y": None}, "precision": {"sec*": "f32"}}
    bl.save(demanding(), tmp_path / "net.onnx", **options)  # type: ignore[arg-type]
    assert entry(tmp_path / "net.onnx") == '{"pin":{"Conv":"nhwc","relu_1":"nchw"},"precision":{"sec*":"f32"}}'
    plan = bl.load(tmp_path / "net.onnx", layout="nChw8c").plan
    assert plan.format_of("relu_1").named("src") == "nchw"
    assert plan.format_of("y").named("src") == "nhwc"
    assert [str(each) for each in plan.precision] == ["precision sec*=f32, which the model states (second)"]


def test_load_adds_to_what_the_file_states_and_overrides_it(tmp_path: Path) -> None:
    bl.save(demanding(), tmp_path / "net.onnx")
    added = bl.load(tmp_path / "net.onnx", pin={"second": "nhwc"}).plan
    assert [added.format_of(name).named("src") for name in ("relu_1", "y")] == ["nChw8c", "nhwc"]
    for key in ("relu_1", "first", "Conv"):  # less exact, but said later
        plan = bl.load(tmp_path / "net.onnx", pin={key: "nchw"}, expect={"y": None}).plan
        assert plan.format_of("relu_1").named("src") == "nchw"
    free = bl.load(tmp_path / "net.onnx", pin={"relu_1": None}, expect={"y": None}, layout="nhwc").plan
    assert not free.pins
    asked = bl.load(tmp_path / "net.onnx", pin=lambda kernel: "nhwc" if kernel.op_type == "Conv" else None).plan
    assert asked.format_of("relu_1").named("src") == "nhwc"


def test_saved_plans_and_sessions_are_compared_with_what_the_file_states(tmp_path: Path) -> None:
    bl.save(demanding(), tmp_path / "net.onnx")
    session = bl.load(tmp_path / "net.onnx", layout="nhwc")
    assert bl.load(tmp_path / "net.onnx", plan=session.plan).plan == session.plan
    session.save(tmp_path / "net.session")
    assert bl.load(tmp_path / "net.session").plan == session.plan
    other = bl.load(tmp_path / "net.onnx", layout="nhwc", pin={"relu_1": "nhwc"}).plan
    with pytest.raises(bl.PlanError, match="made with pins relu_1=nhwc, and pin relu_1=nChw8c, which the model states"):
        bl.load(tmp_path / "net.onnx", plan=other)
    assert bl.load(tmp_path / "net.onnx", plan=other, pin={"relu_1": "nhwc"}).plan == other


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        '{"pin": 3}',
        '{"pin": {"conv0": 3}}',
        '{"pin": {"conv0": ""}}',
        '{"pins": {}}',
        "[" * 100_000,
    ],
)
def test_a_damaged_entry_is_one_clear_error(text: str) -> None:
    with pytest.raises(
        bl.ModelError, match=rf"the entry '{KEY}' in the metadata of the ModelProto is damaged: .*remove"
    ):
        bl.load(with_entries(text))


def test_two_entries_are_one_clear_error() -> None:
    with pytest.raises(bl.ModelError, match=rf"the entry '{KEY}' in the metadata of the ModelProto is damaged"):
        bl.load(with_entries("{}", "{}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"pin": {"convl": "nhwc"}}', "pin convl=nhwc, which the model states: no kernel.* closest are conv"),
        ('{"expect": {"conv1": "nhwcc"}}', "expect conv1=nhwcc, which the model states: "),
        ('{"precision": {"Conv": "fp33"}}', "precision Conv=fp33, which the model states: activations are computed in"),
    ],
)
def test_an_entry_that_does_not_fit_the_model_is_refused(text: str, message: str) -> None:
    with pytest.raises(bl.PlanError, match=message):
        bl.load(with_entries(text))


def test_what_does_not_fit_is_taken_back_by_its_key() -> None:
    stale = with_entries('{"pin": {"convl": "nhwc", "conv1": "nhwc"}}')
    plan = bl.load(stale, pin={"convl": None}).plan
    assert [(pin.name, pin.wanted) for pin in plan.pins] == [("conv1", "nhwc")]
    with pytest.raises(bl.PlanError, match="pin conv9=None: no kernel"):
        bl.load(stale, pin={"convl": None, "conv9": None})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"pin": {"frist": "nhwc"}}, bl.PlanError, "pin frist=nhwc: no kernel.* closest are first"),
        ({"pin": {"first": "nhwcc"}}, bl.PlanError, "pin first=nhwcc: "),
        ({"precision": {"first": "fp33"}}, bl.PlanError, "precision first=fp33: activations are"),
        ({"expect": lambda _: None}, bl.ModelError, "expect is a function, which no file can hold"),
    ],
)
def test_what_cannot_be_kept_is_refused_when_it_is_saved(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        bl.save(demanding(), tmp_path / "net.onnx", **options)
    assert not (tmp_path / "net.onnx").exists()


def test_a_tensor_has_no_demands(tmp_path: Path) -> None:
    with pytest.raises(bl.PlanError, match="are for models"):
        bl.save(bl.reorder(np.ones((1, 8, 2, 2), np.float32), "nhwc"), tmp_path / "t", pin={"x": "nhwc"})


def normalised(demands: str) -> onnx.ModelProto:
    """conv, normalisation, identity, relu, pad, convolution, transposition and back."""
    rng = np.random.default_rng(0)
    constants = {"w": nets.he(rng, 24, 3, 3, 3), "v": nets.he(rng, 24, 24, 3, 3)}
    constants |= {
        name: np.abs(nets.random_input((24,), seed)) + 0.5 for seed, name in enumerate("sbmv_".replace("v_", "q"))
    }
    constants["pads"] = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c0"], name="conv", pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c0", "s", "b", "m", "q"], ["n0"], name="norm"),
        helper.make_node("Identity", ["n0"], ["i0"], name="same"),
        helper.make_node("Relu", ["i0"], ["r0"], name="relu"),
        helper.make_node("Pad", ["r0", "pads"], ["p0"], name="pad"),
        helper.make_node("Conv", ["p0", "v"], ["c1"], name="next"),
        helper.make_node("Transpose", ["c1"], ["t0"], name="there", perm=[0, 2, 3, 1]),
        helper.make_node("Transpose", ["t0"], ["t1"], name="back", perm=[0, 3, 1, 2]),
        helper.make_node("Sigmoid", ["t1"], ["g0"], name="gate"),
        helper.make_node("Mul", ["t1", "g0"], ["y"], name="swish"),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 24, 8, 8))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    proto.metadata_props.add(key=KEY, value=demands)
    return proto


FOUND = {
    "c0": "conv", "conv": "conv", "n0": "conv", "norm": "conv", "i0": "conv", "same": "conv", "r0": "relu",
    "c1": "next", "t1": "next", "back": "next", "gate": "swish", "g0": "swish", "y": "swish", "swish": "swish",
    "BatchNormalization": "conv", "Sigmoid": "swish",
}  # fmt: skip


@pytest.mark.parametrize(("name", "kernel"), FOUND.items())
def test_names_that_passes_took_out_find_their_kernel(name: str, kernel: str) -> None:
    graph = model.legalize(model.simplify(model.read(normalised(f'{{"pin":{{"{name}":"nhwc"}}}}'))))
    [pin] = Demands().settled(graph.demands, Names.of(model.lower(graph))).pins
    assert pin.name == kernel


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("p0", "pad became part of next, whose result has other extents"),
        ("t0", r"the network is computed without it \(Transpose there\)"),
    ],
)
@pytest.mark.parametrize("option", ["pin", "expect", "precision"])
def test_names_that_stand_for_nothing_any_more_say_why(name: str, reason: str, option: str) -> None:
    wanted = "f32" if option == "precision" else "nhwc"
    proto = normalised(f'{{"{option}":{{"{name}":"{wanted}"}}}}')
    with pytest.raises(bl.PlanError, match=f"{option} {name}={wanted}, which the model states: ({reason})"):
        bl.load(proto)


def test_a_value_in_another_order_of_dimensions_says_so() -> None:
    b = bl.Builder()
    x = b.input("x", (1, 8, 8, 8)).conv(nets.he(np.random.default_rng(0), 8, 8, 3, 3), pads=1)
    turned = b.op("Relu", x.transpose((0, 2, 3, 1)), name="turned")
    b.output("y", turned.sigmoid().transpose((0, 3, 1, 2)).max_pool(2))
    for option in ("pin", "expect"):
        options: dict[str, Any] = {option: {"turned": "nhwc"}}
        with pytest.raises(
            bl.PlanError, match=r"turned computes it in another order of dimensions, as turned\.permuted"
        ):
            bl.load(b, **options)
    assert bl.load(b, pin={"turned.permuted": "nhwc"}).plan.pins[0].name == "turned"
    assert bl.load(b, precision={"turned": "f32"}).plan.precision[0].name == "turned"


def test_a_simplified_graph_is_written_with_the_names_it_has(tmp_path: Path) -> None:
    graph = model.simplify(model.read(normalised('{"pin":{"c0":"nhwc"},"expect":{"t1":"nhwc"}}')))
    model.write(graph, tmp_path / "simple.onnx")
    plan = bl.load(tmp_path / "simple.onnx", layout="nhwc").plan
    assert [pin.name for pin in plan.pins] == ["conv"]
    lost = model.simplify(model.read(normalised('{"pin":{"p0":"nhwc"}}')))
    with pytest.raises(bl.ModelError, match="pin p0=nhwc cannot be kept: pad became part of next"):
        model.write(lost, tmp_path / "lost.onnx")
