"""Calls of operators: what they take, what they refuse, and what they leave behind."""

from __future__ import annotations

import gc
import inspect
import operator
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.eager import call as calls
from blocklayout.errors import BlockLayoutError, InputError, LayoutError, ModelError
from tests.forking import in_child

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")  # reference kernels

X = np.random.default_rng(0).standard_normal((2, 17, 6, 5)).astype(np.float32)
UNTYPED: Any = bl  # type checkers refuse the same calls
LAYOUTS = ("nchw", "nhwc", "nChw8c", "chwn")


def tensor(layout: str, array: np.ndarray = X) -> bl.Tensor:
    return bl.reorder(array, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv], ids=lambda op: op.__name__)
def test_python_operators_compute_what_numpy_does(op: Callable[..., Any], layout: str) -> None:
    other = np.abs(X[::-1].copy()) + 1
    x, y = tensor(layout, np.abs(X) + 1), tensor(layout, other)
    plain = np.abs(X) + 1
    for result, expected in (
        (op(x, y), op(plain, other)),
        (op(x, 2), op(plain, 2)),
        (op(2.5, x), op(2.5, plain)),
        (op(other, x), op(other, plain)),
        (op(x, other[:, :, :1]), op(plain, other[:, :, :1])),
        (op(np.float32(3), x), op(np.float32(3), plain)),
    ):
        assert isinstance(result, bl.Tensor)
        assert result.is_contiguous(layout)
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=1e-6)
        assert result.padding_is_zero()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_negation_size_and_powers(layout: str) -> None:
    x = tensor(layout)
    np.testing.assert_array_equal((-x).numpy(), -X)
    np.testing.assert_array_equal(abs(x).numpy(), np.abs(X))
    np.testing.assert_allclose((x**2).numpy(), X**2, rtol=1e-6)
    assert +x is x


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")  # products of matrices are row-major
@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_of_matrices(layout: str) -> None:
    x = tensor(layout)
    left: Any = np.ones((4, 6), np.float32)  # numpy believes that it multiplies anything itself
    right = np.ones((5, 3), np.float32)
    np.testing.assert_allclose((x @ right).numpy(), X @ right, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose((left @ x).numpy(), left @ X, atol=1e-4)


def test_numbers_are_of_the_tensors_type() -> None:
    x = bl.from_array(np.ones((1, 8, 2, 2), np.float32), "nChw8c")
    assert (x / 0.0).numpy().min() == np.inf
    assert (x / -0.0).numpy().max() == -np.inf
    assert np.isnan((x * np.nan).numpy()).all()
    whole = bl.from_array(np.full((2, 2), 2**60))
    assert (whole + 1).numpy()[0, 0] == 2**60 + 1
    for number in (0.5, 2**70, np.inf):
        with pytest.raises(InputError, match="is no s64"):
            whole + number


def test_arrays_and_lists_are_welcome_and_only_read() -> None:
    x = X.transpose(0, 2, 3, 1)[:, ::-1]
    x.flags.writeable = False
    np.testing.assert_array_equal(bl.relu(x).numpy(), np.maximum(x, 0))
    np.testing.assert_array_equal(bl.relu([[-1.0, 2.0]]).numpy(), [[0.0, 2.0]])
    assert bl.relu(X.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)).memory_format == bl.channels_last


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")  # some groups fill no block
@pytest.mark.parametrize("group", [1, 2, 16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_weights_give_the_same_and_are_read_where_they_are(layout: str, group: int) -> None:
    rng = np.random.default_rng(1)
    x = tensor(layout, rng.standard_normal((1, 16, 7, 7)).astype(np.float32))
    w = rng.standard_normal((32, 16 // group, 3, 3)).astype(np.float32)
    packed = bl.conv_weights(x, w, pads=1, group=group)
    expected = bl.conv(x.to(memory_format="nchw"), w, pads=1, group=group).numpy()
    with bl.watch("record") as seen:
        result = bl.conv(x, packed, pads=1, group=group)
    assert not [event for event in seen if event.result is not None and event.result.dims == packed.shape]
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-4)
    assert result.is_contiguous(layout)
    np.testing.assert_allclose(bl.conv(x, w, pads=1, group=group).numpy(), expected, atol=1e-4)


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")  # some groups fill no block
@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("layout", LAYOUTS[:3])
def test_packed_weights_of_transposed_convolutions(layout: str, group: int) -> None:
    rng = np.random.default_rng(1)
    x = tensor(layout, rng.standard_normal((1, 16, 5, 5)).astype(np.float32))
    w, bias = rng.standard_normal((16, 24 // group, 2, 2)).astype(np.float32), np.ones(24, np.float32)
    packed = bl.conv_transpose_weights(x, w, bias=True, strides=2, group=group)
    expected = bl.conv_transpose(x.to(memory_format="nchw"), w, bias, strides=2, group=group)
    result = bl.conv_transpose(x, packed, bias, strides=2, group=group)
    np.testing.assert_allclose(result.numpy(), expected.numpy(), atol=1e-4)


def test_an_image_of_three_channels_begins_a_blocked_run() -> None:
    block = "nChw16c" if dnnl.isa().startswith("avx512") else "nChw8c"
    x = np.ones((1, 3, 8, 8), np.float32)
    w = bl.conv_weights(x, np.ones((16, 3, 3, 3), np.float32), memory_format=block)
    with bl.watch("raise"):
        assert bl.conv(x, w, memory_format=block).memory_format == block


def test_the_format_of_a_convolution_may_be_said() -> None:
    x, w = tensor("nhwc"), np.ones((8, 17, 1, 1), np.float32)
    assert bl.conv(x, w, memory_format=bl.preserve_format).memory_format == bl.channels_last
    assert bl.conv(x, w, memory_format=bl.contiguous_format).memory_format == bl.contiguous_format
    assert bl.conv(x, w, memory_format="nChw8c").memory_format == "nChw8c"
    with pytest.warns(bl.LayoutLossWarning, match="oneDNN cannot read f64"):
        doubles = bl.conv(x.astype("f64"), w.astype(np.float64), memory_format="nChw8c")
    assert (doubles.dtype, doubles.memory_format) == ("f64", "nChw8c")


@pytest.mark.parametrize("layout", ["nhwc", "nChw8c"])
def test_weights_that_are_moved_are_no_loss_even_if_they_are_as_many_as_results(layout: str) -> None:
    x = bl.ones((1, 16, 12, 12), memory_format=layout)
    weights = bl.ones((24, 16, 3, 3))
    with bl.watch("record") as seen:
        assert bl.conv(x, weights, pads=1).desc.n_elements == weights.desc.n_elements
    assert {event.kind for event in seen} <= {"reorder"}


def test_weights_may_be_packed_for_a_descriptor() -> None:
    desc = bl.MemoryDesc((1, 16, 8, 8), "f32", "nhwc")
    w = bl.conv_weights(desc, np.ones((8, 16, 1, 1), np.float32))
    assert bl.conv(bl.ones((1, 16, 8, 8), memory_format=bl.channels_last), w).numpy()[0, 0, 0, 0] == 16


def test_results_are_fresh() -> None:
    x = tensor("nChw8c")
    first, second = bl.relu(x), bl.relu(x)
    first.physical()[:] = 7
    np.testing.assert_array_equal(second.numpy(), np.maximum(X, 0))


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")
@pytest.mark.parametrize("layout", [*LAYOUTS, "nChw16c", "abCd4c"])
@pytest.mark.parametrize(
    "part",
    [
        np.s_[1:],
        np.s_[0],
        np.s_[:, :8],
        np.s_[:, 8:12],  # four of the eight of a block
        np.s_[:, 8:9],
        np.s_[:, :, ::2],
        np.s_[:, :8, 1:5],
        np.s_[:, :, 4:6],
    ],
    ids=str,
)
def test_views_are_computed_with(layout: str, part: Any) -> None:
    view, expected = tensor(layout)[part], X[part]
    for result, wanted in ((bl.relu(view), np.maximum(expected, 0)), (view + view, 2 * expected)):
        np.testing.assert_array_equal(result.numpy(), wanted)
        assert result.padding_is_zero()
    ones = np.ones_like(expected)
    np.testing.assert_array_equal(bl.relu_backward(ones, view).numpy(), np.float32(expected > 0))
    if expected.ndim == 4:
        sums = bl.conv(view, np.ones((9, expected.shape[1], 1, 1), np.float32))
        np.testing.assert_allclose(sums.numpy()[:, 3], expected.sum(axis=1), atol=1e-4)


def test_channels_without_an_image_are_normalised_in_groups() -> None:
    rows = X[:, :16, 0, 0]
    result = bl.group_norm(rows, 4, np.ones(16, np.float32), np.zeros(16, np.float32)).numpy()
    np.testing.assert_allclose(result.reshape(2, 4, 4).mean(axis=2), 0, atol=1e-5)
    np.testing.assert_allclose(result.reshape(2, 4, 4).var(axis=2), 1, rtol=1e-3)


@pytest.mark.needs_bf16
def test_bf16_is_packed_for_with_a_bias_and_normalised_in_groups() -> None:
    x, w = bl.from_array(X[:, :16]).astype("bf16"), bl.ones((8, 16, 1, 1)).astype("bf16")
    packed = bl.conv_weights(x, w, bias=True)
    with bl.watch("record") as seen:
        result = bl.conv(x, packed, bl.ones((8,)).astype("bf16"))
    assert not [event for event in seen if event.result is not None and event.result.dims == packed.shape]
    np.testing.assert_allclose(result.astype("f32").numpy()[:, 3], X[:, :16].sum(axis=1) + 1, atol=0.2)
    vectors = bl.ones((16,)).astype("bf16"), bl.zeros((16,)).astype("bf16")
    groups = bl.group_norm(x, 4, *vectors).astype("f32").numpy().reshape(*X.shape[:1], 4, -1)
    np.testing.assert_allclose(groups.mean(axis=2), 0, atol=1e-2)
    np.testing.assert_allclose(groups.var(axis=2), 1, rtol=5e-2)


def test_integers_and_booleans_are_computed_with_as_onnx_does() -> None:
    x = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal((bl.as_tensor(x) + x).numpy(), x + x)


@pytest.mark.parametrize("dtype", ["f64", "s64", "s32", "s8", "bf16", "f16"])
def test_every_data_type_comes_back_in_its_format(dtype: str) -> None:
    values = np.arange(2 * 17 * 4 * 4).reshape(2, 17, 4, 4) % 13 - 5
    x = bl.from_array(values.astype(np.float32), "nChw8c").astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bl.LayoutLossWarning)
        sums, rectified = x + x, bl.relu(x)
    for result, expected in ((sums, 2 * values), (rectified, np.maximum(values, 0))):
        assert (result.dtype, result.memory_format) == (dtype, "nChw8c")
        np.testing.assert_array_equal(result.numpy().astype(np.int64), expected)


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")  # on CPUs without bf16
def test_bf16_is_pooled_and_convolved() -> None:
    x = bl.from_array(np.ones((1, 16, 4, 4), np.float32), "nhwc").astype("bf16")
    for result in (bl.max_pool(x, 2), bl.average_pool(x, 2), bl.conv(x, bl.ones((8, 16, 1, 1), "bf16"))):
        assert (result.dtype, result.memory_format) == ("bf16", "channels_last")


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: bl.relu("x"), InputError, "relu: x is no tensor"),
        (lambda: bl.conv(X, np.ones((4, 5, 3, 3), np.float32)), ModelError, "channels"),
        (
            lambda: bl.conv(X, np.ones((4, 17, 3, 3), np.float32), group=3),
            InputError,
            "conv: group is 3; give a divisor of the 4",
        ),
        (lambda: bl.conv(X, np.ones((4, 17, 9, 9), np.float32)), BlockLayoutError, "conv_0"),
        (lambda: bl.conv(X, np.ones((4, 17, 3, 3), np.float32), pads=(1, 1, 1)), InputError, "2 or 4 of them"),
        (lambda: bl.conv(X, np.ones((4, 17, 3, 3), np.float32), memory_format="nChw"), LayoutError, "nChw"),
        (lambda: bl.add(X, X[:, :5]), ModelError, "add_0"),
        (lambda: bl.add(1.0, 2.0), InputError, "at least one tensor"),
        (lambda: bl.reshape(X, (3, -1, 7)), InputError, "elements"),
        (lambda: bl.squeeze(X, 1), InputError, "extent of 1"),
        (lambda: bl.concat([]), InputError, "at least one"),
        (lambda: bl.channel_shuffle(X, 5), InputError, "divisor"),
        (lambda: bl.resize(X), InputError, "scales or sizes"),
        (lambda: bl.op("NoSuch", X), ModelError, "NoSuch"),
        (lambda: bl.op("Relu"), InputError, "first"),
        (lambda: bl.softmax(X, 9), InputError, "axis is 9; give a dimension of x .*: -4 to 3"),
        (lambda: bl.matmul(X, np.ones((4, 4), np.float32)), ModelError, "matmul_0"),
    ],
)
def test_what_does_not_fit_is_told(call: Callable[[], object], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        call()


def test_a_call_that_failed_leaves_no_trace() -> None:
    x = tensor("nChw8c")
    before = len(calls._calls)
    with pytest.raises(ModelError):
        bl.conv(x, np.ones((4, 5, 3, 3), np.float32))
    assert len(calls._calls) == before
    np.testing.assert_array_equal(bl.relu(x).numpy(), np.maximum(X, 0))


def test_what_no_primitive_computes_warns_when_it_is_planned() -> None:
    x = np.ones((1, 3, 5, 5), np.float32)
    with pytest.warns(bl.PlainKernelWarning, match="Det: no primitive computes it of f32 1x3x5x5") as told:
        bl.op("Det", x)
    assert [warning.filename for warning in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bl.op("Det", x)


def test_what_follows_from_extents_is_a_result_like_others() -> None:
    x = tensor("nChw8c")
    first, second = bl.op("Shape", x), bl.op("Shape", x)
    assert first.numpy().tolist() == [2, 17, 6, 5]
    first[0] = 9
    assert second.numpy().tolist() == [2, 17, 6, 5]
    assert bl.op("Size", x).item() == X.size


def test_a_repeated_call_plans_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tensor("nhwc")
    bl.relu(x)
    monkeypatch.setattr(calls, "_made", None)
    bl.relu(x)
    bl.relu(tensor("nhwc"))


def test_old_plans_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_calls", {})
    monkeypatch.setattr(calls, "MAX_CALLS", 3)
    gc.collect()
    handles = []
    for extent in range(2, 8):
        bl.relu(np.ones((1, 8, extent, extent), np.float32))
        gc.collect()
        handles.append(dnnl.live_handles()["primitive"])
    assert len(calls._calls) == 3
    assert handles[-1] == handles[3]


def test_nothing_is_held_of_what_was_computed_with() -> None:
    x = tensor("nChw8c")
    before = sys.getrefcount(x.buffer)
    result = bl.relu(x)
    after, fresh = sys.getrefcount(x.buffer), sys.getrefcount(result.buffer)
    assert after == fresh == before


def test_threads_get_right_answers() -> None:
    tensors = [tensor("nChw8c", X + number) for number in range(8)]

    def work(number: int) -> bool:
        x = tensors[number]
        return all(np.array_equal(bl.relu(x + 1.0).numpy(), np.maximum(X + number + 1, 0)) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_a_forked_child_computes() -> None:
    x = tensor("nChw8c")
    expected = bl.relu(x).numpy()
    assert in_child(lambda: np.array_equal(bl.relu(x).numpy(), expected)) == 0


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")  # on CPUs without AVX
def test_nan_in_padding_does_not_spread() -> None:
    x = tensor("nChw8c")
    x.physical()[:] = np.where(x.physical() == 0, np.nan, x.physical())
    x.zero_padding()
    y = bl.conv(x, np.ones((8, 17, 1, 1), np.float32))
    assert y.padding_is_zero()
    assert np.isfinite(y.numpy()).all()


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")  # on CPUs without AVX
@pytest.mark.parametrize("layout", LAYOUTS[:3])
def test_methods_are_the_functions(layout: str) -> None:
    x = tensor(layout)
    chained = x.conv(np.ones((8, 17, 3, 3), np.float32), pads=1).clip(0, 6).max_pool(2)
    nested = bl.max_pool(bl.clip(bl.conv(x, np.ones((8, 17, 3, 3), np.float32), pads=1), 0, 6), 2)
    assert chained.memory_format == x.memory_format
    np.testing.assert_array_equal(chained.numpy(), nested.numpy())
    assert bl.Tensor.relu is bl.relu


@pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")  # on CPUs without AVX
def test_arguments_may_be_named() -> None:
    x, w = tensor("nChw8c"), np.ones((8, 17, 1, 1), np.float32)
    np.testing.assert_array_equal(bl.conv(x=x, weights=w).numpy(), bl.conv(x, w).numpy())
    np.testing.assert_array_equal(bl.clip(hi=1, x=x).numpy(), bl.clip(x, hi=1.0).numpy())
    np.testing.assert_array_equal(bl.sub(y=x, x=1.0).numpy(), (1.0 - x).numpy())
    assert bl.reshape(X, shape=(2, -1)).shape == (2, 510)


@pytest.mark.parametrize(
    "call",
    [
        UNTYPED.relu,
        lambda: UNTYPED.relu(X, X, X),
        lambda: UNTYPED.relu(X, name="first"),  # only nodes have names
        lambda: UNTYPED.conv(X),
        lambda: UNTYPED.softmax(X, axes=1),
        lambda: UNTYPED.softmax(X, 1, axis=1),
        lambda: UNTYPED.relu_backward(X, X, 1.0),
        lambda: UNTYPED.elu_backward(X, X, beta=1.0),
        lambda: UNTYPED.pow_backward(X, X),
    ],
)
def test_arguments_that_no_parameter_takes_are_type_errors(call: Callable[[], object]) -> None:
    for _ in range(2):  # the first call compiles the function
        with pytest.raises(TypeError):
            call()


def test_threads_may_make_the_first_call_together(tree_environ: dict[str, str]) -> None:
    code = (
        "import numpy as np, blocklayout as bl, sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "sys.setswitchinterval(1e-6)\n"
        "x = bl.ones((1, 8, 4, 4), memory_format='nChw8c')\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    made = list(pool.map(lambda _: bl.elu(x, 0.5) + bl.clip(x, 0, hi=6), range(64)))\n"
        "assert all(each.numpy().max() == 2 for each in made)\n"
    )
    subprocess.run([sys.executable, "-c", code], env=tree_environ, check=True, timeout=60)


def test_a_tensor_from_a_pickle_has_its_operators(tree_environ: dict[str, str]) -> None:
    data = pickle.dumps(tensor("nChw8c"))
    code = f"import pickle; x = pickle.loads({data!r}); assert (x + 1.0).memory_format == 'nChw8c'"
    subprocess.run([sys.executable, "-c", code], env=tree_environ, check=True, timeout=60)


def test_without_what_computes_operators_the_error_says_what_to_import(tree_environ: dict[str, str]) -> None:
    code = (
        "from blocklayout.errors import UnsupportedError\n"
        "from blocklayout.tensor import zeros\n"
        "try:\n"
        "    zeros((2, 2)).conv(1)\n"
        "except UnsupportedError as error:\n"
        "    assert 'blocklayout.eager' in str(error)\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], env=tree_environ, check=True, timeout=60)


def test_signatures_are_those_of_the_definitions_without_a_nodes_name() -> None:
    assert list(inspect.signature(bl.softmax).parameters) == ["x", "axis"]
    assert inspect.signature(bl.softmax).parameters["axis"].default == -1
    assert list(inspect.signature(bl.clip_backward).parameters) == ["grad", "x", "lo", "hi"]
