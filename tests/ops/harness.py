"""Runs a case in every layout and compares it with ONNX's reference."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout import dnnl, dtypes
from blocklayout.errors import UnimplementedError
from blocklayout.ir import LAYOUT_NAMES, HostSpec, Lowered, Recipe, RecipeStep, Role, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.runtime.host import HostExecution, HostMemory, host_function
from tests.ops.cases import OpCase, problem_of

TOLERANCES = {"f32": 1e-5, "bf16": 2e-2, "f16": 2.5e-3}
"""Largest error, relative to the largest output."""

in_narrow_floats = pytest.mark.parametrize(
    "dtype", [pytest.param("bf16", marks=pytest.mark.needs_bf16), pytest.param("f16", marks=pytest.mark.needs_f16)]
)


def check_case(case: OpCase, dtype: str = "f32", layouts: tuple[str, ...] = LAYOUT_NAMES) -> dict[str, str]:
    """Compute a case in each layout that has an implementation, and check values and padding.

    Returns:
        The names of its implementations in a row, joined by ``+``, by layout.
    """
    lowered = case.lowered()
    if lowered.operator.role is Role.VIEW:
        check_view(case, lowered)
        return {}
    problem = problem_of(lowered, case.expected.shape, dtype)
    ran: dict[str, str] = {}
    for layout in layouts:
        recipe = lowered.operator.lower(problem, Wish(layout, layout), dnnl.Attr())
        impls = "" if recipe is None else computed_by(case, lowered, recipe, dtype, layout)
        if impls:
            ran[layout] = impls
    assert ran, f"{case}: no layout has an implementation"
    return ran


def check_alternatives(
    case: OpCase, dtype: str = "f32", layouts: tuple[str, ...] = LAYOUT_NAMES
) -> dict[str, set[str]]:
    """The same of the other ways to compute a case; the names of each layout's implementations."""
    lowered = case.lowered()
    problem = problem_of(lowered, case.expected.shape, dtype)
    ran: dict[str, set[str]] = {}
    for layout in layouts:
        recipes = lowered.operator.alternatives(problem, Wish(layout, layout), dnnl.Attr())
        impls = {computed_by(case, lowered, recipe, dtype, layout) for recipe in recipes} - {""}
        if impls:
            ran[layout] = impls
    return ran


def computed_by(case: OpCase, lowered: Lowered, recipe: Recipe, dtype: str, layout: str) -> str:
    """The implementations of a recipe, whose result is as expected; empty where there are none."""
    try:
        steps = [resolved(step) for step in recipe.steps]
    except UnimplementedError:
        return ""
    actual = run_recipe(case, lowered, steps, recipe)
    assert_close(actual, case.expected, TOLERANCES[dtype], f"{case} as {layout}")
    return "+".join(step.spec.impl for step in steps)


def resolved(step: RecipeStep) -> RecipeStep:
    """The step with the layouts and the implementation that the library chose."""
    if isinstance(step.spec, HostSpec):
        return step
    return RecipeStep(dnnl.resolve(step.spec).spec, step.operands)


def run_recipe(case: OpCase, lowered: Lowered, steps: list[RecipeStep], recipe: Recipe) -> np.ndarray:
    """The result of a resolved recipe, computed into buffers full of NaN."""
    arrays = {arg: case.feeds[value.name] for arg, value in lowered.sources.items()} | dict(lowered.constants)
    return run_on(arrays, steps, recipe).astype(np.float32).reshape(case.expected.shape)


def run_on(arrays: dict[str, np.ndarray], steps: list[RecipeStep], recipe: Recipe) -> np.ndarray:
    """As :func:`run_recipe`, of arrays by the recipe's operands."""
    arrays |= {arg: made.of(arrays[arg]) for arg, made in recipe.made}
    buffers: dict[str, tuple[MemoryDesc, np.ndarray]] = {}
    for name, desc in (*recipe.temporaries, *recipe.whole):
        assert not dtypes.has_reorder(desc.dtype) or dnnl.is_expressible(desc), f"no reorder brings {name} into {desc}"
        buffers[name] = desc, packed(desc, arrays.pop(name)) if name in arrays else poisoned(desc)
    seen_otherwise = frozenset(buffers)
    for step in steps:
        run_step(step, arrays, buffers, seen_otherwise)
    desc, buffer = buffers["dst"]
    assert_padding_is_zero(desc, buffer)
    return desc.unpack(buffer)


