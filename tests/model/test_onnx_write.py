from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from blocklayout.errors import ModelError
from blocklayout.model import Builder, Graph, read, simplify, write


def _same_constants(one: Graph, other: Graph) -> None:
    for name, value in one.values.items():
        if value.data is not None:
            np.testing.assert_array_equal(value.data, other.constant(name))


def test_a_simplified_graph_is_a_model(small_net: Builder, tmp_path: Path) -> None:
    graph = simplify(read(small_net))
    write(graph, tmp_path / "model.onnx")
    onnx.checker.check_model(tmp_path / "model.onnx", full_check=True)
    again = read(tmp_path / "model.onnx")
    assert str(again) == str(graph)
    _same_constants(graph, again)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_large_weights_lie_beside_the_model(small_net: Builder, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write(small_net, path, external_nbytes=100)
    onnx.checker.check_model(path, full_check=True)
    assert {each.name for each in tmp_path.iterdir()} == {"model.onnx", "model.onnx.data"}
    assert str(read(path)) == str(small_net.to_graph())
    _same_constants(small_net.to_graph(), read(path))


def test_other_runtimes_read_external_weights(small_net: Builder, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    feeds = {"x": np.ones((2, 3, 8, 8), np.float32)}
    results = []
    for limit in (0, 1 << 30):
        path = tmp_path / f"{limit}.onnx"
        write(small_net, path, external_nbytes=limit)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        results.append(session.run(None, feeds)[0])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("external_nbytes", [0, 1 << 30])
def test_what_is_no_onnx_is_not_written(small_net: Builder, tmp_path: Path, external_nbytes: int) -> None:
    graph = small_net.to_graph()
    first, *others = graph.nodes
    wrong = graph.replace(nodes=(first.replace(attrs={**first.attrs, "flavour": 1}), *others))
    with pytest.raises(ModelError, match="flavour"):
        write(wrong, tmp_path / "model.onnx", external_nbytes=external_nbytes)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file(
    small_net: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ModelError, match="disk full"):
        write(small_net, path)
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]


def test_a_missing_directory_is_named(small_net: Builder, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot write .*absent"):
        write(small_net, tmp_path / "absent" / "model.onnx")


def test_the_file_is_readable_by_others(small_net: Builder, tmp_path: Path) -> None:
    write(small_net, tmp_path / "model.onnx")
    plain = tmp_path / "plain"
    plain.touch()
    assert (tmp_path / "model.onnx").stat().st_mode == plain.stat().st_mode


def test_equal_graphs_give_equal_files(small_net: Builder, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(small_net, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64", "s8", "u8", "s32", "s64", "bool"])
def test_every_type_of_constant_survives(dtype: str, tmp_path: Path) -> None:
    from blocklayout.dtypes import to_numpy

    b = Builder()
    array = np.array([[0, 1], [1, 0]]).astype(to_numpy(dtype))
    b.output("y", b.op("Where", b.input("x", (2, 2), "bool"), array, array.T))
    write(b, tmp_path / "model.onnx")
    _same_constants(b.to_graph(), read(tmp_path / "model.onnx"))