def run_step(
    step: RecipeStep,
    arrays: dict[str, np.ndarray],
    buffers: dict[str, tuple[MemoryDesc, np.ndarray]],
    seen_otherwise: frozenset[str] = frozenset(),
) -> None:
    """One step: reads what is packed or was computed before, and leaves its result in ``buffers``.

    ``seen_otherwise`` names the operands that a step may see under another descriptor than their own.
    """
    bound = {}
    for arg, operand in _bindings(step):
        desc = step.spec.memory_desc(arg)
        if operand in arrays:
            bound[arg] = desc, packed(desc, arrays[operand])
            continue
        made, buffer = buffers.setdefault(operand, (desc, poisoned(desc)))
        agrees = operand in seen_otherwise or made.physically_equal(desc)
        assert agrees, f"{operand} is {made}, and {arg} reads {desc}"
        bound[arg] = desc, buffer
    if isinstance(step.spec, HostSpec):
        HostExecution(host_function(step.spec, None), {arg: HostMemory(*pair) for arg, pair in bound.items()}).run()
        return
    memories = {arg: dnnl.Memory(*pair) for arg, pair in bound.items()}
    primitive = dnnl.Primitive(step.spec)
    if primitive.scratchpad_nbytes:
        scratchpad = MemoryDesc((primitive.scratchpad_nbytes,), "u8")
        memories["scratchpad"] = dnnl.Memory(scratchpad, dnnl.aligned_empty(scratchpad.nbytes))
    execution = primitive.bind(memories)
    dnnl.run_parallel(execution.run, step.spec.n_threads)


def _bindings(step: RecipeStep) -> list[tuple[str, str]]:
    """Operands by argument; an argument that is bound to none is its own."""
    operands = dict(step.operands)
    return [(arg, operands.get(arg, arg)) for arg, _ in step.spec.descs]


def packed(desc: MemoryDesc, array: np.ndarray) -> np.ndarray:
    """An array's bytes in a layout."""
    return desc.pack(np.asarray(array).astype(dtypes.to_numpy(desc.dtype)).reshape(desc.dims))


def poisoned(desc: MemoryDesc) -> np.ndarray:
    """A buffer of a descriptor's size in which every element is NaN."""
    buffer = dnnl.aligned_empty(desc.nbytes)
    buffer[:] = 0xFF
    return buffer.view(dtypes.to_numpy(desc.dtype))


def assert_padding_is_zero(desc: MemoryDesc, buffer: np.ndarray) -> None:
    """Every lane that no logical element occupies holds zero."""
    is_padding = np.ones(buffer.size, bool)
    is_padding[desc.offsets().ravel()] = False
    lanes = buffer[is_padding].astype(np.float32)
    assert not lanes.any(), f"{desc}: padded lanes hold {lanes[lanes != 0][:4]}"


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float, what: str) -> None:
    """The largest error is within ``tolerance`` of the largest output."""
    assert actual.shape == expected.shape, f"{what}: {actual.shape} instead of {expected.shape}"
    assert np.isfinite(actual).all() == np.isfinite(expected).all(), what
    scale = max(float(np.abs(expected).max(initial=0.0)), 1e-30)
    error = float(np.abs(actual - expected).max(initial=0.0)) / scale
    assert error <= tolerance, f"{what}: error {error:.2g} of the largest output"


def check_view(case: OpCase, lowered: Lowered) -> None:
    """A view of the packed source holds the expected values wherever it exists, and exists for a plain one."""
    array = case.feeds["in_0"]
    seen = 0
    for layout in ("plain", "channels_last", "blocked8", "blocked16"):
        src = Wish(layout, layout).src_desc(problem_of(lowered, case.expected.shape).sources["src"])
        assert isinstance(src, MemoryDesc)
        dst = lowered.operator.through(src)
        if dst is None:
            assert layout != "plain"
            continue
        seen += 1
        np.testing.assert_array_equal(dst.unpack(src.pack(array)), case.expected)
    assert seen
